# SPDX-License-Identifier: Apache-2.0
"""Reads the embedded store's files back into a tree, and says where they end.

The newest snapshot, then the logs from its generation on, in order. What follows the first unreadable byte was either
never acknowledged (a torn end: dropped) or was once durable (rot: Damaged, nothing is changed): any valid record
behind it that names a durable sequence past the break proves the second. Never writes.
Carries.
"""

from typing import NamedTuple

from magnetar.config.metadata import MetadataSettings
from magnetar.errors import Damaged
from magnetar.metadata.embedded_format import (
    HEADER_BYTES,
    RECORD_BYTES,
    Closed,
    FileHeader,
    FileKind,
    LogRecord,
    SnapshotEnd,
    decode_header,
    decode_items,
    decode_record,
    record_length,
    records_after,
)
from magnetar.metadata.tree import Effect, RecordTree
from magnetar.runtime.disk import Disk, File

SNAPSHOT_PREFIX = "snapshot-"
LOG_PREFIX = "log-"
PARTIAL_SUFFIX = ".partial"


class Files(NamedTuple):
    """Generations of the files in a store's directory, rising, and half-written snapshots."""

    snapshots: list[int]
    logs: list[int]
    partial: list[str]


class Recovered(NamedTuple):
    tree: RecordTree
    store_id: int
    generation: int
    sequence: int
    # Whether the last log ends with the mark of an orderly close.
    closed_in_order: bool
    snapshot_bytes: int
    log_bytes: int


def snapshot_path(directory: str, generation: int) -> str:
    return f"{directory}/{SNAPSHOT_PREFIX}{generation:010d}"


def log_path(directory: str, generation: int) -> str:
    return f"{directory}/{LOG_PREFIX}{generation:010d}"


def sort_files(names: list[str]) -> Files:
    """What is ours among the names of a directory; anything else is left alone."""
    files = Files([], [], [])
    for name in sorted(names):
        if name.startswith(SNAPSHOT_PREFIX) and name.endswith(PARTIAL_SUFFIX):
            files.partial.append(name)
        elif name.startswith(SNAPSHOT_PREFIX) and name[len(SNAPSHOT_PREFIX) :].isdecimal():
            files.snapshots.append(int(name[len(SNAPSHOT_PREFIX) :]))
        elif name.startswith(LOG_PREFIX) and name[len(LOG_PREFIX) :].isdecimal():
            files.logs.append(int(name[len(LOG_PREFIX) :]))
    return files


async def recover(disk: Disk, directory: str, files: Files, settings: MetadataSettings) -> Recovered:
    """The tree as of the last transaction that is whole. Damaged names the file and the offset."""
    first = files.snapshots[-1] if files.snapshots else 0
    if not first:
        raise Damaged(f"{directory} has metadata logs but no snapshot: files were removed; restore them from a backup")
    tree = RecordTree(settings)
    path = snapshot_path(directory, first)
    snapshot = await _read_snapshot(disk, path, first, tree)
    logs = [generation for generation in files.logs if generation >= first]
    for expected, generation in enumerate(logs, first):
        if generation != expected:
            raise Damaged(f"{log_path(directory, expected)} is missing: restore it from a backup")
    replay = _Replay(tree, snapshot)
    for generation in logs:
        await replay.read(disk, log_path(directory, generation), generation)
    replay.judge()
    return Recovered(
        tree,
        snapshot.store_id,
        max([first, *logs]),
        replay.sequence,
        replay.closed_in_order,
        await disk.file_size(path),
        replay.log_bytes,
    )


