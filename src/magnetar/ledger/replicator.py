# SPDX-License-Identifier: Apache-2.0
"""One worker that brings marked ledgers back to their full number of copies.

For each ledger on the list that it can lock: copy what lost members held to other bookies, then put those on record;
never the other way round, so that a record names no bookie that lacks data. A ledger that cannot be repaired now is
left for later, with growing pauses, and does not hold up the others. An open ledger's last fragment gets a grace
period, then the ledger is recovered, which fences its writer.
Carries.
"""

import asyncio
import logging
from collections.abc import Callable, Collection
from typing import Final

from magnetar.config.ledger import RepairSettings
from magnetar.errors import BadVersion, MagnetarError, MetadataError, NoSuchLedger, NotEnoughBookies
from magnetar.ledger.audit import Fragment, entries_of, fragments_of, lost_members, oldest_first
from magnetar.ledger.catalog import Versioned
from magnetar.ledger.fragment_check import FragmentCheck
from magnetar.ledger.fragment_copy import FragmentCopy
from magnetar.ledger.parts import LedgerParts
from magnetar.ledger.placement import affinity_of
from magnetar.ledger.recoverer import Recoverer
from magnetar.ledger.repair_list import Mark, RepairList
from magnetar.runtime.clock import WallClock

_log = logging.getLogger(__name__)

DEFERRED_MAX: Final = 10_000


