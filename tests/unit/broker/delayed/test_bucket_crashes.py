# SPDX-License-Identifier: Apache-2.0
"""Buckets of delayed messages whose owner dies while it writes or merges them, or whose first ledgers are trimmed."""

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any

import pytest

from magnetar.broker.delayed.bucket_format import buckets_in, ledgers_of
from magnetar.ids import Position
from tests.unit.broker.worlds import PropertiesTwin, SideLedgersTwin, World, client_of

LEDGERS, ENTRIES = 6, 10
COUNT = LEDGERS * ENTRIES


def run(coroutine: Coroutine[Any, Any, None]) -> None:
    asyncio.run(coroutine)


class Death:
    """Nothing goes on from the n-th step of the storage; each write has one before and one after it is carried out."""

    def __init__(self, at_step: int) -> None:
        self._at_step = at_step
        self.steps = 0

    async def step(self) -> None:
        self.steps += 1
        if self.steps == self._at_step:
            await asyncio.get_running_loop().create_future()


class MortalLedgers(SideLedgersTwin):
    def __init__(self, death: Death) -> None:
        super().__init__()
        self._death = death

    async def write(self, ledger_id: int, entries: Sequence[bytes], about: object) -> None:
        await self._death.step()
        await super().write(ledger_id, entries, about)
        await self._death.step()

    async def delete(self, ledger_id: int) -> None:
        await self._death.step()
        await super().delete(ledger_id)
        await self._death.step()


class MortalProperties(PropertiesTwin):
    def __init__(self, death: Death) -> None:
        super().__init__()
        self._death = death

    async def set_user_properties(self, properties: Mapping[str, str]) -> None:
        await self._death.step()
        await super().set_user_properties(properties)
        await self._death.step()


async def world_with_merged_buckets(death: Death) -> World:
    """Sixty delayed entries in six ledgers, of which at most two buckets are stored; or as far as the owner lives."""
    world = World(is_durable=True, delayed_bucket_entries_min=6, delayed_segment_entries_max=4, delayed_buckets_max=2)
    world.log.side_ledgers = MortalLedgers(death)
    world.properties = MortalProperties(death)
    world.reopen()
    world.join(permits=1000)
    for ledger in range(LEDGERS):
        if ledger:
            world.log.roll()
        for number in range(ENTRIES):
            world.publish(deliver_at_ms=world.clock.ms + 5_000 + (7 * number + 13 * ledger) % COUNT * 100)
        for _ in range(6):
            await world.settle()
    return world


async def all_delivered(world: World) -> None:
    (consumer,) = world.subscription.consumers
    for _ in range(140):
        await world.pass_time(100)
    positions = [each.position for each in client_of(consumer).delivered]
    assert len(positions) == len(set(positions)) == COUNT
    assert world.log.side_ledgers.stored == {}, "no bucket is left behind"
    assert world.properties.user_properties == {}
    await world.tasks.close()


async def steps_of_a_life() -> int:
    death = Death(0)
    world = await world_with_merged_buckets(death)
    assert any(first != last for first, last in map(ledgers_of, buckets_in(world.properties.user_properties)))
    steps = death.steps
    await all_delivered(world)
    return steps


@pytest.mark.feature("B-16", "F-DLY-06", "F-DLY-09")
def test_an_owner_that_dies_at_any_step_of_writing_or_merging_buckets_costs_no_message_and_leaves_no_ledger() -> None:
    """F97: every delayed message is delivered once when it is due."""

    async def main() -> None:
        for at_step in range(1, await steps_of_a_life() + 1):
            world = await world_with_merged_buckets(Death(at_step))
            (consumer,) = world.subscription.consumers
            assert client_of(consumer).delivered == []
            await world.tasks.close()
            world.reopen()
            world.join(permits=1000)
            await all_delivered(world)

    run(main())


def trim_first_ledger(world: World) -> int:
    """All of the first ledger counts as consumed, and it is let go; returns its id."""
    first = world.log.ledgers.first
    world.subscription.skip_through(Position(first.ledger_id, first.entries - 1))
    world.log.ledgers.drop_oldest(1)
    world.log.stored = {place: body for place, body in world.log.stored.items() if place.ledger_id != first.ledger_id}
    world.subscription.cursor.on_trimmed()
    return first.ledger_id


@pytest.mark.feature("B-16", "F-DLY-06")
@pytest.mark.parametrize("has_new_owner", [False, True])
@pytest.mark.parametrize("due", [0, 20])
def test_a_bucket_of_which_the_first_ledger_was_trimmed_has_all_the_rest(has_new_owner: bool, due: int) -> None:
    """F97: it lies across the first ledger that is left; nothing of it was due, or a part."""

    async def main() -> None:
        world = await world_with_merged_buckets(Death(0))
        (consumer,) = world.subscription.consumers
        while len(client_of(consumer).delivered) < due:
            await world.pass_time(100)
        ranges = [ledgers_of(name) for name in buckets_in(world.properties.user_properties)]
        trimmed = trim_first_ledger(world)
        assert any(first <= trimmed < last for first, last in ranges), "a bucket lies across"
        acked = sorted(each.position for each in client_of(consumer).delivered)
        if has_new_owner:
            await world.tasks.close()
            world.reopen()
            world.subscription.cursor.ack_all(acked)
            consumer = world.join(permits=1000)
        for _ in range(140):
            await world.pass_time(100)
        delivered = [each.position for each in client_of(consumer).delivered]
        assert len(delivered) == len(set(delivered))
        kept = set(world.log.stored).difference(acked if has_new_owner else ())
        assert {place for place in delivered if place.ledger_id != trimmed} == kept
        assert world.log.side_ledgers.stored == {}
        assert world.properties.user_properties == {}
        await world.tasks.close()

    run(main())
