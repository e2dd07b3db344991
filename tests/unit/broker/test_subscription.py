# SPDX-License-Identifier: Apache-2.0
"""One subscription over a log in memory: what reaches whom, what comes back, and that it never gets stuck."""

import asyncio
from collections.abc import Coroutine
from random import Random
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from magnetar.broker.consumer import Consumer
from magnetar.broker.dispatch.hooks import Verdict
from magnetar.broker.dispatch.key_shared import KeySharedDispatcher
from magnetar.broker.dispatch.many_consumers import ManyConsumersDispatcher
from magnetar.broker.subscription import KeySharing, SubscriptionType
from magnetar.errors import ConsumerBusy, NotSupported
from magnetar.ids import EARLIEST, LATEST, Position
from magnetar.wire.message import read_metadata
from magnetar.wire.message_key import sticky_key
from tests.unit.broker.worlds import World, client_of

EXCLUSIVE, SHARED = SubscriptionType.EXCLUSIVE, SubscriptionType.SHARED
FAILOVER, KEY_SHARED = SubscriptionType.FAILOVER, SubscriptionType.KEY_SHARED


def run(coroutine: Coroutine[Any, Any, None]) -> None:
    asyncio.run(coroutine)


@pytest.mark.feature("F-DISP-02")
def test_no_more_is_sent_than_was_asked_for() -> None:
    async def main() -> None:
        world = World()
        for _ in range(30):
            world.publish()
        consumer = world.join(EXCLUSIVE, permits=10)
        assert client_of(consumer).ids() == list(range(10))
        world.subscription.on_flow(consumer, 5)
        assert client_of(consumer).ids() == list(range(15))

    run(main())


@pytest.mark.feature("F-DISP-05", "F-PRB-21")
@pytest.mark.parametrize("type_", [EXCLUSIVE, SHARED, KEY_SHARED])
def test_batches_are_over_sent_by_less_than_one_entry(type_: SubscriptionType) -> None:
    async def main() -> None:
        world = World()
        for _ in range(20):
            world.publish(batch=100, key="k")
        consumer = world.join(type_, permits=10)
        assert len(client_of(consumer).delivered) == 1
        assert consumer.permits == -90
        world.subscription.on_flow(consumer, 191)
        assert len(client_of(consumer).delivered) == 3

    run(main())


def test_a_read_that_was_under_way_when_reading_was_rewound_is_not_sent() -> None:
    async def main() -> None:
        world = World()
        for _ in range(4):
            world.publish()
        world.log.is_cold, world.log.gate = True, asyncio.Event()
        consumer = world.join(EXCLUSIVE, permits=2)
        world.subscription.ack_cumulative(consumer, Position(3, 0), ())
        world.subscription.redeliver(consumer, None, 1)
        await world.settle()
        assert client_of(consumer).delivered == []
        world.log.gate.set()
        await world.settle()
        assert client_of(consumer).ids() == [1, 2], "once, and from the first unacknowledged on"
        assert consumer.epoch == 1

    run(main())


def test_a_read_whose_task_had_not_begun_when_reading_was_rewound_is_not_sent() -> None:
    async def main() -> None:
        world = World()
        world.publish()
        world.log.is_cold = True
        leaver = world.join(EXCLUSIVE, permits=2)
        world.subscription.remove_consumer(leaver)
        await world.settle()
        assert client_of(leaver).delivered == []
        again = world.join(EXCLUSIVE, permits=2)
        await world.settle()
        assert client_of(again).ids() == [0]

    run(main())


@pytest.mark.parametrize("cold", [False, True])
def test_a_failed_read_is_tried_again(cold: bool) -> None:
    async def main() -> None:
        world = World()
        world.publish()
        world.log.is_cold = world.log.fails_next = True
        consumer = world.join(SHARED, permits=5)
        await world.settle()
        assert client_of(consumer).delivered == []
        world.log.is_cold = cold
        await world.pass_time(1_000)
        assert client_of(consumer).ids() == [0]

    run(main())


def test_a_read_that_never_comes_back_is_given_up_and_changes_nothing_later() -> None:
    async def main() -> None:
        world = World()
        world.publish()
        world.log.is_cold, world.log.gate = True, asyncio.Event()
        stuck = world.log.gate
        consumer = world.join(SHARED, permits=5)
        await world.settle()
        pump = world.subscription.pump
        assert not pump.check_liveness()
        pump._reading_since_s = -1e9
        world.log.gate = None
        assert pump.check_liveness()
        await world.settle()
        assert client_of(consumer).ids() == [0]
        stuck.set()
        await world.settle()
        assert client_of(consumer).ids() == [0]
        assert world.memory.reads_given_up == 1

    run(main())


