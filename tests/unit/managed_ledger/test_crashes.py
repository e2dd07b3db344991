# SPDX-License-Identifier: Apache-2.0
"""An owner that dies, or whose metadata store fails, at any single call: what is told stays, nothing is left behind.

Every ledger and every record goes through the metadata store, so the n-th call on it is a step of rollover, trimming,
deletion or saving. Each scenario runs once per call, with every kind of fault at that call.
Carries.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

import pytest

from magnetar.errors import MagnetarError
from magnetar.managed_ledger.catalog import ROOT
from magnetar.managed_ledger.cursor_record import CursorRecord
from magnetar.managed_ledger.ledger_record import LedgerRecord
from tests.unit.managed_ledger.owners import NAME, Owner, World, read_all

Scenario = Callable[[Owner], Awaitable[None]]


class NthCall:
    """Fails the n-th call of the store once, or kills the owner there."""

    def __init__(self, nth: int, kind: str) -> None:
        self.left = nth
        self.kind = kind
        self.reached = asyncio.Event()

    def __call__(self, operation: str, path: str) -> str | None:
        self.left -= 1
        if self.left == 0:
            self.reached.set()
            return self.kind
        return None


class MortalStoreFault(NthCall):
    """From the n-th call on nothing is answered: the process is dead, and that call may have been carried out."""

    def __call__(self, operation: str, path: str) -> str | None:
        self.left -= 1
        if self.left == 0:
            self.reached.set()
        if self.left < 0 or (self.left == 0 and self.kind == "before"):
            raise asyncio.CancelledError
        return None if self.left else "unanswered"


async def publish_ack_and_trim(owner: Owner) -> None:
    """Rolls four times, acks and saves on the way, trims what is consumed, deletes one of two cursors."""
    ledger = await owner.open()
    keeper = await ledger.open_cursor("keeper", initial="earliest")
    goer = await ledger.open_cursor("goer", initial="earliest")
    for turn in range(4):
        owner.publisher.append_many(6, f"t{turn}")
        await owner.publisher.outcome()
        if owner.publisher.failures:
            raise owner.publisher.failures[0]
        positions = sorted(owner.publisher.persisted)
        await goer.flush()
        keeper.ack_cumulative(positions[max(0, len(positions) - 8)])
        keeper.ack(positions[-1])
        goer.ack_cumulative(positions[-2])
        await keeper.flush()
        owner.publisher.acked = max(owner.publisher.acked, keeper.saved_mark_delete)
        await ledger.trim()
    await ledger.delete_cursor("goer")
    await ledger.trim()
    await owner.logs.close()


async def make_and_delete(owner: Owner) -> None:
    ledger = await owner.open()
    cursor = await ledger.open_cursor("sub", initial="earliest")
    owner.publisher.append_many(8)
    await owner.publisher.outcome()
    cursor.ack(min(owner.publisher.persisted))
    await cursor.flush()
    await owner.logs.delete(NAME)


async def run_with_fault(world: World, scenario: Scenario, fault: NthCall) -> Owner:
    owner = world.owner(fault)
    running = asyncio.ensure_future(scenario(owner))
    dying = asyncio.ensure_future(fault.reached.wait())
    if isinstance(fault, MortalStoreFault):
        await asyncio.wait({running, dying}, return_when=asyncio.FIRST_COMPLETED)
        if not running.done():
            # Let what was sent to bookies arrive: the process is dead, the network is not.
            for _ in range(20):
                await asyncio.sleep(0)
    else:
        with contextlib.suppress(MagnetarError):
            await asyncio.shield(running)
    dying.cancel()
    running.cancel()
    await asyncio.gather(running, dying, return_exceptions=True)
    await owner.die()
    return owner


async def referenced_ledgers(world: World) -> set[int]:
    store = world.cluster.tree.open_session()
    path = f"{ROOT}/{NAME}"
    record = await store.get(path)
    if record is None:
        return set()
    log = LedgerRecord(record.value)
    found = {span.ledger_id for span in log.spans()} | set(log.deleting)
    for name in await store.children(path):
        child = await store.get(f"{path}/{name}")
        assert child is not None
        cursor = CursorRecord.decode(child.value)
        found |= {cursor.ledger_id, *cursor.deleting} - {-1}
    return found


async def calls_of(scenario: Scenario) -> int:
    world = World(ledger_entries_max=5, retention_ms=0, retention_bytes=0)
    owner = world.owner()
    await scenario(owner)
    count = len(owner.store.calls)
    await owner.die()
    world.check()
    return count


async def check_afterwards(world: World, dead: Owner) -> None:
    """The next owner finds every told entry that may not be trimmed, and after its upkeep no ledger is left over."""
    world.check()
    heir = world.owner()
    ledger = await heir.open()
    for span in ledger.ledgers:
        assert span.closed_ms or span is ledger.ledgers.last
    found = await read_all(ledger)
    told = dead.publisher.persisted
    first = ledger.ledgers.before_first
    kept = {position: body for position, body in told.items() if position > first}
    assert {position: found[position] for position in kept} == kept
    for position in told:
        assert position > first or position <= dead.publisher.acked, f"{position} was trimmed unacked"
    assert len(found) == len(set(found.values())), "a second copy"
    keeper = ledger.cursors.get("keeper")
    if keeper is not None:
        assert keeper.mark_delete >= min(dead.publisher.acked, ledger.last_confirmed)
        keeper.state.check()
    await ledger.trim()
    existing, referenced = await world.existing_ledgers(), await referenced_ledgers(world)
    assert referenced - set(ledger_ids_of(ledger)) >= referenced - existing
    orphans = existing - referenced
    assert not orphans, f"ledgers {orphans} belong to no one"
    heir.publisher.append(b"and on")
    await heir.publisher.rest()
    await heir.close()
    world.check()


def ledger_ids_of(ledger: object) -> list[int]:
    return [span.ledger_id for span in ledger.ledgers]  # type: ignore[attr-defined]


@pytest.mark.feature("F-ML-14", "F-RET-13", "F-RET-16", "F-PRB-18")
@pytest.mark.parametrize("kind", ["before", "after"])
def test_an_owner_that_dies_at_any_call_leaves_all_that_was_told(kind: str) -> None:
    async def sweep() -> None:
        for nth in range(1, await calls_of(publish_ack_and_trim) + 1):
            world = World(ledger_entries_max=5, retention_ms=0, retention_bytes=0)
            dead = await run_with_fault(world, publish_ack_and_trim, MortalStoreFault(nth, kind))
            await check_afterwards(world, dead)

    asyncio.run(sweep())


@pytest.mark.feature("F-RET-13", "F-RET-16", "D-19")
@pytest.mark.parametrize("kind", ["refused", "lost", "unanswered"])
def test_a_store_that_fails_at_any_call_costs_nothing_that_was_told(kind: str) -> None:
    async def sweep() -> None:
        for nth in range(1, await calls_of(publish_ack_and_trim) + 1):
            world = World(ledger_entries_max=5, retention_ms=0, retention_bytes=0)
            dead = await run_with_fault(world, publish_ack_and_trim, NthCall(nth, kind))
            await check_afterwards(world, dead)

    asyncio.run(sweep())


@pytest.mark.feature("F-RET-16", "D-19")
@pytest.mark.parametrize("kind", ["before", "after"])
def test_a_deletion_that_stops_at_any_call_is_finished_by_the_next(kind: str) -> None:
    """F155: killed before or after each call; asked again, it leaves no record and no ledger."""

    async def sweep() -> None:
        for nth in range(1, await calls_of(make_and_delete) + 1):
            world = World(ledger_entries_max=5, retention_ms=0, retention_bytes=0)
            await run_with_fault(world, make_and_delete, MortalStoreFault(nth, kind))
            heir = world.owner()
            await heir.logs.delete(NAME)
            assert not await heir.logs.exists(NAME)
            assert not await world.existing_ledgers()
            await heir.close()
            world.check()

    asyncio.run(sweep())
