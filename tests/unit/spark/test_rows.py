# SPDX-License-Identifier: Apache-2.0
"""Rows to messages to rows: values of every type come back as they went, bad rows as the options say."""

import io
import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from pyspark.sql import types as spark

from magnetar.client.schema_info import BYTES_INFO, SchemaInfo, SchemaType
from magnetar.errors import BadSchema, BadSetting
from magnetar.ids import Position
from magnetar.spark.columns import columns_of
from magnetar.spark.encoding import RowEncoder
from magnetar.spark.offsets import BEFORE_ALL, Place
from magnetar.spark.options import BadRows, Metadata
from magnetar.spark.rows import RowBuilder, arrow_schema
from magnetar.spark.stored_entry import StoredEntry
from magnetar.spark.values import ValueColumns, sides_of
from magnetar.wire import broker_entry, message
from magnetar.wire.proto import pulsar_api_pb2 as pb

RECORD = spark.StructType(
    [
        spark.StructField("flag", spark.BooleanType()),
        spark.StructField("small", spark.IntegerType()),
        spark.StructField("large", spark.LongType()),
        spark.StructField("share", spark.DoubleType()),
        spark.StructField("text", spark.StringType()),
        spark.StructField("data", spark.BinaryType()),
        spark.StructField("day", spark.DateType()),
        spark.StructField("moment", spark.TimestampType()),
        spark.StructField("price", spark.DecimalType(10, 2)),
        spark.StructField("tags", spark.ArrayType(spark.StringType())),
        spark.StructField("counts", spark.MapType(spark.StringType(), spark.LongType())),
        spark.StructField("inner", spark.StructType([spark.StructField("x", spark.LongType())])),
        spark.StructField("nothing", spark.StringType()),
    ]
)
ROW: dict[str, Any] = {
    "flag": True,
    "small": -7,
    "large": 2**40,
    "share": 0.25,
    "text": "grün",
    "data": b"\x00\xff",
    "day": date(2024, 2, 29),
    "moment": datetime(2024, 2, 29, 12, 30, 0, 123_000, tzinfo=UTC),
    "price": Decimal("12.30"),
    "tags": ["a", None, "b"],
    "counts": [("one", 1), ("two", 2)],
    "inner": {"x": 5},
    "nothing": None,
}


def entry(payload: bytes, index: int = 0) -> StoredEntry:
    metadata = pb.MessageMetadata(producer_name="p", sequence_id=3, publish_time=1_000, partition_key="k")
    front, body = message.join(metadata.SerializeToString(), payload)
    return StoredEntry(Position(4, index), broker_entry.encode(2_000, index) + front + bytes(body))


def built(info: SchemaInfo, payloads: list[bytes], bad_rows: BadRows = BadRows.FAIL) -> list[dict[str, Any]]:
    columns = columns_of(sides_of(info) or info, Metadata.NONE, bad_rows, None)
    names = [one.name for one in columns.fields if one.name != "__error"]
    builder = RowBuilder("persistent://public/default/t", columns, ValueColumns(info, names), bad_rows, 100)
    for index, payload in enumerate(payloads):
        builder.add(entry(payload, index), BEFORE_ALL, Place(9, 9))
    made = builder.take()
    found: list[dict[str, Any]] = [] if made is None else made.to_pylist()
    return found


@pytest.mark.feature("F-SPK-07")
@pytest.mark.parametrize("form", ["avro", "json"])
def test_records_come_back_as_they_went(form: str) -> None:
    encoder = RowEncoder(RECORD, form, needs_topic=False)
    (row,) = encoder.rows(pa.RecordBatch.from_pylist([ROW], schema=arrow_schema(RECORD)))
    assert row.payload is not None
    (back,) = built(encoder.info, [row.payload])
    assert back == ROW


@pytest.mark.feature("F-SPK-07")
@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (spark.StringType(), "text"),
        (spark.BooleanType(), True),
        (spark.ByteType(), -3),
        (spark.ShortType(), 300),
        (spark.IntegerType(), 70_000),
        (spark.LongType(), 2**50),
        (spark.DoubleType(), 1.5),
        (spark.BinaryType(), b"raw"),
        (spark.DateType(), date(2020, 1, 2)),
    ],
)
def test_primitives_come_back_as_they_went(kind: spark.DataType, value: object) -> None:
    columns = spark.StructType([spark.StructField("value", kind)])
    encoder = RowEncoder(columns, None, needs_topic=False)
    (row,) = encoder.rows(pa.RecordBatch.from_pylist([{"value": value}], schema=arrow_schema(columns)))
    assert row.payload is not None
    assert built(encoder.info, [row.payload]) == [{"value": value}]


def test_bad_rows_fail_are_dropped_or_are_told() -> None:
    info = SchemaInfo(SchemaType.INT32, "INT32")
    payloads = [b"\x00\x00\x00\x05", b"no", b"\x00\x00\x00\x06"]
    with pytest.raises(BadSchema, match="4:1"):
        built(info, payloads)
    assert [row["value"] for row in built(info, payloads, BadRows.DROP)] == [5, 6]
    told = built(info, payloads, BadRows.COLUMN)
    assert [row["value"] for row in told] == [5, None, 6]
    assert [row["__error"] is None for row in told] == [True, False, True]


def test_chosen_columns_alone_are_built() -> None:
    columns = columns_of(BYTES_INFO, Metadata.NONE, BadRows.FAIL, ("__index", "__publishTime"))
    builder = RowBuilder("persistent://public/default/t", columns, ValueColumns(BYTES_INFO, []), BadRows.FAIL, 100)
    builder.add(entry(b"x", 12), BEFORE_ALL, Place(9, 99))
    made = builder.take()
    assert made is not None
    assert made.to_pylist() == [{"__index": 12, "__publishTime": datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)}]


