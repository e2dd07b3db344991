# SPDX-License-Identifier: Apache-2.0
"""The copies of lost bookies restored without anyone asking: an election, an auditor and replication workers.

Runs inside a bookie's process or in one of its own. Not to be confused with a ledger's recovery, which ends a ledger
whose writer is gone; this one moves copies of ledgers whose bookie is gone.
Assembles.
"""

import asyncio
import contextlib

from magnetar.config.ledger import RepairSettings
from magnetar.errors import MetadataError, NoRecord, NoSuchLedger
from magnetar.ledger.auditor import Auditor, Standing
from magnetar.ledger.auditor_election import AuditorElection
from magnetar.ledger.bookies import Bookies
from magnetar.ledger.ledgers import Ledgers
from magnetar.ledger.paths import BOOTS, COOKIES
from magnetar.ledger.repair_list import RepairList
from magnetar.ledger.replicator import Replicator
from magnetar.metadata.store import MetadataStore
from magnetar.runtime.clock import WallClock
from magnetar.runtime.metrics import Metrics
from magnetar.runtime.tasks import Tasks


class AutoRecovery:
    """`owner` names this process in votes and locks, as BookKeeper's bookie ids do; it must be unique."""

    def __init__(
        self,
        store: MetadataStore,
        ledgers: Ledgers,
        bookies: Bookies,
        clock: WallClock,
        settings: RepairSettings,
        owner: str,
        standing: Standing | None = None,
    ) -> None:
        self._store = store
        self._bookies = bookies
        self._settings = settings
        self.ledgers = ledgers
        self.repairs = RepairList(store, clock, owner)
        election = AuditorElection(store, owner)
        self.auditor = Auditor(ledgers.parts, bookies, self.repairs, election, settings, standing)
        self.replicator = Replicator(ledgers.parts, self.repairs, self._available, clock, settings)

    def describe(self, metrics: Metrics) -> None:
        """What it did, under BookKeeper's names."""
        for name, meaning, source in (
            ("REREPLICATE_LEDGERS", "Ledgers repaired.", lambda: self.replicator.repaired),
            ("REREPLICATE_FAILURES", "Attempts that failed.", lambda: self.replicator.failed),
        ):
            metrics.asked_counters(f"replication_worker_{name}", meaning, ()).series().source = source
        metrics.gauge(
            "auditor_NUM_LEDGERS_NOT_ADHERING_TO_PLACEMENT_POLICY",
            "Ledgers on too few racks or outside their groups, as the last check of placement found them.",
            lambda: len(self.auditor.misplaced),
        )

    async def start(self, tasks: Tasks) -> None:
        """Begin to audit and repair; the tasks end with their group."""
        with contextlib.suppress(MetadataError):
            await self.repairs.prepare()
        tasks.start(self.auditor.run(), "auditor")
        for i in range(self._settings.workers_max):
            tasks.start(self.replicator.run(), f"replication worker {i}")

    async def decommission(self, bookie: str) -> None:
        """Move everything off a stopped bookie, then forget its cookie and its starts: nothing is expected of its name.

        Refused while it runs; what a copy raises ends it, and it may be called again.
        """
        while await self.auditor.mark_decommissioned(bookie):
            async for ledger_id in self.ledgers.catalog.ledger_ids():
                with contextlib.suppress(NoSuchLedger):
                    record = (await self.ledgers.catalog.load(ledger_id)).record
                    if bookie in record.bookies():
                        await self.replicator.move_off(ledger_id, bookie)
            await asyncio.sleep(0)
        for path in (f"{COOKIES}/{bookie}", f"{BOOTS}/{bookie}"):
            with contextlib.suppress(NoRecord):
                await self._store.delete(path)

    def _available(self) -> tuple[str, ...]:
        return (*self._bookies.writable, *self._bookies.read_only)
