# SPDX-License-Identifier: Apache-2.0
"""Avro definitions and Spark types, both ways, and the conversions of values that the two see differently.

A union with null is a nullable type, an enumeration is text, a fixed is bytes; times of day are microseconds since
midnight. A union of several types is, as in Spark's own Avro reader, a number of the wider kind, or a struct with a
field for each type, of which one is set. A type that contains itself cannot be a column and is refused.
Decides.
"""

import base64
import json
import re
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final, TypeAlias
from uuid import UUID

from pyspark.sql import types as spark

from magnetar.errors import BadSchema

Convert: TypeAlias = Callable[[Any], Any]

_SIMPLE: Final[dict[str, spark.DataType]] = {
    "null": spark.NullType(),
    "boolean": spark.BooleanType(),
    "int": spark.IntegerType(),
    "long": spark.LongType(),
    "float": spark.FloatType(),
    "double": spark.DoubleType(),
    "bytes": spark.BinaryType(),
    "string": spark.StringType(),
    "enum": spark.StringType(),
    "fixed": spark.BinaryType(),
}
_LOGICAL: Final[dict[str, spark.DataType]] = {
    "date": spark.DateType(),
    "time-millis": spark.LongType(),
    "time-micros": spark.LongType(),
    "timestamp-millis": spark.TimestampType(),
    "timestamp-micros": spark.TimestampType(),
    "local-timestamp-millis": spark.TimestampNTZType(),
    "local-timestamp-micros": spark.TimestampNTZType(),
    "uuid": spark.StringType(),
}
_AVRO_NAME: Final = re.compile("[A-Za-z_][A-Za-z0-9_]*")
_WIDER: Final = ({"int", "long"}, {"float", "double"})
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_DAY: Final = date(1970, 1, 1)


def spark_type_of(definition: bytes | str) -> spark.DataType:
    """Raises BadSchema."""
    try:
        return _type_of(json.loads(definition), {}, ())
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise BadSchema(f"this Avro definition cannot be columns: {error}") from error


def _type_of(avro: Any, named: dict[str, Any], inside: tuple[str, ...]) -> spark.DataType:
    if isinstance(avro, list):
        return _union(avro, named, inside)
    if isinstance(avro, str):
        if avro in _SIMPLE:
            return _SIMPLE[avro]
        if avro not in named:
            raise BadSchema(f"an Avro definition names the type {avro!r}, which it does not have")
        return _type_of(named[avro], named, inside)
    kind = avro["type"]
    if isinstance(kind, (dict, list)):
        return _type_of(kind, named, inside)
    if avro.get("logicalType") == "decimal":
        return spark.DecimalType(min(38, int(avro["precision"])), int(avro.get("scale", 0)))
    if avro.get("logicalType") in _LOGICAL:
        return _LOGICAL[avro["logicalType"]]
    if kind == "array":
        return spark.ArrayType(_type_of(avro["items"], named, inside), True)
    if kind == "map":
        return spark.MapType(spark.StringType(), _type_of(avro["values"], named, inside), True)
    if "name" in avro:
        named[avro["name"]] = avro
        named[f"{avro.get('namespace', '')}.{avro['name']}"] = avro
    if kind == "record":
        if avro["name"] in inside:
            raise BadSchema(
                f"the record {avro['name']} contains itself, which no column can; schemaType=bytes gives payloads"
            )
        within = (*inside, avro["name"])
        return spark.StructType(
            [spark.StructField(one["name"], _type_of(one["type"], named, within), True) for one in avro["fields"]]
        )
    return _type_of(kind, named, inside)


def _union(options: list[Any], named: dict[str, Any], inside: tuple[str, ...]) -> spark.DataType:
    real = [one for one in options if one != "null"]
    if not real:
        return spark.NullType()
    if len(real) == 1:
        return _type_of(real[0], named, inside)
    if all(isinstance(one, str) for one in real) and set(real) in _WIDER:
        return spark.LongType() if "long" in real else spark.DoubleType()
    kinds = [_type_of(one, named, inside) for one in real]
    names = [str(one.get("name", "")) if isinstance(one, dict) else str(one) for one in real]
    return UnionType([spark.StructField(f"member{number}", kind, True) for number, kind in enumerate(kinds)], names)


