# SPDX-License-Identifier: Apache-2.0
"""Topics of Apache Pulsar as DataFrames: batch, stream and sink, where messages are numbered and where they are not."""

import json
import os
import urllib.request
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pulsar
import pytest
from pyspark.sql import DataFrame, SparkSession

from benchmarks.peers import PulsarServer
from magnetar import spark as magnetar_spark
from tests.interop.apache import distribution
from tests.spark.loopback_cluster import SHORT_LIVED_JVM
from tests.spark.queries import run_to_end

QUIET = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
RECEIVE_MS = 240_000
NUMBERING = {
    "brokerEntryMetadataInterceptors": "org.apache.pulsar.common.intercept.AppendIndexMetadataInterceptor",
    "exposingBrokerEntryMetadataToClientEnabled": "true",
}


class Apache(NamedTuple):
    server: PulsarServer
    numbers_messages: bool

    def options(self, topic: str, **more: object) -> dict[str, str]:
        given = {"service.url": self.server.service_url, "topic": topic, **more}
        return {name: str(value) for name, value in given.items()}

    def stats(self, topic: str) -> Any:
        path = topic.replace("://", "/")
        with urllib.request.urlopen(f"{self.server.web_url}/admin/v2/{path}/stats", timeout=60) as answer:
            return json.load(answer)


@pytest.fixture(scope="module", params=[False, True], ids=["ids-alone", "numbered"])
def apache(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Apache]:
    numbers = bool(request.param)
    settings = {"brokerDeduplicationEnabled": "true", **(NUMBERING if numbers else {})}
    with PulsarServer(distribution(), tmp_path_factory.mktemp("apache"), settings) as server:
        yield Apache(server, numbers)


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    distribution()
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    made = magnetar_spark.session(
        "interop",
        master="local[2,4]",
        spark_ui_enabled="false",
        spark_sql_shuffle_partitions="2",
        spark_driver_bindAddress="127.0.0.1",
        spark_driver_extraJavaOptions=SHORT_LIVED_JVM,
        spark_python_authenticate_socketTimeout="120s",
    )
    made.sparkContext.setLogLevel("ERROR")
    yield made
    made.stop()


@pytest.fixture
def client(apache: Apache) -> Iterator[pulsar.Client]:
    made = pulsar.Client(apache.server.service_url, operation_timeout_seconds=240, logger=QUIET)
    yield made
    made.close()


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    return f"persistent://public/default/{request.node.originalname}"


def publish(client: pulsar.Client, topic: str, numbers: range, **options: object) -> list[str]:
    """In batches unless told otherwise; the ids that the broker gave, in order."""
    packed = {"batching_enabled": True, "batching_max_messages": 50, "batching_max_publish_delay_ms": 60_000}
    producer = client.create_producer(topic, block_if_queue_full=True, **(options or packed))
    ids: list[str] = []
    for number in numbers:
        producer.send_async(
            b"%d" % number,
            lambda _, message_id: ids.append(f"{message_id.ledger_id()}:{message_id.entry_id()}"),
            partition_key=f"k{number % 5}",
            properties={"number": str(number)},
        )
    producer.flush()
    producer.close()
    return ids


def taken(client: pulsar.Client, topic: str) -> list[pulsar.Message]:
    """All that is in a topic, as Apache's own client sees it."""
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    found = []
    while reader.has_message_available():
        found.append(reader.read_next(timeout_millis=RECEIVE_MS))
    reader.close()
    return found


def values(frame: DataFrame) -> list[int]:
    return sorted(int(bytes(row["value"])) for row in frame.select("value").collect())


