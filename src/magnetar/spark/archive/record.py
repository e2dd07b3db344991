# SPDX-License-Identifier: Apache-2.0
"""What an archive's log says: one record for each step, with the offsets between which its files hold every message.

A record begins where the one before it ended, for every topic partition; so the last one says how far the archive goes.
Decides.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from magnetar.errors import BadSetting, DamagedRecord
from magnetar.spark.offsets import Offset, offsets_from_json, offsets_to_json

VERSION: Final = 1
RECORD_BYTES_MAX: Final = 64 << 20


@dataclass(frozen=True, slots=True)
class ArchivedFile:
    """Where it was staged, where it belongs, how many rows it has; both paths below the archive's directory."""

    staged: str
    path: str
    rows: int


@dataclass(frozen=True, slots=True)
class ArchiveRecord:
    sequence: int
    topic: str
    starts: dict[str, Offset]
    ends: dict[str, Offset]
    files: tuple[ArchivedFile, ...]
    # The columns, as Spark writes a schema in JSON.
    columns: Mapping[str, Any]

    @property
    def rows(self) -> int:
        return sum(one.rows for one in self.files)

    @property
    def name(self) -> str:
        return record_name(self.sequence)

    def encode(self) -> bytes:
        written = {
            "version": VERSION,
            "sequence": self.sequence,
            "topic": self.topic,
            "start": offsets_to_json(self.starts),
            "end": offsets_to_json(self.ends),
            "rows": self.rows,
            "files": [{"staged": one.staged, "path": one.path, "rows": one.rows} for one in self.files],
            "columns": self.columns,
        }
        return json.dumps(written, indent=1).encode()

    @staticmethod
    def decode(data: bytes, name: str) -> "ArchiveRecord":
        """Raises DamagedRecord, naming the file."""
        try:
            written = json.loads(data)
            if written["version"] != VERSION:
                raise DamagedRecord(f"{name}: format {written['version']} of the archive's log is not known here")
            files = tuple(ArchivedFile(one["staged"], one["path"], one["rows"]) for one in written["files"])
            return ArchiveRecord(
                written["sequence"],
                written["topic"],
                offsets_from_json(written["start"]),
                offsets_from_json(written["end"]),
                files,
                written["columns"],
            )
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError, BadSetting) as error:
            raise DamagedRecord(f"{name}: this is no record of an archive's log: {error}") from None


def record_name(sequence: int) -> str:
    return f"{record_number(sequence)}.json"


def record_number(sequence: int) -> str:
    """What the names of a record and of its files begin with; they sort by it."""
    return f"{sequence:08d}"


def check_chain(records: Sequence[ArchiveRecord], topic: str | None = None) -> None:
    """Raises DamagedRecord where a record does not begin where the one before it ended."""
    reached: dict[str, Offset] = {}
    for number, record in enumerate(records):
        if record.sequence != number or record.topic != records[0].topic:
            raise DamagedRecord(f"{record.name}: the archive's log has a hole before this record")
        for partition, start in record.starts.items():
            if partition in reached and reached[partition] != start:
                raise DamagedRecord(f"{record.name}: {partition} does not begin where the record before it ended")
        reached |= record.ends
    if topic is not None and records and records[0].topic != topic:
        raise BadSetting(f"this is the archive of {records[0].topic}, not of {topic}")