class UnionType(spark.StructType):
    """One column of several types: a field for each, of which one is set."""

    def __init__(self, fields: list[spark.StructField], type_names: list[str]) -> None:
        super().__init__(fields)
        self.type_names = type_names


# --- from Spark --------------------------------------------------------------------------------------

_WRITTEN: Final[dict[type[spark.DataType], Any]] = {
    spark.BooleanType: "boolean",
    spark.ByteType: "int",
    spark.ShortType: "int",
    spark.IntegerType: "int",
    spark.LongType: "long",
    spark.FloatType: "float",
    spark.DoubleType: "double",
    spark.StringType: "string",
    spark.BinaryType: "bytes",
    spark.DateType: {"type": "int", "logicalType": "date"},
    spark.TimestampType: {"type": "long", "logicalType": "timestamp-micros"},
    spark.TimestampNTZType: {"type": "long", "logicalType": "local-timestamp-micros"},
}
_WRITTEN_IN_JSON: Final = _WRITTEN | {
    spark.TimestampType: {"type": "long", "logicalType": "timestamp-millis"},
    spark.TimestampNTZType: {"type": "long", "logicalType": "local-timestamp-millis"},
}


def avro_of(kind: spark.DataType, name: str, *, in_json: bool = False) -> Any:
    """The Avro type of a Spark type; every field may be null. Moments in JSON are milliseconds. Raises BadSchema."""

    def inner(one: spark.DataType, suffix: str) -> list[Any]:
        return ["null", avro_of(one, f"{name}_{suffix}", in_json=in_json)]

    if isinstance(kind, spark.StructType):
        for one in kind.fields:
            if not _AVRO_NAME.fullmatch(one.name):
                raise BadSchema(f"column {one.name!r} is no name of a field in Avro and JSON schemas: rename it")
        fields = [{"name": one.name, "type": inner(one.dataType, one.name), "default": None} for one in kind.fields]
        return {"type": "record", "name": name, "fields": fields}
    if isinstance(kind, spark.ArrayType):
        return {"type": "array", "items": inner(kind.elementType, "item")}
    if isinstance(kind, spark.MapType) and isinstance(kind.keyType, spark.StringType):
        return {"type": "map", "values": inner(kind.valueType, "value")}
    if isinstance(kind, spark.DecimalType):
        return {"type": "bytes", "logicalType": "decimal", "precision": kind.precision, "scale": kind.scale}
    written = (_WRITTEN_IN_JSON if in_json else _WRITTEN).get(type(kind))
    if written is None:
        raise BadSchema(f"a column of type {kind.simpleString()} has no Avro type")
    return written


# --- values --------------------------------------------------------------------------------------------


def micros_of(value: time) -> int:
    return ((value.hour * 60 + value.minute) * 60 + value.second) * 1_000_000 + value.microsecond


def avro_converter(kind: spark.DataType) -> Convert | None:
    """What turns a value that the Avro library read into one that Arrow takes; None if nothing is to be done."""
    return _converter(kind, _from_avro)


def json_converter(kind: spark.DataType) -> Convert | None:
    """The same for a value read from JSON, in the forms that the Java client writes."""
    return _converter(kind, _from_json)


def _converter(kind: spark.DataType, leaf: Callable[[spark.DataType], Convert | None]) -> Convert | None:
    if isinstance(kind, spark.ArrayType):
        item = _converter(kind.elementType, leaf)
        return None if item is None else lambda found: [None if one is None else item(one) for one in found]
    if isinstance(kind, spark.MapType):
        each = _converter(kind.valueType, leaf)
        if each is None:
            return lambda found: list(found.items())
        return lambda found: [(key, None if one is None else each(one)) for key, one in found.items()]
    if isinstance(kind, UnionType):
        return _chooser(kind, leaf)
    if isinstance(kind, spark.StructType):
        fields = [(one.name, _converter(one.dataType, leaf)) for one in kind.fields]
        changed = [(name, convert) for name, convert in fields if convert is not None]
        return (lambda found: _changed(found, changed)) if changed else None
    return leaf(kind)


