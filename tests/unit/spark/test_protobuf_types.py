# SPDX-License-Identifier: Apache-2.0
"""Protobuf messages become rows: every kind of field, what is not set, and what cannot be a column."""

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.timestamp_pb2 import DESCRIPTOR as TIMESTAMP_FILE
from pyspark.sql import types as spark

from magnetar.client.schema_info import SchemaInfo, SchemaType
from magnetar.client.schema_protobuf import ProtobufNativeSchema
from magnetar.errors import BadSchema
from magnetar.spark.columns import value_type
from magnetar.spark.values import ValueColumns

FIELDS = (
    ("flag", Field.TYPE_BOOL, spark.BooleanType(), True),
    ("small", Field.TYPE_SINT32, spark.IntegerType(), -7),
    ("natural", Field.TYPE_UINT32, spark.LongType(), 2**32 - 1),
    ("large", Field.TYPE_INT64, spark.LongType(), -(2**62)),
    ("largest", Field.TYPE_FIXED64, spark.DecimalType(20, 0), 2**64 - 1),
    ("share", Field.TYPE_FLOAT, spark.FloatType(), 0.25),
    ("exact", Field.TYPE_DOUBLE, spark.DoubleType(), 0.1),
    ("text", Field.TYPE_STRING, spark.StringType(), "grün"),
    ("data", Field.TYPE_BYTES, spark.BinaryType(), b"\x00\xff"),
)


def order_file(*, contains_itself: bool = False) -> FileDescriptorProto:
    file = FileDescriptorProto(name="order.proto", package="shop", syntax="proto3")
    file.dependency.append("google/protobuf/timestamp.proto")
    order = file.message_type.add(name="Order")
    for number, (name, kind, _, _) in enumerate(FIELDS, 1):
        order.field.add(name=name, number=number, type=kind, label=Field.LABEL_OPTIONAL)
    colour = order.enum_type.add(name="Colour")
    colour.value.add(name="RED", number=0)
    colour.value.add(name="BLUE", number=1)
    item = order.nested_type.add(name="Item")
    item.field.add(name="name", number=1, type=Field.TYPE_STRING, label=Field.LABEL_OPTIONAL)
    if contains_itself:
        item.field.add(
            name="part", number=2, type=Field.TYPE_MESSAGE, type_name=".shop.Order.Item", label=Field.LABEL_OPTIONAL
        )
    entry = order.nested_type.add(name="CountsEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=Field.TYPE_STRING, label=Field.LABEL_OPTIONAL)
    entry.field.add(name="value", number=2, type=Field.TYPE_INT32, label=Field.LABEL_OPTIONAL)
    add = order.field.add
    add(name="colour", number=20, type=Field.TYPE_ENUM, type_name=".shop.Order.Colour", label=Field.LABEL_OPTIONAL)
    add(name="items", number=21, type=Field.TYPE_MESSAGE, type_name=".shop.Order.Item", label=Field.LABEL_REPEATED)
    add(
        name="counts",
        number=22,
        type=Field.TYPE_MESSAGE,
        type_name=".shop.Order.CountsEntry",
        label=Field.LABEL_REPEATED,
    )
    moment = ".google.protobuf.Timestamp"
    add(name="moment", number=23, type=Field.TYPE_MESSAGE, type_name=moment, label=Field.LABEL_OPTIONAL)
    add(name="first", number=24, type=Field.TYPE_MESSAGE, type_name=".shop.Order.Item", label=Field.LABEL_OPTIONAL)
    order.oneof_decl.add(name="_note")
    add(
        name="note",
        number=25,
        type=Field.TYPE_STRING,
        label=Field.LABEL_OPTIONAL,
        proto3_optional=True,
        oneof_index=0,
    )
    return file


def order_class(*, contains_itself: bool = False) -> type:
    pool = DescriptorPool()
    timestamps = FileDescriptorProto()
    TIMESTAMP_FILE.CopyToProto(timestamps)
    pool.Add(timestamps)
    pool.Add(order_file(contains_itself=contains_itself))
    return GetMessageClass(pool.FindMessageTypeByName("shop.Order"))


ITEM = spark.StructType([spark.StructField("name", spark.StringType())])


@pytest.mark.feature("F-SPK-07")
def test_every_field_of_a_message_is_a_column() -> None:
    Order = order_class()
    schema: ProtobufNativeSchema[Any] = ProtobufNativeSchema(Order)
    kind = value_type(schema.info)
    assert isinstance(kind, spark.StructType)
    assert {one.name: one.dataType for one in kind.fields} == {
        **{name: kind for name, _, kind, _ in FIELDS},
        "colour": spark.StringType(),
        "items": spark.ArrayType(ITEM),
        "counts": spark.MapType(spark.StringType(), spark.IntegerType()),
        "moment": spark.TimestampType(),
        "first": ITEM,
        "note": spark.StringType(),
    }
    order = Order(**{name: value for name, _, _, value in FIELDS}, colour=1)
    order.items.add(name="pen")
    order.counts["two"] = 2
    order.counts["one"] = 1
    order.moment.seconds, order.moment.nanos = 1_700_000_000, 123_456_789
    columns = ValueColumns(schema.info, kind.names)
    found = dict(zip(kind.names, columns.read(order.SerializeToString(), None, b""), strict=True))
    assert found == {
        **{name: value for name, _, _, value in FIELDS},
        "largest": Decimal(2**64 - 1),
        "colour": "BLUE",
        "items": [{"name": "pen"}],
        "counts": [("one", 1), ("two", 2)],
        "moment": datetime.fromtimestamp(1_700_000_000, UTC).replace(microsecond=123_456),
        "first": None,
        "note": None,
    }
    nothing = dict(zip(kind.names, columns.read(b"", None, b""), strict=True))
    assert (nothing["flag"], nothing["text"], nothing["colour"], nothing["items"]) == (False, "", "RED", [])
    assert nothing["note"] is None


def test_what_is_no_such_message_is_a_bad_row() -> None:
    columns = ValueColumns(ProtobufNativeSchema(order_class()).info, ["text"])
    with pytest.raises(BadSchema, match="a payload of 3 bytes is no Order"):
        columns.read(b"\xff\xff\xff", None, b"")


def test_what_cannot_be_columns_is_refused() -> None:
    with pytest.raises(BadSchema, match=r"shop\.Order\.Item contains itself"):
        value_type(ProtobufNativeSchema(order_class(contains_itself=True)).info)
    with pytest.raises(BadSchema, match="descriptors"):
        value_type(SchemaInfo(SchemaType.PROTOBUF_NATIVE, "x", b'{"fileDescriptorSet": "eA=="}'))
