# SPDX-License-Identifier: Apache-2.0
"""Reading everything again, slowly, to find what has rotted before somebody needs it.

Owns the walk through every entry that an index names: each must be readable and whole. What is not is reported, so
that it can be copied again from other bookies; nothing is repaired or deleted here. The same walk without a rate is the
local consistency check.
Carries.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from typing import Final, NamedTuple

from magnetar.bookie.entry_log_format import RECORD_OVERHEAD_BYTES
from magnetar.bookie.ledger_directory import LedgerDirectory
from magnetar.bookie.ledger_index import Place, Span
from magnetar.errors import EntryUnknown

# Everybody else waits while so much is checked.
_SPAN_BYTES: Final = 128 * 1024
_ENTRIES_PER_LOOK: Final = 250
# Enough to act on; a disk that lost more has to be replaced, not listed.
REPORTED_ENTRIES_MAX: Final = 10_000

_log = logging.getLogger(__name__)


class DamagedEntry(NamedTuple):
    ledger_id: int
    entry_id: int
    reason: str


class Scrubber:
    def __init__(self, directory: LedgerDirectory, *, bytes_per_second_max: int) -> None:
        self._directory = directory
        self._bytes_per_second_max = bytes_per_second_max
        self.entries_checked = 0
        self.bytes_checked = 0
        self.damaged_entries = 0

    async def run(self) -> list[DamagedEntry]:
        """One walk; returns what is damaged. A rate of 0 means as fast as the disk goes."""
        damaged: list[DamagedEntry] = []
        for ledger_id in await self._directory.index.ledger_ids():
            async for found in self._walk(ledger_id):
                self.damaged_entries += 1
                _log.error("entry %d:%d is damaged: %s", *found)
                if len(damaged) < REPORTED_ENTRIES_MAX:
                    damaged.append(found)
        return damaged

    async def _walk(self, ledger_id: int) -> AsyncIterator[DamagedEntry]:
        next_id = 0
        while places := await self._directory.index.places(ledger_id, next_id, _ENTRIES_PER_LOOK):
            for covered in _covered_by_one_read(places):
                async for found in self._check(ledger_id, covered):
                    yield found
            next_id = places[-1].entry_id + 1

    async def _check(self, ledger_id: int, places: list[Place]) -> AsyncIterator[DamagedEntry]:
        """The copies that the index names, and no others: an older one beside them proves nothing."""
        start, checked = places[0].offset, 0
        end = places[-1].offset + places[-1].entry_bytes + RECORD_OVERHEAD_BYTES
        try:
            data = await self._directory.logs.read_range(places[0].log_id, start, end - start)
        except (FileNotFoundError, EntryUnknown):
            data = b""
        for place in places:
            record = data[place.offset - start :][: place.entry_bytes + RECORD_OVERHEAD_BYTES]
            try:
                if await self._is_whole(ledger_id, place, record):
                    checked += place.entry_bytes
                    self.entries_checked += 1
            except EntryUnknown as error:
                yield DamagedEntry(ledger_id, place.entry_id, str(error))
        self.bytes_checked += checked
        if self._bytes_per_second_max:
            await asyncio.sleep(checked / self._bytes_per_second_max)

    async def _is_whole(self, ledger_id: int, place: Place, record: bytes) -> bool:
        """Whether it is still there; EntryUnknown when it is and cannot be read, wherever compaction put it."""
        try:
            self._directory.logs.checked(ledger_id, place, record)
        except EntryUnknown:
            return await self._directory.read_from(ledger_id, place.entry_id, count_max=1, bytes_max=0) is not None
        return True


def _covered_by_one_read(places: list[Place]) -> Iterator[list[Place]]:
    some, span = places[:1], Span(places[0], _SPAN_BYTES)
    for place in places[1:]:
        if not span.take(place):
            yield some
            some, span = [], Span(place, _SPAN_BYTES)
        some.append(place)
    yield some