def _changed(found: dict[str, Any], changed: list[tuple[str, Convert]]) -> dict[str, Any]:
    for name, convert in changed:
        value = found.get(name)
        if value is not None:
            try:
                found[name] = convert(value)
            except (ValueError, TypeError, ArithmeticError) as error:
                raise BadSchema(
                    f"field {name} is {repr(value)[:60]}, which does not fit the schema: {error}"
                ) from error
    return found


def _chooser(kind: UnionType, leaf: Callable[[spark.DataType], Convert | None]) -> Convert:
    members = [
        (one.name, one.dataType, called, _converter(one.dataType, leaf))
        for one, called in zip(kind.fields, kind.type_names, strict=True)
    ]

    def chosen(found: Any) -> dict[str, Any]:
        named = None
        if isinstance(found, tuple):
            named, found = str(found[0]).rpartition(".")[2], found[1]
        for field, member, called, convert in members:
            if named == called or (named is None and _fits(member, found)):
                return {field: found if convert is None else convert(found)}
        raise BadSchema(f"{repr(found)[:60]} is of no type of the union")

    return chosen


_PYTHON: Final[dict[type[spark.DataType], tuple[type, ...]]] = {
    spark.BooleanType: (bool,),
    spark.IntegerType: (int,),
    spark.LongType: (int, time),
    spark.FloatType: (float,),
    spark.DoubleType: (float,),
    spark.StringType: (str, UUID),
    spark.BinaryType: (bytes, str),
    spark.DateType: (date, int),
    spark.TimestampType: (datetime, int),
    spark.TimestampNTZType: (datetime, int),
    spark.DecimalType: (Decimal, float, int),
    spark.ArrayType: (list,),
    spark.MapType: (dict,),
    spark.StructType: (dict,),
}


def _fits(kind: spark.DataType, found: Any) -> bool:
    """Whether a value read from Avro or JSON can be one of this type."""
    if isinstance(found, bool) or isinstance(kind, spark.BooleanType):
        return isinstance(found, bool) and isinstance(kind, spark.BooleanType)
    if isinstance(kind, spark.StructType) and not isinstance(kind, UnionType):
        return isinstance(found, dict) and set(found) <= set(kind.names)
    return isinstance(found, _PYTHON.get(type(kind), ()))


def _from_avro(kind: spark.DataType) -> Convert | None:
    if isinstance(kind, spark.LongType):
        return lambda found: micros_of(found) if isinstance(found, time) else found
    if isinstance(kind, spark.StringType):
        return lambda found: found if isinstance(found, str) else str(found)
    return None


def _from_json(kind: spark.DataType) -> Convert | None:
    if isinstance(kind, spark.BinaryType):
        return _binary
    if isinstance(kind, spark.TimestampType):
        return _moment
    if isinstance(kind, spark.DateType):
        return lambda found: _EPOCH_DAY + timedelta(days=found) if isinstance(found, int) else date.fromisoformat(found)
    if isinstance(kind, spark.TimestampNTZType):
        return lambda found: _moment(found).replace(tzinfo=None)
    if isinstance(kind, spark.DecimalType):
        return lambda found: Decimal(str(found)).quantize(Decimal(1).scaleb(-kind.scale))
    if isinstance(kind, (spark.DoubleType, spark.FloatType)):
        return float
    return None


def _binary(found: str) -> bytes:
    return base64.b64decode(found, validate=True)


def _moment(found: Any) -> datetime:
    if isinstance(found, (int, float)):
        return _EPOCH + timedelta(milliseconds=found)
    moment = datetime.fromisoformat(found)
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
