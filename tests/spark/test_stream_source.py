# SPDX-License-Identifier: Apache-2.0
"""A topic read as a stream: limits are exact, a restart goes on where the checkpoint is, one cursor follows."""

import json
from collections import Counter
from pathlib import Path

import httpx
import pytest
from pyspark.sql import DataFrame, SparkSession

from magnetar.blocking import Client
from tests.processes import StandaloneProcess
from tests.spark.queries import run_to_end
from tests.spark.test_batch_source import publish


def stream(spark: SparkSession, standalone: StandaloneProcess, topic: str, **options: object) -> DataFrame:
    reader = spark.readStream.format("pulsar").option("service.url", standalone.service_url).option("topic", topic)
    reader = reader.option("startingOffsets", "earliest")
    for name, value in options.items():
        reader = reader.option(name, str(value))
    return reader.load()


class Collected:
    """What each batch had, by its id: a batch that runs again replaces itself."""

    def __init__(self) -> None:
        self.batches: dict[int, list[int]] = {}

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        self.batches[batch_id] = [int(bytes(row["value"])) for row in frame.select("value").collect()]

    @property
    def rows(self) -> Counter[int]:
        return Counter(number for batch in self.batches.values() for number in batch)


def run_available(frame: DataFrame, collected: Collected, checkpoint: str) -> None:
    run_to_end(frame.writeStream.foreachBatch(collected).option("checkpointLocation", checkpoint))


@pytest.mark.feature("F-SPK-02")
def test_limits_are_exact_and_a_restart_goes_on(
    spark: SparkSession, standalone: StandaloneProcess, client: Client, topic: str, checkpoint: str
) -> None:
    publish(client, topic, 700)
    collected = Collected()
    frame = stream(spark, standalone, topic, maxMessagesPerTrigger=300)
    run_available(frame, collected, checkpoint)
    assert [len(batch) for batch in collected.batches.values()] == [300, 300, 100]
    publish(client, topic, 50, start=700)
    run_available(frame, collected, checkpoint)
    assert collected.rows == Counter(range(750))


@pytest.mark.feature("F-SPK-03")
def test_one_cursor_follows_the_checkpoint_and_nothing_else_stays(
    spark: SparkSession,
    standalone: StandaloneProcess,
    client: Client,
    admin: httpx.Client,
    topic: str,
    checkpoint: str,
) -> None:
    # A limit in bytes is kept by entries: five lots are five entries at least, however fast they are sent.
    for start in range(0, 500, 100):
        publish(client, topic, 100, start=start)
    collected = Collected()
    frame = stream(spark, standalone, topic, maxBytesPerTrigger="4k", subscription="spark-query")
    run_available(frame, collected, checkpoint)
    assert collected.rows == Counter(range(500))
    assert len(collected.batches) > 1
    stats = admin.get(f"/{topic.replace('://', '/')}/stats").json()
    assert list(stats["subscriptions"]) == ["spark-query"], "readers of the query are gone with it"
    assert stats["subscriptions"]["spark-query"]["msgBacklog"] == 0, "the last batch is committed too"
    publish(client, topic, 10, start=500)
    with client.subscribe(topic, "spark-query") as consumer:
        received = [int(consumer.receive(20_000).data()) for _ in range(10)]
    assert received == list(range(500, 510)), "what is committed is never delivered again, and nothing else is missing"


@pytest.mark.feature("F-SPK-02")
def test_offsets_edited_by_hand_are_followed(
    spark: SparkSession, standalone: StandaloneProcess, client: Client, topic: str, checkpoint: str
) -> None:
    publish(client, topic, 200)
    collected = Collected()
    frame = stream(spark, standalone, topic)
    run_available(frame, collected, checkpoint)
    newest = max((Path(checkpoint) / "offsets").glob("[0-9]*"), key=lambda path: int(path.name))
    lines = newest.read_text().splitlines()
    assert json.loads(lines[-1])[topic]["index"] == 200
    # Without its place the number alone says where to go on.
    lines[-1] = json.dumps({topic: {"index": 150}})
    newest.write_text("\n".join(lines))
    (newest.parent / f".{newest.name}.crc").unlink(missing_ok=True)
    again = Collected()
    publish(client, topic, 5, start=200)
    run_available(frame, again, checkpoint)
    assert again.rows == Counter(range(150, 205))
