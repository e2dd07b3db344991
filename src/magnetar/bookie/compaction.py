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

# What is looked at, and copied, in one go: the loop and the interpreter are held for a fraction of a millisecond.
_PIECE_BYTES: Final = 64 * 1024
_PIECE_ENTRIES: Final = 64
# Looking at what is dead is work, too: so many of its bytes, or entries, count as one that is copied.
_PASSED_FOR_ONE: Final = 8
# Shorter rests than this are saved up: a loop's timers are not finer than a millisecond.
_REST_S_MIN: Final = 0.005

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
        # When what has been copied may have been copied, on the loop's clock.
        self._due_s = 0.0
        self.entries_copied = 0
        self.bytes_copied = 0
        self.entries_passed = 0
        self.bytes_passed = 0
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
            await self._rest()
        except _CannotWrite as error:
            _log.error("compaction in %s ends early: %s", self._directory.path, error.__cause__)
        finally:
            await writer.abandon()
            self._directory.end_copying()
        return removed

    async def _compact(self, log_id: int, writer: EntryLogWriter) -> bool:
        """Copy what is alive; False when part of the log cannot be read."""
        piece: list[LoggedEntry] = []
        piece_bytes = 0
        moves: list[Move] = []
        try:
            async for found in self._directory.logs.scan(log_id):
                if not isinstance(found, LoggedEntry):
                    _log.error("entry log %x in %s is damaged at %d", log_id, self._directory.path, found.start)
                    self.damaged[log_id] = None
                    return False
                piece.append(found)
                piece_bytes += len(found.entry)
                if piece_bytes >= _PIECE_BYTES or len(piece) >= _PIECE_ENTRIES:
                    await self._copy(log_id, piece, writer, moves)
                    piece, piece_bytes = [], 0
            await self._copy(log_id, piece, writer, moves)
            await self._move(moves, writer)
        except (FileNotFoundError, Damaged) as error:
            _log.error("entry log %x in %s cannot be compacted: %s", log_id, self._directory.path, error)
            self.damaged[log_id] = None
            return False
        return True

    async def _copy(self, log_id: int, piece: list[LoggedEntry], writer: EntryLogWriter, moves: list[Move]) -> None:
        """Append what is alive of a piece; what has been synced by then is moved, the rest waits in `moves`."""
        began_s = asyncio.get_running_loop().time()
        found_at = await self._directory.index.locations([(found.ledger_id, found.entry_id) for found in piece])
        alive = [
            found
            for found, location in zip(piece, found_at, strict=True)
            if location == location_of(log_id, found.offset)
        ]
        if alive:
            rows = bytearray()
            await _written(writer.append([[found.entry for found in alive]], rows))
            moves += [
                Move(found.ledger_id, found.entry_id, location_of(log_id, found.offset), row[2])
                for found, row in zip(alive, ROW.iter_unpack(rows), strict=True)
            ]
            if not writer.has_unsynced:
                await self._move(moves, writer)
        await self._pace(began_s, piece, alive)

    async def _move(self, moves: list[Move], writer: EntryLogWriter) -> None:
        """Let the index name the copies, which are durable first."""
        if writer.has_unsynced:
            await _written(writer.sync())
        for start in range(0, len(moves), _PIECE_ENTRIES):
            await self._directory.index.move_places(moves[start : start + _PIECE_ENTRIES])
        moves.clear()

    async def _pace(self, began_s: float, piece: list[LoggedEntry], alive: list[LoggedEntry]) -> None:
        copied = sum(len(found.entry) for found in alive)
        passed = sum(len(found.entry) for found in piece) - copied
        self.entries_copied += len(alive)
        self.bytes_copied += copied
        self.entries_passed += len(piece) - len(alive)
        self.bytes_passed += passed
        if self._throttled_by_bytes:
            takes_s = (copied + passed / _PASSED_FOR_ONE) / self._bytes_per_second_max
        else:
            counted = len(alive) + (len(piece) - len(alive)) / _PASSED_FOR_ONE
            takes_s = counted / self._entries_per_second_max
        # Behind its time it does not hurry up: a limit is not an average.
        self._due_s = max(self._due_s, began_s) + takes_s
        if self._due_s - asyncio.get_running_loop().time() >= _REST_S_MIN:
            await self._rest()

    async def _rest(self) -> None:
        await asyncio.sleep(max(0.0, self._due_s - asyncio.get_running_loop().time()))
