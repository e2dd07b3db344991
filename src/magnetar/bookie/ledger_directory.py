# SPDX-License-Identifier: Apache-2.0
"""One ledger directory: its entry logs and the index over them.

Owns the order in which a flush reaches the disk: entries written, entries synced, then their places put into the index.
A place that the index holds always leads to durable bytes. Never knows journals or marks.
Carries.
"""

import errno
from collections.abc import Callable, Iterable
from typing import Final

from magnetar.bookie.entry_log import EntryLogs, EntryLogWriter
from magnetar.bookie.entry_log_format import RECORD_HEAD_BYTES, RECORD_OVERHEAD_BYTES, checksum_seed, entry_bytes_at
from magnetar.bookie.entry_run import EntryRun
from magnetar.bookie.ledger_index import ROW, LedgerIndex, Place, Span
from magnetar.bookie.records import log_run
from magnetar.errors import DiskFull, EntryUnknown

# A place may move once while it is read, when compaction has just finished; more often is a sign of damage.
_FIND_ATTEMPTS: Final = 3
_NO_SPACE: Final = (errno.ENOSPC, errno.EDQUOT)


class LedgerDirectory:
    __slots__ = ("_copier", "_flushing_from", "_writer", "index", "logs", "path")

    def __init__(self, path: str, logs: EntryLogs, index: LedgerIndex) -> None:
        self.path = path
        self.logs = logs
        self.index = index
        self._writer: EntryLogWriter = logs.writer()
        self._copier: EntryLogWriter | None = None
        # While a flush is under way: the first log whose entries the index may not name yet.
        self._flushing_from: int | None = None

    async def write_out(self, entries: Iterable[list[bytes]], is_hurried: Callable[[], bool]) -> int:
        """Store entries in the order given; returns how many. They are found at once, and durable after `sync`.

        In a hurry the steps are larger. DiskFull when there is no room: nothing changed, and the same entries may be
        written out again.
        """
        self._flushing_from = self._writer.log_id if self._writer.log_id is not None else self.logs.next_log_id
        try:
            return await self._write_out(entries, is_hurried)
        finally:
            self._flushing_from = None

    async def _write_out(self, entries: Iterable[list[bytes]], is_hurried: Callable[[], bool]) -> int:
        rows = bytearray()
        try:
            await self._writer.append(entries, rows, is_hurried)
            if rows:
                await self._writer.sync()
        except OSError as error:
            # The caller still has every entry, and a new log gets them all: a full disk is no loss here.
            await self._writer.abandon()
            if error.errno in _NO_SPACE:
                raise DiskFull(f"no space is left in {self.path}") from error
            raise
        if rows:
            await self.index.put_places(bytes(rows))
        return len(rows) // ROW.size

    def begin_copying(self, writer: EntryLogWriter) -> None:
        """Compaction writes with this writer: its present log is not complete."""
        self._copier = writer

    def end_copying(self) -> None:
        self._copier = None

    def settled_logs(self) -> list[int]:
        """The logs that nobody writes to and whose entries the index names, as far as they are alive."""
        writing = (self._writer.log_id, self._copier.log_id if self._copier is not None else None)
        until = self._flushing_from
        return [log_id for log_id in self.logs.log_ids() if log_id not in writing and (until is None or log_id < until)]

    async def read_from(self, ledger_id: int, entry_id: int, *, count_max: int, bytes_max: int) -> EntryRun | None:
        """The entry and those that follow it closely in the same log, or None when it is not here.

        EntryUnknown when the entry is in the index and cannot be read.
        """
        for _ in range(_FIND_ATTEMPTS):
            span = await self.index.span(ledger_id, entry_id, count_max, bytes_max)
            if span is None:
                return None
            try:
                return await self._read_span(ledger_id, span)
            except FileNotFoundError:
                continue
        raise EntryUnknown(f"the entry log of entry {ledger_id}:{entry_id} is missing in {self.path}")

    def run_at_hand(self, ledger_id: int, place: Place, *, count_max: int, bytes_max: int) -> EntryRun | None:
        """The entry that lies at this place, and those that follow it there as `read_from` gives them; without waiting.

        None where another or none lies there, where it is not whole, or where one must wait for the disk.
        """
        # A look at what begins there costs little; a megabyte of others' entries, thrown away, does not.
        head = self.logs.range_at_hand(place.log_id, place.offset, RECORD_HEAD_BYTES)
        entry_bytes = entry_bytes_at(head, place.offset, ledger_id, place.entry_id)
        if entry_bytes is None:
            return None
        record_bytes = entry_bytes + RECORD_OVERHEAD_BYTES
        length = record_bytes * max(1, min(count_max, bytes_max // record_bytes))
        data = self.logs.range_at_hand(place.log_id, place.offset, length)
        begins, ends = log_run(checksum_seed(place.log_id), place.offset, data, ledger_id, place.entry_id, count_max)
        return EntryRun(ledger_id, place.entry_id, place.location, data, begins, ends).cut_out() if begins else None

    async def sync(self) -> None:
        await self.index.sync()

    async def close(self, *, finish: bool) -> None:
        """With finish, end the log being written with its map; without, leave everything as it is."""
        if finish:
            await self._writer.finish()
        else:
            await self._writer.abandon()
        await self.logs.close()
        await self.index.close()

    async def _read_span(self, ledger_id: int, span: Span) -> EntryRun:
        first, last = span.first, span.last
        end = last.offset + last.entry_bytes + RECORD_OVERHEAD_BYTES
        data = await self.logs.read_range(first.log_id, first.offset, end - first.offset)
        # Behind the first one, of an entry that was written twice, this may be the older copy, which is as good.
        begins, ends = log_run(
            checksum_seed(first.log_id),
            first.offset,
            data,
            ledger_id,
            first.entry_id,
            last.entry_id - first.entry_id + 1,
        )
        if not begins:
            raise EntryUnknown(
                f"entry {ledger_id}:{first.entry_id} is damaged in {self.path}, log {first.log_id:x} at {first.offset}"
            )
        # Only the entry that was asked for is anybody's business.
        return EntryRun(ledger_id, first.entry_id, first.location, data, begins, ends)
