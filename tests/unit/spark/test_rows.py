# SPDX-License-Identifier: Apache-2.0
"""Rows to messages to rows: values of every type come back as they went, bad rows as the options say."""

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import types as spark

from magnetar.client.schema_info import BYTES_INFO, SchemaInfo, SchemaType
from magnetar.errors import BadSchema
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