@pytest.mark.feature("F-DISP-04")
def test_reads_are_cut_into_batches() -> None:
    async def main() -> None:
        world = World(dispatch_read_entries_max=100)
        world.log.is_cold = True
        for _ in range(250):
            world.publish()
        consumer = world.join(EXCLUSIVE, permits=1000)
        for _ in range(10):
            await world.settle()
        assert client_of(consumer).ids() == list(range(250))
        assert world.log.reads == 3

    run(main())


@pytest.mark.feature("F-DISP-18")
def test_replays_go_out_before_new_entries_and_neighbours_are_read_together() -> None:
    async def main() -> None:
        world = World()
        for _ in range(20):
            world.publish()
        consumer = world.join(SHARED, permits=10)
        world.subscription.redeliver(consumer, [Position(3, n) for n in (1, 2, 3, 5, 9)])
        world.log.is_cold = True
        world.subscription.on_flow(consumer, 6)
        for _ in range(4):
            await world.settle()
        again = client_of(consumer).delivered[10:]
        assert [each.position.entry_id for each in again] == [1, 2, 3, 5, 9, 10]
        assert [each.redelivery_count for each in again] == [1, 1, 1, 1, 1, 0]
        assert world.log.reads == 2, "one read for all replays, one for the new entry"

    run(main())


@pytest.mark.feature("F-CONS-15", "F-CUR-06")
def test_of_a_batch_that_is_acknowledged_in_part_only_the_rest_counts() -> None:
    async def main() -> None:
        world = World()
        world.publish(batch=5)
        consumer = world.join(SHARED, permits=5)
        world.subscription.ack(consumer, Position(3, 0), [0b10110])
        assert consumer.unacked == 3
        world.subscription.redeliver(consumer, None)
        world.subscription.on_flow(consumer, 5)
        last = client_of(consumer).delivered[-1]
        assert (list(last.ack_set), last.messages) == ([0b10110], 3)
        assert consumer.permits == 2
        world.subscription.ack(consumer, Position(3, 0), [0])
        assert (consumer.unacked, world.subscription.cursor.backlog_entries()) == (0, 0)

    run(main())


@pytest.mark.feature("F-SUB-11")
def test_cumulative_acks_are_refused_where_many_consumers_share() -> None:
    async def main() -> None:
        for type_ in (SHARED, KEY_SHARED):
            world = World()
            world.publish()
            consumer = world.join(type_, permits=5)
            with pytest.raises(NotSupported):
                world.subscription.ack_cumulative(consumer, Position(3, 0), ())
            assert world.subscription.cursor.backlog_entries() == 1

    run(main())


@pytest.mark.feature("F-DISP-03", "F-CONS-34")
def test_unacked_limits_stop_a_consumer_and_a_subscription_and_an_ack_lets_them_go_on() -> None:
    async def main() -> None:
        world = World(unacked_messages_per_subscription_max=5)
        for _ in range(20):
            world.publish()
        first = world.join(SHARED, permits=100, unacked_max=3)
        second = world.join(SHARED, permits=100, unacked_max=3)
        assert (first.unacked, second.unacked) == (3, 2)
        world.subscription.ack(second, client_of(second).delivered[0].position, ())
        assert first.unacked + second.unacked == 5
        world.subscription.ack(first, client_of(first).delivered[0].position, ())
        assert first.unacked + second.unacked == 5

    run(main())


@pytest.mark.feature("F-SUB-05", "F-SUB-06")
def test_failover_tells_everyone_and_waits_for_acks_that_are_on_their_way() -> None:
    async def main() -> None:
        world = World(failover_delay_ms=1_000)
        for _ in range(4):
            world.publish()
        first = world.join(FAILOVER, permits=10, name="a")
        spare = world.join(FAILOVER, permits=10, name="b")
        third = world.join(FAILOVER, permits=10, name="c")
        await world.settle()
        assert client_of(first).ids() == [0, 1, 2, 3], "the first one need not wait"
        assert (client_of(first).active, client_of(spare).active) == ([True], [False])
        assert client_of(third).active == [False]
        world.subscription.remove_consumer(first)
        await world.settle()
        assert client_of(spare).delivered == []
        world.subscription.ack(spare, Position(3, 0), ())
        await world.pass_time(1_000)
        assert client_of(spare).ids() == [1, 2, 3]
        assert (client_of(spare).active, client_of(third).active) == ([False, True], [False, False])

    run(main())


