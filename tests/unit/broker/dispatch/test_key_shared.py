# SPDX-License-Identifier: Apache-2.0
"""Key_Shared dispatch: order per key, one holder per key, and keys that never wait for one another; against a stupid
twin.
"""

import asyncio
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from magnetar.broker.consumer import Consumer
from magnetar.broker.dispatch.key_ranges import ConsistentHashing, KeyRanges, RangeSplitting, StickyRanges
from magnetar.broker.dispatch.key_shared import KeySharedDispatcher
from magnetar.broker.entry_facts import HASH_SLOTS
from magnetar.broker.subscription import SubscriptionType
from magnetar.ids import Position
from tests.unit.broker.dispatch.machines import delivery, given_ids, new_consumer, run_of
from tests.unit.broker.worlds import World, client_of

LOW, HIGH = 100, HASH_SLOTS - 100


def new_dispatcher(
    ranges: KeyRanges | None = None, *, look_ahead_max: int = 1_000, allow_out_of_order: bool = False
) -> KeySharedDispatcher:
    return KeySharedDispatcher(
        ranges or RangeSplitting(), unacked_max=0, look_ahead_max=look_ahead_max, allow_out_of_order=allow_out_of_order
    )


@pytest.mark.feature("F-SUB-13", "F-DISP-07")
def test_each_key_goes_to_its_owner_in_order() -> None:
    dispatcher = new_dispatcher()
    high, low = new_consumer("high", permits=10), new_consumer("low", permits=10)
    dispatcher.add(high)
    dispatcher.add(low)
    assignment, settled = dispatcher.assign([delivery(n, key_hash=LOW if n % 3 else HIGH) for n in range(6)])
    assert (given_ids(assignment[high]), given_ids(assignment[low]), settled) == ([0, 3], [1, 2, 4, 5], 6)


@pytest.mark.feature("F-PRB-07", "F-SUB-18")
def test_a_moved_key_drains_behind_its_old_consumer_while_other_keys_flow() -> None:
    dispatcher = new_dispatcher()
    old = new_consumer("old", permits=100)
    dispatcher.add(old)
    dispatcher.assign([delivery(0, key_hash=LOW), delivery(1, key_hash=HIGH)])
    new = new_consumer("new", permits=100)
    dispatcher.add(new)
    assert [(each.slot, each.holder, each.owner) for each in dispatcher.draining()] == [(LOW, old, new)]
    assignment, _ = dispatcher.assign(
        [delivery(2, key_hash=LOW), delivery(3, key_hash=LOW + 1), delivery(4, key_hash=HIGH)]
    )
    assert given_ids(assignment[new]) == [3], "a key that old never held goes to new at once"
    assert given_ids(assignment[old]) == [4]
    assert dispatcher.replays(10) == [], "the moved key waits"
    blocked = dispatcher.blocked_first()
    assert blocked is not None
    assert blocked[0] == Position(1, 2)
    assert "drains behind consumer 'old'" in blocked[1]
    assert dispatcher.on_acked(old, Position(1, 0)), "the last ack of the old one lets the key go"
    assert dispatcher.replays(10) == [Position(1, 2)]
    assert given_ids(dispatcher.assign([delivery(2, key_hash=LOW)])[0][new]) == [2]
    assert dispatcher.draining() == []


@pytest.mark.feature("F-PRB-07")
def test_a_consumer_without_permits_keeps_only_its_own_keys_waiting() -> None:
    dispatcher = new_dispatcher()
    fast, slow = new_consumer("fast", permits=100), new_consumer("slow")
    dispatcher.add(fast)
    dispatcher.add(slow)
    assignment, _ = dispatcher.assign([delivery(n, key_hash=LOW if n % 2 else HIGH) for n in range(10)])
    assert given_ids(assignment[fast]) == [0, 2, 4, 6, 8]
    assert dispatcher.replays(10) == []
    assert dispatcher.may_read()
    slow.on_flow(2)
    assert dispatcher.replays(10) == [Position(1, 1), Position(1, 3)]


def test_reading_ahead_stops_at_its_bound() -> None:
    dispatcher = new_dispatcher(look_ahead_max=3)
    dispatcher.add(new_consumer("fast", permits=100))
    dispatcher.add(new_consumer("slow"))
    dispatcher.assign([delivery(n, key_hash=LOW) for n in range(3)])
    assert not dispatcher.may_read()


def test_a_nacked_entry_goes_out_before_later_ones_of_its_key() -> None:
    dispatcher = new_dispatcher()
    consumer = new_consumer("a", permits=1)
    dispatcher.add(consumer)
    dispatcher.assign([delivery(0, key_hash=LOW)])
    dispatcher.redeliver(consumer, [Position(1, 0)])
    consumer.on_flow(10)
    assert dispatcher.assign([delivery(1, key_hash=LOW)])[0] == {}
    assert dispatcher.replays(10) == [Position(1, 0), Position(1, 1)]
    again = dispatcher.assign([delivery(0, key_hash=LOW), delivery(1, key_hash=LOW)])[0][consumer]
    assert [(each.position.entry_id, each.redelivery_count) for each in again] == [(0, 1), (1, 0)]