class _Replay:
    """Applies logs in order until the first break; behind it, only looks for proof that there was more."""

    def __init__(self, tree: RecordTree, snapshot: FileHeader) -> None:
        self._tree = tree
        self._store_id = snapshot.store_id
        self._break: tuple[str, int] | None = None
        self._proof: tuple[int, str] = (0, "")
        self.sequence = snapshot.sequence
        self.closed_in_order = False
        self.log_bytes = 0

    async def read(self, disk: Disk, path: str, generation: int) -> None:
        self.closed_in_order = False
        file = await disk.open(path)
        try:
            # What a killed process wrote may be in the page cache only: make it durable before anyone relies on it.
            await file.sync()
            data = await file.read(0, file.size())
        finally:
            await file.close()
        self.log_bytes += len(data)
        header = _checked_header(data, path, FileKind.LOG, generation, self._store_id)
        if header is None or (self._break is None and header.sequence != self.sequence + 1):
            self._stop(path, 0)
            # Records behind a rotten header still prove themselves: their file is known from its name.
            header = FileHeader(FileKind.LOG, generation, self._store_id, 0)
        start = HEADER_BYTES
        while self._break is None and start < len(data):
            record = decode_record(header, data, start, start)
            if record is None or record.sequence != self.sequence + 1:
                self._stop(path, start)
            else:
                self._apply(record, f"{path} at offset {start}")
                start = record.until
        if self._break is not None:
            self._look_for_proof(header, data, start, path)

    def judge(self) -> None:
        """Raise Damaged when something behind the break was durable once."""
        proven, witness = self._proof
        if self._break is not None and proven > self.sequence:
            path, offset = self._break
            raise Damaged(
                f"{path} is damaged at offset {offset}: changes {self.sequence + 1} to {proven} were durable (says "
                f"{witness}) and cannot be read; restore the directory from a backup; nothing was changed"
            )

    def _apply(self, record: LogRecord, place: str) -> None:
        self.closed_in_order = False
        effects: list[Effect] = []
        for item in decode_items(record.body, place):
            if isinstance(item, SnapshotEnd):
                raise Damaged(f"{place}: a log holds the end of a snapshot")
            if isinstance(item, Closed):
                self.closed_in_order = True
            else:
                effects.append(item)
        self._tree.apply(effects)
        self.sequence = record.sequence

    def _stop(self, path: str, offset: int) -> None:
        self.closed_in_order = False
        if self._break is None:
            self._break = (path, offset)

    def _look_for_proof(self, header: FileHeader, data: bytes, start: int, path: str) -> None:
        for record in records_after(header, data, start):
            witness = f"the record that ends at offset {record.until} of {path}"
            self._proof = max(self._proof, (record.synced_sequence, witness), key=lambda proof: proof[0])


async def _read_snapshot(disk: Disk, path: str, generation: int, tree: RecordTree) -> FileHeader:
    """Fill the tree. A snapshot is whole or Damaged: its name came after its bytes."""
    file = await disk.open(path)
    try:
        header = _checked_header(await file.read(0, HEADER_BYTES), path, FileKind.SNAPSHOT, generation)
        if header is None:
            raise Damaged(f"{path} is damaged at offset 0: restore it from a backup; nothing was changed")
        offset, count = HEADER_BYTES, 0
        end: SnapshotEnd | None = None
        while end is None:
            record = await _snapshot_record(file, header, offset)
            effects: list[Effect] = []
            for item in decode_items(record.body, f"{path} at offset {offset}"):
                if isinstance(item, SnapshotEnd):
                    end = item
                elif isinstance(item, Closed):
                    raise Damaged(f"{path} at offset {offset}: a snapshot holds the end of a log")
                else:
                    effects.append(item)
            count += len(effects)
            tree.apply(effects)
            offset = record.until
        if end.effects != count:
            raise Damaged(f"{path} is damaged: it should hold {end.effects} items, {count} were read")
        tree.next_session = max(tree.next_session, end.next_session)
        return header
    finally:
        await file.close()


async def _snapshot_record(file: File, header: FileHeader, offset: int) -> LogRecord:
    length = record_length(await file.read(offset, RECORD_BYTES))
    if length is not None and length <= file.size() - offset:
        record = decode_record(header, await file.read(offset, length), 0, offset)
        if record is not None:
            return record
    raise Damaged(f"{file.path} is damaged at offset {offset}: restore it from a backup; nothing was changed")


def _checked_header(
    data: bytes, path: str, kind: FileKind, generation: int, store_id: int | None = None
) -> FileHeader | None:
    header = decode_header(data, path)
    if header is None:
        return None
    if header.kind != kind or header.generation != generation:
        raise Damaged(f"{path} is {header.kind.name.lower()} {header.generation} under a wrong name")
    if store_id is not None and header.store_id != store_id:
        raise Damaged(f"{path} belongs to another store than the snapshot beside it")
    return header
