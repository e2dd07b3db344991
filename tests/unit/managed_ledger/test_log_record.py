# SPDX-License-Identifier: Apache-2.0
"""The log's record is changed by one at a time: what a close wrote of a ledger stays, whoever writes before or after.

Carries.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from itertools import pairwise

import pytest

from magnetar.errors import BadVersion
from magnetar.managed_ledger.ledger_record import LedgerRecord
from magnetar.metadata.store import Stored
from magnetar.wire.bookkeeper.codes import ReturnCode
from magnetar.wire.proto.ml_formats_pb2 import ManagedLedgerInfo
from tests.unit.ledger.faulty_store import FaultyStore
from tests.unit.managed_ledger.owners import NAME, Owner, World, read_all

PATH = f"/managed-ledgers/{NAME}"

# Entries, bytes and the time of closing of one ledger on record.
Numbers = tuple[int, int, int]


class LateStore(FaultyStore):
    """Writes of the log's record: each may take its time, and is carried out also if no one waits for it any more."""

    def __init__(self, world: World, before: Callable[[bytes], Awaitable[None]]) -> None:
        super().__init__(world.cluster.tree.open_session())
        self._world = world
        self._before_write = before
        self.under_way: list[asyncio.Task[Stored]] = []
        # Every record that was written, in order.
        self.written: list[LedgerRecord] = []

    async def put(
        self,
        path: str,
        value: bytes,
        *,
        expected_version: int | None = None,
        ephemeral: bool = False,
        sequential: bool = False,
    ) -> Stored:
        if path != PATH:
            return await super().put(
                path, value, expected_version=expected_version, ephemeral=ephemeral, sequential=sequential
            )
        task = asyncio.create_task(self._write(value, expected_version))
        self.under_way.append(task)
        self._called.set()
        return await asyncio.shield(task)

    async def _write(self, value: bytes, expected_version: int | None) -> Stored:
        await self._before_write(value)
        self._world.clock.time_ms += 1
        stored = await super().put(PATH, value, expected_version=expected_version)
        self.written.append(LedgerRecord(value))
        self._called.set()
        return stored


def closed(record: LedgerRecord) -> dict[int, Numbers]:
    return {
        span.ledger_id: (span.entries, span.size_bytes, span.closed_ms) for span in record.spans() if span.closed_ms
    }


def assert_closes_stay(written: list[LedgerRecord]) -> None:
    """No record has other numbers of a closed ledger than the one before it."""
    for before, after in pairwise(written):
        assert closed(before).items() <= closed(after).items()


@pytest.mark.feature("F-ML-16")
@pytest.mark.parametrize("writes_before", [None, 0, 1, 2])
def test_properties_that_land_late_take_nothing_from_a_ledger_that_closed_meanwhile(writes_before: int | None) -> None:
    """F85: their caller waits (None), or is gone when they land before, between or after the writes of the close."""

    async def scenario() -> None:
        world = World(ledger_entries_max=5)
        let_go = asyncio.Event()

        async def hold_colours(value: bytes) -> None:
            if b"colour" in value:
                await let_go.wait()

        store = LateStore(world, hold_colours)
        owner = Owner(world, "owner", world.settings, store=store)
        ledger = await owner.open()
        owner.publisher.append_many(4, "before")
        await owner.publisher.rest()
        writes, sent = len(store.written), len(store.under_way)
        change = asyncio.create_task(ledger.update_properties({"colour": "red"}))
        await store.until(lambda: len(store.under_way) > sent)
        if writes_before is not None:
            change.cancel()
        owner.publisher.append_many(4, "meanwhile")
        await store.until(lambda: len(store.written) >= writes + (writes_before or 0))
        let_go.set()
        await owner.publisher.rest()
        await store.until(lambda: bool(closed(store.written[-1])))
        await asyncio.gather(change, *store.under_way, return_exceptions=True)
        assert change.cancelled() == (writes_before is not None)
        lost = [task for task in store.under_way if isinstance(task.exception(), BadVersion)]
        assert bool(lost) == (writes_before is not None)
        await ledger.update_properties({"shape": "round"})
        first, record = ledger.ledgers.first, store.written[-1]
        assert closed(record) == {first.ledger_id: (first.entries, first.size_bytes, first.closed_ms)}
        assert first.entries >= 5
        assert record.properties == ({"shape": "round"} | ({} if change.cancelled() else {"colour": "red"}))
        assert_closes_stay(store.written)
        await owner.die()
        heir = world.owner()
        assert await read_all(await heir.open()) == owner.publisher.persisted
        await heir.close()
        world.check()

    asyncio.run(scenario())


async def offload_first(world: World) -> int:
    """What another program writes of the oldest ledger: it has it, too."""
    session = world.cluster.tree.open_session()
    found = await session.get(PATH)
    assert found is not None
    info = ManagedLedgerInfo.FromString(found.value)
    info.ledgerInfo[0].offloadContext.complete = True
    info.ledgerInfo[0].properties.add(key="where", value="elsewhere")
    await session.put(PATH, info.SerializeToString(), expected_version=found.version)
    return info.ledgerInfo[0].ledgerId


@pytest.mark.feature("F-ML-16")
@pytest.mark.parametrize("seed", range(12))
def test_numbers_of_a_closed_ledger_never_change_on_record(seed: int) -> None:
    """F85: properties change, some given up half way, while ledgers are filled, fail, and are closed."""

    async def scenario() -> None:
        draw = random.Random(seed)
        world = World(ledger_entries_max=4)
        first_owner = world.owner()
        await first_owner.open()
        first_owner.publisher.append_many(6)
        await first_owner.publisher.rest()
        await first_owner.close()
        offloaded = await offload_first(world)

        async def dawdle(value: bytes) -> None:
            for _ in range(draw.choice((0, 1, 3, 30))):
                await asyncio.sleep(0)

        store = LateStore(world, dawdle)
        owner = Owner(world, "owner", world.settings, store=store)
        ledger = await owner.open()
        world.cluster.bookies["b1"].refuse_add = lambda ledger_id, entry_id, recovery: (
            int(ReturnCode.IO_ERROR) if not recovery and draw.random() < 0.05 else None
        )
        for turn in range(10):
            owner.publisher.append_many(draw.randint(2, 6), f"t{turn}")
            change = asyncio.create_task(ledger.update_properties({f"p{turn}": "set"}))
            if draw.random() < 0.5:
                for _ in range(draw.randint(1, 20)):
                    await asyncio.sleep(0)
                change.cancel()
            await asyncio.gather(change, return_exceptions=True)
            await owner.publisher.rest()
            ledger.upkeep()
        await asyncio.gather(*store.under_way, return_exceptions=True)
        assert not owner.publisher.failures
        assert len(closed(store.written[-1])) >= 3
        assert_closes_stay(store.written)
        assert all(record.offloaded(offloaded) for record in store.written)
        assert store.written[-1].ledger_properties(offloaded) == {"where": "elsewhere"}
        await owner.die()
        world.check()

    asyncio.run(scenario())