@pytest.mark.feature("F-SUB-14")
def test_redelivery_goes_to_the_same_consumer_until_the_members_change() -> None:
    dispatcher = new_dispatcher(ConsistentHashing(100))
    consumers = [new_consumer(f"c{n}", permits=100) for n in range(3)]
    for consumer in consumers:
        dispatcher.add(consumer)
    (holder,) = dispatcher.assign([delivery(0, key_hash=LOW)])[0]
    for _ in range(5):
        dispatcher.redeliver(holder, [Position(1, 0)])
        assert list(dispatcher.assign([delivery(0, key_hash=LOW)])[0]) == [holder]


def test_with_out_of_order_delivery_nothing_waits_behind_another() -> None:
    dispatcher = new_dispatcher(allow_out_of_order=True)
    old, new = new_consumer("old", permits=100), new_consumer("new", permits=100)
    dispatcher.add(old)
    dispatcher.assign([delivery(0, key_hash=LOW)])
    dispatcher.add(new)
    assert given_ids(dispatcher.assign([delivery(1, key_hash=LOW)])[0][new]) == [1]
    assert dispatcher.draining() == []
    dispatcher.check()


def test_entries_that_become_due_find_the_queue_of_their_key() -> None:
    dispatcher = new_dispatcher()
    consumer = new_consumer("a")
    dispatcher.add(consumer)
    dispatcher.enqueue([Position(1, 5)])
    dispatcher.assign([delivery(6, key_hash=LOW)])
    assert dispatcher.replays(10) == [Position(1, 5)]
    assert dispatcher.assign([delivery(5, key_hash=LOW)])[0] == {}
    consumer.on_flow(5)
    assert dispatcher.replays(10) == [Position(1, 5), Position(1, 6)]


def test_a_hash_in_nobodys_range_waits_for_someone_who_brings_it() -> None:
    dispatcher = new_dispatcher(StickyRanges())
    dispatcher.add(new_consumer("high", permits=9, key_ranges=[(HIGH, HIGH + 9)]))
    assert dispatcher.assign([delivery(0, key_hash=LOW)])[0] == {}
    blocked = dispatcher.blocked_first()
    assert blocked is not None
    assert f"no consumer has hash {LOW}" in blocked[1]
    dispatcher.add(new_consumer("low", permits=9, key_ranges=[(0, LOW)]))
    assert dispatcher.replays(10) == [Position(1, 0)]


