# SPDX-License-Identifier: Apache-2.0
"""A key and a value in one message, each with a schema of its own.

Inline, both are in the payload; separated, the key is the message's key, so that it routes and compacts.
Decides.
"""

import json
import struct
from enum import Enum
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from magnetar.client.schema import Schema
from magnetar.client.schema_info import SchemaInfo, SchemaType
from magnetar.errors import BadSchema

if TYPE_CHECKING:
    from magnetar.client.message import Message

K = TypeVar("K")
V = TypeVar("V")

_SIZE = struct.Struct(">i")


class KeyValue(NamedTuple, Generic[K, V]):
    key: K
    value: V


class KeyValueEncoding(Enum):
    INLINE = "INLINE"
    SEPARATED = "SEPARATED"


class KeyValueSchema(Schema[KeyValue[K, V]]):
    def __init__(self, key: Schema[K], value: Schema[V], encoding: KeyValueEncoding = KeyValueEncoding.INLINE) -> None:
        self._key = key
        self._value = value
        self._encoding = encoding
        properties: dict[str, str] = {}
        for side, info in (("key", key.info), ("value", value.info)):
            properties[f"{side}.schema.name"] = info.name
            properties[f"{side}.schema.properties"] = json.dumps(info.properties, separators=(",", ":"))
            properties[f"{side}.schema.type"] = info.type.name
        properties["kv.encoding.type"] = encoding.value
        definition = _join(key.info.definition, value.info.definition)
        self.info = SchemaInfo(SchemaType.KEY_VALUE, "KeyValue", definition, properties)

    def encode(self, value: KeyValue[K, V]) -> bytes:
        if self._encoding is KeyValueEncoding.SEPARATED:
            return self._value.encode(value[1])
        return _join(self._key.encode(value[0]), self._value.encode(value[1]))

    def key_of(self, value: KeyValue[K, V]) -> str | bytes | None:
        return self._key.encode(value[0]) if self._encoding is KeyValueEncoding.SEPARATED else None

    def decode(self, data: bytes) -> KeyValue[K, V]:
        if self._encoding is KeyValueEncoding.SEPARATED:
            raise BadSchema("a separated key is in the message, not in its payload")
        key, value = split(data)
        return KeyValue(self._key.decode(key), self._value.decode(value))

    def decode_message(self, message: "Message[Any]") -> KeyValue[K, V]:
        if self._encoding is KeyValueEncoding.INLINE:
            return self.decode(message.data())
        return KeyValue(self._key.decode(message.key_bytes() or b""), self._value.decode(message.data()))


def _join(key: bytes, value: bytes) -> bytes:
    return _SIZE.pack(len(key)) + key + _SIZE.pack(len(value)) + value


def split(data: bytes) -> tuple[bytes, bytes]:
    """Key and value of an inline pair; a size of -1 is a missing one. Raises BadSchema."""
    parts: list[bytes] = []
    position = 0
    for _ in range(2):
        if position + 4 > len(data):
            raise BadSchema(f"a key-value pair of {len(data)} bytes ends too early")
        (size,) = _SIZE.unpack_from(data, position)
        position += 4
        end = position + max(size, 0)
        if end > len(data):
            raise BadSchema(f"a key-value pair claims {size} bytes where {len(data) - position} are there")
        parts.append(data[position:end])
        position = end
    return parts[0], parts[1]
