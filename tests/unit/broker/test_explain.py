# SPDX-License-Identifier: Apache-2.0
"""Explain: each reason why nothing is delivered, said with the message concerned."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from magnetar.broker.dispatch.key_shared import KeySharedDispatcher
from magnetar.broker.explain import Explanation, Reason, explain
from magnetar.broker.subscription import SubscriptionType
from magnetar.broker.transactions.txn_id import TxnId
from magnetar.ids import Position
from tests.unit.broker.test_subscription import Limit
from tests.unit.broker.worlds import World, client_of

SHARED, EXCLUSIVE, KEY_SHARED = SubscriptionType.SHARED, SubscriptionType.EXCLUSIVE, SubscriptionType.KEY_SHARED


def explained(make: Callable[[], Awaitable[World]]) -> Explanation:
    async def main() -> Explanation:
        world = await make()
        explanation = explain(world.subscription)
        await world.tasks.close()
        return explanation

    return asyncio.run(main())


async def nobody() -> World:
    world = World()
    world.publish()
    world.publish()
    return world


async def nothing_published() -> World:
    world = World()
    world.join(SHARED, permits=9)
    return world


async def terminated() -> World:
    world = await nothing_published()
    world.log.is_terminated = True
    return world


async def unacknowledged() -> World:
    world = World()
    world.publish()
    world.join(SHARED, permits=9, name="slow")
    return world


async def no_permits() -> World:
    world = World()
    world.publish()
    world.publish()
    world.join(EXCLUSIVE, permits=1, name="full")
    return world


async def unacked_consumer() -> World:
    world = World()
    for _ in range(3):
        world.publish()
    world.join(SHARED, permits=9, unacked_max=2, name="hoarder")
    return world


async def unacked_subscription() -> World:
    world = World(unacked_messages_per_subscription_max=2)
    for _ in range(3):
        world.publish()
    world.join(SHARED, permits=9)
    return world


async def not_reading() -> World:
    world = World()
    consumer = world.join(SHARED, permits=9, name="deaf")
    client_of(consumer).writable = False
    world.publish()
    return world


async def delayed() -> World:
    world = World()
    world.publish(deliver_at_ms=world.clock.ms + 5_000)
    world.join(SHARED, permits=9)
    return world


async def limited() -> World:
    world = World()
    limit = Limit()
    limit.messages = 0
    world.subscription.pump.limits = (limit,)
    world.publish()
    world.join(SHARED, permits=9)
    return world


async def reading() -> World:
    world = World()
    world.publish()
    world.log.is_cold, world.log.gate = True, asyncio.Event()
    world.join(SHARED, permits=9)
    return world


async def draining() -> World:
    world = World(key_shared_consistent_hashing=False)
    old = world.join(KEY_SHARED, permits=50, name="old")
    for number in range(8):
        world.publish(key=f"k{number}")
    assert len(client_of(old).delivered) == 8
    world.join(KEY_SHARED, permits=50, name="new")
    for number in range(8):
        world.publish(key=f"k{number}")
    return world


async def failing_over() -> World:
    world = World()
    world.publish()
    first = world.join(SubscriptionType.FAILOVER, permits=9, name="a")
    world.join(SubscriptionType.FAILOVER, permits=9, name="b")
    world.join(SubscriptionType.FAILOVER, permits=9, name="c")
    world.subscription.remove_consumer(first)
    return world


async def looked_ahead() -> World:
    """As draining, and more of those keys wait than may."""
    world = World(key_shared_consistent_hashing=False, key_shared_look_ahead_entries_max=4)
    world.join(KEY_SHARED, permits=50, name="old")
    for number in range(8):
        world.publish(key=f"k{number}")
    world.join(KEY_SHARED, permits=50, name="new")
    moved = [slot.slot for slot in _key_shared(world).draining()]
    assert moved
    for _ in range(40):
        for number in range(8):
            world.publish(key=f"k{number}")
    return world


def _key_shared(world: World) -> KeySharedDispatcher:
    dispatcher = world.subscription.dispatcher
    assert isinstance(dispatcher, KeySharedDispatcher)
    return dispatcher


async def in_transaction() -> World:
    world = World()
    buffer = world.subscription.pump.buffer
    buffer.attach(world.log.ledgers)
    buffer.on_message(TxnId(1, 7), Position(3, 0))
    world.join(SHARED, permits=9)
    world.publish()
    return world


async def about_to_deliver() -> World:
    world = World()
    world.join(SHARED, permits=9)
    # Stored, and nobody is woken yet.
    world.log.append(b"")
    return world


CASES: tuple[tuple[Callable[[], Awaitable[World]], Reason, str, Position | None], ...] = (
    (nobody, Reason.NO_CONSUMER, "2 entries wait, the first is 3:0", Position(3, 0)),
    (nothing_published, Reason.ALL_CONSUMED, "acknowledged", None),
    (terminated, Reason.END_OF_TOPIC, "terminated", None),
    (unacknowledged, Reason.WAITING_FOR_ACKS, "3:0 at consumer 'slow'", Position(3, 0)),
    (no_permits, Reason.NO_PERMITS, "Consumer 'full'", Position(3, 1)),
    (unacked_consumer, Reason.UNACKED_CONSUMER, "Consumer 'hoarder'", Position(3, 2)),
    (unacked_subscription, Reason.UNACKED_SUBSCRIPTION, "2 unacknowledged", Position(3, 2)),
    (not_reading, Reason.NOT_READING, "Consumer 'deaf'", Position(3, 0)),
    (delayed, Reason.DELAYED, "due at 1970-01-01T00:16:45.000+00:00", Position(3, 0)),
    (limited, Reason.RATE_LIMIT, "dispatch rate of the test", Position(3, 0)),
    (reading, Reason.READING, "3:0", Position(3, 0)),
    (draining, Reason.KEY_BLOCKED, "drains behind consumer 'old'", Position(3, 8)),
    (failing_over, Reason.FAILOVER_PAUSE, "3:0", Position(3, 0)),
    (looked_ahead, Reason.LOOK_AHEAD, "so no more are read", None),
    (in_transaction, Reason.OPEN_TRANSACTION, "transaction (1,7), whose first message is 3:0", Position(3, 0)),
    (about_to_deliver, Reason.DELIVERING, "message 3:0", Position(3, 0)),
)


def test_every_reason_is_tried() -> None:
    tried = {case[1] for case in CASES}
    assert tried == set(Reason)


@pytest.mark.parametrize(
    ("make", "reason", "words", "position"),
    CASES,
    ids=lambda value: value.value if isinstance(value, Reason) else "",
)
def test_the_reason_and_the_message_are_named(
    make: Callable[[], Awaitable[World]], reason: Reason, words: str, position: Position | None
) -> None:
    explanation = explained(make)
    assert explanation.reason is reason, explanation.sentence
    assert words in explanation.sentence
    assert explanation.sentence.endswith(".")
    if reason not in (Reason.KEY_BLOCKED, Reason.LOOK_AHEAD):
        assert explanation.position == position
