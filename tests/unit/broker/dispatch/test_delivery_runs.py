# SPDX-License-Identifier: Apache-2.0
"""Entries that are given out as one run go to the same consumers, and leave the same behind, as if each came alone."""

from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from magnetar.broker.consumer import Consumer
from magnetar.broker.dispatch.dispatcher import Dispatcher
from magnetar.broker.dispatch.key_ranges import RangeSplitting
from magnetar.broker.dispatch.key_shared import KeySharedDispatcher
from magnetar.broker.dispatch.shared import SharedDispatcher
from magnetar.broker.dispatch.single_active import ExclusiveDispatcher
from magnetar.broker.entry_facts import HASH_SLOTS
from tests.unit.broker.dispatch.machines import delivery, given_ids, link_of, new_consumer, run_of

Members = list[tuple[int, int, int, bool]]

MEMBERS = st.lists(
    st.tuples(st.integers(0, 12), st.integers(0, 1), st.integers(0, 8), st.booleans()), min_size=1, max_size=4
)
ENTRIES = st.lists(st.tuples(st.integers(0, HASH_SLOTS - 1), st.integers(1, 3)), min_size=1, max_size=20)


def exclusive(unacked_max: int) -> Dispatcher:
    return ExclusiveDispatcher(lambda consumer: None)


def shared(unacked_max: int) -> Dispatcher:
    return SharedDispatcher(round_entries_max=3, unacked_max=unacked_max)


def key_shared(unacked_max: int) -> Dispatcher:
    return KeySharedDispatcher(RangeSplitting(), unacked_max=unacked_max, look_ahead_max=100)


def out_of_order(unacked_max: int) -> Dispatcher:
    return KeySharedDispatcher(RangeSplitting(), unacked_max=unacked_max, look_ahead_max=100, allow_out_of_order=True)


def joined(dispatcher: Dispatcher, members: Members) -> list[Consumer]:
    consumers = []
    for number, (permits, priority, unacked_max, is_writable) in enumerate(members):
        consumer = new_consumer(f"c{number}", permits=permits, priority=priority, unacked_max=unacked_max)
        link_of(consumer).writable = is_writable
        dispatcher.add(consumer)
        consumers.append(consumer)
    return consumers


def facts_of(consumers: Sequence[Consumer]) -> list[object]:
    return [(each.permits, each.unacked, each.messages_out, each.entries_out, each.pending) for each in consumers]


@pytest.mark.parametrize("make", [exclusive, shared, key_shared, out_of_order])
@settings(max_examples=150, deadline=None)
@given(members=MEMBERS, entries=ENTRIES, single=st.booleans(), unacked_max=st.integers(0, 15), rounds=st.integers(1, 3))
def test_a_run_is_given_out_as_its_entries_are(
    make: Callable[[int], Dispatcher],
    members: Members,
    entries: list[tuple[int, int]],
    single: bool,
    unacked_max: int,
    rounds: int,
) -> None:
    if make is exclusive:
        members = members[:1]
    whole, alone = make(unacked_max), make(unacked_max)
    by_run, by_entry = joined(whole, members), joined(alone, members)
    for number in range(rounds):
        first = 100 * number
        offered = [delivery(first + n, 1 if single else messages, key) for n, (key, messages) in enumerate(entries)]
        round_of_run, round_of_entries = whole.assign(run_of(offered)), alone.assign(offered)
        assert round_of_run.settled == round_of_entries.settled
        assert {consumer.name: given_ids(each) for consumer, each in round_of_run.assignment.items()} == {
            consumer.name: given_ids(each) for consumer, each in round_of_entries.assignment.items()
        }
        assert facts_of(by_run) == facts_of(by_entry)
        assert (whole.unacked, whole.waiting, whole.room(99)) == (alone.unacked, alone.waiting, alone.room(99))
        held = [list(consumer.pending)[::2] for consumer in by_run]
        for consumer, twin, positions in zip(by_run, by_entry, reversed(held), strict=True):
            # Acknowledged by another than the one that holds them, perhaps.
            told = [alone.on_acked(twin, position) for position in positions]
            assert whole.on_all_acked(consumer, positions) == any(told)
        assert facts_of(by_run) == facts_of(by_entry)
        assert [each.messages_acked for each in by_run] == [each.messages_acked for each in by_entry]


def test_a_run_that_one_consumer_takes_whole_is_passed_on_as_it_is() -> None:
    dispatcher = exclusive(0)
    (consumer,) = joined(dispatcher, [(5, 0, 0, True)])
    run = run_of([delivery(n) for n in range(5)])
    assert dispatcher.assign(run).assignment[consumer] is run
    assert consumer.permits == 0
