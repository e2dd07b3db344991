# SPDX-License-Identifier: Apache-2.0
"""Trimming and deletion on a living log: what is on disk decides, and nothing is left behind.

Carries.
"""

import asyncio
from dataclasses import replace

import pytest

from magnetar.errors import TopicNotFound
from magnetar.ids import EARLIEST, Position
from tests.conftest import RunOnLoop
from tests.unit.ledger.cluster import settle
from tests.unit.managed_ledger.owners import NAME, Owner, World, read_all


async def publish(owner: Owner, count: int) -> list[Position]:
    """One at a time, so that ledgers are rolled at their limit."""
    for index in range(count):
        owner.publisher.append(f"{len(owner.publisher.persisted)}-{index}".encode())
        await owner.publisher.rest()
        await settle()
    return sorted(owner.publisher.persisted)


@pytest.mark.feature("F-RET-01", "F-RET-05", "F-CUR-13")
def test_the_slowest_durable_cursor_holds_data_until_its_ack_is_on_disk(loop_run: RunOnLoop) -> None:
    async def scenario() -> None:
        world = World(ledger_entries_max=5, retention_ms=0, retention_bytes=0, cursor_flush_interval_ms=60_000)
        owner = world.owner()
        ledger = await owner.open()
        slow = await ledger.open_cursor("slow", initial="earliest")
        quick = await ledger.open_cursor("quick", initial="earliest")
        positions = await publish(owner, 22)
        spans = len(ledger.ledgers)
        assert spans >= 4
        quick.ack_cumulative(positions[-1])
        await quick.flush()
        assert await ledger.trim() == 0
        slow.ack_cumulative(positions[12])
        await slow.flush()
        slow.ack_cumulative(positions[-1])
        await ledger.trim()
        assert len(ledger.ledgers) < spans
        assert ledger.ledgers.before_first < positions[12], "only what the saved position has left behind"
        assert set(await read_all(ledger)) >= set(positions[13:])
        assert slow.mark_delete == positions[-1]
        assert slow.backlog_entries() == quick.backlog_entries() == 0
        await slow.flush()
        await ledger.trim()
        assert len(ledger.ledgers) == 1
        ledger.ledgers.check()
        existing = await world.existing_ledgers()
        assert {span.ledger_id for span in ledger.ledgers} <= existing
        await owner.close()
        assert len(await world.existing_ledgers()) == 1
        world.check()

    loop_run(scenario())


def test_going_back_holds_data_from_the_first_moment(loop_run: RunOnLoop) -> None:
    """The new place is not saved yet, the old one still is: neither may let go what the new one needs."""

    async def scenario() -> None:
        world = World(ledger_entries_max=5, cursor_flush_interval_ms=60_000)
        owner = world.owner()
        ledger = await owner.open()
        cursor = await ledger.open_cursor("sub", initial="earliest")
        positions = await publish(owner, 22)
        cursor.ack_cumulative(positions[-1])
        await cursor.flush()
        owner.client.channel("b1").hold()
        resetting = asyncio.ensure_future(cursor.reset(positions[0]))
        await settle()
        assert not resetting.done()
        ledger.settings = replace(world.settings, retention_ms=0, retention_bytes=0)
        assert await ledger.trim() == 0
        owner.client.channel("b1").let_go()
        await resetting
        assert await ledger.trim() == 0
        assert set(await read_all(ledger)) == set(positions)
        assert cursor.backlog_entries() == 22
        await owner.close()
        world.check()

    loop_run(scenario())


@pytest.mark.feature("F-RET-02", "F-RET-04", "F-RET-05")
def test_retention_keeps_consumed_ledgers_for_their_time(loop_run: RunOnLoop) -> None:
    async def scenario() -> None:
        world = World(ledger_entries_max=5, retention_ms=1_000, retention_bytes=-1)
        owner = world.owner()
        ledger = await owner.open()
        await publish(owner, 11)
        world.clock.time_ms += 500
        await publish(owner, 10)
        spans = len(ledger.ledgers)
        assert await ledger.trim() == 0
        world.clock.time_ms += 500
        first_gone = await ledger.trim()
        assert 0 < first_gone < spans - 1
        world.clock.time_ms += 500
        assert await ledger.trim() == spans - 1 - first_gone
        assert await ledger.trim() == 0
        await owner.close()
        world.check()

    loop_run(scenario())


