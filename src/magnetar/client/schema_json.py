# SPDX-License-Identifier: Apache-2.0
"""Records as JSON text; the broker is told their Avro definition, as the Java client does.

Fields that are None are left out. Unknown fields are ignored when reading, missing ones take their default.
Decides.
"""

import base64
import json
from datetime import UTC, date, datetime, time
from typing import Any, TypeVar

from magnetar.client.record_types import definition_of, definition_text, reader_of, to_plain
from magnetar.client.schema import Schema
from magnetar.client.schema_info import SchemaInfo, SchemaType
from magnetar.errors import BadSchema

T = TypeVar("T")

_PROPERTIES = {"__alwaysAllowNull": "true", "__jsr310ConversionEnabled": "false"}


class JsonSchema(Schema[T]):
    """`JsonSchema(Order)` for a record type; `JsonSchema(definition=…)` for dicts."""

    def __init__(
        self,
        record: "type[T] | None" = None,
        *,
        definition: "dict[str, Any] | None" = None,
        properties: dict[str, str] | None = None,
    ) -> None:
        if (record is None) == (definition is None):
            raise BadSchema("a JSON schema needs a record type or a definition")
        written = definition_of(record) if record is not None else definition or {}
        self._read = reader_of(record) if record is not None else None
        kept = properties if properties is not None else dict(_PROPERTIES)
        self.info = SchemaInfo(SchemaType.JSON, written.get("name", ""), definition_text(written), kept)

    def encode(self, value: T) -> bytes:
        try:
            return json.dumps(_without_none(to_plain(value)), separators=(",", ":"), default=_text).encode()
        except (TypeError, ValueError) as error:
            raise BadSchema(f"a value does not fit {self.info.name}: {error}") from error

    def decode(self, data: bytes) -> T:
        try:
            plain = json.loads(data)
            value: T = self._read(plain) if self._read is not None else plain
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise BadSchema(f"a payload of {len(data)} bytes is no {self.info.name}: {error}") from error
        return value


def _without_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_none(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_without_none(item) for item in value]
    return value


def _text(value: object) -> object:
    """What JSON has no form of its own for."""
    if isinstance(value, datetime):
        aware = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
        return int(aware.timestamp() * 1000)
    if isinstance(value, (date, time)):
        return value.isoformat()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    raise TypeError(f"{type(value).__name__} has no JSON form")
