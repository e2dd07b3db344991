# SPDX-License-Identifier: Apache-2.0
"""The index of delayed messages against a sorted list; and what a million of them cost."""

import sys
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from magnetar.broker.delayed.bucket_format import decode_metadata, decode_segment, encode_metadata, encode_segment
from magnetar.broker.delayed.delayed_index import DelayedIndex
from magnetar.ids import Position

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(0, 50), st.integers(0, 3), st.integers(0, 40)),
        st.tuples(st.just("pop"), st.integers(0, 50), st.integers(1, 6), st.just(0)),
    ),
    max_size=80,
)


@pytest.mark.feature("F-DLY-02", "F-DLY-08")
@settings(max_examples=150, deadline=None)
@given(steps=STEPS, heap_max=st.integers(1, 8))
def test_it_agrees_with_a_sorted_list(steps: list[tuple[str, int, int, int]], heap_max: int) -> None:
    index = DelayedIndex(heap_entries_max=heap_max)
    twin: dict[Position, int] = {}
    for step, time_ms, number, entry_id in steps:
        if step == "add":
            position = Position(number, entry_id)
            assert index.add(position, time_ms) == (position not in twin)
            twin.setdefault(position, time_ms)
        else:
            due = index.pop_due(time_ms, number)
            times = [twin.pop(position) for position in due]
            assert times == sorted(times)
            assert all(due_ms <= time_ms for due_ms in times)
            assert len(due) == number or all(left > time_ms for left in twin.values())
        index.check()
        assert len(index) == len(twin)
        assert index.next_due_ms == min(twin.values(), default=None)
        assert all(position in index for position in twin)
        first = index.first()
        assert (first is None) == (not twin)
        if first is not None:
            assert first[0] is not None
            assert twin[first[0]] == first[1]


@pytest.mark.feature("F-DLY-07", "F-PRB-16")
def test_what_is_not_near_costs_about_twenty_bytes_each() -> None:
    chance = Random(1)
    index = DelayedIndex()
    count = 100_000
    for entry_id in range(count):
        index.add(Position(7, entry_id), chance.randrange(10**12))
    runs = list(index._runs.values())
    in_runs = sum(run.in_memory for run in runs)
    assert in_runs > 0.8 * count
    held = sum(sys.getsizeof(column) for run in runs for column in (run._times, run._ledgers, run._entries))
    assert held / in_runs < 30
    popped = index.pop_due(10**12, count)
    assert len(popped) == len(set(popped)) == count
    assert len(index) == 0
    assert not index._runs


@settings(max_examples=100, deadline=None)
@given(
    times=st.lists(st.integers(0, 60), min_size=1, max_size=60),
    popped_before=st.integers(0, 60),
    popped_meanwhile=st.integers(0, 60),
    segment_entries=st.integers(1, 7),
)
def test_a_run_that_is_stored_while_it_is_used_gives_everything_once(
    times: list[int], popped_before: int, popped_meanwhile: int, segment_entries: int
) -> None:
    index = DelayedIndex(heap_entries_max=5)
    for entry_id, due_ms in enumerate(times):
        index.add(Position(1 + entry_id % 2, entry_id), due_ms)
    out = index.pop_due(60, popped_before)
    run, items = index.take_unsaved(0, 2)
    index.check()
    assert all(ledger_id == 1 for _, ledger_id, _ in items)
    encoded = [encode_segment(items[at : at + segment_entries]) for at in range(0, len(items), segment_entries)]
    segments = decode_metadata(encode_metadata([facts for _, facts in encoded]))
    out += index.pop_due(60, popped_meanwhile)
    index.on_stored(run, "bucket", segment_entries, segments, len(items))
    index.check()
    for _ in range(3 * len(times) + 3):
        out += index.pop_due(60, 100)
        wanted = index.wanted(60)
        if wanted is not None:
            index.on_loaded(wanted, decode_segment(encoded[wanted.next_segment - 1][0]))
        index.check()
    assert sorted(out) == sorted(Position(1 + entry_id % 2, entry_id) for entry_id in range(len(times)))
    assert len(index) == 0
    due = {Position(1 + entry_id % 2, entry_id): due_ms for entry_id, due_ms in enumerate(times)}
    assert [due[position] for position in out] == sorted(times), "the earliest first, wherever it was"
    assert index.buckets() == []