def test_when_many_leave_at_once_the_others_are_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        world = World()
        for _ in range(20):
            world.publish()
        leaving = [world.join(SHARED, permits=1) for _ in range(20)]
        stays = world.join(SHARED)
        await world.settle()
        held = sorted(number for consumer in leaving for number in client_of(consumer).ids())
        assert held == list(range(20))
        world.subscription.on_flow(stays, 100)
        asked: list[Consumer] = []

        def room(consumer: Consumer) -> int:
            asked.append(consumer)
            return consumer.permits

        monkeypatch.setattr(Consumer, "room", room)
        for consumer in leaving:
            world.subscription.remove_consumer(consumer)
        assert asked == [], "not once for each of them"
        await world.settle()
        assert sorted(client_of(stays).ids()) == held

    run(main())


def test_types_and_ways_of_sharing_keys_do_not_mix_but_change_when_all_have_left() -> None:
    async def main() -> None:
        world = World()
        first = world.join(SHARED)
        with pytest.raises(ConsumerBusy, match="Subscription is of different type"):
            world.join(EXCLUSIVE)
        world.subscription.remove_consumer(first)
        keyed = world.join(KEY_SHARED)
        with pytest.raises(ConsumerBusy):
            world.join(KEY_SHARED, sharing=KeySharing(allow_out_of_order=True))
        world.subscription.remove_consumer(keyed)
        world.join(KEY_SHARED, sharing=KeySharing(is_sticky=True), key_ranges=[(0, 65535)])

    run(main())


@pytest.mark.feature("F-CUR-08", "F-CONS-28")
def test_a_seek_sends_consumers_away_and_forgets_all_of_the_old_place() -> None:
    async def main() -> None:
        world = World()
        for _ in range(10):
            world.publish(batch=4)
        consumer = world.join(SHARED, permits=100)
        for number in (2, 5):
            world.subscription.ack(consumer, Position(3, number), ())
        await world.subscription.reset(Position(3, 4), [0b1100])
        assert client_of(consumer).disconnected
        again = world.join(SHARED, permits=100)
        assert client_of(again).ids() == [4, 5, 6, 7, 8, 9]
        assert list(client_of(again).delivered[0].ack_set) == [0b1100]
        await world.subscription.reset(LATEST)
        assert world.subscription.cursor.backlog_entries() == 0
        await world.subscription.reset(EARLIEST)
        assert client_of(world.join(SHARED, permits=100)).ids() == list(range(10))

    run(main())


def test_after_a_seek_redelivery_is_counted_from_the_start() -> None:
    async def main() -> None:
        for type_ in (EXCLUSIVE, SHARED):
            world = World()
            world.publish()
            consumer = world.join(type_, permits=9)
            world.subscription.redeliver(consumer, [Position(3, 0)])
            assert client_of(consumer).delivered[-1].redelivery_count == 1
            await world.subscription.reset(EARLIEST)
            assert client_of(world.join(type_, permits=9)).delivered[-1].redelivery_count == 0

    run(main())


def test_users_see_and_replace_only_their_own_properties() -> None:
    async def main() -> None:
        world = World(is_durable=True)
        bucket = {"#pulsar.internal.delayed.bucket_1_2": "7"}
        world.properties.user_properties = {"mine": "1", **bucket}
        assert world.subscription.properties == {"mine": "1"}
        await world.subscription.set_properties({"other": "2"})
        assert world.properties.user_properties == {"other": "2", **bucket}

    run(main())


@pytest.mark.feature("F-CUR-09", "F-RDR-03")
def test_a_seek_by_time_starts_with_the_first_message_of_that_time_or_later() -> None:
    async def main() -> None:
        world = World()
        times = []
        for step in (0, 5, 0, 7, 1):
            world.clock.ms += step
            times.append(world.clock.ms)
            world.publish()
        for wanted, first in [(0, 0), (times[0], 0), (times[0] + 1, 1), (times[1], 1), (times[3], 3), (times[4], 4)]:
            await world.subscription.reset_to_time(wanted)
            assert client_of(world.join(SHARED, permits=1)).ids() == [first]
        await world.subscription.reset_to_time(times[4] + 1)
        consumer = world.join(SHARED, permits=1)
        assert client_of(consumer).ids() == []
        world.publish()
        assert client_of(consumer).ids() == [5]

    run(main())