class Replicator:
    def __init__(
        self,
        parts: LedgerParts,
        repairs: RepairList,
        available: Callable[[], Collection[str]],
        clock: WallClock,
        settings: RepairSettings,
    ) -> None:
        self._parts = parts
        self._repairs = repairs
        self._available = available
        self._clock = clock
        self._settings = settings
        # Ledger → (failures, when to try again).
        self._deferred: dict[int, tuple[int, int]] = {}
        self.repaired = 0
        self.failed = 0

    async def run(self) -> None:
        """Work on the list for ever."""
        while True:
            try:
                await self.round()
            except MetadataError as error:
                _log.warning("the list of ledgers to repair cannot be read: %s", error)
            await asyncio.sleep(self._settings.retry_delay_ms / 1000)

    async def round(self) -> int:
        """Try every ledger on the list once, oldest marks first; how many were repaired."""
        if not self._available() or not await self._repairs.is_enabled():
            return 0
        marks = [(ledger_id, await self._marked_ms(ledger_id)) async for ledger_id in self._repairs.marked()]
        repaired = 0
        for ledger_id in oldest_first(marks):
            if self._deferred.get(ledger_id, (0, 0))[1] <= self._clock.now_ms():
                repaired += await self._attempt(ledger_id)
        return repaired

    async def _marked_ms(self, ledger_id: int) -> int:
        mark = await self._repairs.look(ledger_id)
        return mark.marked_ms if mark is not None else 0

    async def _attempt(self, ledger_id: int) -> bool:
        if not await self._repairs.lock(ledger_id):
            return False
        try:
            mark = await self._repairs.look(ledger_id)
            if mark is None:
                return False
            if not await self.repair(mark):
                self._defer(ledger_id, None)
                return False
            await self._repairs.finish(mark)
        except MagnetarError as error:
            self._defer(ledger_id, error)
            return False
        finally:
            await self._repairs.unlock(ledger_id)
        self._deferred.pop(ledger_id, None)
        self.repaired += 1
        return True

    def _defer(self, ledger_id: int, error: MagnetarError | None) -> None:
        failures = self._deferred.get(ledger_id, (0, 0))[0] + 1
        delay_ms = min(self._settings.retry_delay_ms * 2 ** min(failures - 1, 30), self._settings.retry_delay_max_ms)
        if error is None:
            delay_ms = self._settings.open_fragment_grace_ms
        else:
            self.failed += 1
            _log.warning("ledger %d cannot be repaired now (%d times): %s", ledger_id, failures, error)
        if len(self._deferred) >= DEFERRED_MAX and ledger_id not in self._deferred:
            self._deferred.pop(next(iter(self._deferred)))
        self._deferred[ledger_id] = (failures, self._clock.now_ms() + delay_ms)

    # --- one ledger ---------------------------------------------------------------------------

    async def repair(self, mark: Mark) -> bool:
        """Whether nothing of the ledger is missing any more; False: its last fragment waits for its grace period."""
        try:
            known = await self._parts.catalog.load(mark.ledger_id)
        except NoSuchLedger:
            return True
        # Only what an auditor has marked: a bookie that restarts just now is not lost.
        lost = [bookie for bookie in mark.missing if bookie not in self._available()]
        suspects = [bookie for bookie in mark.missing if bookie not in lost]
        tail = fragments_of(known.record)[-1]
        if tail.is_growing and lost_members(tail, lost):
            if self._clock.now_ms() - mark.marked_ms < self._settings.open_fragment_grace_ms:
                await self._repair_fragments(known, lost, suspects)
                return False
            known = await Recoverer(known, self._parts).recover()
        await self._repair_fragments(known, lost, suspects)
        return True

    async def move_off(self, ledger_id: int, bookie: str) -> None:
        """Copy whatever this bookie should hold of a ledger elsewhere, and take its name off the record."""
        while not await self._repairs.lock(ledger_id):  # noqa: ASYNC110 - the lock is in the metadata
            # Somebody repairs it, or a bookie looks whether it may drop its copy.
            await asyncio.sleep(self._settings.retry_delay_ms / 1000)
        try:
            await self._move_off(ledger_id, bookie)
        finally:
            await self._repairs.unlock(ledger_id)

    async def _move_off(self, ledger_id: int, bookie: str) -> None:
        known = await self._parts.catalog.load(ledger_id)
        if fragments_of(known.record)[-1].is_growing:
            known = await Recoverer(known, self._parts).recover()
        await self._repair_fragments(known, [bookie], [])

    async def _repair_fragments(self, known: Versioned, lost: Collection[str], suspects: Collection[str]) -> None:
        for first_entry in [fragment.first_entry for fragment in fragments_of(known.record)]:
            fragment = _fragment_at(known, first_entry)
            if fragment is None or fragment.is_growing:
                continue
            for member in lost_members(fragment, lost):
                known = await self._replace(known, first_entry, member, lost)
            for member in lost_members(fragment, suspects):
                await self._complete(known, fragment, member)

    async def _complete(self, known: Versioned, fragment: Fragment, member: int) -> None:
        """A bookie that is there but lost entries gets them again (F70)."""
        check = FragmentCheck(known.record, self._parts)
        missing = await check.missing(fragment, member)
        if missing:
            bookie = fragment.ensemble[member]
            await self._copy(known, missing, bookie, [bookie])

    async def _replace(self, known: Versioned, first_entry: int, member: int, lost: Collection[str]) -> Versioned:
        fragment = _fragment_at(known, first_entry)
        assert fragment is not None
        record = known.record
        (target,) = self._parts.placement.replacements(
            record.quorum, fragment.ensemble, [member], excluded=lost, affinity=affinity_of(record.custom or {})
        ).values()
        await self._copy(known, entries_of(fragment, record.quorum, member), target, lost)
        former = fragment.ensemble[member]
        while True:
            try:
                changed = known.record.with_replacements(first_entry, {member: target})
                stored = await self._parts.catalog.replace(known, changed)
                _log.info(
                    "ledger %d from entry %d: %s holds what %s held", record.ledger_id, first_entry, target, former
                )
                return stored
            except BadVersion:
                known = await self._parts.catalog.load(record.ledger_id)
            present = _fragment_at(known, first_entry)
            if present is None or present.ensemble != fragment.ensemble or present.last_entry != fragment.last_entry:
                raise NotEnoughBookies(f"Ledger {record.ledger_id} was changed by another client; it is tried again.")

    async def _copy(self, known: Versioned, entry_ids: list[int], target: str, avoided: Collection[str]) -> None:
        in_flight_max = self._settings.copied_entries_in_flight_max
        await FragmentCopy(known.record, self._parts, in_flight_max, avoided).copy(entry_ids, target)


def _fragment_at(known: Versioned, first_entry: int) -> Fragment | None:
    return next((f for f in fragments_of(known.record) if f.first_entry == first_entry), None)
