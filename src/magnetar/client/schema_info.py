# SPDX-License-Identifier: Apache-2.0
"""A schema as brokers know it: type, name, definition, properties, and the version that a topic gave it.

Decides.
"""

from dataclasses import dataclass, field
from enum import IntEnum

from magnetar.wire.proto import pulsar_api_pb2 as pb


class SchemaType(IntEnum):
    """Numbers of the protocol, except those below zero, which no broker sees."""

    BYTES = -1
    AUTO_PUBLISH = -4
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


@dataclass(frozen=True, slots=True)
class SchemaInfo:
    """One version of one schema."""

    type: SchemaType
    name: str = ""
    definition: bytes = b""
    properties: dict[str, str] = field(default_factory=dict)

    def to_wire(self) -> pb.Schema | None:
        """What PRODUCER and SUBSCRIBE carry; none for plain bytes."""
        if self.type in (SchemaType.BYTES, SchemaType.NONE, SchemaType.AUTO_PUBLISH):
            return None
        schema = pb.Schema(name=self.name, schema_data=self.definition)
        schema.type = int(self.type)  # type: ignore[assignment]
        for key, value in self.properties.items():
            schema.properties.add(key=key, value=value)
        return schema

    @staticmethod
    def from_wire(schema: pb.Schema) -> "SchemaInfo":
        kind = SchemaType(schema.type) if schema.type in SchemaType._value2member_map_ else SchemaType.EXTERNAL
        if kind is SchemaType.NONE:
            kind = SchemaType.BYTES
        return SchemaInfo(kind, schema.name, schema.schema_data, {pair.key: pair.value for pair in schema.properties})


BYTES_INFO = SchemaInfo(SchemaType.BYTES, "Bytes")