def test_the_end_of_a_terminated_topic_is_told_once_when_all_is_acknowledged() -> None:
    async def main() -> None:
        world = World()
        world.publish()
        consumer = world.join(SHARED, permits=9)
        world.log.is_terminated = True
        world.subscription.wake()
        assert client_of(consumer).ended == 0
        world.subscription.ack(consumer, Position(3, 0), ())
        world.subscription.wake()
        assert client_of(consumer).ended == 1
        late = world.join(SHARED, permits=9)
        assert [client_of(each).ended for each in (consumer, late)] == [1, 1], "who comes later has nothing to wait for"

    run(main())


@pytest.mark.feature("F-DISP-06")
def test_markers_reach_nobody_and_hold_nothing_up() -> None:
    async def main() -> None:
        world = World()
        world.publish()
        world.publish(marker=True)
        world.publish()
        consumer = world.join(EXCLUSIVE, permits=9)
        assert client_of(consumer).ids() == [0, 2]
        world.subscription.ack_cumulative(consumer, Position(3, 0), ())
        assert world.subscription.cursor.mark_delete == Position(3, 1)

    run(main())


@pytest.mark.feature("F-DLY-02", "F-DLY-03", "F-DLY-04")
def test_delayed_messages_wait_for_their_time_on_shared_subscriptions_only() -> None:
    async def main() -> None:
        for type_ in (SHARED, KEY_SHARED):
            world = World()
            world.publish(deliver_at_ms=world.clock.ms + 3_000)
            world.publish(deliver_at_ms=world.clock.ms + 1_000)
            world.publish()
            consumer = world.join(type_, permits=9)
            assert client_of(consumer).ids() == [2]
            assert len(world.subscription.pump.delayed) == 2
            await world.pass_time(999)
            assert client_of(consumer).ids() == [2]
            await world.pass_time(30)
            assert client_of(consumer).ids() == [2, 1]
            await world.pass_time(2_000)
            assert client_of(consumer).ids() == [2, 1, 0]
        world = World()
        world.publish(deliver_at_ms=world.clock.ms + 3_000)
        assert client_of(world.join(EXCLUSIVE, permits=9)).ids() == [0]

    run(main())


def test_delayed_messages_survive_that_all_consumers_leave_and_are_not_doubled_by_reading_again() -> None:
    async def main() -> None:
        world = World()
        for step in range(5):
            world.publish(deliver_at_ms=world.clock.ms + 1_000 * (step + 1))
        consumer = world.join(SHARED, permits=9)
        await world.pass_time(2_500)
        assert client_of(consumer).ids() == [0, 1]
        world.subscription.remove_consumer(consumer)
        await world.pass_time(1_000)
        again = world.join(SHARED, permits=9)
        assert sorted(client_of(again).ids()) == [0, 1, 2], "two that were not acknowledged, one that came due"
        await world.pass_time(5_000)
        assert sorted(client_of(again).ids()) == [0, 1, 2, 3, 4]

    run(main())


@pytest.mark.feature("F-DLY-10")
def test_moving_the_cursor_forgets_what_was_delayed() -> None:
    async def main() -> None:
        world = World()
        world.publish(deliver_at_ms=world.clock.ms + 1_000)
        world.join(SHARED, permits=9)
        await world.subscription.reset(LATEST)
        assert len(world.subscription.pump.delayed) == 0
        consumer = world.join(SHARED, permits=9)
        await world.pass_time(2_000)
        assert client_of(consumer).delivered == []

    run(main())


@pytest.mark.feature("F-PRB-07")
def test_one_key_that_is_never_acknowledged_stops_no_other_while_consumers_come_and_go() -> None:
    async def main() -> None:
        world = World(key_shared_look_ahead_entries_max=200)
        chance = Random(5)
        consumers = [world.join(KEY_SHARED, permits=50) for _ in range(3)]
        poisoned: list[Consumer] = []
        acked = 0
        for step in range(60):
            for _ in range(50):
                world.publish(key="poison" if chance.random() < 0.02 else f"k{chance.randrange(200)}")
            if step % 6 == 3:
                consumers.append(world.join(KEY_SHARED, permits=50))
            elif step % 6 == 0 and len(consumers) > 2:
                leaver = next(consumer for consumer in consumers if consumer not in poisoned)
                consumers.remove(leaver)
                world.subscription.remove_consumer(leaver)
            await world.settle()
            for consumer in consumers:
                for position in list(consumer.pending):
                    if key_at(world, position) == b"poison":
                        poisoned = [consumer]
                        continue
                    world.subscription.ack(consumer, position, ())
                    acked += 1
                world.subscription.on_flow(consumer, 50 - min(consumer.permits, 50))
            await world.settle()
        others = [position for position in world.log.stored if key_at(world, position) != b"poison"]
        left = [position for position in others if not world.subscription.cursor.is_acked(position)]
        assert acked >= 0.95 * len(others)
        assert len(left) <= 50, "all but the last moment's are through"

    run(main())


