# SPDX-License-Identifier: Apache-2.0
"""Delayed messages in stored buckets: what a new owner finds, what a lost bucket costs, and what is left behind."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from magnetar.broker.delayed.bucket_format import buckets_in, ledgers_of
from magnetar.ids import LATEST, Position
from tests.unit.broker.worlds import World, client_of

COUNT = 40


def run(coroutine: Coroutine[Any, Any, None]) -> None:
    asyncio.run(coroutine)


async def world_with_buckets() -> World:
    """Forty delayed entries in two ledgers, due one after another from two seconds on; the first twenty are stored."""
    world = World(is_durable=True, delayed_bucket_entries_min=10, delayed_segment_entries_max=4)
    consumer = world.join(permits=100)
    for number in range(COUNT):
        if number == COUNT // 2:
            world.log.roll()
        world.publish(deliver_at_ms=world.clock.ms + 2_000 + (7 * number % COUNT) * 100)
    await world.settle()
    for _ in range(5):
        await world.settle()
    assert client_of(consumer).delivered == []
    return world


@pytest.mark.feature("F-DLY-07", "B-16", "D-22")
def test_entries_of_whole_ledgers_are_stored_and_leave_memory() -> None:
    async def main() -> None:
        world = await world_with_buckets()
        assert list(world.properties.user_properties) == ["#pulsar.internal.delayed.bucket_3_3"]
        (ledger_id,) = buckets_in(world.properties.user_properties).values()
        assert len(world.log.side_ledgers.stored[ledger_id]) == 1 + COUNT // 2 // 4
        index = world.subscription.pump.delayed
        assert (len(index), index.unsaved) == (COUNT, COUNT // 2)
        assert sum(run.in_memory for run in index._runs.values() if run.bucket) == 4
        await world.tasks.close()

    run(main())


@pytest.mark.feature("F-PRB-07")
def test_what_is_due_and_on_its_way_from_storage_is_not_overdue_unless_it_never_comes() -> None:
    async def main() -> None:
        world = await world_with_buckets()
        may_come = asyncio.Event()
        read = world.log.side_ledgers.read

        async def slow(ledger_id: int, entry_id: int) -> bytes:
            await may_come.wait()
            return await read(ledger_id, entry_id)

        world.log.side_ledgers.read = slow  # type: ignore[method-assign]
        pump = world.subscription.pump
        # The first segment is in memory; the next one was due more than a second ago.
        await world.pass_time(6_000)
        assert not pump.is_overdue()
        await world.pass_time(1_000 * int(pump.READ_PATIENCE_S))
        assert pump.is_overdue()
        may_come.set()
        for _ in range(20):
            await world.settle()
            assert not pump.is_overdue(), "however long ago it was due"
        (consumer,) = world.subscription.consumers
        assert len(client_of(consumer).delivered) == COUNT
        await world.tasks.close()

    run(main())


@pytest.mark.feature("F-PRB-07")
def test_a_segment_that_cannot_be_read_again_and_again_is_overdue_in_the_end() -> None:
    async def main() -> None:
        world = await world_with_buckets()
        pump = world.subscription.pump
        world.log.side_ledgers.unreadable = set(world.log.side_ledgers.stored)
        await world.pass_time(6_000)
        assert not pump.is_overdue()
        await world.pass_time(1_000 * int(pump.READ_PATIENCE_S))
        assert pump.is_overdue()
        await world.tasks.close()

    run(main())


def test_a_try_that_failed_before_everybody_left_is_forgotten_when_somebody_comes() -> None:
    async def main() -> None:
        world = await world_with_buckets()
        subscription, side_ledgers = world.subscription, world.log.side_ledgers
        side_ledgers.unreadable = set(side_ledgers.stored)
        await world.pass_time(6_000)
        for consumer in list(subscription.consumers):
            subscription.remove_consumer(consumer)
        await world.pass_time(5_000)
        side_ledgers.unreadable = set()
        await world.pass_time(300_000)
        may_come, read = asyncio.Event(), side_ledgers.read

        async def slow(ledger_id: int, entry_id: int) -> bytes:
            await may_come.wait()
            return await read(ledger_id, entry_id)

        side_ledgers.read = slow  # type: ignore[method-assign]
        world.join(permits=100)
        await world.settle()
        run_ = subscription.pump.delayed.wanted(world.clock.ms)
        assert run_ is not None
        assert run_.is_loading
        assert not subscription.pump.is_overdue(), "it has only begun to load"
        may_come.set()
        await world.tasks.close()

    run(main())


@pytest.mark.feature("F-PRB-07")
def test_what_is_due_in_memory_is_overdue_whatever_is_on_its_way() -> None:
    async def main() -> None:
        world = await world_with_buckets()
        pump = world.subscription.pump
        world.log.side_ledgers.unreadable = set(world.log.side_ledgers.stored)
        await world.pass_time(6_000)
        run_ = pump.delayed.wanted(world.clock.ms)
        assert run_ is not None
        assert run_.is_loading
        pump.delayed.add(Position(3, 10_000), world.clock.ms - 60_000)
        assert pump.is_overdue(), "as if a wake-up had been missed"
        await world.tasks.close()

    run(main())


@pytest.mark.feature("F-DLY-07")
def test_everything_goes_out_once_in_the_order_of_time_and_used_up_buckets_are_deleted() -> None:
    async def main() -> None:
        world = await world_with_buckets()
        (consumer,) = world.subscription.consumers
        for _ in range(80):
            await world.pass_time(100)
        client = client_of(consumer)
        assert len(client.delivered) == len({each.position for each in client.delivered}) == COUNT
        times = [each.facts.deliver_at_ms for each in client.delivered]
        assert times == sorted(times)
        assert world.log.side_ledgers.stored == {}
        assert world.properties.user_properties == {}
        await world.tasks.close()

    run(main())


@pytest.mark.feature("F-DLY-06", "F-PRB-16", "D-22")
@pytest.mark.parametrize("harm", ["none", "ledger lost", "away for a while"])
def test_a_new_owner_delivers_all_whatever_became_of_the_bucket(harm: str) -> None:
    async def main() -> None:
        world = await world_with_buckets()
        (ledger_id,) = world.log.side_ledgers.stored
        await world.tasks.close()
        world.reopen()
        if harm == "ledger lost":
            del world.log.side_ledgers.stored[ledger_id]
        elif harm == "away for a while":
            world.log.side_ledgers.unreadable.add(ledger_id)
        consumer = world.join(permits=100)
        for step in range(100):
            await world.pass_time(100)
            if step == 30:
                world.log.side_ledgers.unreadable.clear()
        positions = [each.position for each in client_of(consumer).delivered]
        assert len(positions) == len(set(positions)) == COUNT
        assert world.log.side_ledgers.stored == {}
        await world.tasks.close()

    run(main())


@pytest.mark.feature("F-DLY-06")
def test_a_broker_that_is_too_busy_for_a_while_delivers_all_later() -> None:
    """No task could be started just when segments were due: they are loaded when one can."""

    async def main() -> None:
        world = await world_with_buckets()
        (consumer,) = world.subscription.consumers
        allowed = world.tasks._tasks_max
        world.tasks._tasks_max = 0
        for _ in range(40):
            await world.pass_time(100)
        assert len(client_of(consumer).delivered) < COUNT
        world.tasks._tasks_max = allowed
        for _ in range(60):
            await world.pass_time(100)
        positions = [each.position for each in client_of(consumer).delivered]
        assert len(positions) == len(set(positions)) == COUNT
        assert world.log.side_ledgers.stored == {}
        await world.tasks.close()

    run(main())


def test_a_new_owner_sends_what_is_due_before_reading_has_got_there() -> None:
    async def main() -> None:
        world = await world_with_buckets()
        await world.tasks.close()
        world.reopen()
        world.clock.ms += 10_000
        world.log.is_cold, world.log.gate = True, asyncio.Event()
        world.join(permits=100)
        for _ in range(5):
            await world.settle()
        assert len(world.subscription.pump.delayed) == COUNT // 2, "known from the bucket, though nothing was read yet"
        world.log.gate.set()
        for _ in range(40):
            await world.pass_time(50)
        (consumer,) = world.subscription.consumers
        positions = [each.position for each in client_of(consumer).delivered]
        assert len(positions) == len(set(positions)) == COUNT
        await world.tasks.close()

    run(main())


@pytest.mark.feature("F-DLY-10")
def test_moving_the_cursor_and_deleting_the_subscription_delete_the_buckets() -> None:
    async def main() -> None:
        for by_reset in (True, False):
            world = await world_with_buckets()
            world.properties.user_properties["mine"] = "stays"
            if by_reset:
                await world.subscription.reset(LATEST)
            else:
                await world.subscription.delete_stored()
            assert world.log.side_ledgers.stored == {}
            assert world.properties.user_properties == {"mine": "stays"}
            await world.tasks.close()

    run(main())


@pytest.mark.feature("B-16", "F-DLY-09")
def test_as_many_buckets_as_there_may_be_are_merged_and_nothing_is_lost_or_sent_twice() -> None:
    async def main() -> None:
        world = World(
            is_durable=True, delayed_bucket_entries_min=10, delayed_segment_entries_max=4, delayed_buckets_max=3
        )
        consumer = world.join(permits=1000)
        count, ledgers = 0, 9
        for ledger in range(ledgers):
            if ledger:
                world.log.roll()
            for number in range(20):
                world.publish(deliver_at_ms=world.clock.ms + 5_000 + (7 * number + 13 * ledger) % 60 * 100)
                count += 1
            for _ in range(10):
                await world.settle()
        index = world.subscription.pump.delayed
        index.check()
        buckets = buckets_in(world.properties.user_properties)
        assert 1 <= len(buckets) <= 4, "bounded, but for one that is being replaced"
        assert set(buckets.values()) == set(world.log.side_ledgers.stored), "what was merged is deleted"
        assert any(first != last for first, last in map(ledgers_of, buckets)), "a bucket of several ledgers"
        assert index.unsaved < 100, "the rest is in memory"
        await world.tasks.close()
        world.reopen()
        consumer = world.join(permits=1000)
        for _ in range(130):
            await world.pass_time(100)
        client = client_of(consumer)
        assert len(client.delivered) == len({each.position for each in client.delivered}) == count
        assert world.log.side_ledgers.stored == {}
        await world.tasks.close()

    run(main())
