# SPDX-License-Identifier: Apache-2.0
"""Shared dispatch: each entry to one consumer at a time, by permits and priority, against a stupid twin."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from magnetar.broker.consumer import Consumer
from magnetar.broker.dispatch.shared import SharedDispatcher
from magnetar.ids import Position
from tests.unit.broker.dispatch.machines import candidate, given_ids, link_of, new_consumer


def new_dispatcher(unacked_max: int = 0, round_entries_max: int = 2) -> SharedDispatcher:
    return SharedDispatcher(round_entries_max=round_entries_max, unacked_max=unacked_max)


@pytest.mark.feature("F-SUB-08")
def test_entries_go_round_in_small_turns() -> None:
    dispatcher = new_dispatcher()
    first, second = new_consumer("a", permits=10), new_consumer("b", permits=10)
    dispatcher.add(first)
    dispatcher.add(second)
    assignment = dispatcher.assign([candidate(n) for n in range(8)])
    assert given_ids(assignment[first]) == [0, 1, 4, 5]
    assert given_ids(assignment[second]) == [2, 3, 6, 7]


@pytest.mark.feature("F-SUB-09")
def test_a_lower_priority_gets_entries_only_when_the_better_has_no_room() -> None:
    dispatcher = new_dispatcher()
    spare, preferred = new_consumer("spare", priority=1, permits=10), new_consumer("preferred", permits=3)
    dispatcher.add(spare)
    dispatcher.add(preferred)
    assignment = dispatcher.assign([candidate(n) for n in range(5)])
    assert given_ids(assignment[preferred]) == [0, 1, 2]
    assert given_ids(assignment[spare]) == [3, 4]


@pytest.mark.feature("F-SUB-10")
def test_what_a_consumer_held_goes_to_the_survivors_first() -> None:
    dispatcher = new_dispatcher(round_entries_max=100)
    leaver, survivor = new_consumer("leaver", permits=3), new_consumer("survivor")
    dispatcher.add(leaver)
    dispatcher.add(survivor)
    dispatcher.assign([candidate(n) for n in range(3)])
    dispatcher.remove(leaver)
    survivor.on_flow(10)
    assert dispatcher.replays(10) == [Position(1, 0), Position(1, 1), Position(1, 2)]
    assignment = dispatcher.assign([candidate(n) for n in range(3)])
    assert [(each.entry.entry_id, each.redelivery_count) for each in assignment[survivor]] == [(0, 1), (1, 1), (2, 1)]
    assert dispatcher.replays(10) == []


@pytest.mark.feature("F-DISP-03")
def test_a_consumer_over_its_unacked_limit_gets_nothing_until_it_acks() -> None:
    dispatcher = new_dispatcher()
    consumer = new_consumer("a", permits=100, unacked_max=2)
    dispatcher.add(consumer)
    assignment = dispatcher.assign([candidate(n) for n in range(3)])
    assert given_ids(assignment[consumer]) == [0, 1]
    assert dispatcher.room() == 0
    dispatcher.on_acked(consumer, Position(1, 0))
    assert dispatcher.room() > 0
    assert dispatcher.replays(10) == [Position(1, 2)]


def test_the_subscription_limit_counts_all_consumers() -> None:
    dispatcher = new_dispatcher(unacked_max=3)
    for name in "ab":
        dispatcher.add(new_consumer(name, permits=10))
    dispatcher.assign([candidate(n) for n in range(3)])
    assert dispatcher.room() == 0


def test_a_consumer_whose_connection_is_full_is_passed_over() -> None:
    dispatcher = new_dispatcher()
    stuck, free = new_consumer("stuck", permits=10), new_consumer("free", permits=10)
    dispatcher.add(stuck)
    dispatcher.add(free)
    link_of(stuck).writable = False
    assignment = dispatcher.assign([candidate(n) for n in range(4)])
    assert list(assignment) == [free]


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

    @rule(count=st.integers(1, 5), messages=st.integers(1, 3))
    def pump(self, count: int, messages: int) -> None:
        room = self.dispatcher.room()
        if room <= 0:
            return
        again = [position.entry_id for position in self.dispatcher.replays(count)]
        waiting = sorted(entry_id for entry_id, state in self.state.items() if state == "waiting")
        assert again == waiting[:count]
        offered = again or list(range(self.next_entry, self.next_entry + count))
        if not again:
            self.next_entry += count
        assignment = self.dispatcher.assign([candidate(entry_id, messages) for entry_id in offered])
        given = [entry_id for deliveries in assignment.values() for entry_id in given_ids(deliveries)]
        assert given, "there was room and something to give"
        for entry_id in offered:
            self.state[entry_id] = "waiting"
        for consumer, deliveries in assignment.items():
            for entry_id in given_ids(deliveries):
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
