# SPDX-License-Identifier: Apache-2.0
"""Records as Avro: written with the schema of the record type, read with the one that each message was written with.

Versions that are not known yet are fetched from the broker, once each.
Carries.
"""

import io
import json
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Final, TypeVar

import fastavro

from magnetar.client.avro_data import read_avro
from magnetar.client.record_types import definition_of, definition_text, is_record, reader_of, to_plain
from magnetar.client.schema import FetchSchema, Schema
from magnetar.client.schema_info import SchemaInfo, SchemaType
from magnetar.errors import BadSchema

if TYPE_CHECKING:
    from magnetar.client.message import Message

T = TypeVar("T")

VERSIONS_MAX: Final = 1_000
PROPERTIES: Final = {"__alwaysAllowNull": "true", "__jsr310ConversionEnabled": "false"}
"""What the Java client sets by default."""


def parsed(definition: "dict[str, Any] | str | bytes") -> Any:
    """A definition as the Avro library wants it. Raises BadSchema."""
    try:
        return fastavro.parse_schema(json.loads(definition) if isinstance(definition, (str, bytes)) else definition)
    except (ValueError, KeyError, TypeError, RecursionError, fastavro.schema.SchemaParseException) as error:
        raise BadSchema(f"this is no Avro definition: {error}") from error


def decode_avro(data: bytes, writer: Any, reader: Any = None) -> Any:
    try:
        return read_avro(data, writer, reader)
    except Exception as error:
        raise BadSchema(f"a payload of {len(data)} bytes is no record of its Avro schema: {error}") from error


class AvroSchema(Schema[T]):
    """`AvroSchema(Order)` for a record type; `AvroSchema(definition=…)` for dicts."""

    needs_preparing = True

    def __init__(
        self,
        record: "type[T] | None" = None,
        *,
        definition: "dict[str, Any] | str | None" = None,
        properties: dict[str, str] | None = None,
    ) -> None:
        if (record is None) == (definition is None):
            raise BadSchema("an Avro schema needs a record type or a definition")
        if record is not None and not is_record(record):
            raise BadSchema(f"{record!r} is no dataclass, TypedDict or pydantic model")
        written = definition_of(record) if record is not None else definition
        text = written if isinstance(written, str) else definition_text(written or {})
        self._avro = parsed(text)
        self._read = reader_of(record) if record is not None else None
        name = json.loads(text).get("name", "")
        data = text.encode() if isinstance(text, str) else text
        self.info = SchemaInfo(SchemaType.AVRO, name, data, properties if properties is not None else dict(PROPERTIES))
        self._versions: OrderedDict[bytes, Any] = OrderedDict()
        self._fetch: FetchSchema | None = None

    def encode(self, value: T) -> bytes:
        buffer = io.BytesIO()
        try:
            fastavro.schemaless_writer(buffer, self._avro, to_plain(value), strict_allow_default=True)
        except Exception as error:
            raise BadSchema(f"a value does not fit {self.info.name}: {error}") from error
        return buffer.getvalue()

    def decode(self, data: bytes) -> T:
        return self._value(decode_avro(data, self._avro))

    def decode_message(self, message: "Message[Any]") -> T:
        writer = self._versions.get(message.schema_version_bytes())
        if writer is None:
            return self.decode(message.data())
        return self._value(decode_avro(message.data(), writer, self._avro))

    def _value(self, plain: Any) -> T:
        value: T = self._read(plain) if self._read is not None else plain
        return value

    async def bind(self, fetch: FetchSchema) -> None:
        self._fetch = fetch

    async def prepare(self, message: "Message[Any]") -> None:
        version = message.schema_version_bytes()
        if not version or version in self._versions or self._fetch is None:
            return
        found = await self._fetch(version)
        if found is not None and found[0].type is SchemaType.AVRO:
            self._versions[version] = parsed(found[0].definition)
            if len(self._versions) > VERSIONS_MAX:
                self._versions.popitem(last=False)
