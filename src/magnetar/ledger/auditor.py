# SPDX-License-Identifier: Apache-2.0
"""Watches over the number of copies: marks the ledgers of lost bookies, checks all ledgers now and then.

Runs where its election is won. A bookie that goes away is given a delay to come back; then every ledger that names it
is marked for the workers. Marks only; never copies and never deletes. An empty list of bookies marks nothing: then the
store is in trouble, not the bookies (R13).
Carries.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Final, NamedTuple

from magnetar.config.ledger import RepairSettings
from magnetar.errors import Damaged, MetadataError, NoSuchLedger, NotEnoughBookies, Refused
from magnetar.ledger.audit import fragments_of, lost_bookies, misplaced, outside_groups
from magnetar.ledger.auditor_election import AuditorElection
from magnetar.ledger.bookies import Bookies
from magnetar.ledger.fragment_check import FragmentCheck
from magnetar.ledger.parts import LedgerParts
from magnetar.ledger.repair_list import RepairList
from magnetar.ledger.topology_placement import BookiePlace

_MISPLACED_SHOWN_MAX: Final = 20

_log = logging.getLogger(__name__)


class Standing(NamedTuple):
    """Where bookies stand, and over how many racks the copies of an entry must be spread."""

    place: Callable[[str], BookiePlace]
    racks_min: Callable[[], int]


class Auditor:
    def __init__(
        self,
        parts: LedgerParts,
        bookies: Bookies,
        repairs: RepairList,
        election: AuditorElection,
        settings: RepairSettings,
        standing: Standing | None = None,
    ) -> None:
        self._parts = parts
        self._bookies = bookies
        self._repairs = repairs
        self._election = election
        self._settings = settings
        self._wake = asyncio.Event()
        self._standing = standing
        self._next_check_all = self._next_check_bookies = self._next_check_placement = 0.0
        # What the last check of placement found: ledger → first entries of its fragments that stand elsewhere.
        self.misplaced: dict[int, list[int]] = {}

    async def run(self) -> None:
        """Stand for election, audit while elected, for ever."""
        end = self._bookies.listen(self._wake.set)
        # Setting the delay, to whatever, asks for an audit: so BookKeeper's `triggeraudit` does.
        unwatch = self._repairs.watch_delay(self._wake.set)
        try:
            while True:
                await self._election.until_elected()
                _log.info("elected auditor")
                self._wake.set()
                now = asyncio.get_running_loop().time()
                self._next_check_all = now + self._settings.check_all_ledgers_interval_ms / 1000
                self._next_check_placement = now + self._settings.check_placement_interval_ms / 1000
                while await self._election.look():
                    await self._wait()
                    await self._audit()
        finally:
            end()
            unwatch()
            await self._election.withdraw()

    async def _wait(self) -> None:
        """Until bookies have changed, or the next check is due, or it is time to look at the election again."""
        with contextlib.suppress(TimeoutError):
            intervals_ms = (self._settings.check_bookies_interval_ms, self._settings.check_placement_interval_ms)
            async with asyncio.timeout(min(10.0, *(each / 1000 for each in intervals_ms if each))):
                await self._wake.wait()

    async def _audit(self) -> None:
        now = asyncio.get_running_loop().time()
        try:
            if not await self._repairs.is_enabled():
                return
            if self._wake.is_set() or now >= self._next_check_bookies:
                self._wake.clear()
                await self._wait_for_return()
                await self.mark_lost()
                self._next_check_bookies = now + self._settings.check_bookies_interval_ms / 1000
            if self._settings.check_all_ledgers_interval_ms and now >= self._next_check_all:
                self._next_check_all = now + self._settings.check_all_ledgers_interval_ms / 1000
                await self.check_all()
            if self._standing and self._settings.check_placement_interval_ms and now >= self._next_check_placement:
                self._next_check_placement = now + self._settings.check_placement_interval_ms / 1000
                await self.check_placement()
        except MetadataError as error:
            _log.warning("the audit is put off: %s", error)
            self._wake.set()
            await asyncio.sleep(self._settings.retry_delay_ms / 1000)

    async def _wait_for_return(self) -> None:
        """A bookie that restarts is not lost."""
        stored_s = await self._repairs.lost_bookie_delay_s()
        delay_ms = self._settings.lost_bookie_delay_ms if stored_s is None else stored_s * 1000
        if delay_ms > 0:
            await asyncio.sleep(delay_ms / 1000)

    # --- audits -------------------------------------------------------------------------------

    async def mark_lost(self) -> int:
        """Mark every ledger that names a bookie which is not there; how many."""
        await self._bookies.look()
        available = {*self._bookies.writable, *self._bookies.read_only}
        if not available:
            _log.warning("no bookie is registered: nothing is marked")
            return 0
        marked = 0
        async for ledger_id in self._parts.catalog.ledger_ids():
            try:
                record = (await self._parts.catalog.load(ledger_id)).record
            except NoSuchLedger:
                continue
            except Damaged as error:
                _log.error("ledger %d cannot be audited: %s", ledger_id, error)
                continue
            lost = lost_bookies(record, available)
            if lost:
                await self._repairs.mark(ledger_id, lost)
                marked += 1
        return marked

    async def check_all(self) -> int:
        """Ask every bookie for its first and last entry of each fragment; mark what is missing; how many ledgers."""
        marked = 0
        async for ledger_id in self._parts.catalog.ledger_ids():
            missing = await self._missing(ledger_id)
            if missing:
                await self._repairs.mark(ledger_id, missing)
                marked += 1
        return marked

    async def _missing(self, ledger_id: int) -> list[str]:
        try:
            record = (await self._parts.catalog.load(ledger_id)).record
        except NoSuchLedger:
            return []
        except Damaged as error:
            _log.error("ledger %d cannot be checked: %s", ledger_id, error)
            return []
        check = FragmentCheck(record, self._parts)
        missing: dict[str, None] = {}
        for fragment in fragments_of(record):
            for member, bookie in enumerate(fragment.ensemble):
                if bookie not in missing and not await check.holds(
                    fragment, member, self._settings.verified_percentage
                ):
                    missing[bookie] = None
        return list(missing)

    async def check_placement(self) -> dict[int, list[int]]:
        """Ledgers with fragments on too few racks or outside their groups → the first entries of those. Reports."""
        assert self._standing is not None
        place, racks_min = self._standing.place, self._standing.racks_min()
        found: dict[int, list[int]] = {}
        async for ledger_id in self._parts.catalog.ledger_ids():
            with contextlib.suppress(NoSuchLedger, Damaged):
                record = (await self._parts.catalog.load(ledger_id)).record
                racks = misplaced(record, lambda bookie: place(bookie).rack, racks_min)
                groups = outside_groups(record, lambda bookie: place(bookie).group)
                if racks or groups:
                    found[ledger_id] = sorted({*racks, *groups})
        self.misplaced = found
        for ledger_id in list(found)[:_MISPLACED_SHOWN_MAX]:
            _log.warning("ledger %d stands where it should not, from entries %s on", ledger_id, found[ledger_id])
        _log.info("%d ledgers stand where they should not", len(found))
        return found

    async def mark_decommissioned(self, bookie: str) -> int:
        """Mark every ledger of a bookie that is to go for good; it must be stopped. How many ledgers still name it."""
        await self._bookies.look()
        if bookie in self._bookies.writable or bookie in self._bookies.read_only:
            raise Refused(f"Bookie {bookie} still runs; stop it before it is decommissioned.")
        if not self._bookies.writable:
            raise NotEnoughBookies("No writable bookie is left to take over the copies.")
        named = 0
        async for ledger_id in self._parts.catalog.ledger_ids():
            with contextlib.suppress(NoSuchLedger):
                if bookie in (await self._parts.catalog.load(ledger_id)).record.bookies():
                    await self._repairs.mark(ledger_id, [bookie])
                    named += 1
        return named
