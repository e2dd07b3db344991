# SPDX-License-Identifier: Apache-2.0
"""Compaction: what is alive in a log is copied to another, then the log goes.

Owns that order: copied, copies synced, index moved and synced, only then the old log removed. An entry is alive when
the index names this very place. A log with a damaged part stays, because what it holds cannot be told; when copies
cannot be written the run ends and nothing has changed. Works within a rate.
Carries.
"""

import asyncio
import logging
from collections.abc import Awaitable
from typing import Final

from magnetar.bookie.entry_log import EntryLogWriter
from magnetar.bookie.entry_log_format import LoggedEntry
from magnetar.bookie.ledger_directory import LedgerDirectory
from magnetar.bookie.ledger_index import ROW, Move, location_of
from magnetar.config.bookie import BookieSettings
from magnetar.errors import Damaged

_BATCH_BYTES: Final = 1024 * 1024

_log = logging.getLogger(__name__)


class _CannotWrite(Exception):
    """A copy could not be written; its cause says why."""


async def _written(write: Awaitable[None]) -> None:
    try:
        await write
    except OSError as error:
        raise _CannotWrite from error


class Compactor:
    """Of one ledger directory. An OSError from the index ends the role; entries are still where it says."""

    def __init__(self, directory: LedgerDirectory, settings: BookieSettings) -> None:
        self._directory = directory
        self._bytes_per_second_max = settings.compaction_bytes_per_second_max
        self._entries_per_second_max = settings.compaction_entries_per_second_max
        self._throttled_by_bytes = settings.compaction_throttled_by_bytes
        # Logs that were left because part of them cannot be read.
        self.damaged: dict[int, None] = {}
        self.entries_copied = 0
        self.bytes_copied = 0
        self.logs_compacted = 0

    async def run(self, log_ids: list[int]) -> list[int]:
        """Compact these logs; returns those that are gone. One that cannot be read whole is left, and in `damaged`."""
        writer = self._directory.logs.writer()
        self._directory.begin_copying(writer)
        removed: list[int] = []
        try:
            for log_id in log_ids:
                if await self._compact(log_id, writer):
                    await self._directory.index.sync()
                    await self._directory.logs.remove(log_id)
                    removed.append(log_id)
                    self.logs_compacted += 1
            await _written(writer.finish())
        except _CannotWrite as error:
            _log.error("compaction in %s ends early: %s", self._directory.path, error.__cause__)
        finally:
            await writer.abandon()
            self._directory.end_copying()
        return removed

    async def _compact(self, log_id: int, writer: EntryLogWriter) -> bool:
        """Copy what is alive; False when part of the log cannot be read."""
        batch: list[LoggedEntry] = []
        batch_bytes = 0
        try:
            async for found in self._directory.logs.scan(log_id):
                if not isinstance(found, LoggedEntry):
                    _log.error("entry log %x in %s is damaged at %d", log_id, self._directory.path, found.start)
                    self.damaged[log_id] = None
                    return False
                batch.append(found)
                batch_bytes += len(found.entry)
                if batch_bytes >= _BATCH_BYTES:
                    await self._copy(log_id, batch, writer)
                    batch, batch_bytes = [], 0
            await self._copy(log_id, batch, writer)
        except (FileNotFoundError, Damaged) as error:
            _log.error("entry log %x in %s cannot be compacted: %s", log_id, self._directory.path, error)
            self.damaged[log_id] = None
            return False
        return True

    async def _copy(self, log_id: int, batch: list[LoggedEntry], writer: EntryLogWriter) -> None:
        alive = await self._alive(log_id, batch)
        if not alive:
            return
        rows = bytearray()
        await _written(writer.append([[found.entry for found in alive]], rows))
        await _written(writer.sync())
        moves = [
            Move(found.ledger_id, found.entry_id, location_of(log_id, found.offset), row[2])
            for found, row in zip(alive, ROW.iter_unpack(rows), strict=True)
        ]
        await self._directory.index.move_places(moves)
        copied = sum(len(found.entry) for found in alive)
        self.entries_copied += len(alive)
        self.bytes_copied += copied
        await asyncio.sleep(self._pause_s(len(alive), copied))

    def _pause_s(self, entries: int, copied_bytes: int) -> float:
        """How long what was just copied may take."""
        if self._throttled_by_bytes:
            return copied_bytes / self._bytes_per_second_max
        return entries / self._entries_per_second_max

    async def _alive(self, log_id: int, batch: list[LoggedEntry]) -> list[LoggedEntry]:
        """Those entries whose place in the index is the one they were found at."""
        alive: list[LoggedEntry] = []
        start = 0
        while start < len(batch):
            until = start
            while until < len(batch) and batch[until].ledger_id == batch[start].ledger_id:
                until += 1
            alive += await self._alive_of_ledger(log_id, batch[start:until])
            start = until
        return alive

    async def _alive_of_ledger(self, log_id: int, found: list[LoggedEntry]) -> list[LoggedEntry]:
        first = min(item.entry_id for item in found)
        count = max(item.entry_id for item in found) - first + 1
        places = await self._directory.index.places(found[0].ledger_id, first, count)
        locations = {place.entry_id: place.location for place in places}
        return [item for item in found if locations.get(item.entry_id) == location_of(log_id, item.offset)]
