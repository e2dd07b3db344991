# SPDX-License-Identifier: Apache-2.0
"""DataFrames written to topics: everything once, however often Spark runs a batch."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from pyspark import RDD
from pyspark.sql import DataFrame, SparkSession

from magnetar.blocking import Client
from tests.processes import StandaloneProcess
from tests.spark.queries import run_to_end
from tests.spark.test_batch_source import publish, read
from tests.spark.test_stream_source import stream


def write(frame: DataFrame, standalone: StandaloneProcess, topic: str, **options: str) -> None:
    writer = frame.write.format("pulsar").mode("append").option("service.url", standalone.service_url)
    for name, value in options.items():
        writer = writer.option(name, value)
    writer.option("topic", topic).save()


def values(spark: SparkSession, standalone: StandaloneProcess, topic: str) -> Counter[bytes]:
    return Counter(bytes(row["value"]) for row in read(spark, standalone, topic).select("value").collect())


@pytest.mark.feature("F-SPK-06", "F-SPK-01")
def test_a_batch_is_written_once_and_again_only_under_another_id(
    spark: SparkSession, standalone: StandaloneProcess, topic: str
) -> None:
    frame = spark.range(1_000).selectExpr(
        "cast(cast(id as string) as binary) as value",
        "concat('k', id % 5) as __key",
        "map('id', cast(id as string)) as __messageProperties",
    )
    write(frame, standalone, topic, writeId="first")
    write(frame, standalone, topic, writeId="first")
    expected = Counter(str(number).encode() for number in range(1_000))
    assert values(spark, standalone, topic) == expected
    write(frame, standalone, topic)
    assert values(spark, standalone, topic) == expected + expected
    row = read(spark, standalone, topic).where("value = cast('7' as binary)").first()
    assert row is not None
    assert bytes(row["__key"]) == b"k2"
    assert row["__messageProperties"] == {"id": "7"}


@pytest.mark.feature("F-SPK-06")
def test_a_task_that_fails_and_is_tried_again_leaves_nothing_twice(
    spark: SparkSession, standalone: StandaloneProcess, topic: str, tmp_path: Path
) -> None:
    mark = tmp_path / "failed"

    def fail_once(rows: Iterable[int]) -> Iterator[int]:
        for count, row in enumerate(rows):
            if count == 300 and not mark.exists():
                mark.touch()
                raise RuntimeError("the first attempt ends here")
            yield row

    rows: RDD[int] = spark.sparkContext.parallelize(range(1_000), 2).mapPartitions(fail_once)
    frame = rows.map(lambda number: (str(number).encode(),)).toDF("value binary")
    write(frame, standalone, topic)
    assert mark.exists()
    assert values(spark, standalone, topic) == Counter(str(number).encode() for number in range(1_000))


class Ui:
    """What Spark's UI shows of the queries that came after it was made."""

    def __init__(self, spark: SparkSession) -> None:
        apps = f"{spark.sparkContext.uiWebUrl}/api/v1/applications"
        self._queries_url = f"{apps}/{self._asked(apps)[0]['id']}/sql?length=100000"
        self._before = len(self._asked(f"{self._queries_url}&details=false"))

    def _asked(self, url: str) -> list[Any]:
        found: list[Any] = httpx.get(url, timeout=100).raise_for_status().json()
        return found

    def written(self) -> list[tuple[int, str]]:
        """Of each write that is done: its rows, and the bytes that went to the sink."""
        found = []
        for query in self._asked(f"{self._queries_url}&planDescription=false&offset={self._before}"):
            for node in query["nodes"]:
                shown = {one["name"]: one["value"] for one in node["metrics"]}
                if node["nodeName"] == "WriteToDataSourceV2" and "number of output rows" in shown:
                    rows = int(shown["number of output rows"].replace(",", ""))
                    found.append((rows, shown["data sent to Python workers"]))
        return found


@pytest.mark.feature("F-SPK-06", "F-SPK-02")
def test_a_stream_from_topic_to_topic_is_exact_over_replays(
    spark: SparkSession,
    standalone: StandaloneProcess,
    client: Client,
    topic: str,
    checkpoint: str,
    eventually: Callable[..., bool],
) -> None:
    ui = Ui(spark)
    publish(client, topic, 900)
    frame = stream(spark, standalone, topic, maxMessagesPerTrigger=500).repartition(2).select("value")

    def run() -> list[int]:
        """Returns how many rows each batch wrote, as Spark tells it."""
        writer = frame.writeStream.format("pulsar").option("service.url", standalone.service_url)
        writer = writer.option("topic", f"{topic}-out").option("checkpointLocation", checkpoint)
        return [progress["sink"]["numOutputRows"] for progress in run_to_end(writer).recentProgress]

    assert run() == [500, 400]
    # The UI hears of a batch a moment after it is done.
    eventually(lambda: sorted(rows for rows, _ in ui.written()) == [400, 500])
    assert not [size for _, size in ui.written() if size.startswith("0")]
    assert values(spark, standalone, f"{topic}-out") == Counter(str(number).encode() for number in range(900))
    # A driver that dies between the sink's commit and Spark's own runs the batch again.
    commits = Path(checkpoint) / "commits"
    newest = max(commits.glob("[0-9]*"), key=lambda path: int(path.name))
    newest.unlink()
    (commits / f".{newest.name}.crc").unlink(missing_ok=True)
    publish(client, topic, 10, start=900)
    run()
    assert values(spark, standalone, f"{topic}-out") == Counter(str(number).encode() for number in range(910))
