# SPDX-License-Identifier: Apache-2.0
"""Asks every bookie on record for every entry after calm: copies are equal, and there are enough of them (I7, I11).

Without repairs an ack quorum must have each entry; with auditor and replication workers the whole write quorum must, in
the end: re-replication converges. Reads past the ledger client, straight from each bookie.
Carries.
"""

import asyncio
from collections.abc import Iterator
from typing import NamedTuple

from magnetar.errors import MagnetarError, NoSuchEntry, NoSuchLedger
from magnetar.ledger.ledgers import Ledgers
from magnetar.ledger.record import LedgerRecord
from tests.simulation.world.checkers.violation import Violation
from tests.simulation.world.world import World

_AGAIN_S = 0.5


class Short(NamedTuple):
    """An entry that too few bookies give."""

    ledger_id: int
    entry_id: int
    seen: list[str]
    record: LedgerRecord


class ReplicaSweep:
    def __init__(self, world: World, client: Ledgers, *, patience_s: float, is_damaged: bool) -> None:
        self._world = world
        self._client = client
        self._patience_s = patience_s
        self._is_damaged = is_damaged
        self.compared = 0

    async def check(self, ledger_id: int) -> None:
        """An ack quorum has each entry, now; damage excuses."""
        short = await self._sweep(ledger_id, full=False)
        if short is not None and not self._is_damaged:
            self._violated(short)

    async def check_convergence(self, ledger_ids: list[int]) -> None:
        """The write quorum has each entry of these ledgers before patience ends; nothing excuses."""
        deadline = self._world.loop.time() + self._patience_s
        for ledger_id in ledger_ids:
            while (short := await self._sweep(ledger_id, full=True)) is not None:
                if self._world.loop.time() > deadline:
                    self._violated(short)
                    break
                await asyncio.sleep(_AGAIN_S)

    async def _sweep(self, ledger_id: int, *, full: bool) -> Short | None:
        record = (await self._client.catalog.load(ledger_id)).record
        wanted = record.quorum.write_quorum if full else record.quorum.ack_quorum
        found = None
        for entry_id, members in _entries(record):
            seen: dict[str, bytes] = {}
            for bookie in members:
                copy = await self._copy(bookie, ledger_id, entry_id, patient=not full)
                if copy is not None:
                    seen[bookie] = copy
            self.compared += len(seen)
            if len(set(seen.values())) > 1:
                sentence = f"entry {entry_id} of ledger {ledger_id} differs between {sorted(seen)}"
                self._world.check([Violation("I7 replica-agree", sentence)])
            if len(seen) < wanted and found is None:
                found = Short(ledger_id, entry_id, sorted(seen), record)
        return found

    async def _copy(self, bookie: str, ledger_id: int, entry_id: int, *, patient: bool) -> bytes | None:
        """None when the bookie says that it has none; one that says nothing after calm is not well."""
        deadline = self._world.loop.time() + self._patience_s
        while True:
            try:
                return await self._client.channels(bookie).read(ledger_id, entry_id)
            except (NoSuchEntry, NoSuchLedger):
                return None
            except MagnetarError as error:
                if self._is_damaged or not patient:
                    return None
                if self._world.loop.time() > deadline:
                    self._world.check([Violation("I13 live", f"{bookie} does not answer after calm: {error}")])
                    return None
            await asyncio.sleep(_AGAIN_S)

    def _violated(self, short: Short) -> None:
        sentence = f"entry {short.entry_id} of ledger {short.ledger_id} lies on {short.seen} only"
        segments = [(segment.first_entry, segment.ensemble) for segment in short.record.segments]
        self._world.check([Violation("I11 replicated", f"{sentence}, {short.record.quorum}, {segments}")])


def _entries(record: LedgerRecord) -> Iterator[tuple[int, list[str]]]:
    """Each entry of a closed ledger, and who must hold it."""
    for number, segment in enumerate(record.segments):
        is_last = number + 1 == len(record.segments)
        end = record.last_entry + 1 if is_last else record.segments[number + 1].first_entry
        for entry_id in range(segment.first_entry, end):
            yield entry_id, [segment.ensemble[member] for member in record.quorum.write_set(entry_id)]