class KeySharedAgainstTwin(RuleBasedStateMachine):
    """The twin keeps, for every key, the entries not yet acknowledged, in order, and who holds each (or None)."""

    KEYS = (3, 20_000, 40_000, 65_000)

    @initialize(consistent=st.booleans())
    def start(self, consistent: bool) -> None:
        ranges = ConsistentHashing(5) if consistent else RangeSplitting()
        self.dispatcher = new_dispatcher(ranges, look_ahead_max=30)
        self.consumers: list[Consumer] = []
        self.key_of: list[int] = []
        self.open: dict[int, dict[int, Consumer | None]] = {key: {} for key in self.KEYS}
        self.given_before: set[int] = set()
        self.names = 0

    @rule(permits=st.integers(0, 6))
    def join(self, permits: int) -> None:
        self.names += 1
        consumer = new_consumer(f"c{self.names}", permits=permits, unacked_max=6)
        self.dispatcher.add(consumer)
        self.consumers.append(consumer)

    @precondition(lambda self: self.consumers)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        consumer = data.draw(st.sampled_from(self.consumers))
        self.dispatcher.remove(consumer)
        self.consumers.remove(consumer)
        for entries in self.open.values():
            for entry_id, holder in entries.items():
                if holder is consumer:
                    entries[entry_id] = None

    @precondition(lambda self: self.consumers)
    @rule(data=st.data(), permits=st.integers(1, 10))
    def flow(self, data: st.DataObject, permits: int) -> None:
        data.draw(st.sampled_from(self.consumers)).on_flow(permits)

    @rule(data=st.data(), count=st.integers(1, 6), messages=st.integers(1, 3), as_run=st.booleans())
    def pump(self, data: st.DataObject, count: int, messages: int, as_run: bool) -> None:
        if self.dispatcher.room(1) <= 0:
            return
        again = [position.entry_id for position in self.dispatcher.replays(count)]
        if again:
            self.offer(again, messages)
        elif self.dispatcher.may_read():
            keys = data.draw(st.lists(st.sampled_from(self.KEYS), min_size=count, max_size=count))
            first = len(self.key_of)
            self.key_of += keys
            for entry_id, key in enumerate(keys, first):
                self.open[key][entry_id] = None
            self.offer(list(range(first, first + count)), messages, as_run=as_run)

    def offer(self, entry_ids: list[int], messages: int, *, as_run: bool = False) -> list[int]:
        offered = [delivery(entry_id, messages, self.key_of[entry_id]) for entry_id in entry_ids]
        assignment, settled = self.dispatcher.assign(run_of(offered) if as_run else offered)
        assert settled == len(offered)
        given: list[int] = []
        for consumer, deliveries in assignment.items():
            for entry_id in given_ids(deliveries):
                self.take(consumer, entry_id)
                given.append(entry_id)
        return given

    def take(self, consumer: Consumer, entry_id: int) -> None:
        entries = self.open[self.key_of[entry_id]]
        assert entries[entry_id] is None, "given while it was held"
        assert {holder for holder in entries.values() if holder is not None} <= {consumer}, "two hold one key"
        earlier = [other for other, holder in entries.items() if other < entry_id and holder is None]
        assert not earlier, f"{entry_id} was given before {earlier}"
        entries[entry_id] = consumer

    @rule(data=st.data(), nack=st.booleans())
    def settle(self, data: st.DataObject, nack: bool) -> None:
        held = sorted(
            entry_id for entries in self.open.values() for entry_id, holder in entries.items() if holder is not None
        )
        if not held:
            return
        entry_id = data.draw(st.sampled_from(held))
        entries = self.open[self.key_of[entry_id]]
        holder = entries[entry_id]
        assert holder is not None
        if nack:
            # Nacking one entry gives back the later ones of its key too, as a consumer that wants order does.
            positions = [other for other, by in entries.items() if other >= entry_id and by is holder]
            self.dispatcher.redeliver(holder, [Position(1, other) for other in positions])
            for other in positions:
                entries[other] = None
        else:
            self.dispatcher.on_acked(data.draw(st.sampled_from(self.consumers)), Position(1, entry_id))
            del entries[entry_id]

    @rule(data=st.data())
    def settle_many(self, data: st.DataObject) -> None:
        held = sorted(e for entries in self.open.values() for e, holder in entries.items() if holder is not None)
        if not held:
            return
        entry_ids = data.draw(st.lists(st.sampled_from(held), min_size=1, max_size=6))
        consumer = data.draw(st.sampled_from(self.consumers))
        self.dispatcher.on_all_acked(consumer, [(1, entry_id) for entry_id in entry_ids])
        for entry_id in set(entry_ids):
            del self.open[self.key_of[entry_id]][entry_id]

    @invariant()
    def agrees(self) -> None:
        if hasattr(self, "dispatcher"):
            self.dispatcher.check()
            for consumer in self.consumers:
                held = {e for entries in self.open.values() for e, by in entries.items() if by is consumer}
                assert {position.entry_id for position in consumer.pending} == held

    def teardown(self) -> None:
        """Liveness: with permits for all and acks for everything held, every entry goes out."""
        if not getattr(self, "consumers", None):
            return
        for _ in range(3 * len(self.key_of) + 3):
            for consumer in self.consumers:
                consumer.permits = 100
            again = [position.entry_id for position in self.dispatcher.replays(5)]
            given = self.offer(again, 1)
            assert bool(given) == bool(again), "what can go out is given"
            for entries in self.open.values():
                for entry_id, holder in list(entries.items()):
                    if holder is not None:
                        self.dispatcher.on_acked(holder, Position(1, entry_id))
                        del entries[entry_id]
        assert not any(self.open.values()), f"never given out: {self.open}"
        assert self.dispatcher.waiting == 0


TestKeySharedAgainstTwin = KeySharedAgainstTwin.TestCase
TestKeySharedAgainstTwin.settings = settings(max_examples=50, stateful_step_count=40, deadline=None)


def test_permits_of_several_consumers_by_key_make_one_read(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        world = World()
        for number in range(20):
            world.publish(key=f"key-{number}")
        consumers = [world.join(SubscriptionType.KEY_SHARED, permits=0) for _ in range(3)]
        await world.settle()
        asked: list[int] = []
        read = world.log.read_cached

        def counted(position: Position, entries_max: int, bytes_max: int) -> Any:
            asked.append(entries_max)
            return read(position, entries_max, bytes_max)

        monkeypatch.setattr(world.log, "read_cached", counted)
        for consumer in consumers:
            world.subscription.on_flow(consumer, 100)
        assert asked == [], "not for each of them"
        await world.settle()
        assert asked[0] >= 20
        assert sorted(number for consumer in consumers for number in client_of(consumer).ids()) == list(range(20))

    asyncio.run(main())
