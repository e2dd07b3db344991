# SPDX-License-Identifier: Apache-2.0
"""From rows to messages: which columns are the payload, in which form, and what the others say about the message.

The column `value` alone is the payload itself: bytes, text or a primitive. Other columns make a record, in JSON or in
Avro. `__key`, `__eventTime`, `__messageProperties` and `__topic` describe the message; the other metadata columns of
the source are left out, so that what was read can be written.
Decides.
"""

import base64
import io
import json
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, Final

import fastavro
import pyarrow as pa
from pyspark.sql import types as spark

from magnetar.client.schema import BYTES, BytesSchema, Schema
from magnetar.client.schema_auto import schema_of
from magnetar.client.schema_info import SchemaInfo, SchemaType
from magnetar.errors import BadSchema, BadSetting
from magnetar.spark.avro_types import avro_of
from magnetar.spark.columns import ERROR, METADATA_NAMES, VALUE
from magnetar.spark.packing import EncodedRow

_PRIMITIVE_OF: Final[dict[type[spark.DataType], SchemaType]] = {
    spark.BinaryType: SchemaType.BYTES,
    spark.StringType: SchemaType.STRING,
    spark.BooleanType: SchemaType.BOOLEAN,
    spark.ByteType: SchemaType.INT8,
    spark.ShortType: SchemaType.INT16,
    spark.IntegerType: SchemaType.INT32,
    spark.LongType: SchemaType.INT64,
    spark.FloatType: SchemaType.FLOAT,
    spark.DoubleType: SchemaType.DOUBLE,
    spark.TimestampType: SchemaType.TIMESTAMP,
    spark.DateType: SchemaType.LOCAL_DATE,
    spark.TimestampNTZType: SchemaType.LOCAL_DATE_TIME,
}
# What columns that describe a message may be; a time of the type bigint is milliseconds since 1970.
_KINDS: Final[dict[str, tuple[str, ...]]] = {
    "__key": ("string", "binary"),
    "__eventTime": ("timestamp", "bigint"),
    "__messageProperties": ("map<string,string>",),
    "__topic": ("string",),
}
_DESCRIBING: Final = frozenset(("__key", "__eventTime", "__messageProperties"))
RECORD_NAME: Final = "row"
_PROPERTIES: Final = {"__alwaysAllowNull": "true", "__jsr310ConversionEnabled": "false"}


class EncodedSchema(BytesSchema):
    """What the broker is told of payloads that are encoded already."""

    def __init__(self, info: SchemaInfo) -> None:
        self.info = info


class RowEncoder:
    """For rows of these columns. Raises BadSetting or BadSchema where they cannot be messages."""

    def __init__(self, columns: spark.StructType, schema_type: str | None, *, needs_topic: bool) -> None:
        described = METADATA_NAMES | {ERROR}
        data = [one for one in columns.fields if one.name not in described]
        by_name = {one.name: one.dataType for one in columns.fields}
        if not data:
            raise BadSetting("there is no column for the payload: name it value, or give columns of a record")
        for name, allowed in _KINDS.items():
            if name in by_name and by_name[name].simpleString() not in (*allowed, "void"):
                raise BadSetting(
                    f"column {name} is {by_name[name].simpleString()}; it should be {' or '.join(allowed)}: cast it"
                )
        if needs_topic and "__topic" not in by_name:
            raise BadSetting("where to write is not said: give the option topic, or a column __topic")
        self._names = [one.name for one in data]
        self._columns = frozenset(by_name)
        self._key_is_text = isinstance(by_name.get("__key"), spark.StringType)
        self.info, self._encode = _encoder(data, schema_type)
        self._is_whole = len(data) == 1 and data[0].name == VALUE and schema_type is None

    def payloads(self, batch: pa.RecordBatch) -> list[bytes] | None:
        """Of rows that are messages of a payload and nothing else; None where a row is more than that, or null."""
        if not self._is_whole or self._columns & _DESCRIBING or batch.column(VALUE).null_count:
            return None
        found: list[Any] = batch.column(VALUE).to_pylist()
        return found if self.info is BYTES.info else [self._encode(value) for value in found]

    def rows(self, batch: pa.RecordBatch) -> Iterator[EncodedRow]:
        found = {name: batch.column(name).to_pylist() for name in self._names}
        values = [found[name] for name in self._names]
        nothing = [None] * batch.num_rows
        keys, times, properties, topics = (
            batch.column(name).to_pylist() if name in self._columns else nothing
            for name in ("__key", "__eventTime", "__messageProperties", "__topic")
        )
        for index in range(batch.num_rows):
            if self._is_whole:
                value = values[0][index]
                payload = None if value is None else self._encode(value)
            else:
                payload = self._encode({name: found[name][index] for name in self._names})
            yield EncodedRow(
                payload,
                keys[index],
                _milliseconds(times[index]),
                {name: text for name, text in properties[index] or () if text is not None},
                topics[index],
            )


