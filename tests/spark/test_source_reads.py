# SPDX-License-Identifier: Apache-2.0
"""What a read brings and how little it reads for it: filters, columns, the two ways to the same rows."""

import json
import time
from collections.abc import Callable
from contextlib import suppress

import httpx
import pytest
from pyspark.sql import datasource as pushed

from magnetar.blocking import Client
from magnetar.client.schema import INT64, STRING
from magnetar.errors import BadSchema, BadSetting, CannotStart
from magnetar.spark import conditions, explain
from magnetar.spark.ranges import MessagesMissing
from magnetar.spark.source import PulsarDataSource
from tests.processes import StandaloneProcess
from tests.spark.in_process import read_batch

BATCH = 25


def publish(client: Client, topic: str, count: int, start: int = 0) -> None:
    """Entries of exactly 25 messages each, for whole multiples of that."""
    with client.create_producer(
        topic,
        block_if_queue_full=True,
        batching_enabled=True,
        batching_max_messages=BATCH,
        batching_max_publish_delay_ms=60_000,
    ) as producer:
        for number in range(start, start + count):
            producer.send_async(str(number).encode(), partition_key=f"k{number % 5}")
        producer.flush()


@pytest.mark.feature("F-SQL-03", "F-SQL-04")
def test_a_filter_on_the_number_reads_few_entries(client: Client, topic: str, options: dict[str, str]) -> None:
    publish(client, topic, 1_000)
    everything = read_batch(options)
    assert everything.counts.entries >= 1_000 // BATCH
    wanted = [pushed.GreaterThanOrEqual(("__index",), 510), pushed.LessThan(("__index",), 515)]
    few = read_batch({**options, "metadata": "all"}, wanted)
    assert set(range(510, 515)) <= set(few.numbers)
    assert few.counts.entries <= 3
    assert few.counts.bytes < everything.counts.bytes / 10


@pytest.mark.feature("F-SQL-03")
def test_a_filter_on_publish_time_reads_what_came_then(
    client: Client,
    topic: str,
    options: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    eventually: Callable[..., bool],
) -> None:
    monkeypatch.setattr(conditions, "TIME_SLACK_MS", 0)
    publish(client, topic, 500)
    between_ms = int(time.time() * 1000) + 1
    eventually(lambda: time.time() * 1000 > between_ms + 1)
    publish(client, topic, 50, start=500)
    late = read_batch({**options, "startingTime": str(between_ms)})
    assert late.numbers == list(range(500, 550))
    assert late.counts.entries <= 4
    early = read_batch({**options, "endingTime": str(between_ms)})
    assert early.numbers == list(range(500))


@pytest.mark.feature("F-SQL-03", "F-SPK-08")
def test_filters_on_partition_and_key_leave_the_rest_out(
    client: Client, admin: httpx.Client, topic: str, options: dict[str, str]
) -> None:
    path = topic.replace("://", "/")
    assert admin.put(f"/{path}/partitions", content="3").is_success
    publish(client, topic, 600)
    everything = read_batch({**options, "metadata": "all"})
    assert everything.numbers == list(range(600))
    assert {row["__partition"] for row in everything.rows} <= {0, 1, 2}
    partition = everything.rows[0]["__partition"]
    one = read_batch({**options, "metadata": "all"}, [pushed.EqualTo(("__partition",), partition)])
    assert {row["__partition"] for row in one.rows} == {partition}
    assert one.counts.messages == len(one.rows) < 600
    as_option = read_batch({**options, "partitions": str(partition)})
    assert as_option.numbers == one.numbers
    keyed = read_batch(options, [pushed.EqualTo(("__key",), b"k3")])
    assert keyed.numbers == list(range(3, 600, 5))
    assert keyed.counts.rows == 120
    assert keyed.counts.messages == 600
    assert read_batch({**options, "keys": "k3"}).numbers == keyed.numbers
    with pytest.raises(BadSetting, match="__key"):
        read_batch({**options, "keys": "k3", "metadata": "none"})


@pytest.mark.feature("F-SPK-08", "F-SCH-10")
def test_columns_metadata_and_bad_rows_are_as_chosen(client: Client, topic: str, options: dict[str, str]) -> None:
    publish(client, topic, 25)

    def names(**more: str) -> list[str]:
        return list(read_batch({**options, **more}).rows[0])

    basic = ["__key", "__topic", "__messageId", "__publishTime", "__eventTime", "__messageProperties"]
    assert names(metadata="none") == ["value"]
    assert names() == ["value", *basic]
    assert names(metadata="all")[:7] == ["value", *basic]
    assert names(metadata="all")[7:] == [
        "__partition",
        "__index",
        "__sequenceId",
        "__producerName",
        "__redeliveryCount",
    ]
    assert names(columns="__index,value") == ["__index", "value"]
    # Two digits are no number of four bytes.
    bad = {**options, "schemaType": "int32", "metadata": "none"}
    with pytest.raises(BadSchema, match="message"):
        read_batch(bad)
    dropped = read_batch({**bad, "badRows": "drop"})
    assert dropped.rows == []
    assert dropped.counts.dropped == 25
    told = read_batch({**bad, "badRows": "column"})
    assert len(told.rows) == 25
    assert all(row["value"] is None and row["__error"] for row in told.rows)


