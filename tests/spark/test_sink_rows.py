# SPDX-License-Identifier: Apache-2.0
"""What becomes of a row's columns: payload, key, properties, time and topic, as Apache Pulsar's own client sees them.

No Spark session: writers are called as Spark calls them.
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import httpx
import pulsar
import pyarrow as pa
import pytest
from pyspark.sql import types

from magnetar.blocking import Client
from magnetar.client.options import HashingScheme
from magnetar.errors import BadSetting, IncompatibleSchema
from magnetar.spark.rows import arrow_schema
from magnetar.spark.source import PulsarDataSource
from tests.processes import StandaloneProcess
from tests.spark.in_process import read_batch

pytestmark = pytest.mark.usefixtures("small_batches")

COLUMNS = types.StructType(
    [
        types.StructField("value", types.BinaryType()),
        types.StructField("__key", types.BinaryType()),
        types.StructField("__messageProperties", types.MapType(types.StringType(), types.StringType())),
        types.StructField("__eventTime", types.TimestampType()),
        types.StructField("__topic", types.StringType()),
    ]
)
Rows = list[dict[str, Any]]
Received = Callable[[str, int], list[Any]]


def write(options: dict[str, str], rows: Rows, columns: types.StructType = COLUMNS) -> None:
    whole = [dict.fromkeys(columns.names) | row for row in rows]
    writer = PulsarDataSource(options).writer(columns, False)
    writer.commit([writer.write(iter([pa.RecordBatch.from_pylist(whole, schema=arrow_schema(columns))]))])


@pytest.fixture(scope="module")
def official(standalone: StandaloneProcess) -> Iterator[pulsar.Client]:
    client = pulsar.Client(standalone.service_url, logger=logging.getLogger("official"))
    yield client
    client.close()


@pytest.fixture
def received(official: pulsar.Client) -> Received:
    """All messages of a topic, in the order of each partition; there are no more than so many."""

    def receive(topic: str, count: int) -> list[Any]:
        consumer = official.subscribe(topic, "check", initial_position=pulsar.InitialPosition.Earliest)
        found = [consumer.receive(20_000) for _ in range(count)]
        with pytest.raises(pulsar.Timeout):
            consumer.receive(100)
        consumer.close()
        return found

    return receive


@pytest.mark.feature("F-SPK-06")
@pytest.mark.parametrize("delivery", ["exactly-once", "at-least-once"])
def test_a_row_is_the_message_that_its_columns_say(
    options: dict[str, str], topic: str, received: Received, delivery: str
) -> None:
    moment = datetime(2024, 2, 29, 12, tzinfo=UTC)
    rows: Rows = [
        {"value": b"all", "__key": b"k", "__messageProperties": [("a", "1"), ("b", "")], "__eventTime": moment},
        {"value": b"plain"},
        {"value": None, "__key": b"gone"},
        {"value": b"", "__key": b"\xff\xfe"},
        *({"value": b"%d" % number, "__key": b"many"} for number in range(45)),
    ]
    write({**options, "delivery": delivery}, rows)
    found = received(topic, len(rows))
    assert [one.data() for one in found] == [row["value"] or b"" for row in rows]
    first, plain, gone, odd, *_ = found
    assert (first.partition_key(), first.properties(), first.event_timestamp()) == (
        "k",
        {"a": "1", "b": ""},
        round(moment.timestamp() * 1000),
    )
    assert (plain.partition_key(), plain.properties(), plain.event_timestamp()) == ("", {}, 0)
    assert gone.partition_key() == "gone"
    assert odd.partition_key() == "//4=", "a key that is no text travels in base64"


@pytest.mark.feature("F-SPK-06")
def test_each_row_goes_to_its_own_topic_and_the_option_goes_before_it(
    options: dict[str, str], topic: str, received: Received
) -> None:
    rows: Rows = [{"value": b"%d" % number, "__topic": f"{topic}-{number % 3}"} for number in range(60)]
    by_row = {name: value for name, value in options.items() if name != "topic"}
    write(by_row, rows)
    for number in range(3):
        assert [int(one.data()) for one in received(f"{topic}-{number}", 20)] == list(range(number, 60, 3))
    write(options, rows)
    assert [int(one.data()) for one in received(topic, 60)] == list(range(60))
    with pytest.raises(BadSetting, match="a row has nothing in __topic"):
        write(by_row, [{"value": b"x"}])
    with pytest.raises(BadSetting, match="give the option topic, or a column __topic"):
        write(by_row, [{"value": b"x"}], types.StructType([COLUMNS["value"]]))


@pytest.mark.feature("F-SPK-06")
def test_keys_go_where_java_sends_them_and_others_to_all_partitions(
    options: dict[str, str], topic: str, received: Received, client: Client, admin: httpx.Client
) -> None:
    assert admin.put(f"/{topic.replace('://', '/')}/partitions", content="3").is_success
    with client.create_producer(topic, hashing_scheme=HashingScheme.JavaStringHash) as producer:
        for number in range(20):
            producer.send(b"theirs", partition_key=f"key {number}")
    write(options, [{"value": b"ours", "__key": b"key %d" % number} for number in range(20)])
    places: dict[str, set[int]] = {}
    for one in received(topic, 40):
        places.setdefault(one.partition_key(), set()).add(one.message_id().partition())
    assert all(len(where) == 1 for where in places.values())
    payloads = types.StructType([COLUMNS["value"]])
    assert admin.put(f"/{topic.replace('://', '/')}-plain/partitions", content="3").is_success
    write({**options, "topic": f"{topic}-plain"}, [{"value": b"%d" % n} for n in range(120)], payloads)
    found = received(f"{topic}-plain", 120)
    assert Counter(int(one.data()) for one in found) == Counter(range(120))
    assert {one.message_id().partition() for one in found} == {0, 1, 2}


@pytest.mark.feature("F-SPK-06", "F-SPK-07")
def test_a_schema_that_the_topic_refuses_is_told_before_a_row_is_staged(
    options: dict[str, str], topic: str, admin: httpx.Client
) -> None:
    def of(kind: types.DataType) -> types.StructType:
        return types.StructType([types.StructField("total", kind)])

    avro = {**options, "schemaType": "avro"}
    write(avro, [{"total": 1}], of(types.LongType()))
    refused = {**avro, "writeId": topic.rpartition("/")[2][-40:]}
    with pytest.raises(IncompatibleSchema):
        write(refused, [{"total": "one"}], of(types.StringType()))
    staging = f"/persistent/public/default/spark-sink-write-{refused['writeId']}-staging/stats"
    assert admin.get(staging).status_code == 404
    write(refused, [{"total": 2}], of(types.LongType()))
    assert admin.get(staging).is_success
    assert [row["total"] for row in read_batch({**options, "metadata": "none"}).rows] == [1, 2]