@pytest.mark.feature("F-SPK-04", "F-SPK-08")
def test_a_batch_has_every_message_and_goes_by_message_ids(
    apache: Apache, spark: SparkSession, client: pulsar.Client, topic: str
) -> None:
    publish(client, topic, range(500))
    publish(client, topic, range(500, 520), batching_enabled=False)
    frame = spark.read.format("pulsar").options(**apache.options(topic, metadata="all")).load()
    rows = sorted(frame.collect(), key=lambda row: int(bytes(row["value"])))
    assert [int(bytes(row["value"])) for row in rows] == list(range(520))
    assert [row["__index"] for row in rows] == (list(range(520)) if apache.numbers_messages else [None] * 520)
    assert bytes(rows[7]["__key"]) == b"k2"
    assert rows[7]["__messageProperties"] == {"number": "7"}
    official = taken(client, topic)
    assert [row["__publishTime"].timestamp() * 1000 for row in rows] == [one.publish_timestamp() for one in official]
    # From inside a batch to an entry: both ends by the ids that everybody knows.
    first, last = official[120].message_id(), official[509].message_id()
    begin = f"{first.ledger_id()}:{first.entry_id()}:{first.batch_index()}"
    ends = {
        "startingOffsets": json.dumps({topic: {"after": begin}}),
        "endingOffsets": json.dumps({topic: {"after": f"{last.ledger_id()}:{last.entry_id()}"}}),
    }
    part = spark.read.format("pulsar").options(**apache.options(topic, **ends)).load()
    assert values(part) == list(range(120, 510))


@pytest.mark.feature("F-SPK-02", "F-SPK-03")
def test_a_stream_is_exact_over_restarts_and_its_cursor_follows(
    apache: Apache, spark: SparkSession, client: pulsar.Client, topic: str, tmp_path: Path
) -> None:
    checkpoint = tmp_path / "checkpoint"
    given = apache.options(topic, startingOffsets="earliest", maxMessagesPerTrigger=120, subscription="query")
    seen: dict[int, list[int]] = {}

    def run() -> None:
        def keep(rows: DataFrame, batch: int) -> None:
            seen[batch] = values(rows)

        frame = spark.readStream.format("pulsar").options(**given).load()
        run_to_end(frame.writeStream.foreachBatch(keep).option("checkpointLocation", str(checkpoint)))

    publish(client, topic, range(300))
    run()
    assert [len(rows) for _, rows in sorted(seen.items())] == [120, 120, 60]
    publish(client, topic, range(300, 400))
    run()
    assert sorted(number for rows in seen.values() for number in rows) == list(range(400))
    offsets = json.loads((checkpoint / "offsets" / "0").read_text().splitlines()[-1])
    assert offsets[topic].get("index") == (120 if apache.numbers_messages else None)
    assert offsets[topic]["after"].count(":") == 2, "the first batch ends inside an entry of fifty"
    subscriptions = apache.stats(topic)["subscriptions"]
    assert {name: one["msgBacklog"] for name, one in subscriptions.items() if one["durable"]} == {"query": 0}


@pytest.mark.feature("F-SPK-06")
def test_a_sink_writes_every_row_once_whatever_runs_again(
    apache: Apache, spark: SparkSession, client: pulsar.Client, topic: str, tmp_path: Path
) -> None:
    frame = spark.range(1_000).selectExpr("cast(cast(id as string) as binary) as value", "concat('k', id % 5) as __key")
    for _ in range(2):
        write = frame.repartition(3).write.format("pulsar").mode("append")
        write.options(**apache.options(topic, writeId="once")).save()
    found = taken(client, topic)
    assert Counter(one.data() for one in found) == Counter(b"%d" % number for number in range(1_000))
    assert {one.partition_key() for one in found} == {f"k{number}" for number in range(5)}
    assert all(one.partition_key() == f"k{int(one.data()) % 5}" for one in found)
    # From topic to topic, and the last batch again, as after a crash between the sink's commit and Spark's.
    checkpoint = tmp_path / "checkpoint"
    source = spark.readStream.format("pulsar")
    given = apache.options(topic, startingOffsets="earliest", maxMessagesPerTrigger=400)
    rows = source.options(**given).load().select("value").repartition(2)
    for turn in range(2):
        copy = rows.writeStream.format("pulsar").options(**apache.options(f"{topic}-out"))
        run_to_end(copy.option("checkpointLocation", str(checkpoint)))
        if turn == 0:
            for name in ("2", ".2.crc"):
                (checkpoint / "commits" / name).unlink(missing_ok=True)
    copied = Counter(one.data() for one in taken(client, f"{topic}-out"))
    assert copied == Counter(b"%d" % number for number in range(1_000))
