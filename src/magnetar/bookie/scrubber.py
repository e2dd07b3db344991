# SPDX-License-Identifier: Apache-2.0
"""Reading everything again, slowly, to find what has rotted before somebody needs it.

Owns the walk through every entry that an index names: each must be readable and whole. What is not is reported, so
that it can be copied again from other bookies; nothing is repaired or deleted here. The same walk without a rate is the
local consistency check.
Carries.
"""

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Final, NamedTuple

from magnetar.bookie.ledger_directory import LedgerDirectory
from magnetar.errors import EntryUnknown

_SPAN_BYTES: Final = 1024 * 1024
_SPAN_ENTRIES: Final = 1_000
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
        while places := await self._directory.index.places(ledger_id, next_id, 1):
            next_id = places[0].entry_id
            try:
                ids, entries = await self._directory.read_from(
                    ledger_id, next_id, count_max=_SPAN_ENTRIES, bytes_max=_SPAN_BYTES
                )
            except EntryUnknown as error:
                yield DamagedEntry(ledger_id, next_id, str(error))
                next_id += 1
                continue
            if entries:
                next_id = ids[-1]
                checked = sum(map(len, entries))
                self.entries_checked += len(entries)
                self.bytes_checked += checked
                if self._bytes_per_second_max:
                    await asyncio.sleep(checked / self._bytes_per_second_max)
            next_id += 1
