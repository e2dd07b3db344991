# SPDX-License-Identifier: Apache-2.0
"""One schema, and its bytes as Apache Pulsar stores them.

Owns the types with their numbers on the wire and in storage, the form of a version (eight bytes, big-endian, the first
is zero), the stored record and the pair of a key's and a value's schema in one definition. Never reads a definition.
Decides.
"""

import hashlib
import json
from collections.abc import Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import Final, NamedTuple

from google.protobuf.message import DecodeError

from magnetar.errors import BadCommand, Damaged, IncompatibleSchema
from magnetar.wire.proto import pulsar_api_pb2 as pb
from magnetar.wire.proto.schema_registry_pb2 import SchemaInfo
from magnetar.wire.proto.schema_storage_pb2 import SchemaEntry

VERSION_BYTES: Final = 8


class SchemaType(IntEnum):
    """With the numbers of the protocol. In storage they are one higher, but for External."""

    NONE = 0
    STRING = 1
    JSON = 2
    PROTOBUF = 3
    AVRO = 4
    BOOLEAN = 5
    INT8 = 6
    INT16 = 7
    INT32 = 8
    INT64 = 9
    FLOAT = 10
    DOUBLE = 11
    DATE = 12
    TIME = 13
    TIMESTAMP = 14
    KEY_VALUE = 15
    INSTANT = 16
    LOCAL_DATE = 17
    LOCAL_TIME = 18
    LOCAL_DATE_TIME = 19
    PROTOBUF_NATIVE = 20
    AUTO_CONSUME = 21
    EXTERNAL = 22

    @property
    def is_avro_like(self) -> bool:
        """Whether the definition is an Avro schema."""
        return self in (SchemaType.AVRO, SchemaType.JSON, SchemaType.PROTOBUF)

    @property
    def is_primitive(self) -> bool:
        """Whether the type says everything and there is no definition."""
        return not self.is_avro_like and self not in _WITH_DEFINITION


_WITH_DEFINITION: Final = (SchemaType.KEY_VALUE, SchemaType.PROTOBUF_NATIVE, SchemaType.EXTERNAL)


class Schema(NamedTuple):
    type: SchemaType
    definition: bytes = b""
    properties: Mapping[str, str] = MappingProxyType({})

    @property
    def hash(self) -> bytes:
        return hashlib.sha256(self.definition).digest()


class StoredSchema(NamedTuple):
    """A version of a topic's schema. A deletion is a version, too: `is_deleted`, without a definition."""

    version: int
    schema: Schema
    stored_ms: int
    user: str
    is_deleted: bool


def schema_from_wire(wire: pb.Schema) -> Schema:
    """BadCommand for a type that the protocol does not have."""
    try:
        kind = SchemaType(wire.type)
    except ValueError:
        raise BadCommand(f"There is no schema type {wire.type}") from None
    definition = wire.schema_data
    # What clients in Python say where others say nothing: the schemas are the same.
    if definition == b"null" and kind.is_primitive:
        definition = b""
    return Schema(kind, definition, {pair.key: pair.value for pair in wire.properties})


def schema_to_wire(schema: Schema, name: str) -> pb.Schema:
    wire = pb.Schema(name=name, schema_data=schema.definition)
    wire.type = int(schema.type)  # type: ignore[assignment]
    for key, value in schema.properties.items():
        wire.properties.add(key=key, value=value)
    return wire


def version_bytes(version: int) -> bytes:
    return version.to_bytes(VERSION_BYTES, "big", signed=True)


def version_number(data: bytes) -> int:
    if len(data) != VERSION_BYTES:
        raise IncompatibleSchema(f"A schema version has {VERSION_BYTES} bytes, not {len(data)}")
    return int.from_bytes(data, "big", signed=True)


# --- stored form ------------------------------------------------------------------------------------


def encode_stored(name: str, stored: StoredSchema) -> bytes:
    schema = stored.schema
    kind = schema.type if schema.type is SchemaType.EXTERNAL else schema.type + 1
    info = SchemaInfo(
        schema_id=name,
        user=stored.user,
        schema=schema.definition,
        timestamp=stored.stored_ms,
        deleted=stored.is_deleted,
    )
    info.type = int(kind)  # type: ignore[assignment]
    for key, value in schema.properties.items():
        info.props.add(key=key, value=value)
    return info.SerializeToString()


def decode_stored(version: int, entry: bytes) -> StoredSchema:
    """The entry of a schema's ledger. Damaged when it is none."""
    try:
        info = SchemaInfo.FromString(SchemaEntry.FromString(entry).schema_data)
    except DecodeError as error:
        raise Damaged(f"the entry is no schema: {error}") from error
    kind = SchemaType.EXTERNAL if int(info.type) == int(SchemaType.EXTERNAL) else SchemaType(info.type - 1)
    schema = Schema(kind, info.schema, {pair.key: pair.value for pair in info.props})
    return StoredSchema(version, schema, info.timestamp, info.user, info.deleted)


# --- pairs of key and value -------------------------------------------------------------------------


def key_and_value(schema: Schema) -> tuple[Schema, Schema]:
    """The two schemas of a KeyValue schema. IncompatibleSchema when its definition is not of that form."""
    data = schema.definition
    try:
        key, rest = _sized(data)
        value, rest = _sized(rest)
        if rest:
            raise ValueError("bytes are left over")
        return _part(schema, "key", key), _part(schema, "value", value)
    except (ValueError, KeyError, AttributeError, RecursionError) as error:
        raise IncompatibleSchema(f"Invalid schema definition data for KEY_VALUE schema: {error}") from error


def _sized(data: bytes) -> tuple[bytes, bytes]:
    size = int.from_bytes(data[:4], "big", signed=True)
    if len(data) < 4 or size > len(data) - 4:
        raise ValueError("it is cut off")
    # -1 says that there is no schema.
    end = 4 + max(0, size)
    return data[4:end], data[end:]


def _part(schema: Schema, which: str, definition: bytes) -> Schema:
    name = schema.properties.get(f"{which}.schema.type", "BYTES")
    properties = json.loads(schema.properties.get(f"{which}.schema.properties", "") or "{}")
    kind = SchemaType.NONE if name == "BYTES" else SchemaType[name]
    return Schema(kind, definition, {str(key): str(value) for key, value in properties.items()})
