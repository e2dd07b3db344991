# SPDX-License-Identifier: Apache-2.0
"""kill -9 of a Python worker and of the broker while a query runs: it goes on, and every row is there once."""

import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from magnetar.blocking import Client
from tests.processes import StandaloneProcess
from tests.spark import crash_points
from tests.spark.in_process import read_batch
from tests.spark.test_batch_source import publish
from tests.spark.test_stream_source import LIMIT_S

MESSAGES = 2_000


def start(
    spark: SparkSession, url: str, topic: str, checkpoint: str, kind: str = "pulsar", limit: int = 1_000
) -> Callable[[], bool]:
    """A query from topic to topic; returns the call that waits for its end and says whether it went well."""
    options = {"service.url": url, "topic": topic, "startingOffsets": "earliest", "maxMessagesPerTrigger": str(limit)}
    frame: DataFrame = spark.readStream.format(kind).options(**options).load().select("value").repartition(2)
    writer = frame.writeStream.format(kind).option("service.url", url).option("topic", f"{topic}-out")
    query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()

    def ended() -> bool:
        try:
            return bool(query.awaitTermination(LIMIT_S))
        except Exception:
            return False

    return ended


def rows_out(url: str, topic: str) -> Counter[bytes]:
    return Counter(bytes(row["value"]) for row in read_batch({"service.url": url, "topic": f"{topic}-out"}).rows)


def expected(messages: int = MESSAGES) -> Counter[bytes]:
    return Counter(b"%d" % number for number in range(messages))


@pytest.mark.timeout(600)
@pytest.mark.feature("F-SPK-02", "F-SPK-06")
def test_a_killed_worker_is_replaced_and_its_task_runs_again(
    spark: SparkSession, crash_file: Path, standalone: StandaloneProcess, client: Client, topic: str, checkpoint: str
) -> None:
    spark.dataSource.register(crash_points.CrashingDataSource)
    publish(client, topic, MESSAGES)
    for point in ("reading", "staging"):
        crash_file.write_text(json.dumps({"point": point, "whom": "worker"}))
        ended = start(spark, standalone.service_url, topic, f"{checkpoint}-{point}", "pulsar-crashing")
        assert ended()
        assert not crash_file.exists(), "nobody was killed"
    # Two queries from one topic to one target: each of them once.
    assert rows_out(standalone.service_url, topic) == expected() + expected()


@pytest.fixture
def other(tmp_path: Path) -> Iterator[StandaloneProcess]:
    config = tmp_path / "broker.conf"
    config.write_text("brokerDeduplicationEnabled=true\n")
    with StandaloneProcess(tmp_path / "other", "--config", str(config)) as process:
        yield process


@pytest.mark.timeout(600)
@pytest.mark.feature("F-SPK-02", "F-SPK-06")
def test_a_broker_killed_while_a_query_runs_costs_no_row(
    spark: SparkSession, other: StandaloneProcess, topic: str, checkpoint: str, eventually: Callable[..., bool]
) -> None:
    with Client(other.service_url) as client:
        publish(client, topic, MESSAGES)
    ended = start(spark, other.service_url, topic, checkpoint, limit=500)
    sink_logs = Path(checkpoint) / "commits"
    eventually(lambda: sink_logs.exists() and any(sink_logs.glob("[0-9]*")), limit_s=LIMIT_S)
    other.kill()
    other.start()
    if not ended():
        # A query that gave up in between is started again, as whoever runs it would.
        assert start(spark, other.service_url, topic, checkpoint, limit=500)()
    assert rows_out(other.service_url, topic) == expected()
