# SPDX-License-Identifier: Apache-2.0
"""An archive's log that has lost records: told by the files that are in place, and not taken for a shorter archive."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from magnetar.errors import DamagedRecord
from magnetar.spark.archive.archive_log import LOG, ArchiveDirectory, log_of
from magnetar.spark.archive.record import ArchivedFile, ArchiveRecord, record_name
from magnetar.spark.offsets import START

TOPIC = "persistent://public/default/t"


def written(path: Path, records: int) -> None:
    """As the archiver does it; the last step was decided, and a crash came before its files were moved."""
    with ArchiveDirectory(str(path)) as directory:
        for sequence in range(records):
            staged = f"{directory.staging_of(sequence)}/__day=2026-11-17/part-0.parquet"
            (path / staged).parent.mkdir(parents=True)
            (path / staged).write_bytes(b"rows")
            day = f"__day=2026-11-{17 + sequence % 2}"
            file = ArchivedFile(staged, f"{day}/{sequence:08d}-00000.parquet", 1)
            record = ArchiveRecord(sequence, TOPIC, {TOPIC: START}, {TOPIC: START}, (file,), {})
            directory.decide(record)
            if sequence < records - 1:
                directory.publish(record)


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda log: shutil.rmtree(log), "its log has no record 00000001"),
        (lambda log: (log / record_name(1)).unlink(), "has a hole"),
        (lambda log: [(log / record_name(each)).unlink() for each in (1, 2)], "its log has no record 00000001"),
        (lambda log: (log / record_name(2)).write_text("{"), "no record of an archive's log"),
    ],
    ids=["all of it", "in the middle", "the end", "damaged"],
)
def test_an_archive_whose_log_lost_records_says_so(
    tmp_path: Path, damage: Callable[[Path], object], words: str
) -> None:
    """F198: whoever reads it would miss what they told of, and whoever goes on would archive it again, or never."""
    path = tmp_path / "archive"
    written(path, 3)
    # Files of others do not count, and neither do those that nobody decided on.
    (path / "__day=2026-11-17" / "part-9.parquet").write_bytes(b"")
    assert len(log_of(str(path), TOPIC)) == 3
    damage(path / LOG)
    with pytest.raises(DamagedRecord, match=words):
        log_of(str(path), TOPIC)
    with ArchiveDirectory(str(path)) as directory, pytest.raises(DamagedRecord, match=words):
        directory.records(TOPIC)


def test_an_archive_that_was_not_begun_has_no_records(tmp_path: Path) -> None:
    assert log_of(str(tmp_path / "nowhere")) == []