def test_a_cursor_made_while_ledgers_are_trimmed_stands_on_what_is_left(loop_run: RunOnLoop) -> None:
    """F84: the list shrinks in memory before it does on record, so that no one settles where nothing will be."""

    async def scenario() -> None:
        world = World(ledger_entries_max=5, retention_ms=-1, retention_bytes=-1)
        owner = world.owner()
        ledger = await owner.open()
        positions = await publish(owner, 21)
        ledger.settings = replace(world.settings, retention_ms=0, retention_bytes=0)
        trimming = asyncio.ensure_future(ledger.trim())
        opening = asyncio.ensure_future(ledger.open_cursor("sub", initial="earliest"))
        await asyncio.gather(trimming, opening)
        cursor = opening.result()
        cursor.state.check()
        assert cursor.mark_delete.ledger_id in ledger.ledgers
        left = await read_all(ledger)
        assert cursor.backlog_entries() == len(left)
        assert set(left) == {position for position in positions if position > ledger.ledgers.before_first}
        await owner.close()
        again = world.owner()
        ledger = await again.open()
        assert ledger.cursors["sub"].backlog_entries() == len(left)
        await again.close()
        world.check()

    loop_run(scenario())


@pytest.mark.feature("F-RET-13", "F-PRB-18")
def test_a_ledger_that_cannot_be_deleted_now_is_deleted_later(loop_run: RunOnLoop) -> None:
    async def scenario() -> None:
        world = World(ledger_entries_max=5)
        stuck = False

        def fault(operation: str, path: str) -> str | None:
            return "refused" if stuck and operation == "delete" and path.startswith("/ledgers/") else None

        owner = world.owner(fault)
        ledger = await owner.open()
        await publish(owner, 11)
        before = await world.existing_ledgers()
        stuck = True
        ledger.settings = replace(world.settings, retention_ms=0, retention_bytes=0)
        assert await ledger.trim() > 0
        assert await world.existing_ledgers() == before
        stuck = False
        await ledger.trim()
        assert await world.existing_ledgers() == {span.ledger_id for span in ledger.ledgers}
        await owner.close()
        world.check()

    loop_run(scenario())


def test_trimming_that_cannot_be_recorded_changes_nothing(loop_run: RunOnLoop) -> None:
    async def scenario() -> None:
        world = World(ledger_entries_max=5)
        away = False
        owner = world.owner(lambda operation, path: "refused" if away else None)
        ledger = await owner.open()
        positions = await publish(owner, 11)
        spans = [span.ledger_id for span in ledger.ledgers]
        ledger.settings = replace(world.settings, retention_ms=0, retention_bytes=0)
        away = True
        with pytest.raises(Exception, match="away"):
            await ledger.trim()
        away = False
        assert [span.ledger_id for span in ledger.ledgers] == spans
        ledger.ledgers.check()
        assert set(await read_all(ledger)) == set(positions)
        await owner.close()
        world.check()

    loop_run(scenario())


@pytest.mark.parametrize("steps", range(0, 60, 3))
def test_a_log_deleted_while_it_rolls_tells_each_append_once(steps: int) -> None:
    """At any moment of a rollover: what was not persisted fails, nothing is told twice, nothing is left behind."""

    async def scenario() -> None:
        world = World(ledger_entries_max=3)
        owner = world.owner()
        await owner.open()
        owner.publisher.append_many(7)
        for _ in range(steps):
            await asyncio.sleep(0)
        if not owner.publisher.failures:
            owner.publisher.append_many(2, "late")
        await owner.logs.delete(NAME)
        assert not owner.publisher.waiting
        assert len(owner.publisher.persisted) + len(owner.publisher.failed) == 9
        await settle()
        assert await world.existing_ledgers() == set()
        await owner.close()
        world.check()

    asyncio.run(scenario())


def test_a_deleted_log_leaves_no_record_and_no_ledger(loop_run: RunOnLoop) -> None:
    async def scenario() -> None:
        world = World(ledger_entries_max=5)
        owner = world.owner()
        ledger = await owner.open()
        cursor = await ledger.open_cursor("sub", initial="earliest")
        positions = await publish(owner, 11)
        cursor.ack(positions[3])
        await cursor.flush()
        await owner.logs.delete(NAME)
        assert not await owner.logs.exists(NAME)
        assert await owner.logs.names("public/default/persistent") == []
        assert await world.existing_ledgers() == set()
        with pytest.raises(TopicNotFound):
            await owner.open(create=False)
        ledger = await owner.open()
        assert not ledger.cursors
        assert await ledger.read(EARLIEST, entries_max=1, bytes_max=1) == []
        await owner.close()
        await world.owner().logs.delete(NAME)
        assert await world.existing_ledgers() == set()
        world.check()

    loop_run(scenario())
