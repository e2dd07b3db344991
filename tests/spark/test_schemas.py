# SPDX-License-Identifier: Apache-2.0
"""A topic's schema and a DataFrame's columns are one: written columns come back by the broker's own schema, and what
clients write with their schemas are columns.

No Spark session: readers and writers are called as Spark calls them.
"""

from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import types

from magnetar.blocking import Client
from magnetar.client.schema import INT64, STRING
from magnetar.client.schema_key_value import KeyValue, KeyValueEncoding, KeyValueSchema
from magnetar.client.schema_protobuf import ProtobufNativeSchema
from magnetar.spark.rows import arrow_schema
from magnetar.spark.source import PulsarDataSource
from tests.spark.in_process import read_batch, schema_of
from tests.unit.spark.test_protobuf_types import order_class
from tests.unit.spark.test_rows import RECORD, ROW

PARTS = types.ArrayType(types.StructType([types.StructField("part", RECORD), types.StructField("n", types.LongType())]))
COLUMNS = types.StructType([*RECORD.fields, types.StructField("inside", RECORD), types.StructField("parts", PARTS)])
ROWS: list[dict[str, Any]] = [
    {**ROW, "inside": ROW, "parts": [{"part": ROW, "n": 1}, {"part": None, "n": None}]},
    dict.fromkeys(COLUMNS.names),
]


@pytest.mark.feature("F-SPK-07")
@pytest.mark.parametrize("form", ["json", "avro"])
def test_columns_of_every_type_come_back_by_the_topics_schema(options: dict[str, str], form: str) -> None:
    writer = PulsarDataSource({**options, "schemaType": form}).writer(COLUMNS, False)
    writer.commit([writer.write(iter([pa.RecordBatch.from_pylist(ROWS, schema=arrow_schema(COLUMNS))]))])
    named = {**options, "metadata": "none"}
    assert schema_of(PulsarDataSource(named)) == COLUMNS
    assert read_batch(named).rows == ROWS


@pytest.mark.feature("F-SPK-07")
def test_protobuf_messages_of_a_client_are_rows(client: Client, topic: str, options: dict[str, str]) -> None:
    Order = order_class()
    schema: ProtobufNativeSchema[Any] = ProtobufNativeSchema(Order)
    with client.create_producer(topic, schema=schema, batching_enabled=True) as producer:
        for number in range(5):
            order = Order(text=f"order {number}", large=number, note="n" if number else None)
            order.items.add(name="pen")
            producer.send_async(order)
        producer.flush()
    found = read_batch({**options, "columns": "text,large,note,items,__index"})
    assert found.rows == [
        {"text": f"order {n}", "large": n, "note": "n" if n else None, "items": [{"name": "pen"}], "__index": n}
        for n in range(5)
    ]


@pytest.mark.feature("F-SPK-07")
@pytest.mark.parametrize("encoding", KeyValueEncoding)
def test_keys_and_values_of_a_client_are_two_columns(
    client: Client, topic: str, options: dict[str, str], encoding: KeyValueEncoding
) -> None:
    with client.create_producer(topic, schema=KeyValueSchema(STRING, INT64, encoding)) as producer:
        for number in range(3):
            producer.send(KeyValue(f"k{number}", number))
    found = read_batch({**options, "metadata": "none"})
    assert found.rows == [{"key": f"k{number}", "value": number} for number in range(3)]