def key_at(world: World, position: Position) -> bytes:
    return sticky_key(read_metadata(world.log.stored[position]))


class Limit:
    name = "dispatch rate of the test"

    def __init__(self) -> None:
        self.messages = 3

    def available(self) -> tuple[int, int]:
        return self.messages, 1_000_000

    def consume(self, messages: int, size_bytes: int) -> None:
        self.messages -= messages

    def delay_s(self) -> float:
        return 0.5


def test_a_rate_limit_is_asked_before_reading_and_told_what_went_out() -> None:
    async def main() -> None:
        world = World()
        limit = Limit()
        world.subscription.pump.limits = (limit,)
        for _ in range(10):
            world.publish()
        consumer = world.join(EXCLUSIVE, permits=100)
        assert (len(client_of(consumer).delivered), limit.messages) == (3, 0)
        limit.messages = 4
        await world.pass_time(500)
        assert len(client_of(consumer).delivered) == 7

    run(main())


class EvenOnly:
    def __init__(self, otherwise: Verdict) -> None:
        self.otherwise = otherwise

    def verdict(self, entry: object, position: Position, metadata: object, properties: object) -> Verdict:
        return Verdict.ACCEPT if position.entry_id % 2 == 0 else self.otherwise


@pytest.mark.feature("B-14")
@pytest.mark.parametrize("type_", [EXCLUSIVE, SHARED, KEY_SHARED])
def test_an_entry_filter_rejects_for_good_or_puts_off(type_: SubscriptionType) -> None:
    async def main() -> None:
        world = World(entry_filter_reschedule_ms=1_000)
        for _ in range(4):
            world.publish()
        filter_ = EvenOnly(Verdict.REJECT)
        world.subscription.pump.filters = (filter_,)
        consumer = world.join(type_, permits=100)
        assert client_of(consumer).ids() == [0, 2]
        assert world.subscription.cursor.backlog_entries() == 2, "what was rejected is acknowledged"
        filter_.otherwise = Verdict.RESCHEDULE
        for _ in range(3):
            world.publish()
        assert client_of(consumer).ids() == ([0, 2, 4] if type_ is EXCLUSIVE else [0, 2, 4, 6])
        filter_.otherwise = Verdict.ACCEPT
        await world.pass_time(1_100)
        assert sorted(client_of(consumer).ids()) == [0, 2, 4, 5, 6]

    run(main())


def test_an_unreadable_entry_is_delivered_as_it_is() -> None:
    async def main() -> None:
        world = World()
        world.log.append(b"no message at all")
        world.log.append(b"")
        for type_ in (SHARED, KEY_SHARED, EXCLUSIVE):
            consumer = world.join(type_, permits=9)
            assert client_of(consumer).ids() == [0, 1]
            world.subscription.remove_consumer(consumer)

    run(main())


