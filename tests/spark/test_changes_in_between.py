# SPDX-License-Identifier: Apache-2.0
"""What happens between the plan of a batch and its rows: the plan holds, and what was taken back is never seen."""

import json
from collections.abc import Callable
from pathlib import Path

import httpx
import pyarrow as pa
import pytest
from pyspark.sql import types

from magnetar.blocking import Client
from magnetar.client.options import InitialPosition
from magnetar.errors import TimedOut
from magnetar.spark.rows import arrow_schema
from magnetar.spark.source import PulsarDataSource
from tests.processes import StandaloneProcess
from tests.spark.in_process import Stream
from tests.spark.test_source_reads import publish

VALUE = types.StructType([types.StructField("value", types.BinaryType())])


@pytest.mark.feature("F-SPK-02", "F-SPK-09")
def test_a_planned_batch_is_what_it_was_whatever_becomes_of_the_topic(
    client: Client, admin: httpx.Client, topic: str, options: dict[str, str], eventually: Callable[..., bool]
) -> None:
    """F195: partitions are added, ledgers are rolled and the topic is compacted between planning and reading."""
    path = f"/{topic.replace('://', '/')}"
    assert admin.put(f"{path}/partitions", content="1").is_success
    publish(client, topic, 50)
    stream = Stream(options)
    end = stream.reader.latestOffset(stream.offset, stream.reader.getDefaultReadLimit())
    before = stream.read(stream.offset, end)
    assert admin.post(f"{path}/partitions", content="2").is_success
    publish(client, f"{topic}-partition-0", 25, start=50)
    publish(client, f"{topic}-partition-1", 25, start=75)
    assert admin.put(f"{path}-partition-0/unload").is_success
    compaction = f"{path}-partition-0/compaction"
    assert admin.put(compaction).is_success
    eventually(lambda: admin.get(compaction).json()["status"] == "SUCCESS")
    assert stream.read(stream.offset, end).rows == before.rows
    assert before.numbers == list(range(50))
    stream.offset = end
    rest = stream.next()
    assert rest is not None
    assert rest.numbers == list(range(50, 100)), "the partition from its beginning, the other from where it was"


@pytest.mark.feature("F-SPK-02", "F-SPK-03")
def test_a_first_batch_that_runs_again_begins_where_it_began(
    client: Client, admin: httpx.Client, topic: str, options: dict[str, str]
) -> None:
    """F191: Spark keeps no start of it: who asks for the latest again would skip what came meanwhile."""
    publish(client, topic, 25)
    latest = {**options, "startingOffsets": "latest", "subscription": "query"}
    stream = Stream(latest)
    publish(client, topic, 50, start=25)
    end = stream.reader.latestOffset(stream.offset, stream.reader.getDefaultReadLimit())
    # The driver dies before the batch is committed.
    path = f"/{topic.replace('://', '/')}"
    assert admin.put(f"{path}/unload").is_success
    publish(client, topic, 25, start=75)
    again = Stream(latest)
    assert admin.post(f"{path}/trim").is_success
    assert again.read(again.offset, json.loads(json.dumps(end))).numbers == list(range(25, 75))
    again.offset = end
    rest = again.next()
    assert rest is not None
    assert rest.numbers == list(range(75, 100))


@pytest.mark.feature("F-SPK-02")
def test_a_task_that_is_tried_again_reads_the_same_after_the_broker_died(tmp_path: Path, topic: str) -> None:
    """F196: in the middle of its rows; ledgers are recovered and others are begun meanwhile."""
    with StandaloneProcess(tmp_path) as process:
        with Client(process.service_url) as client:
            publish(client, topic, 3_000)
            stream = Stream({"service.url": process.service_url, "topic": topic, "metadata": "all"})
            end = stream.reader.latestOffset(stream.offset, stream.reader.getDefaultReadLimit())
            [part, *_] = parts = stream.reader.partitions(stream.offset, end)
            before = [row for part in parts for batch in stream.reader.read(part) for row in batch.to_pylist()]
            attempt = stream.reader.read(part)
            next(attempt)
            process.kill()
            process.start()
            publish(client, topic, 25, start=3_000)
        again = [row for part in parts for batch in stream.reader.read(part) for row in batch.to_pylist()]
        assert [int(row["value"]) for row in before] == list(range(3_000))
        assert again == before


@pytest.mark.feature("F-SPK-06")
def test_a_batch_that_was_taken_back_is_never_seen(client: Client, topic: str, options: dict[str, str]) -> None:
    """F197: its rows were staged by two tasks; consumers see the batch that took its place, and nothing else."""
    with client.subscribe(topic, "all", initial_position=InitialPosition.Earliest) as consumer:
        writer = PulsarDataSource({**options, "sinkId": "query"}).streamWriter(VALUE, False)
        writer.abort([writer.write(iter([_rows(start)])) for start in (0, 50)], 0)
        with pytest.raises(TimedOut):
            consumer.receive(timeout_millis=200)
        writer.commit([writer.write(iter([_rows(100)]))], 0)
        came = [int(consumer.receive(timeout_millis=20_000).data()) for _ in range(50)]
        assert came == list(range(100, 150))
        with pytest.raises(TimedOut):
            consumer.receive(timeout_millis=200)


def _rows(start: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(
        [{"value": b"%d" % number} for number in range(start, start + 50)], schema=arrow_schema(VALUE)
    )
