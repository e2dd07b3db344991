# SPDX-License-Identifier: Apache-2.0
"""A topic read as a DataFrame: everything is there, once, with its metadata, and no more is read than is asked for."""

import json

import pytest
from pyspark.sql import DataFrame, SparkSession

from magnetar import MessageId
from magnetar.blocking import Client
from tests.processes import StandaloneProcess


def publish(client: Client, topic: str, count: int, start: int = 0) -> None:
    with client.create_producer(
        topic, block_if_queue_full=True, batching_enabled=True, batching_max_publish_delay_ms=50
    ) as producer:
        for number in range(start, start + count):
            producer.send_async(
                str(number).encode(),
                partition_key=f"k{number % 7}",
                properties={"number": str(number)},
                event_timestamp=1_700_000_000_000 + number,
            )
        producer.flush()


def read(spark: SparkSession, standalone: StandaloneProcess, topic: str, **options: object) -> DataFrame:
    reader = spark.read.format("pulsar").option("service.url", standalone.service_url).option("topic", topic)
    for name, value in options.items():
        reader = reader.option(name, str(value))
    return reader.load()


def numbers(frame: DataFrame) -> list[int]:
    return sorted(int(bytes(row["value"])) for row in frame.select("value").collect())


@pytest.mark.feature("F-SPK-01", "F-SPK-04")
def test_every_message_is_a_row_once_however_it_is_cut(
    spark: SparkSession, standalone: StandaloneProcess, client: Client, topic: str
) -> None:
    publish(client, topic, 5_000)
    publish(client, topic, 37, start=5_000)
    frame = read(spark, standalone, topic, minPartitions=5, messagesPerTaskMin=10, rowsPerArrowBatch=333)
    assert frame.rdd.getNumPartitions() == 5
    assert numbers(frame) == list(range(5_037))


@pytest.mark.feature("F-SPK-08", "F-SQL-02")
def test_metadata_columns_are_the_messages_own(
    spark: SparkSession, standalone: StandaloneProcess, client: Client, topic: str
) -> None:
    publish(client, topic, 20)
    rows = read(spark, standalone, topic, metadata="all").orderBy("__index").collect()
    assert [row["__index"] for row in rows] == list(range(20))
    third = rows[3]
    assert bytes(third["__key"]) == b"k3"
    assert third["__topic"] == topic
    assert third["__messageProperties"] == {"number": "3"}
    assert third["__eventTime"].timestamp() == pytest.approx(1_700_000_000.003)
    assert third["__partition"] == 0
    assert third["__redeliveryCount"] is None
    assert third["__producerName"]
    reader = client.create_reader(topic, MessageId.earliest)
    for row in rows:
        message = reader.read_next(10_000)
        assert bytes(row["__messageId"]) == message.message_id().serialize()
        assert row["__sequenceId"] == message.sequence_id()
    reader.close()


def test_an_empty_topic_has_no_rows(
    spark: SparkSession, standalone: StandaloneProcess, client: Client, topic: str
) -> None:
    client.create_producer(topic).close()
    assert read(spark, standalone, topic).count() == 0


@pytest.mark.feature("F-SPK-04")
def test_a_range_is_read_by_number_and_by_place(
    spark: SparkSession, standalone: StandaloneProcess, client: Client, topic: str
) -> None:
    publish(client, topic, 1_000)
    frame = read(
        spark,
        standalone,
        topic,
        startingOffsets=json.dumps({topic: {"index": 123}}),
        endingOffsets=json.dumps({topic: 456}),
    )
    assert numbers(frame) == list(range(123, 456))


def test_a_topic_that_is_not_there_is_an_error(spark: SparkSession, standalone: StandaloneProcess, topic: str) -> None:
    with pytest.raises(Exception, match="TopicNotFound"):
        read(spark, standalone, topic).count()


@pytest.mark.feature("F-SQL-03", "F-SQL-04")
def test_filters_narrow_what_is_read(
    spark: SparkSession, standalone: StandaloneProcess, client: Client, topic: str
) -> None:
    publish(client, topic, 1_000)
    many = {"metadata": "all", "minPartitions": 8, "messagesPerTaskMin": 10}
    frame = read(spark, standalone, topic, filterPushDown=True, **many)
    narrow = frame.where("__index >= 100 and __index < 110")
    assert narrow.rdd.getNumPartitions() == 1
    assert numbers(narrow) == list(range(100, 110))
    assert frame.where("__partition = 1").count() == 0
    recent = frame.where("__publishTime > timestamp'2020-01-01'")
    assert recent.count() == 1_000
    assert frame.where("__publishTime > timestamp'2100-01-01'").rdd.getNumPartitions() == 1
    # Without push-down every row is read and filtered by Spark, and what one query asked never reaches another.
    shared = read(spark, standalone, topic, **many)
    assert numbers(shared.where("__index >= 100 and __index < 110")) == list(range(100, 110))
    assert shared.count() == 1_000