JSON = SchemaInfo(
    SchemaType.JSON,
    "r",
    b'{"type": "record", "name": "r", "fields": [{"name": "x", "type": "int"}, {"name": "word", "type": "string"}]}',
)


@pytest.mark.feature("F-SPK-07")
def test_a_value_of_another_type_makes_a_bad_row_of_its_own_only() -> None:
    payloads = [b'{"x": 1, "word": "a"}', b'{"x": "one", "word": "b"}', b'{"x": 99999999999, "word": "c"}']
    told = built(JSON, payloads, BadRows.COLUMN)
    assert [row["x"] for row in told] == [1, None, None]
    assert "field x is 'one'" in told[1]["__error"]
    assert [row["x"] for row in built(JSON, payloads, BadRows.DROP)] == [1]
    with pytest.raises(BadSchema, match=r"message 4:1:.*field x is 'one'"):
        built(JSON, payloads)


@pytest.mark.feature("F-SPK-07")
def test_a_number_where_text_should_be_is_its_text() -> None:
    """The official Python client writes an enumeration as the number of its member."""
    assert built(JSON, [b'{"x": 1, "word": 2}']) == [{"x": 1, "word": "2"}]


def _avro(*fields: dict[str, Any]) -> SchemaInfo:
    return SchemaInfo(SchemaType.AVRO, "r", json.dumps({"type": "record", "name": "r", "fields": fields}).encode())


def _encoded(info: SchemaInfo, row: dict[str, Any]) -> bytes:
    buffer = io.BytesIO()
    fastavro.schemaless_writer(buffer, fastavro.parse_schema(json.loads(info.definition)), row)
    return buffer.getvalue()


@pytest.mark.feature("F-SPK-07")
def test_a_union_is_the_wider_number_or_a_member_for_each_type() -> None:
    one, other = ({"type": "record", "name": name, "fields": [{"name": "k", "type": "int"}]} for name in "AB")
    info = _avro(
        {"name": "long", "type": ["null", "int", "long"]},
        {"name": "any", "type": ["null", "int", "string"]},
        {"name": "either", "type": [one, other]},
    )
    assert columns_of(info, Metadata.NONE, BadRows.FAIL, None).simpleString() == (
        "struct<long:bigint,any:struct<member0:int,member1:string>,"
        "either:struct<member0:struct<k:int>,member1:struct<k:int>>>"
    )
    rows = built(
        info,
        [
            _encoded(info, {"long": 2**40, "any": "x", "either": ("B", {"k": 1})}),
            _encoded(info, {"long": None, "any": None, "either": ("A", {"k": 2})}),
        ],
    )
    assert rows == [
        {"long": 2**40, "any": {"member0": None, "member1": "x"}, "either": {"member0": None, "member1": {"k": 1}}},
        {"long": None, "any": None, "either": {"member0": {"k": 2}, "member1": None}},
    ]


@pytest.mark.feature("F-SPK-07")
def test_both_sides_of_a_pair_are_read_with_the_version_that_they_were_written_with() -> None:
    old = _avro({"name": "v", "type": "int"})
    new = _avro({"name": "n", "type": ["null", "long"], "default": None}, {"name": "v", "type": "int"})

    def pair(value: SchemaInfo) -> SchemaInfo:
        sides = {"key.schema.type": "STRING", "value.schema.type": "AVRO", "kv.encoding.type": "SEPARATED"}
        return SchemaInfo(
            SchemaType.KEY_VALUE, "kv", b"\0\0\0\0" + len(value.definition).to_bytes(4, "big") + value.definition, sides
        )

    columns = ValueColumns(pair(new), ["key", "value"])
    assert not columns.knows(b"1")
    columns.learn(b"1", pair(old))
    assert columns.read(_encoded(old, {"v": 5}), b"k", b"1") == ["k", {"n": None, "v": 5}]
    with pytest.raises(BadSchema, match="no record of the Avro schema"):
        columns.read(b"", b"k", b"1")


@pytest.mark.feature("F-SPK-06")
@pytest.mark.parametrize(
    ("column", "kind", "told"),
    [
        ("__key", spark.LongType(), "__key is bigint; it should be string or binary"),
        ("__eventTime", spark.StringType(), "__eventTime is string; it should be timestamp or bigint"),
        ("__messageProperties", spark.StringType(), "map<string,string>"),
        ("__topic", spark.IntegerType(), "__topic is int"),
        ("we ird", spark.StringType(), "rename it"),
    ],
)
def test_columns_that_cannot_be_written_are_refused_before_a_row(column: str, kind: spark.DataType, told: str) -> None:
    columns = spark.StructType([spark.StructField("value", spark.StringType()), spark.StructField(column, kind)])
    with pytest.raises((BadSetting, BadSchema), match=told):
        RowEncoder(columns, None, needs_topic=False)


@pytest.mark.feature("F-SPK-06")
def test_a_time_may_be_milliseconds_and_a_property_without_a_value_is_left_out() -> None:
    columns = spark.StructType(
        [
            spark.StructField("value", spark.StringType()),
            spark.StructField("__eventTime", spark.LongType()),
            spark.StructField("__messageProperties", spark.MapType(spark.StringType(), spark.StringType())),
        ]
    )
    row = {"value": "x", "__eventTime": 1_700_000_000_000, "__messageProperties": [("a", "1"), ("b", None)]}
    batch = pa.RecordBatch.from_pylist([row], schema=arrow_schema(columns))
    (written,) = RowEncoder(columns, None, needs_topic=False).rows(batch)
    assert (written.event_time_ms, written.properties) == (1_700_000_000_000, {"a": "1"})
