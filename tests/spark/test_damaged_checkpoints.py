# SPDX-License-Identifier: Apache-2.0
"""A checkpoint that is damaged: the query says so, and never begins with what comes next."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from magnetar.blocking import Client
from tests.processes import StandaloneProcess
from tests.spark.test_batch_source import publish
from tests.spark.test_stream_source import Collected, run_available, stream


def _emptied(newest: Path) -> None:
    newest.write_bytes(b"")


def _cut(newest: Path) -> None:
    newest.write_bytes(newest.read_bytes()[:-20])


def _gone(newest: Path) -> None:
    newest.unlink()


def _of_the_future(newest: Path) -> None:
    newest.write_text(newest.read_text().replace("v1", "v99", 1))


# What the query says then.
DAMAGES: dict[Callable[[Path], None], str] = {
    _emptied: "Incomplete log file",
    _cut: "latestOffset",
    _gone: "CONCURRENT_STREAM_LOG_UPDATE",
    _of_the_future: "encountered v99",
}


@pytest.mark.feature("F-SPK-02")
def test_a_damaged_checkpoint_is_told_and_nothing_is_skipped(
    spark: SparkSession, standalone: StandaloneProcess, client: Client, topic: str, checkpoint: str
) -> None:
    """F191: the newest file of the offsets is empty, cut, gone, or of a version that nobody knows yet."""
    publish(client, topic, 200)
    before = Collected()
    run_available(stream(spark, standalone, topic, maxMessagesPerTrigger=100), before, checkpoint)
    publish(client, topic, 50, start=200)
    for damage, words in DAMAGES.items():
        damaged = f"{checkpoint}{damage.__name__}"
        shutil.copytree(checkpoint, damaged)
        newest = max((Path(damaged) / "offsets").glob("[0-9]*"), key=lambda path: int(path.name))
        damage(newest)
        (newest.parent / f".{newest.name}.crc").unlink(missing_ok=True)
        after = Collected()
        after.batches |= before.batches
        # Who began anew would begin with what comes next.
        frame = stream(spark, standalone, topic, startingOffsets="latest")
        with pytest.raises(StreamingQueryException, match=words):
            run_available(frame, after, damaged)
        assert after.rows == before.rows, "a batch that ran again was the same, and no other did"
