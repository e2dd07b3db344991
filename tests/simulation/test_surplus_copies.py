# SPDX-License-Identifier: Apache-2.0
"""A bookie drops copies that nobody asks of it, while repairs bring others to it: never one that a record names.

The bookie's storage with its collector, the proofs, the auditor and the replicator are the production ones; three other
bookies are models. Every answer of the metadata store takes a moment that is drawn from the seed.
"""

import asyncio
from collections.abc import Coroutine
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from magnetar.bookie.ledger_index import LedgerIndex
from magnetar.bookie.ledger_questions import LedgerQuestions
from magnetar.bookie.plain_index import PlainLedgerIndex
from magnetar.bookie.storage import BookieStorage
from magnetar.config.ledger import RepairSettings
from magnetar.errors import NoSuchEntry
from magnetar.ledger.auto_recovery import AutoRecovery
from magnetar.ledger.bookies import Bookies
from magnetar.ledger.channel import BookieChannel
from magnetar.ledger.paths import ledger_path, repair_path
from magnetar.ledger.repair_list import RepairList
from magnetar.ledger.surplus_copies import SurplusCopies
from magnetar.metadata.store import MetadataStore, Record
from magnetar.runtime.clock import SystemClock
from magnetar.runtime.simulated_disk import SimulatedDisk
from magnetar.standalone.local_channel import LocalBookieChannel
from tests.simulation.world.loop import SimLoop
from tests.simulation.world.model_bookie import ModelBookie
from tests.simulation.world.schedule import Policy, Schedule
from tests.unit.bookie.benches import SMALL, Answers
from tests.unit.ledger.cluster import ModelClient
from tests.unit.ledger.faulty_store import FaultyStore
from tests.unit.ledger.test_auto_recovery import RepairWorld, written

OWN = "bookie-1:3181"
ENTRIES = 6
LEDGERS = 3
SETTINGS = replace(SMALL, scrub_bytes_per_second_max=0)
# Of the store, for one ledger that is looked at: read, lock, mark, read again, unlock.
CALLS_PER_LEDGER_MAX = 8


class SlowStore(FaultyStore):
    def __init__(self, inner: MetadataStore, random: Random) -> None:
        super().__init__(inner)
        self._random = random

    async def get(self, path: str) -> Record | None:
        await self._pause()
        found = await super().get(path)
        await self._pause()
        return found

    async def put(self, path: str, value: bytes, **options: Any) -> Any:
        await self._pause()
        stored = await super().put(path, value, **options)
        await self._pause()
        return stored

    async def delete(self, path: str, **options: Any) -> None:
        await self._pause()
        await super().delete(path, **options)
        await self._pause()

    async def _pause(self) -> None:
        await asyncio.sleep(self._random.choice((0.0, 0.0, 0.001, 0.001, 0.05)))


class OwnBookie(ModelBookie):
    """One with a disk, in the place of a model."""

    def __init__(self) -> None:
        super().__init__(OWN)
        self.storage: BookieStorage

    def channel(self, client: str = "") -> Any:
        made: BookieChannel = LocalBookieChannel(self.storage)
        return made


