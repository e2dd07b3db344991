# SPDX-License-Identifier: Apache-2.0
"""Pipelines and archives that end in a table of Delta's format: every row once, for whoever reads such tables."""

from collections import Counter
from pathlib import Path

import deltalake
import pytest
from pyspark.sql import SparkSession

from magnetar.blocking import Client
from magnetar.cli.pipeline_file import load_pipeline
from magnetar.spark.archive.archiver import Archiver
from magnetar.spark.pipelines.frames import FrameBuilder
from magnetar.spark.pipelines.run import PipelineRun
from tests.processes import StandaloneProcess
from tests.spark.in_process import read_batch
from tests.spark.test_source_reads import publish

PIPELINE = """
name: to-delta
variables: {topic: x, table: y, checkpoint: z}
sources:
  messages: {topic: "${topic}", startingOffsets: earliest}
steps:
  - {name: rows, sql: "select string(value) as value, __publishTime, string(__key) as who from messages"}
sinks:
  - {from: rows, files: "${table}", format: delta, partition-by: who}
checkpoint: ${checkpoint}
"""


def values_of(table: str) -> Counter[int]:
    found = deltalake.DeltaTable(table).to_pyarrow_table(columns=["value"])
    return Counter(int(value) for value in found.column("value").to_pylist())


@pytest.mark.feature("F-SPK-10", "F-IO-01")
def test_a_stream_into_a_table_is_exact_over_replays(
    spark: SparkSession, standalone: StandaloneProcess, client: Client, topic: str, tmp_path: Path
) -> None:
    file = tmp_path / "to-delta.yaml"
    file.write_text(PIPELINE)
    table, checkpoint = str(tmp_path / "table"), tmp_path / "checkpoint"
    spec = load_pipeline(str(file), {"topic": topic, "table": table, "checkpoint": str(checkpoint)})

    def run() -> None:
        made = PipelineRun(
            spark, spec, FrameBuilder(spark, spec, {"service.url": standalone.service_url}, None), only_now=True
        )
        made.start()
        while not made.is_done:
            made.turn()
        made.check()

    publish(client, topic, 50)
    run()
    # As after a crash between the table's commit and Spark's: the batch comes again.
    commits = sorted((checkpoint / "rows-1" / "commits").glob("[0-9]*"))
    for leftover in (commits[-1], commits[-1].with_name(f".{commits[-1].name}.crc")):
        leftover.unlink(missing_ok=True)
    publish(client, topic, 25, start=50)
    run()
    assert values_of(table) == Counter(range(75))
    found = deltalake.DeltaTable(table)
    assert found.metadata().partition_columns == ["who"]
    assert set(found.to_pyarrow_table().column("who").to_pylist()) == {f"k{n}" for n in range(5)}


class Crash(Exception):
    pass


@pytest.mark.feature("F-SPK-10")
def test_an_archive_is_such_a_table_too(
    spark: SparkSession, client: Client, options: dict[str, str], topic: str, tmp_path: Path
) -> None:
    """A crash behind the archive's decision and before the table knows: the next run tells the table."""
    path = str(tmp_path / "archive")

    def archive() -> int:
        return sum(one.rows for one in Archiver(spark, options, path, is_delta=True).run(includes_open=True))

    publish(client, topic, 50)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Archiver, "_tell_delta", lambda self, records: _crash() if records else None)
        with pytest.raises(Crash):
            archive()
    publish(client, topic, 25, start=50)
    assert archive() == 25
    assert archive() == 0
    assert values_of(path) == Counter(range(75))
    assert Counter(read_batch({**options, "history": path}).numbers) == Counter(range(75))
    assert deltalake.DeltaTable(path).metadata().partition_columns == ["__day"]


def _crash() -> None:
    raise Crash