def _encoder(data: list[spark.StructField], schema_type: str | None) -> tuple[SchemaInfo, Callable[[Any], bytes]]:
    if schema_type is None and len(data) == 1 and data[0].name == VALUE:
        kind = _PRIMITIVE_OF.get(type(data[0].dataType))
        if kind is None:
            raise BadSchema(f"a column value of type {data[0].dataType.simpleString()} is no payload")
        if kind is SchemaType.BYTES:
            return BYTES.info, bytes
        schema: Schema[Any] = schema_of(SchemaInfo(kind))
        return schema.info, schema.encode
    record = spark.StructType(data)
    form = (schema_type or "json").lower()
    if form not in ("json", "avro"):
        raise BadSetting(f"option schemaType is {schema_type!r}; records are written as json or avro")
    definition = avro_of(record, RECORD_NAME, in_json=form == "json")
    text = json.dumps(definition, separators=(",", ":")).encode()
    if form == "json":
        return SchemaInfo(SchemaType.JSON, RECORD_NAME, text, dict(_PROPERTIES)), _json_encoder(record)
    return SchemaInfo(SchemaType.AVRO, RECORD_NAME, text, dict(_PROPERTIES)), _avro_encoder(record, definition)


def _avro_encoder(record: spark.StructType, definition: Any) -> Callable[[Any], bytes]:
    parsed = fastavro.parse_schema(definition)
    maps = _has_maps(record)

    def encode(value: dict[str, Any]) -> bytes:
        buffer = io.BytesIO()
        fastavro.schemaless_writer(buffer, parsed, _plain(value, record) if maps else value)
        return buffer.getvalue()

    return encode


def _json_encoder(record: spark.StructType) -> Callable[[Any], bytes]:
    maps = _has_maps(record)

    def encode(value: dict[str, Any]) -> bytes:
        plain = _plain(value, record) if maps else value
        written = {name: one for name, one in plain.items() if one is not None}
        return json.dumps(written, separators=(",", ":"), default=_json_form, ensure_ascii=False).encode()

    return encode


def _has_maps(kind: spark.DataType) -> bool:
    return "map<" in kind.simpleString()


def _plain(value: Any, kind: spark.DataType) -> Any:
    """Arrow gives a map as a list of pairs."""
    if value is None:
        return None
    if isinstance(kind, spark.StructType):
        return {one.name: _plain(value[one.name], one.dataType) for one in kind.fields}
    if isinstance(kind, spark.ArrayType):
        return [_plain(one, kind.elementType) for one in value]
    if isinstance(kind, spark.MapType):
        return {key: _plain(one, kind.valueType) for key, one in value}
    return value


def _json_form(value: object) -> object:
    """What JSON has no form of its own for, as the source reads it back."""
    if isinstance(value, datetime):
        return _milliseconds(value)
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, Decimal):
        return str(value)
    raise BadSchema(f"{type(value).__name__} has no JSON form")


def _milliseconds(moment: datetime | int | None) -> int:
    if moment is None or isinstance(moment, int):
        return moment or 0
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return round(aware.timestamp() * 1000)