class Scene:
    """Closed ledgers on three bookies, and a fourth that has copies of all of them from earlier times."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.world = RepairWorld(3)
        self.own = OwnBookie()
        self.collecting = self.session("collector")
        self.ledger_ids: list[int] = []

    def session(self, name: str) -> ModelClient:
        return self.world.client(name, store=SlowStore(self.world.tree.open_session(), self.random))

    async def begin(self) -> None:
        disk = SimulatedDisk()

        async def index_in(directory: str) -> LedgerIndex:
            return await PlainLedgerIndex.open(disk, directory)

        async def existing() -> list[int]:
            return self.ledger_ids

        catalog = self.collecting.ledgers.catalog
        copies = SurplusCopies(catalog, RepairList(self.collecting.store, SystemClock(), "collector"))
        self.own.storage = await BookieStorage.open(
            disk,
            SETTINGS,
            bookie=OWN,
            clock=SystemClock(),
            index_factory=index_in,
            on_failed=lambda failure: None,
            questions=LedgerQuestions(existing, catalog.exists, copies.is_surplus),
        )
        for _ in range(LEDGERS):
            writer, _ = await written(self.world.client("writer"), ENTRIES)
            await writer.close()
            self.ledger_ids.append(writer.ledger_id)
        for ledger_id in self.ledger_ids:
            answers = Answers()
            held = self.world.bookies["b1"].ledgers[ledger_id]
            for entry_id, entry in held.entries.items():
                self.own.storage.add(ledger_id, entry_id, entry, held.master_key, answers, True)
            await answers.until(ENTRIES)
        await self.own.storage.checkpoint()
        self.world.bookies[OWN] = self.own
        await self.world.register()

    async def collect(self) -> None:
        # The collector looks at what is in the index.
        await self.own.storage.checkpoint()
        await self.own.storage.housekeeping.collect(surplus=True)

    async def missing(self) -> list[str]:
        """Copies that a record names and the bookie does not have."""
        found = []
        for ledger_id in self.ledger_ids:
            record = await self.world.record(ledger_id)
            for entry_id in range(ENTRIES) if OWN in record.bookies() else ():
                try:
                    await self.own.storage.read(ledger_id, entry_id)
                except NoSuchEntry:
                    found.append(f"{ledger_id}:{entry_id}")
        return found


def run(scenario: Coroutine[Any, Any, None], seed: int) -> None:
    with asyncio.Runner(loop_factory=lambda: SimLoop(Schedule(Policy.UNIFORM, Random(seed)))) as runner:
        runner.run(scenario)


@pytest.mark.feature("F-GC-08")
@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("is_lost", [True, False], ids=["lost", "decommissioned"])
def test_no_copy_goes_that_a_repair_has_put_on_record(seed: int, is_lost: bool) -> None:
    """F42: a bookie goes, and the only one left for its copies is the one that drops those that nobody asks for."""

    async def scenario() -> None:
        scene = Scene(seed)
        await scene.begin()
        repairing = scene.session("worker")
        bookies = await Bookies.open(repairing.store, repairing.tasks)
        settings = RepairSettings(retry_delay_ms=1)
        recovery = AutoRecovery(repairing.store, repairing.ledgers, bookies, scene.world.clock, settings, "worker:1")

        async def repair() -> None:
            await asyncio.sleep(scene.random.random() / 10)
            if not is_lost:
                for ledger_id in scene.ledger_ids:
                    await recovery.replicator.move_off(ledger_id, "b1")
                return
            await scene.world.lose("b1")
            while not await recovery.auditor.mark_lost():  # noqa: ASYNC110 - the listing is watched
                await asyncio.sleep(0.001)
            while [ledger_id async for ledger_id in recovery.repairs.marked()]:
                await recovery.replicator.round()
                scene.world.clock.ms += 1_000

        async def collect() -> None:
            store = scene.collecting.store
            assert isinstance(store, SlowStore)
            for _ in range(30):
                before = len(store.calls)
                await scene.collect()
                assert len(store.calls) - before <= LEDGERS * CALLS_PER_LEDGER_MAX
                await asyncio.sleep(scene.random.random() / 200)

        async with asyncio.TaskGroup() as group:
            group.create_task(repair())
            group.create_task(collect())
        assert await scene.missing() == []
        for ledger_id in scene.ledger_ids:
            assert OWN in (await scene.world.record(ledger_id)).bookies()
        bookies.close()
        await repairing.tasks.close()
        await scene.own.storage.close()

    run(scenario(), seed)


@pytest.mark.parametrize("damaged", ["the record", "the mark"])
def test_no_copy_goes_on_evidence_that_cannot_be_read(damaged: str) -> None:
    """F42: who must hold a ledger is written in a record, and that is junk; the others are looked at all the same."""

    async def scenario() -> None:
        scene = Scene(0)
        await scene.begin()
        first, *others = scene.ledger_ids
        path = ledger_path(first) if damaged == "the record" else repair_path(first)
        await scene.world.tree.open_session().put(path, b"\xff junk")
        await scene.collect()
        storage = scene.own.storage
        assert await storage.entry_ids(first) == list(range(ENTRIES))
        for ledger_id in others:
            assert await storage.entry_ids(ledger_id) == []
        await storage.close()

    run(scenario(), 0)
