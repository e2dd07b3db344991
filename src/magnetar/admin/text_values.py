# SPDX-License-Identifier: Apache-2.0
"""Values as texts, and the bytes that a schema makes of them: how HTTP, which has texts only, publishes to topics with
a schema.

A text that is no value of its schema is refused; Pulsar stores an empty payload in its place.
Decides.
"""

import io
import json
import struct
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, time
from typing import Any, Final

import fastavro

from magnetar.broker.schemas.schema import Schema, SchemaType, key_and_value
from magnetar.client import schema as primitives
from magnetar.client.schema_avro import parsed
from magnetar.errors import BadSchema

_MILLISECONDS: Final = struct.Struct(">q")


def encoder_of(schema: Schema) -> Callable[[str], bytes]:
    """What turns a text into a payload of this schema. BadSchema where texts cannot say such values."""
    kind = schema.type
    if kind is SchemaType.AVRO:
        return _avro(schema.definition)
    if kind is SchemaType.JSON:
        return _checked(_json, kind)
    if kind not in _ENCODERS:
        raise BadSchema(f"A value of type {kind.name} cannot be given as a text")
    return _checked(_ENCODERS[kind], kind)


def key_and_value_encoders(schema: Schema) -> tuple[Callable[[str], bytes], Callable[[str], bytes]]:
    key, value = key_and_value(schema)
    return encoder_of(key), encoder_of(value)


def _checked(encode: Callable[[str], bytes], kind: SchemaType) -> Callable[[str], bytes]:
    def encoded(text: str) -> bytes:
        try:
            return encode(text)
        except (ValueError, OverflowError, RecursionError, struct.error) as error:
            raise BadSchema(f"{text[:100]!r} is no {kind.name}: {error}") from error

    return encoded


def _avro(definition: bytes) -> Callable[[str], bytes]:
    schema = parsed(definition)

    def encoded(text: str) -> bytes:
        written = io.BytesIO()
        try:
            # In Avro's own JSON, which says of a union which of its types a value has.
            records = list(fastavro.json_reader(io.StringIO(text), schema))
            if len(records) != 1:
                raise ValueError("one record is wanted")
            fastavro.schemaless_writer(written, schema, records[0])
        except Exception as error:
            raise BadSchema(f"{text[:100]!r} is no record of its Avro schema: {error!r}") from error
        return written.getvalue()

    return encoded


def _json(text: str) -> bytes:
    return json.dumps(json.loads(text), separators=(",", ":"), ensure_ascii=False).encode()


def _of(schema: primitives.Schema[Any], read: Callable[[str], Any]) -> Callable[[str], bytes]:
    return lambda text: schema.encode(read(text))


def _day(text: str) -> bytes:
    """A day, or milliseconds since 1970."""
    if text.removeprefix("-").isdecimal():
        return _MILLISECONDS.pack(int(text))
    return primitives.DATE.encode(datetime.combine(date.fromisoformat(text), time(), UTC))


_ENCODERS: Final[Mapping[SchemaType, Callable[[str], bytes]]] = {
    SchemaType.NONE: str.encode,
    SchemaType.STRING: str.encode,
    SchemaType.BOOLEAN: _of(primitives.BOOLEAN, lambda text: text.lower() == "true"),
    SchemaType.INT8: _of(primitives.INT8, int),
    SchemaType.INT16: _of(primitives.INT16, int),
    SchemaType.INT32: _of(primitives.INT32, int),
    SchemaType.INT64: _of(primitives.INT64, int),
    SchemaType.FLOAT: _of(primitives.FLOAT, float),
    SchemaType.DOUBLE: _of(primitives.DOUBLE, float),
    SchemaType.DATE: _day,
    SchemaType.TIME: lambda text: _MILLISECONDS.pack(int(text)),
    SchemaType.TIMESTAMP: lambda text: _MILLISECONDS.pack(int(text)),
    SchemaType.INSTANT: _of(primitives.INSTANT, datetime.fromisoformat),
    SchemaType.LOCAL_DATE: _of(primitives.LOCAL_DATE, date.fromisoformat),
    SchemaType.LOCAL_TIME: _of(primitives.LOCAL_TIME, time.fromisoformat),
    SchemaType.LOCAL_DATE_TIME: _of(primitives.LOCAL_DATE_TIME, datetime.fromisoformat),
}
