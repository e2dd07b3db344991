# SPDX-License-Identifier: Apache-2.0
"""Shared dispatch: each entry to one consumer at a time, by permits and priority, against a stupid twin."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from magnetar.broker.consumer import Consumer
from magnetar.broker.dispatch.shared import SharedDispatcher
from magnetar.ids import Position
from tests.unit.broker.dispatch.machines import delivery, given_ids, link_of, new_consumer, run_of


def new_dispatcher(unacked_max: int = 0, round_entries_max: int = 2) -> SharedDispatcher:
    return SharedDispatcher(round_entries_max=round_entries_max, unacked_max=unacked_max)


@pytest.mark.feature("F-SUB-08")
def test_entries_go_round_in_small_turns() -> None:
    dispatcher = new_dispatcher()
    first, second = new_consumer("a", permits=10), new_consumer("b", permits=10)
    dispatcher.add(first)
    dispatcher.add(second)
    assignment, settled = dispatcher.assign([delivery(n) for n in range(8)])
    assert settled == 8
    assert given_ids(assignment[first]) == [0, 1, 4, 5]
    assert given_ids(assignment[second]) == [2, 3, 6, 7]


@pytest.mark.feature("F-SUB-09")
def test_a_lower_priority_gets_entries_only_when_the_better_has_no_room() -> None:
    dispatcher = new_dispatcher()
    spare, preferred = new_consumer("spare", priority=1, permits=10), new_consumer("preferred", permits=3)
    dispatcher.add(spare)
    dispatcher.add(preferred)
    assignment, _ = dispatcher.assign([delivery(n) for n in range(5)])
    assert given_ids(assignment[preferred]) == [0, 1, 2]
    assert given_ids(assignment[spare]) == [3, 4]


@pytest.mark.feature("F-SUB-10")
def test_what_a_consumer_held_goes_to_the_survivors_first() -> None:
    dispatcher = new_dispatcher(round_entries_max=100)
    leaver, survivor = new_consumer("leaver", permits=3), new_consumer("survivor")
    dispatcher.add(leaver)
    dispatcher.add(survivor)
    dispatcher.assign([delivery(n) for n in range(3)])
    dispatcher.remove(leaver)
    survivor.on_flow(10)
    assert dispatcher.replays(10) == [Position(1, 0), Position(1, 1), Position(1, 2)]
    assignment, _ = dispatcher.assign([delivery(n) for n in range(3)])
    assert [(each.entry.entry_id, each.redelivery_count) for each in assignment[survivor]] == [(0, 0), (1, 0), (2, 0)]
    assert dispatcher.replays(10) == []


@pytest.mark.feature("F-DISP-03")
def test_a_consumer_over_its_unacked_limit_gets_nothing_until_it_acks() -> None:
    dispatcher = new_dispatcher()
    consumer = new_consumer("a", permits=100, unacked_max=2)
    dispatcher.add(consumer)
    assignment, settled = dispatcher.assign([delivery(n) for n in range(3)])
    assert given_ids(assignment[consumer]) == [0, 1]
    assert settled == 2, "the third is to be read again"
    assert dispatcher.room(1) == 0
    assert dispatcher.on_acked(consumer, Position(1, 0)), "the ack lets the consumer go on"
    assert dispatcher.room(1) > 0


def test_the_subscription_limit_counts_all_consumers() -> None:
    dispatcher = new_dispatcher(unacked_max=3)
    for name in "ab":
        dispatcher.add(new_consumer(name, permits=10))
    dispatcher.assign([delivery(n) for n in range(3)])
    assert dispatcher.room(1) == 0


def test_a_consumer_whose_connection_is_full_is_passed_over() -> None:
    dispatcher = new_dispatcher()
    stuck, free = new_consumer("stuck", permits=10), new_consumer("free", permits=10)
    dispatcher.add(stuck)
    dispatcher.add(free)
    link_of(stuck).writable = False
    assignment, _ = dispatcher.assign([delivery(n) for n in range(4)])
    assert list(assignment) == [free]


def test_an_ack_by_another_consumer_frees_the_one_that_holds_the_entry() -> None:
    dispatcher = new_dispatcher(round_entries_max=1)
    holder, other = new_consumer("holder", permits=1, unacked_max=1), new_consumer("other", permits=1)
    dispatcher.add(holder)
    dispatcher.add(other)
    dispatcher.assign([delivery(0, messages=4), delivery(1)])
    assert not dispatcher.on_part_acked(other, Position(1, 1), 1)
    assert dispatcher.on_part_acked(other, Position(1, 0), 3)
    assert (holder.unacked, dispatcher.unacked) == (3, 4)
    assert dispatcher.on_acked(other, Position(1, 0))
    assert (holder.unacked, dispatcher.unacked) == (0, 1)


def test_leaving_does_not_count_as_redelivery_but_asking_again_does() -> None:
    dispatcher = new_dispatcher()
    leaver, survivor = new_consumer("leaver", permits=1), new_consumer("survivor")
    dispatcher.add(leaver)
    dispatcher.add(survivor)
    dispatcher.assign([delivery(0)])
    dispatcher.redeliver(leaver, None)
    leaver.on_flow(1)
    assert dispatcher.assign([delivery(0)])[0][leaver][0].redelivery_count == 1
    dispatcher.remove(leaver)
    survivor.on_flow(1)
    assert dispatcher.assign([delivery(0)])[0][survivor][0].redelivery_count == 1


def test_positions_that_the_consumer_does_not_hold_are_not_given_out_again() -> None:
    dispatcher = new_dispatcher()
    holder, liar = new_consumer("holder", permits=1), new_consumer("liar")
    dispatcher.add(holder)
    dispatcher.add(liar)
    dispatcher.assign([delivery(0)])
    dispatcher.redeliver(liar, [Position(1, 0), Position(9, 9)])
    assert dispatcher.replays(10) == []
    dispatcher.check()


@pytest.mark.feature("D-28")
def test_all_parts_of_a_chunked_message_go_to_one_consumer_and_only_they_wait_for_it() -> None:
    dispatcher = new_dispatcher(round_entries_max=1)
    first, second = new_consumer("first", permits=1), new_consumer("second", permits=9)
    dispatcher.add(first)
    dispatcher.add(second)
    parts = [delivery(n, chunk=("big", n == 2)) for n in range(3)]
    assignment, settled = dispatcher.assign([*parts, delivery(3)])
    assert (given_ids(assignment[first]), given_ids(assignment[second]), settled) == ([0], [3], 4)
    assert dispatcher.replays(10) == [], "its consumer has no room"
    assert dispatcher.blocked_first() is not None
    first.on_flow(5)
    assert dispatcher.replays(10) == [Position(1, 1), Position(1, 2)]
    assert given_ids(dispatcher.assign(parts[1:])[0][first]) == [1, 2]
    assert dispatcher.waiting == 0


def test_parts_that_wait_for_one_consumer_stop_reading_ahead_at_their_bound() -> None:
    dispatcher = new_dispatcher(round_entries_max=1)
    first, second = new_consumer("first", permits=1), new_consumer("second", permits=9)
    dispatcher.add(first)
    dispatcher.add(second)
    dispatcher.BOUND_MAX = 3
    dispatcher.assign([delivery(n, chunk=("big", False)) for n in range(3)])
    assert dispatcher.may_read()
    dispatcher.assign([delivery(3, chunk=("big", False))])
    assert not dispatcher.may_read()
    assert dispatcher.on_acked(second, Position(1, 3)), "an ack of a waiting part makes room to read"
    assert dispatcher.may_read()


def test_messages_that_never_become_whole_are_forgotten_beyond_a_number() -> None:
    """F142: a hundred thousand first parts, of which no second one comes."""
    dispatcher = new_dispatcher(round_entries_max=1)
    first, second = new_consumer("first", permits=100_000), new_consumer("second", permits=100_000)
    dispatcher.add(first)
    dispatcher.add(second)
    for start in range(0, 100_000, 1_000):
        dispatcher.assign([delivery(n, chunk=(f"u{n}", False)) for n in range(start, start + 1_000)])
    assert len(dispatcher._chunks) == 10_000
    assert dispatcher.waiting == 0, "nothing waits for the rest of them"
    whole, _ = dispatcher.assign([delivery(100_000, chunk=("u5", True)), delivery(100_001)])
    assert sum(map(len, whole.values())) == 2, "the rest of one that is forgotten goes to anyone"


@pytest.mark.feature("D-28")
def test_when_the_consumer_of_a_half_sent_message_leaves_all_its_parts_go_to_another() -> None:
    dispatcher = new_dispatcher(round_entries_max=1)
    first, second = new_consumer("first", permits=1), new_consumer("second", permits=9)
    dispatcher.add(first)
    dispatcher.add(second)
    parts = [delivery(n, chunk=("big", n == 2)) for n in range(3)]
    dispatcher.assign(parts)
    dispatcher.remove(first)
    assert dispatcher.replays(10) == [Position(1, 0), Position(1, 1), Position(1, 2)]
    assert given_ids(dispatcher.assign(parts)[0][second]) == [0, 1, 2]


class SharedAgainstTwin(RuleBasedStateMachine):
    """The twin knows for every entry: unread, held by one consumer, waiting to go out again, or acknowledged."""

    @initialize()
    def start(self) -> None:
        self.dispatcher = new_dispatcher(round_entries_max=3)
        self.consumers: list[Consumer] = []
        self.next_entry = 0
        self.state: dict[int, Consumer | str] = {}
        self.names = 0

    @rule(permits=st.integers(0, 6), priority=st.integers(0, 1))
    def join(self, permits: int, priority: int) -> None:
        self.names += 1
        consumer = new_consumer(f"c{self.names}", priority=priority, permits=permits, unacked_max=5)
        self.dispatcher.add(consumer)
        self.consumers.append(consumer)

    @precondition(lambda self: self.consumers)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        consumer = data.draw(st.sampled_from(self.consumers))
        self.dispatcher.remove(consumer)
        self.consumers.remove(consumer)
        for entry_id, state in self.state.items():
            if state is consumer:
                self.state[entry_id] = "waiting"

    @precondition(lambda self: self.consumers)
    @rule(data=st.data(), permits=st.integers(1, 10))
    def flow(self, data: st.DataObject, permits: int) -> None:
        data.draw(st.sampled_from(self.consumers)).on_flow(permits)

    @rule(count=st.integers(1, 5), messages=st.integers(1, 3), as_run=st.booleans())
    def pump(self, count: int, messages: int, as_run: bool) -> None:
        room = self.dispatcher.room(1)
        if room <= 0:
            return
        again = [position.entry_id for position in self.dispatcher.replays(count)]
        waiting = sorted(entry_id for entry_id, state in self.state.items() if state == "waiting")
        assert again == waiting[:count]
        offered = again or list(range(self.next_entry, self.next_entry + count))
        deliveries = [delivery(entry_id, messages) for entry_id in offered]
        assignment, settled = self.dispatcher.assign(run_of(deliveries) if as_run and not again else deliveries)
        given = [entry_id for deliveries in assignment.values() for entry_id in given_ids(deliveries)]
        assert given, "there was room and something to give"
        assert sorted(given) == offered[:settled], "those in front are given, the rest is read again"
        if not again:
            self.next_entry = offered[0] + settled
        for entry_id in offered[:settled]:
            self.state[entry_id] = "waiting"
        for consumer, its_own in assignment.items():
            for entry_id in given_ids(its_own):
                assert self.state[entry_id] == "waiting", "given twice"
                self.state[entry_id] = consumer

    @precondition(lambda self: self.consumers and any(isinstance(s, Consumer) for s in self.state.values()))
    @rule(data=st.data(), nack=st.booleans())
    def settle(self, data: st.DataObject, nack: bool) -> None:
        held = sorted(entry_id for entry_id, state in self.state.items() if isinstance(state, Consumer))
        entry_id = data.draw(st.sampled_from(held))
        holder = self.state[entry_id]
        assert isinstance(holder, Consumer)
        if nack:
            self.dispatcher.redeliver(holder, [Position(1, entry_id)])
            self.state[entry_id] = "waiting"
        else:
            self.dispatcher.on_acked(data.draw(st.sampled_from(self.consumers)), Position(1, entry_id))
            self.state[entry_id] = "acknowledged"

    @precondition(lambda self: self.consumers and self.state)
    @rule(data=st.data())
    def settle_many(self, data: st.DataObject) -> None:
        """Whatever they are: held by anybody, waiting, or acknowledged before."""
        entry_ids = data.draw(st.lists(st.sampled_from(sorted(self.state)), min_size=1, max_size=6))
        consumer = data.draw(st.sampled_from(self.consumers))
        self.dispatcher.on_all_acked(consumer, [(1, entry_id) for entry_id in entry_ids])
        self.state.update(dict.fromkeys(entry_ids, "acknowledged"))

    @invariant()
    def agrees(self) -> None:
        if not hasattr(self, "dispatcher"):
            return
        self.dispatcher.check()
        for consumer in self.consumers:
            held = {entry_id for entry_id, state in self.state.items() if state is consumer}
            assert {position.entry_id for position in consumer.pending} == held


TestSharedAgainstTwin = SharedAgainstTwin.TestCase
TestSharedAgainstTwin.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
