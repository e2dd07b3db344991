# SPDX-License-Identifier: Apache-2.0
"""State of a query that is lost, damaged or of another shape: it is told, and never taken for none."""

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from magnetar.blocking import Client
from magnetar.errors import DamagedRecord
from magnetar.spark.committer import SinkTopics
from magnetar.spark.pipelines.delta_table import DeltaSink
from magnetar.spark.pipelines.keyed_table import CURRENT, KeyedTable, read_table
from magnetar.spark.writer import Staged
from tests.processes import StandaloneProcess
from tests.spark.queries import run_to_end
from tests.spark.test_batch_source import publish
from tests.spark.test_sink_crashes import published, run_batch, stage, writer
from tests.spark.test_sink_faults import rows_of
from tests.spark.test_stream_source import stream

# --- what the sink keeps -----------------------------------------------------------------------------


@pytest.mark.feature("F-SPK-06")
@pytest.mark.usefixtures("small_batches")
def test_a_sink_whose_log_is_gone_says_so_and_loses_no_batch(
    standalone: StandaloneProcess, admin: httpx.Client, topic: str
) -> None:
    """F198: the target would have taken the next batch for one that it has, and dropped it."""
    for batch in range(2):
        run_batch(standalone, topic, batch, seed=batch)
    log = SinkTopics.of(topic, writer(standalone, topic)._options.sink_id or "").log
    assert log is not None
    assert admin.delete(f"/{log.replace('://', '/')}", params={"force": "true"}).is_success
    for _ in range(2):
        with pytest.raises(DamagedRecord, match="does not know of"):
            run_batch(standalone, topic, 2, seed=2)
    assert published(standalone, topic) == rows_of(2)
    # What the sentence asks for.
    other = writer(standalone, topic, sinkId=f"{log.rsplit('/', 1)[1][-80:]}-2")
    other.commit(stage(other, 2, seed=2), 2)
    assert published(standalone, topic) == rows_of(3)


@pytest.mark.feature("F-SPK-06")
@pytest.mark.usefixtures("small_batches")
def test_a_checkpoint_that_is_not_the_sinks_is_told_and_its_batches_are_not_skipped(
    standalone: StandaloneProcess, topic: str
) -> None:
    """F198: batches of a checkpoint that was lost or set back have the numbers of others, which are done."""
    sink = writer(standalone, topic)

    def commit(batch: int, query: str, seed: int) -> None:
        staged = stage(sink, batch, seed)
        for one in staged:
            assert isinstance(one, Staged)
            one.query = query
        sink.commit(staged, batch)

    commit(0, "first", seed=0)
    # Another query under the same sinkId, whose number could be a replay's.
    with pytest.raises(DamagedRecord, match="that of query first"):
        commit(0, "second", seed=1)
    commit(1, "first", seed=1)
    commit(2, "first", seed=2)
    with pytest.raises(DamagedRecord, match="lost or set back"):
        commit(1, "first", seed=3)
    commit(2, "first", seed=4)
    commit(3, "first", seed=5)
    assert published(standalone, topic) == rows_of(4)


# --- what Spark keeps --------------------------------------------------------------------------------


def _lost(state: Path) -> None:
    shutil.rmtree(state / "0" / "0")


def _cut(state: Path) -> None:
    for delta in state.glob("0/[0-9]*/*.delta"):
        delta.write_bytes(delta.read_bytes()[: delta.stat().st_size // 2])
        (delta.parent / f".{delta.name}.crc").unlink(missing_ok=True)


def _untouched(state: Path) -> None:
    assert state.exists()


# What is done to the state, what is counted by afterwards, and what the query says.
DAMAGES: list[tuple[Callable[[Path], None], str, str]] = [
    (_lost, "__key", "STATE_STORE"),
    (_cut, "__key", "STATE_STORE|CHECKPOINT_FILE|corrupt|EOF"),
    (_untouched, "octet_length(__key)", "STATE_STORE_KEY_SCHEMA_NOT_COMPATIBLE"),
]


@pytest.mark.feature("F-SPK-02")
def test_a_query_whose_state_is_lost_or_of_another_shape_does_not_begin_to_count_anew(
    spark: SparkSession, standalone: StandaloneProcess, client: Client, topic: str, checkpoint: str
) -> None:
    """F198: counts over our source; what was counted lies in the checkpoint."""

    def run(by: str, place: str) -> None:
        counts = stream(spark, standalone, topic).selectExpr(f"{by} as who").groupBy("who").count()
        run_to_end(counts.writeStream.outputMode("complete").format("noop").option("checkpointLocation", place))

    publish(client, topic, 14)
    run("__key", checkpoint)
    publish(client, topic, 14)
    for damage, by, words in DAMAGES:
        damaged = f"{checkpoint}{damage.__name__}"
        shutil.copytree(checkpoint, damaged)
        damage(Path(damaged) / "state")
        with pytest.raises(StreamingQueryException, match=words):
            run(by, damaged)


# --- what pipelines keep -----------------------------------------------------------------------------


@pytest.fixture
def query(spark: SparkSession) -> Iterator[None]:
    """Batches are a query's."""
    spark.sparkContext.setLocalProperty("sql.streaming.queryId", "q")
    yield
    spark.sparkContext.setLocalProperty("sql.streaming.queryId", "")


def _unnamed(table: Path) -> None:
    (table / CURRENT).unlink()


def _misnamed(table: Path) -> None:
    (table / CURRENT).write_text("{")


def _without_a_file(table: Path) -> None:
    next((table / json.loads((table / CURRENT).read_text())["version"]).glob("*.parquet")).unlink()


def _away(table: Path) -> None:
    shutil.rmtree(table)


TABLE_DAMAGES: dict[Callable[[Path], None], str] = {
    _unnamed: "is gone, and the table is not new",
    _misnamed: "does not say which version",
    _without_a_file: "files of the table's current version",
    _away: "knows none of the 2 batches",
}


@pytest.mark.feature("F-SPK-10")
@pytest.mark.usefixtures("query")
def test_a_table_of_which_something_is_lost_is_not_taken_for_a_smaller_one(spark: SparkSession, tmp_path: Path) -> None:
    """F198: the next batch would have made a table of its own rows alone."""
    path = tmp_path / "table"
    table = KeyedTable(str(path), ("key",), "value")
    rows = [
        spark.createDataFrame([(f"k{number}", batch) for number in range(3)], "key string, value int")
        for batch in range(3)
    ]
    # As a crash leaves it that comes before the first version is named.
    (path / "v000000000000").mkdir(parents=True)
    for batch in range(2):
        table.append(rows[batch], batch)
    for damage, words in TABLE_DAMAGES.items():
        damaged = tmp_path / damage.__name__
        shutil.copytree(path, damaged)
        damage(damaged)
        left = sorted(str(one) for one in damaged.rglob("*"))
        with pytest.raises(DamagedRecord, match=words):
            KeyedTable(str(damaged), ("key",), "value").append(rows[2], 2)
        if damage is not _away:
            assert sorted(str(one) for one in damaged.rglob("*")) == left
    with pytest.raises(DamagedRecord, match="knows none of the 2 batches"):
        DeltaSink(str(tmp_path / "delta"), "sink").append(rows[2], 2)
    table.append(rows[2], 2)
    assert sorted((row["key"], row["value"]) for row in read_table(spark, str(path)).collect()) == [
        (f"k{number}", 2) for number in range(3)
    ]
