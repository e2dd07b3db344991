# SPDX-License-Identifier: Apache-2.0
"""Consumers that acknowledge what is not there and ask for more than there is: nobody loses a message by it."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from magnetar.broker.consumer import PERMITS_MAX, Consumer
from magnetar.broker.session import consume
from magnetar.broker.session.session import OpenConsumer
from magnetar.broker.subscription import SubscriptionType
from magnetar.errors import BadCommand, MagnetarError, NotSupported
from magnetar.ids import Position
from magnetar.wire import commands
from magnetar.wire.hot import MessageEncoder
from magnetar.wire.proto import pulsar_api_pb2 as pb
from tests.unit.broker.worlds import World, client_of

EXCLUSIVE, SHARED = SubscriptionType.EXCLUSIVE, SubscriptionType.SHARED
FAILOVER, KEY_SHARED = SubscriptionType.FAILOVER, SubscriptionType.KEY_SHARED
TYPES = pytest.mark.parametrize("type_", list(SubscriptionType))
# Ledgers 3 and 9 are the topic's, with three entries each. Of 2 it knew once, of 5 never; the rest is still to come.
NOT_THERE = [(2, 0), (2, 2**40), (3, 3), (3, 2**62), (5, 0), (5, 2**40), (9, 3), (9, 2**62), (11, 0), (2**62, 0)]


def world_of_two_ledgers(**settings: Any) -> World:
    world = World(**settings)
    for _ in range(3):
        world.publish()
    world.log.roll()
    world.log.roll()
    world.log.roll()
    for _ in range(3):
        world.publish()
    assert world.log.last_confirmed == Position(9, 2)
    return world


def ack_of(*places: tuple[int, int], cumulative: bool = False, ack_set: tuple[int, ...] = ()) -> pb.CommandAck:
    ack = pb.CommandAck(consumer_id=1, ack_type=pb.CommandAck.Cumulative if cumulative else pb.CommandAck.Individual)
    for ledger_id, entry_id in places:
        ack.message_id.add(ledgerId=ledger_id % 2**64, entryId=entry_id % 2**64, ack_set=ack_set)
    return ack


def session_of(world: World, consumer: Consumer) -> Any:
    opened = OpenConsumer(consumer, cast("Any", world.subscription), cast("Any", None), MessageEncoder(1, -1))
    return SimpleNamespace(consumers={1: opened}, broker=SimpleNamespace(clock=world.clock))


def say(session: Any, ack: pb.CommandAck) -> bool:
    """As a connection says it; whether it was taken."""
    command = commands.wrap(pb.BaseCommand.ACK, ack).SerializeToString()
    try:
        if not consume.on_plain_ack(session, command):
            consume.on_ack(session, ack)
    except MagnetarError:
        return False
    return True


@pytest.mark.feature("F-SUB-11", "F-CUR-02")
@TYPES
def test_what_is_not_there_is_acknowledged_by_nobody(type_: SubscriptionType) -> None:
    """F138: alone, with others, up to a place, in parts: mark-delete stays, and everything is delivered."""

    async def main() -> None:
        world = world_of_two_ledgers(batch_index_acks=True)
        consumer = world.join(type_)
        session, cursor = session_of(world, consumer), world.subscription.cursor
        start = cursor.mark_delete
        for ack_set in ((), (0,), (1,), (-1, 0, 2**62)):
            for place in [*NOT_THERE, (-1, -1), (2**63, 2**63)]:
                say(session, ack_of(place, ack_set=ack_set))
                say(session, ack_of(place, place, place, ack_set=ack_set))
                say(session, ack_of(place, cumulative=True, ack_set=ack_set))
        cursor.state.check()
        assert (cursor.mark_delete, cursor.backlog_entries(), dict(cursor.state.batches)) == (start, 6, {})
        world.subscription.on_flow(consumer, 100)
        assert [delivery.position for delivery in client_of(consumer).delivered] == sorted(world.log.stored)
        assert say(session, ack_of(*sorted(world.log.stored))), "and what is there, is"
        assert (cursor.mark_delete, cursor.backlog_entries()) == (Position(9, 2), 0)

    asyncio.run(main())


@pytest.mark.parametrize("type_", [EXCLUSIVE, FAILOVER])
def test_up_to_a_place_means_up_to_an_entry_of_this_topic(type_: SubscriptionType) -> None:
    """F138: the ledger of another topic, between two of this one, would take a whole ledger with it."""

    async def main() -> None:
        world = world_of_two_ledgers()
        consumer = world.join(type_, permits=1)
        session, cursor = session_of(world, consumer), world.subscription.cursor
        assert not say(session, ack_of((5, 0), cumulative=True))
        assert not say(session, ack_of((3, 3), cumulative=True))
        assert cursor.backlog_entries() == 6
        # A client that acknowledged no message of the first batch of a ledger names the place before it.
        assert say(session, ack_of((9, -1), cumulative=True))
        assert cursor.backlog_entries() == 3
        assert say(session, ack_of((3, 2**40), cumulative=True)), "what lies behind mark-delete may be anything"
        assert cursor.backlog_entries() == 3

    asyncio.run(main())


@pytest.mark.parametrize("type_", [SHARED, KEY_SHARED])
def test_many_consumers_are_not_acknowledged_for_up_to_a_place(type_: SubscriptionType) -> None:
    """F138: it would take what the others hold."""

    async def main() -> None:
        world = world_of_two_ledgers()
        consumers = [world.join(type_, permits=10) for _ in range(2)]
        session = session_of(world, consumers[0])
        for place in ((3, 0), (9, 2)):
            assert not say(session, ack_of(place, cumulative=True))
        assert world.subscription.cursor.backlog_entries() == 6

    asyncio.run(main())


@TYPES
def test_a_frame_full_of_ids_is_refused_before_any_of_them_is_looked_at(type_: SubscriptionType) -> None:
    """F138: of a million ids none is acknowledged; as many as one command may have are, however often each is named."""

    async def main() -> None:
        world = world_of_two_ledgers()
        consumer = world.join(type_, permits=10)
        session, cursor = session_of(world, consumer), world.subscription.cursor
        many = ack_of(*[(3, 0)] * (consume.IDS_PER_COMMAND_MAX + 1))
        assert not consume.on_plain_ack(session, commands.wrap(pb.BaseCommand.ACK, many).SerializeToString())
        with pytest.raises(NotSupported, match="at most 100000"):
            consume.on_ack(session, many)
        again = pb.CommandRedeliverUnacknowledgedMessages(consumer_id=1, message_ids=many.message_id)
        with pytest.raises(BadCommand, match="at most 100000"):
            consume.on_redeliver(session, again)
        assert cursor.backlog_entries() == 6
        del many.message_id[0]
        assert say(session, many)
        assert (cursor.backlog_entries(), cursor.mark_delete) == (5, Position(3, 0))

    asyncio.run(main())


@TYPES
def test_permits_without_end_read_no_further_than_a_client_takes(type_: SubscriptionType) -> None:
    """F139: none, the largest, again and again: counted up to a cap, and what is not taken stays in the log."""

    async def main() -> None:
        world = World()
        for _ in range(5):
            world.publish()
        consumer = world.join(type_)
        client = client_of(consumer)
        session = session_of(world, consumer)
        consume.on_flow(session, pb.CommandFlow(consumer_id=1, messagePermits=0))
        assert (consumer.permits, client.ids()) == (0, [])
        client.writable = False
        for _ in range(1_000):
            consume.on_flow(session, pb.CommandFlow(consumer_id=1, messagePermits=2**32 - 1))
        await world.settle()
        assert (consumer.permits, client.ids(), world.log.reads) == (PERMITS_MAX, [], 0)
        client.writable = True
        world.subscription.wake()
        assert (consumer.permits, client.ids()) == (PERMITS_MAX - 5, [0, 1, 2, 3, 4])

    asyncio.run(main())


def test_one_read_is_bounded_whatever_the_permits() -> None:
    """F139: entries are read in rounds, as many in one as the settings say."""

    async def main() -> None:
        world = World(dispatch_read_entries_max=10)
        for _ in range(100):
            world.publish()
        asked: list[int] = []
        read_cached = world.log.read_cached

        def noted(position: Position, entries_max: int, bytes_max: int) -> Any:
            asked.append(entries_max)
            return read_cached(position, entries_max, bytes_max)

        world.log.read_cached = noted  # type: ignore[method-assign]
        consumer = world.join(EXCLUSIVE, permits=2**32 - 1)
        await world.settle()
        assert client_of(consumer).ids() == list(range(100))
        assert max(asked) <= 10

    asyncio.run(main())
