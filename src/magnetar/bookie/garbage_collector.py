# SPDX-License-Identifier: Apache-2.0
"""Freeing space in one ledger directory: ledgers that are gone, logs that are empty, logs that are nearly so.

Owns the proofs before a deletion: a ledger goes only when a listing does not name it and its own record, read by
itself, is not there; a question that cannot be answered deletes nothing. The index forgets, durably, before a log goes.
Carries.
"""

import logging
from typing import Protocol

from magnetar.bookie.checkpoint import DELETED_NOTE
from magnetar.bookie.compaction import Compactor
from magnetar.bookie.garbage import Garbage
from magnetar.bookie.ledger_directory import LedgerDirectory
from magnetar.bookie.ledger_questions import LedgerQuestions
from magnetar.config.bookie import BookieSettings
from magnetar.errors import MagnetarError

_log = logging.getLogger(__name__)


class Memory(Protocol):
    """What the bookie holds of ledgers beside the directory."""

    bookie: str

    def forget(self, ledger_id: int) -> bool:
        """A ledger is gone for good: drop what is in memory. False: not yet, entries of it wait to be written out."""

    def is_forgotten(self, ledger_id: int) -> bool:
        """Whether a ledger is gone for good."""

    def tombstones(self) -> bytes:
        """The ledgers that were forgotten, for the index to remember."""

    async def empty(self, ledger_id: int) -> bytes | None:
        """Drop a ledger's entries from memory and fence it; the state to keep. None: not yet."""


class GarbageCollector:
    def __init__(
        self, directory: LedgerDirectory, settings: BookieSettings, questions: LedgerQuestions, memory: Memory
    ) -> None:
        self._directory = directory
        self._settings = settings
        self._questions = questions
        self._memory = memory
        self._garbage = Garbage()
        self._compactor = Compactor(directory, settings)
        self._compacting = False
        self.compaction_suspended = False
        self.ledgers_deleted = 0
        self.surplus_removed = 0
        self.logs_removed = 0

    @property
    def compactor(self) -> Compactor:
        return self._compactor

    @property
    def garbage(self) -> Garbage:
        return self._garbage

    async def collect(self) -> None:
        """Drop ledgers that are gone, then logs in which nothing is alive. OSError ends the run."""
        gone = [ledger_id for ledger_id in await self._gone() if self._memory.forget(ledger_id)]
        if gone:
            await self._directory.index.put_note(DELETED_NOTE, self._memory.tombstones())
            for ledger_id in gone:
                await self._directory.index.delete_ledger(ledger_id)
                self._garbage.on_ledger_gone(ledger_id)
                self.ledgers_deleted += 1
            await self._directory.index.sync()
        await self._remove_empty_logs()

    async def collect_surplus(self) -> int:
        """Drop the entries of ledgers that other bookies hold instead of this one; returns of how many.

        A ledger's fence stays: a writer that still believes in this bookie must find it. OSError ends the run.
        """
        if self._questions.surplus is None:
            return 0
        removed = 0
        index = self._directory.index
        for ledger_id in await index.ledger_ids():
            if await index.last_entry_id(ledger_id) is None:
                continue
            try:
                async with self._questions.surplus(self._memory.bookie, ledger_id) as is_surplus:
                    removed += is_surplus and await self._drop_copy(ledger_id)
            except MagnetarError as error:
                _log.warning("the copy of ledger %d stays: it cannot be asked who must hold it: %s", ledger_id, error)
        self.surplus_removed += removed
        if removed:
            await self._remove_empty_logs()
        return removed

    async def _drop_copy(self, ledger_id: int) -> bool:
        state = await self._memory.empty(ledger_id)
        if state is None:
            return False
        await self._directory.index.delete_ledger(ledger_id, keeping=state)
        await self._directory.index.sync()
        self._garbage.on_ledger_gone(ledger_id)
        _log.warning("the copy of ledger %d is dropped: the metadata asks other bookies for it", ledger_id)
        return True

    async def _remove_empty_logs(self) -> None:
        await self._look_at_new_logs()
        for log_id in self._garbage.removable():
            await self._directory.logs.remove(log_id)
            self._garbage.on_log_removed(log_id)
            self.logs_removed += 1

    async def compact(self, share_max: float) -> int:
        """Rewrite the logs of which less than this share is alive; returns how many went."""
        if self.compaction_suspended or self._compacting:
            return 0
        self._compacting = True
        try:
            await self._look_at_new_logs()
            chosen = self._garbage.compactable(share_max)
            removed = await self._compactor.run(chosen) if chosen else []
        finally:
            self._compacting = False
        for log_id in self._compactor.damaged:
            self._garbage.on_log_damaged(log_id)
        for log_id in removed:
            self._garbage.on_log_removed(log_id)
        return len(removed)

    async def _gone(self) -> list[int]:
        """Ledgers here that two independent answers say do not exist."""
        try:
            here = await self._directory.index.ledger_ids()
            listed = frozenset(await self._questions.existing())
            unlisted = [ledger_id for ledger_id in here if ledger_id not in listed]
            return [ledger_id for ledger_id in unlisted if not await self._questions.exists(ledger_id)]
        except MagnetarError as error:
            _log.warning("nothing is deleted, because it cannot be asked which ledgers exist: %s", error)
            return []

    async def _look_at_new_logs(self) -> None:
        index = self._directory.index
        alive: dict[int, bool] = {}
        for log_id in self._garbage.unknown(self._directory.settled_logs()):
            held = await self._directory.logs.bytes_by_ledger(log_id)
            for ledger_id in held:
                if ledger_id not in alive:
                    # A ledger whose copy was dropped still has a state, but no entries. Of one that is gone the index
                    # is not asked: it would pass over every row that is left of it, with the interpreter held.
                    alive[ledger_id] = not self._memory.is_forgotten(ledger_id) and (
                        await index.last_entry_id(ledger_id) is not None
                    )
            self._garbage.on_log(log_id, held, is_alive=[each for each in held if alive[each]])