class Schedule:
    """A random life of a subscription; after every step nothing may be overdue, and in the end all is delivered."""

    def __init__(self, seed: int, type_: SubscriptionType) -> None:
        self.chance = Random(seed)
        self.type = type_
        self.world = World(
            dispatch_read_entries_max=4,
            dispatch_round_robin_entries_max=2,
            unacked_messages_per_subscription_max=12,
            key_shared_look_ahead_entries_max=10,
            failover_delay_ms=50,
            is_durable=True,
            delayed_bucket_entries_min=4,
            delayed_segment_entries_max=2,
        )
        self.consumers: list[Consumer] = []

    async def live(self, steps: int) -> None:
        actions = [
            (self.publish, 8), (self.flow, 6), (self.ack, 6), (self.nack, 3), (self.join, 2), (self.leave, 1),
            (self.clog, 1), (self.unclog, 2), (self.pause, 1), (self.cool, 1), (self.roll, 1),
        ]  # fmt: skip
        weighted = [action for action, weight in actions for _ in range(weight)]
        for _ in range(steps):
            await self.chance.choice(weighted)()
            await self.world.settle()
            self.check()
        await self.calm()

    def check(self) -> None:
        subscription = self.world.subscription
        if isinstance(subscription.dispatcher, ManyConsumersDispatcher):
            subscription.dispatcher.check()
        assert not subscription.pump.is_overdue(), "it could send and does not"
        assert self.world.memory.fruitless_rounds == 0

    async def publish(self) -> None:
        batch = self.chance.choice((0, 0, 3))
        delay_ms = self.chance.choice((0, 0, 0, 100))
        at_ms = self.world.clock.ms + delay_ms if delay_ms else 0
        self.world.publish(key=f"k{self.chance.randrange(5)}", batch=batch, deliver_at_ms=at_ms)

    async def flow(self) -> None:
        if self.consumers:
            self.world.subscription.on_flow(self.chance.choice(self.consumers), self.chance.randint(1, 6))

    def held(self, consumer: Consumer) -> list[Position]:
        """What a client has and did not acknowledge, the oldest first."""
        cursor = self.world.subscription.cursor
        got = {delivery.position for delivery in client_of(consumer).delivered}
        return sorted(position for position in got if not cursor.is_acked(position))

    async def ack(self) -> None:
        for consumer in self.consumers:
            held = self.held(consumer)
            if not held:
                continue
            if self.world.subscription.is_ordered and self.chance.random() < 0.5:
                self.world.subscription.ack_cumulative(consumer, self.chance.choice(held), ())
            else:
                for position in held[: self.chance.randint(1, 3)]:
                    self.world.subscription.ack(consumer, position, ())

    async def nack(self) -> None:
        if self.consumers:
            consumer = self.chance.choice(self.consumers)
            held = self.held(consumer)
            some = self.chance.sample(held, min(len(held), 2)) if self.chance.random() < 0.7 else None
            self.world.subscription.redeliver(consumer, some)

    async def join(self) -> None:
        if len(self.consumers) < (1 if self.type is EXCLUSIVE else 4):
            self.consumers.append(self.world.join(self.type, permits=self.chance.randint(0, 5), unacked_max=6))

    async def leave(self) -> None:
        if self.consumers:
            consumer = self.consumers.pop(self.chance.randrange(len(self.consumers)))
            self.world.subscription.remove_consumer(consumer)

    async def clog(self) -> None:
        if self.consumers:
            client_of(self.chance.choice(self.consumers)).writable = False

    async def unclog(self) -> None:
        for consumer in self.consumers:
            if not client_of(consumer).writable:
                client_of(consumer).writable = True
                self.world.subscription.wake()

    async def pause(self) -> None:
        await self.world.pass_time(self.chance.choice((20, 60, 1_000)))

    async def cool(self) -> None:
        self.world.log.is_cold = not self.world.log.is_cold
        self.world.log.fails_next = self.world.log.is_cold and self.chance.random() < 0.3

    async def roll(self) -> None:
        self.world.log.roll()

    async def calm(self) -> None:
        """Everyone reads, asks and acknowledges: then everything goes out."""
        if not self.consumers:
            await self.join()
        await self.unclog()
        for _ in range(len(self.world.log.stored) + 10):
            for consumer in self.consumers:
                if consumer.permits <= 0:
                    self.world.subscription.on_flow(consumer, 10 - consumer.permits)
            await self.world.pass_time(1_100)
            for consumer in self.consumers:
                for position in self.held(consumer):
                    self.world.subscription.ack(consumer, position, ())
            await self.world.settle()
            self.check()
            if self.world.subscription.cursor.backlog_entries() == 0:
                break
        assert self.world.subscription.cursor.backlog_entries() == 0, "something was never delivered"
        assert self.world.memory.stuck_woken == 0
        dispatcher = self.world.subscription.dispatcher
        if isinstance(dispatcher, KeySharedDispatcher):
            assert dispatcher.waiting == 0
            assert dispatcher.draining() == []
        assert len(self.world.log.side_ledgers.stored) == self.world.subscription.pump.buckets.count
        await self.world.tasks.close()


@pytest.mark.feature("F-PRB-01", "F-PRB-07")
@pytest.mark.parametrize("type_", list(SubscriptionType), ids=lambda type_: type_.label)
@settings(max_examples=40, deadline=None)
@example(seed=20787388)
@example(seed=51834657)
@given(seed=st.integers(0, 2**32))
def test_no_schedule_leaves_a_subscription_stuck(type_: SubscriptionType, seed: int) -> None:
    run(_live(seed, type_))


async def _live(seed: int, type_: SubscriptionType) -> None:
    await Schedule(seed, type_).live(120)
