# SPDX-License-Identifier: Apache-2.0
"""kill -9 of a Python worker and of the broker while a query runs: it goes on, and every row is there once."""

import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from magnetar.blocking import Client
from tests.processes import StandaloneProcess
from tests.spark import crash_points
from tests.spark.in_process import read_batch
from tests.spark.queries import LIMIT_S, run_to_end
from tests.spark.test_batch_source import publish

MESSAGES = 2_000


def copying(
    spark: SparkSession, url: str, topic: str, checkpoint: str, kind: str = "pulsar", limit: int = 1_000
) -> DataStreamWriter:
    """A query from topic to topic."""
    options = {"service.url": url, "topic": topic, "startingOffsets": "earliest", "maxMessagesPerTrigger": str(limit)}
    frame: DataFrame = spark.readStream.format(kind).options(**options).load().select("value").repartition(2)
    writer = frame.writeStream.format(kind).option("service.url", url).option("topic", f"{topic}-out")
    return writer.option("checkpointLocation", checkpoint)


def rows_out(url: str, topic: str) -> Counter[bytes]:
    return Counter(bytes(row["value"]) for row in read_batch({"service.url": url, "topic": f"{topic}-out"}).rows)


def expected(messages: int = MESSAGES) -> Counter[bytes]:
    return Counter(b"%d" % number for number in range(messages))


@pytest.mark.timeout(1200)
@pytest.mark.feature("F-SPK-02", "F-SPK-06")
def test_a_killed_worker_is_replaced_and_its_task_runs_again(
    spark: SparkSession, crash_file: Path, standalone: StandaloneProcess, client: Client, topic: str, checkpoint: str
) -> None:
    spark.dataSource.register(crash_points.CrashingDataSource)
    publish(client, topic, MESSAGES)
    for point in ("reading", "staging"):
        crash_file.write_text(json.dumps({"point": point, "whom": "worker"}))
        run_to_end(copying(spark, standalone.service_url, topic, f"{checkpoint}-{point}", "pulsar-crashing"))
        assert not crash_file.exists(), "nobody was killed"
    # Two queries from one topic to one target: each of them once.
    assert rows_out(standalone.service_url, topic) == expected() + expected()


@pytest.fixture
def other(tmp_path: Path) -> Iterator[StandaloneProcess]:
    config = tmp_path / "broker.conf"
    config.write_text("brokerDeduplicationEnabled=true\n")
    with StandaloneProcess(tmp_path / "other", "--config", str(config)) as process:
        yield process


@pytest.mark.timeout(1200)
@pytest.mark.feature("F-SPK-02", "F-SPK-06")
def test_a_broker_killed_while_a_query_runs_costs_no_row(
    spark: SparkSession, other: StandaloneProcess, topic: str, checkpoint: str, eventually: Callable[..., bool]
) -> None:
    with Client(other.service_url) as client:
        publish(client, topic, MESSAGES)
    writer = copying(spark, other.service_url, topic, checkpoint, limit=500)
    commits = Path(checkpoint) / "commits"
    query = writer.trigger(availableNow=True).start()
    eventually(lambda: not query.isActive or any(commits.glob("[0-9]*")), limit_s=LIMIT_S)
    other.kill()
    other.start()
    try:
        assert query.awaitTermination(LIMIT_S)
    except StreamingQueryException:
        # A query that gave up in between is started again, as whoever runs it would.
        run_to_end(writer)
    assert rows_out(other.service_url, topic) == expected()
