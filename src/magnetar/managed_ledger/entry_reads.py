# SPDX-License-Identifier: Apache-2.0
"""Reading entries of one managed ledger: from memory when they are there, else from its ledgers.

Owns the open readers, a bounded number, least recently used first to go. A read never goes past what is persisted, and
crosses from ledger to ledger. Never recovers or fences: the owner has done that.
Carries.
"""

import asyncio
import logging

from magnetar.errors import MagnetarError, NoSuchEntry, NoSuchLedger
from magnetar.ids import Position
from magnetar.ledger.reader import LedgerReader
from magnetar.managed_ledger.entry import Entry
from magnetar.managed_ledger.parts import LogParts

_log = logging.getLogger(__name__)


class EntryReads:
    __slots__ = ("_log", "_opening", "_readers", "lost_entries")

    def __init__(self, log: LogParts) -> None:
        self._log = log
        # The one that was asked last comes last.
        self._readers: dict[int, LedgerReader] = {}
        self._opening: asyncio.Lock | None = None
        # Entries that were skipped because they are lost for good, where the settings allow that.
        self.lost_entries = 0

    def read_cached(self, position: Position, entries_max: int, bytes_max: int) -> list[Entry] | None:
        """Entries from memory; an empty list at the end of the log; None when they are stored but not in memory."""
        ledger_id, entry_id = position
        tail = self._log.tails.get(ledger_id)
        if tail is None or not tail.base <= entry_id <= tail.confirmed:
            found = self._log.ledgers.entry_at_or_after(position)
            if found is None:
                return []
            tail = self._log.tails.get(found.ledger_id)
            if tail is None or not tail.holds(found.entry_id):
                return self._at_hand(found, entries_max, bytes_max)
            entry_id = found.entry_id
        entries = tail.read(entry_id, entries_max=entries_max, bytes_max=bytes_max)
        self._log.cache.hits += len(entries)
        return entries

    async def read(self, position: Position, *, entries_max: int, bytes_max: int) -> list[Entry]:
        """Entries from a position on: at least one, unless it is the end of the log; about bytes_max together.

        Others have had their turn when it returns: whoever reads on and on never keeps the loop to himself.
        """
        entries: list[Entry] = []
        has_waited = False
        while len(entries) < entries_max and (bytes_max > 0 or not entries):
            found = self.read_cached(position, entries_max - len(entries), bytes_max)
            if found is None:
                place = self._log.ledgers.entry_at_or_after(position)
                if place is None:
                    break
                has_waited = True
                found = await self._read_stored(place, entries_max - len(entries), bytes_max)
                if not found:
                    position = Position(place.ledger_id, place.entry_id + 1)
                    continue
            if not found:
                break
            entries += found
            bytes_max -= sum(len(entry.body) for entry in found)
            position = Position(found[-1].ledger_id, found[-1].entry_id + 1)
        if not has_waited:
            await asyncio.sleep(0)
        return entries

    def __len__(self) -> int:
        """Ledgers that are open for reading."""
        return len(self._readers)

    def close(self) -> None:
        for reader in self._readers.values():
            reader.close()
        self._readers.clear()

    def forget(self, ledger_id: int) -> None:
        reader = self._readers.pop(ledger_id, None)
        if reader is not None:
            reader.close()

    # --- private ------------------------------------------------------------------------------

    def _at_hand(self, position: Position, entries_max: int, bytes_max: int) -> list[Entry] | None:
        """What a bookie in this process has in memory; None where one must wait for it."""
        ledger_id, first = position
        span = self._log.ledgers.span(ledger_id)
        reader = self._open_reader(ledger_id)
        if span is None or reader is None:
            return None
        bodies = reader.at_hand(first, min(first + entries_max, span.entries) - 1, bytes_max=max(1, bytes_max))
        self._log.cache.misses += len(bodies)
        return [Entry(ledger_id, entry_id, body) for entry_id, body in enumerate(bodies, first)] or None

    async def _read_stored(self, position: Position, entries_max: int, bytes_max: int) -> list[Entry]:
        ledger_id, first = position
        span = self._log.ledgers.span(ledger_id)
        if span is None:
            return []
        last = min(first + entries_max, span.entries) - 1
        try:
            reader = await self._reader(ledger_id)
            async with self._log.read_budget.share(bytes_max):
                if span.closed_ms:
                    bodies = await reader.read(first, last, bytes_max=max(1, bytes_max))
                else:
                    # We are the writer and know that these are confirmed; the bookies may not have heard of it yet.
                    bodies = await reader.read_unconfirmed(first, last, bytes_max=max(1, bytes_max))
        except (NoSuchEntry, NoSuchLedger) as error:
            self.forget(ledger_id)
            if ledger_id not in self._log.ledgers:
                return []
            return self._skip_lost(position, error)
        self._log.cache.misses += len(bodies)
        return [Entry(ledger_id, entry_id, body) for entry_id, body in enumerate(bodies, first)]

    def _skip_lost(self, position: Position, error: MagnetarError) -> list[Entry]:
        if not self._log.settings.skip_lost_data:
            raise error
        self.lost_entries += 1
        _log.error("%s: entry %s is lost and skipped: %s", self._log.name, position, error)
        return []

    async def _reader(self, ledger_id: int) -> LedgerReader:
        reader = self._open_reader(ledger_id)
        if reader is not None:
            return reader
        if self._opening is None:
            self._opening = asyncio.Lock()
        async with self._opening:
            return self._open_reader(ledger_id) or await self._open(ledger_id)

    def _open_reader(self, ledger_id: int) -> LedgerReader | None:
        """A reader that knows enough: one from before the ledger was closed does not know where it ends."""
        span = self._log.ledgers.span(ledger_id)
        reader = self._readers.get(ledger_id)
        if reader is not None and (reader.is_closed or span is None or not span.closed_ms):
            self._readers[ledger_id] = self._readers.pop(ledger_id)
            return reader
        return None

    async def _open(self, ledger_id: int) -> LedgerReader:
        reader = await self._log.read_ledger(ledger_id)
        self.forget(ledger_id)
        self._readers[ledger_id] = reader
        while len(self._readers) > self._log.settings.open_readers_max:
            self._readers.pop(next(iter(self._readers))).close()
        return reader