@pytest.mark.feature("F-SPK-04", "F-SQL-07")
def test_closed_ledgers_come_from_bookies_and_the_rest_from_the_broker(
    client: Client, admin: httpx.Client, topic: str, options: dict[str, str], metadata_url: str
) -> None:
    publish(client, topic, 500)
    assert admin.put(f"/{topic.replace('://', '/')}/unload").is_success
    publish(client, topic, 75, start=500)
    direct = {**options, "metadata.url": metadata_url, "metadata": "all", "messagesPerTaskMin": "100"}
    plan = explain(direct).splitlines()
    assert [line.rpartition(" ")[2] for line in plan] == ["bookies"] * (len(plan) - 1) + ["broker"]
    assert len(plan) > 3
    through_broker = explain({**direct, "read.via": "broker"})
    assert "through bookies" not in through_broker
    found = read_batch(direct)
    assert found.numbers == list(range(575))
    assert found.rows == read_batch({**direct, "read.via": "broker"}).rows
    closed_alone = read_batch({**direct, "read.via": "bookies", "schemaType": "bytes"})
    assert closed_alone.numbers == list(range(500))
    inside = [pushed.GreaterThanOrEqual(("__index",), 210), pushed.LessThan(("__index",), 220)]
    few = read_batch(direct, inside)
    assert set(range(210, 220)) <= set(few.numbers)


def test_a_store_that_is_not_there_means_reading_through_the_broker(
    client: Client, topic: str, options: dict[str, str]
) -> None:
    publish(client, topic, 25)
    with pytest.raises(BadSetting, match=r"metadata\.url"):
        PulsarDataSource({**options, "read.via": "bookies"}).reader(PulsarDataSource(options).schema())
    nowhere = {**options, "metadata.url": "remote:127.0.0.1:1", "schemaType": "bytes"}
    with pytest.raises(CannotStart, match=r"127\.0\.0\.1:1"):
        read_batch({**nowhere, "read.via": "bookies"})
    assert read_batch(nowhere).numbers == list(range(25))


@pytest.mark.feature("F-SPK-04", "F-TXN-07")
@pytest.mark.parametrize("via", ["broker", "auto"])
def test_what_a_transaction_took_back_is_never_a_row(
    client: Client, admin: httpx.Client, topic: str, options: dict[str, str], metadata_url: str, via: str
) -> None:
    with client.create_producer(topic, batching_enabled=False) as producer:
        producer.send(b"0")
        with client.transaction() as kept:
            producer.send(b"1", txn=kept)
        with suppress(ZeroDivisionError), client.transaction() as taken_back:
            producer.send(b"99", txn=taken_back)
            raise ZeroDivisionError
        producer.send(b"2")
    assert admin.put(f"/{topic.replace('://', '/')}/unload").is_success
    read = read_batch({**options, "metadata.url": metadata_url, "read.via": via, "metadata": "all"})
    assert [(int(row["value"]), row["__index"]) for row in read.rows] == [(0, 0), (1, 1), (2, 5)]
    assert read.counts.skipped == 0


@pytest.mark.feature("F-SPK-02")
def test_a_number_that_is_gone_fails_or_is_passed_over(
    client: Client, admin: httpx.Client, topic: str, options: dict[str, str]
) -> None:
    publish(client, topic, 50)
    assert admin.put(f"/{topic.replace('://', '/')}/unload").is_success
    publish(client, topic, 25, start=50)
    assert admin.delete(f"/{topic.replace('://', '/')}/truncate").is_success
    wanted = {**options, "startingOffsets": json.dumps({topic: 30})}
    with pytest.raises(MessagesMissing, match="messages 30 to 49"):
        read_batch(wanted)
    rest = read_batch({**wanted, "failOnDataLoss": "false"})
    assert rest.numbers == list(range(50, 75))
    assert rest.counts.skipped == 20


@pytest.mark.feature("F-SPK-07")
def test_topics_of_different_schemas_are_refused_together_unless_as_bytes(
    client: Client, topic: str, standalone: StandaloneProcess
) -> None:
    with client.create_producer(topic + "a", schema=STRING) as words:
        words.send("x")
    with client.create_producer(topic + "b", schema=INT64) as numbers:
        numbers.send(7)
    both = {"service.url": standalone.service_url, "topics": f"{topic}a,{topic}b"}
    with pytest.raises(BadSetting, match="INT64 struct<value:bigint>"):
        read_batch(both)
    rows = read_batch({**both, "allowDifferentTopicSchemas": "true"}).rows
    assert [row["value"] for row in rows] == [b"x", (7).to_bytes(8, "big")]


@pytest.mark.feature("F-SPK-04")
def test_a_message_sent_in_chunks_is_one_row(
    client: Client, standalone: StandaloneProcess, topic: str, options: dict[str, str]
) -> None:
    large = bytes(range(256)) * 4096 * 8
    with client.create_producer(topic, batching_enabled=False, chunking_enabled=True) as producer:
        producer.send(b"before")
        producer.send(large)
        producer.send(b"behind")
    found = read_batch({**options, "metadata": "none"})
    assert [row["value"] for row in found.rows] == [b"before", large, b"behind"]
