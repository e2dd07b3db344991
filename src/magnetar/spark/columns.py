# SPDX-License-Identifier: Apache-2.0
"""Which columns a topic has: those of its schema, then the metadata columns, then `__error` if bad rows go there.

The first six metadata columns have the JVM connector's names and types; ours follow in the same style. A topic without
a schema has the one column `value` of bytes; a topic of a primitive type has `value` of that type; a record's fields
are columns of their own; a key-value topic has `key` and `value`.
Decides.
"""

from typing import Final

from pyspark.sql import types as spark

from magnetar.client.schema_info import SchemaInfo, SchemaType
from magnetar.errors import BadSetting
from magnetar.spark.avro_types import spark_type_of
from magnetar.spark.options import BadRows, Metadata
from magnetar.spark.protobuf_types import ProtobufReader

ERROR: Final = "__error"
VALUE: Final = "value"
KEY: Final = "key"

_BASIC: Final[tuple[tuple[str, spark.DataType], ...]] = (
    ("__key", spark.BinaryType()),
    ("__topic", spark.StringType()),
    ("__messageId", spark.BinaryType()),
    ("__publishTime", spark.TimestampType()),
    ("__eventTime", spark.TimestampType()),
    ("__messageProperties", spark.MapType(spark.StringType(), spark.StringType())),
)
_OURS: Final[tuple[tuple[str, spark.DataType], ...]] = (
    ("__partition", spark.IntegerType()),
    ("__index", spark.LongType()),
    ("__sequenceId", spark.LongType()),
    ("__producerName", spark.StringType()),
    ("__redeliveryCount", spark.IntegerType()),
)
METADATA_NAMES: Final = frozenset(name for name, _ in (*_BASIC, *_OURS))

PRIMITIVES: Final[dict[SchemaType, spark.DataType]] = {
    SchemaType.BYTES: spark.BinaryType(),
    SchemaType.NONE: spark.BinaryType(),
    SchemaType.STRING: spark.StringType(),
    SchemaType.BOOLEAN: spark.BooleanType(),
    SchemaType.INT8: spark.ByteType(),
    SchemaType.INT16: spark.ShortType(),
    SchemaType.INT32: spark.IntegerType(),
    SchemaType.INT64: spark.LongType(),
    SchemaType.FLOAT: spark.FloatType(),
    SchemaType.DOUBLE: spark.DoubleType(),
    SchemaType.DATE: spark.TimestampType(),
    SchemaType.TIME: spark.TimestampType(),
    SchemaType.TIMESTAMP: spark.TimestampType(),
    SchemaType.INSTANT: spark.TimestampType(),
    SchemaType.LOCAL_DATE: spark.DateType(),
    SchemaType.LOCAL_TIME: spark.LongType(),
    SchemaType.LOCAL_DATE_TIME: spark.TimestampNTZType(),
}
"""Times of day are microseconds since midnight."""


def value_type(info: SchemaInfo) -> spark.DataType:
    """The type of a whole value; bytes where we cannot read it."""
    if info.type in PRIMITIVES:
        return PRIMITIVES[info.type]
    if info.type in (SchemaType.AVRO, SchemaType.JSON) and info.definition:
        return spark_type_of(info.definition)
    if info.type is SchemaType.PROTOBUF_NATIVE and info.definition:
        return ProtobufReader(info.definition).type
    return spark.BinaryType()


def columns_of(
    sides: tuple[SchemaInfo, SchemaInfo] | SchemaInfo,
    metadata: Metadata,
    bad_rows: BadRows,
    chosen: tuple[str, ...] | None,
) -> spark.StructType:
    """All columns of a topic, or those chosen, in their order. Raises BadSetting for a name that is none of them."""
    fields = _value_fields(sides)
    described: tuple[tuple[str, spark.DataType], ...] = ()
    if metadata is not Metadata.NONE:
        described = (*_BASIC, *_OURS) if metadata is Metadata.ALL else _BASIC
    if chosen is not None:
        described = (*_BASIC, *_OURS)
    fields += [spark.StructField(name, kind, True) for name, kind in described]
    if bad_rows is BadRows.COLUMN:
        fields.append(spark.StructField(ERROR, spark.StringType(), True))
    if chosen is None:
        return spark.StructType(fields)
    by_name = {one.name: one for one in fields}
    unknown = [name for name in chosen if name not in by_name]
    if unknown or not chosen:
        raise BadSetting(f"option columns names {unknown or 'nothing'}; there are {', '.join(by_name)}")
    return spark.StructType([by_name[name] for name in chosen])


def _value_fields(sides: tuple[SchemaInfo, SchemaInfo] | SchemaInfo) -> list[spark.StructField]:
    if isinstance(sides, tuple):
        return [spark.StructField(name, value_type(info), True) for name, info in zip((KEY, VALUE), sides, strict=True)]
    kind = value_type(sides)
    if isinstance(kind, spark.StructType):
        return [spark.StructField(one.name, one.dataType, True) for one in kind.fields]
    return [spark.StructField(VALUE, kind, True)]
