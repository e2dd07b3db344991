# SPDX-License-Identifier: Apache-2.0
"""Schemas that follow the topic's own: read whatever it holds, or refuse to send what does not fit it.

Carries.
"""

import json
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Final

from magnetar.client import schema as primitives
from magnetar.client.schema import BYTES, FetchSchema, Schema
from magnetar.client.schema_avro import VERSIONS_MAX, AvroSchema
from magnetar.client.schema_info import BYTES_INFO, SchemaInfo, SchemaType
from magnetar.client.schema_json import JsonSchema
from magnetar.client.schema_key_value import KeyValueEncoding, KeyValueSchema, split
from magnetar.errors import BadSchema

if TYPE_CHECKING:
    from magnetar.client.message import Message

_PRIMITIVES: Final[dict[SchemaType, Schema[Any]]] = {
    found.info.type: found
    for found in (
        primitives.BYTES,
        primitives.STRING,
        primitives.BOOLEAN,
        primitives.INT8,
        primitives.INT16,
        primitives.INT32,
        primitives.INT64,
        primitives.FLOAT,
        primitives.DOUBLE,
        primitives.TIMESTAMP,
        primitives.DATE,
        primitives.TIME,
        primitives.INSTANT,
        primitives.LOCAL_DATE,
        primitives.LOCAL_TIME,
        primitives.LOCAL_DATE_TIME,
    )
}


def schema_of(info: SchemaInfo) -> Schema[Any]:
    """What a broker describes; records become dicts, and kinds we do not know stay bytes. Raises BadSchema."""
    if info.type in _PRIMITIVES:
        return _PRIMITIVES[info.type]
    try:
        if info.type is SchemaType.AVRO:
            return AvroSchema(definition=info.definition.decode())
        if info.type is SchemaType.JSON:
            return JsonSchema(definition=json.loads(info.definition or b"{}"))
        if info.type is SchemaType.KEY_VALUE:
            return _key_value(info)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise BadSchema(f"the topic's {info.type.name} schema cannot be read: {error}") from error
    return BYTES


def _key_value(info: SchemaInfo) -> Schema[Any]:
    properties = info.properties
    definitions = split(info.definition) if info.definition else (b"", b"")
    sides = []
    for side, definition in zip(("key", "value"), definitions, strict=True):
        kind = SchemaType[properties.get(f"{side}.schema.type", "BYTES")]
        sides.append(schema_of(SchemaInfo(kind, properties.get(f"{side}.schema.name", ""), definition)))
    return KeyValueSchema(sides[0], sides[1], KeyValueEncoding(properties.get("kv.encoding.type", "INLINE")))


class AutoConsumeSchema(Schema[Any]):
    """Decodes each message with the schema that it was written with."""

    info = SchemaInfo(SchemaType.BYTES, "AutoConsume")
    needs_preparing = True

    def __init__(self) -> None:
        self._versions: OrderedDict[bytes, Schema[Any]] = OrderedDict()
        self._fetch: FetchSchema | None = None

    async def bind(self, fetch: FetchSchema) -> None:
        self._fetch = fetch

    async def prepare(self, message: "Message[Any]") -> None:
        version = message.schema_version_bytes()
        if version in self._versions or self._fetch is None:
            return
        found = await self._fetch(version or None)
        self._versions[version] = schema_of(found[0]) if found is not None else BYTES
        if len(self._versions) > VERSIONS_MAX:
            self._versions.popitem(last=False)

    def encode(self, value: Any) -> bytes:
        return BYTES.encode(value)

    def decode(self, data: bytes) -> Any:
        return data

    def decode_message(self, message: "Message[Any]") -> Any:
        found = self._versions.get(message.schema_version_bytes(), BYTES)
        return found.decode_message(message)


class AutoProduceSchema(Schema[bytes]):
    """Sends bytes that are encoded already, and refuses those that the topic's schema cannot read."""

    def __init__(self) -> None:
        self.info = BYTES_INFO
        self._topic_schema: Schema[Any] = BYTES

    async def bind(self, fetch: FetchSchema) -> None:
        found = await fetch(None)
        if found is not None:
            self.info = found[0]
            self._topic_schema = schema_of(found[0])

    def encode(self, value: bytes) -> bytes:
        self._topic_schema.decode(value)
        return BYTES.encode(value)

    def decode(self, data: bytes) -> bytes:
        return data
