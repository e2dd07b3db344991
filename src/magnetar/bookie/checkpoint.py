# SPDX-License-Identifier: Apache-2.0
"""Checkpoints: what the journals hold becomes safe elsewhere, then the marks move, then old journals may go.

Owns that order: entries written and synced, index synced, journal durable up to the mark, mark replaced, journals
removed. A step that fails leaves the marks where they were. One checkpoint at a time; it covers every ledger directory,
so no journal goes while any of them still needs it.
Carries.
"""

import asyncio
import logging
from collections.abc import Sequence
from struct import Struct
from typing import Final

from magnetar.bookie.journal import Journal, JournalPlace
from magnetar.bookie.last_mark import MARK_BYTES, MARK_FILE_NAME, LastMark, decode_mark, encode_mark, may_follow
from magnetar.bookie.ledger_directory import LedgerDirectory
from magnetar.bookie.ledger_table import LedgerTable
from magnetar.bookie.write_cache import WriteCaches
from magnetar.config.bookie import BookieSettings
from magnetar.runtime.disk import Disk

CHECKPOINT_NOTE: Final = "checkpoint"
DELETED_NOTE: Final = "deleted"
UNSURE_NOTE: Final = "unsure"
BOOTS_NOTE: Final = "boots"

_NUMBER: Final = Struct(">Q")

_log = logging.getLogger(__name__)


class Checkpoints:
    def __init__(
        self,
        disk: Disk,
        settings: BookieSettings,
        directories: Sequence[LedgerDirectory],
        caches: WriteCaches,
        table: LedgerTable,
    ) -> None:
        self._disk = disk
        self._settings = settings
        self._directories = directories
        self._caches = caches
        self._table = table
        # Half of what the active cache takes.
        self._hurried_bytes = settings.write_cache_bytes_max // 4
        # Adds waited for room when this checkpoint began: they will again.
        self._adds_wait = False
        self._marks: dict[str, LastMark] = {}
        # The number of the newest checkpoint that may be in an index.
        self.number = 0
        self.completed = 0
        self.entries_written = 0

    async def read_mark(self, directory: str) -> LastMark | None:
        """The mark of a journal directory; None when there is none that can be read."""
        path = f"{directory}/{MARK_FILE_NAME}"
        if not await self._disk.exists(path):
            return None
        mark = decode_mark(await self._disk.read_file(path, bytes_max=MARK_BYTES * 16), path)
        if mark is None:
            _log.error("%s cannot be read: every journal since the last start is replayed", path)
            return None
        self._marks[directory] = mark
        self.number = max(self.number, mark.checkpoint)
        return mark

    def marks(self) -> list[LastMark]:
        return [self._marks[directory] for directory in sorted(self._marks)]

    def has_marks(self) -> bool:
        return bool(self._marks)

    def mark_number(self) -> int:
        """The newest checkpoint that a mark on disk speaks of."""
        return max((mark.checkpoint for mark in self._marks.values()), default=0)

    async def index_number(self, directory: LedgerDirectory) -> int:
        """The checkpoint that an index says it took part in."""
        note = await directory.index.note(CHECKPOINT_NOTE)
        return _NUMBER.unpack(note)[0] if note is not None and len(note) == _NUMBER.size else 0

    async def boots(self) -> int:
        """How many starts the indexes know of, all of them."""
        counts = []
        for directory in self._directories:
            note = await directory.index.note(BOOTS_NOTE)
            counts.append(_NUMBER.unpack(note)[0] if note is not None and len(note) == _NUMBER.size else 0)
        return min(counts)

    async def count_boots(self, boots: int) -> None:
        for directory in self._directories:
            await directory.index.put_note(BOOTS_NOTE, _NUMBER.pack(boots))
            await directory.sync()

    async def write_out(self) -> None:
        """Make the flushing cache and every changed ledger safe in entry logs and indexes. DiskFull or OSError."""
        flushing = self._caches.flushing
        states = self._table.take_changed()
        deleted = self._table.take_deleted()
        unsure = self._table.take_unsure()
        self.number += 1
        parts = len(self._directories)
        try:
            for part, directory in enumerate(self._directories):
                if flushing is not None:
                    self.entries_written += await directory.write_out(flushing.in_order(part, parts), self._is_hurried)
                own = {ledger_id: state for ledger_id, state in states.items() if ledger_id % parts == part}
                await directory.index.put_ledgers(own)
                if deleted is not None:
                    # As they are now: garbage collection may have stored newer ones meanwhile.
                    await directory.index.put_note(DELETED_NOTE, self._table.tombstones())
                if unsure is not None:
                    await directory.index.put_note(UNSURE_NOTE, unsure)
                await directory.index.put_note(CHECKPOINT_NOTE, _NUMBER.pack(self.number))
                await directory.sync()
        except BaseException:
            self._table.put_back(states, deleted_too=deleted is not None)
            raise
        self._caches.flushed()

    def _is_hurried(self) -> bool:
        """Adds fill one cache while the other is written out: they would have to wait for it before long."""
        return self._adds_wait or self._caches.active.bytes_held > self._hurried_bytes

    async def move_mark(self, journal: Journal, place: JournalPlace) -> None:
        """Everything before this place is safe elsewhere: say so durably, then remove journals nobody needs."""
        mark = LastMark(place.file_id, place.offset, place.position, self.number)
        previous = self._marks.get(journal.directory)
        if not may_follow(previous, mark):
            raise AssertionError(f"the mark of {journal.directory} would go back from {previous} to {mark}")
        await self._disk.replace_file(f"{journal.directory}/{MARK_FILE_NAME}", encode_mark(mark))
        self._marks[journal.directory] = mark
        await journal.reclaim(mark.file_id, self._settings.journal_backups_max)

    async def run(
        self, journals: Sequence[Journal], places: Sequence[JournalPlace], *, is_hurried: bool = False
    ) -> None:
        """One checkpoint. The caches were swapped when the journals stood at these places. Hurried: adds wait for room.

        DiskFull: nothing moved, try again with the same cache. StorageFailed or OSError: this storage ends.
        """
        durable = [journal.durable() for journal in journals]
        self._adds_wait = is_hurried
        try:
            await self.write_out()
            for future in durable:
                await asyncio.shield(future)
        finally:
            for future in durable:
                if not future.cancel() and not future.cancelled():
                    # Told to everybody already; here it is only not left unread.
                    future.exception()
        for journal, place in zip(journals, places, strict=True):
            await self.move_mark(journal, place)
        self._table.forget_idle(self._caches.ledger_ids())
        self.completed += 1
