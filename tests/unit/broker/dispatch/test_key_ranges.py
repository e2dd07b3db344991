# SPDX-License-Identifier: Apache-2.0
"""How the circle of key hashes is divided: always whole, never twice, and few keys move."""

from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from magnetar.broker.consumer import Consumer
from magnetar.broker.dispatch.key_ranges import ConsistentHashing, KeyRanges, RangeSplitting, StickyRanges
from magnetar.broker.entry_facts import HASH_SLOTS
from magnetar.errors import ConsumerAssignRefused
from tests.unit.broker.dispatch.machines import new_consumer

SAMPLE = range(0, HASH_SLOTS, 97)


def covers_the_circle_once(ranges: KeyRanges) -> None:
    parts = sorted(part for parts in ranges.ranges().values() for part in parts)
    assert parts[0][0] == 0
    assert parts[-1][1] == HASH_SLOTS - 1
    assert all(end + 1 == start for (_, end), (start, _) in pairwise(parts))


@pytest.mark.feature("F-SUB-16")
@pytest.mark.parametrize("make", [lambda: ConsistentHashing(20), RangeSplitting], ids=["ring", "split"])
@settings(max_examples=30, deadline=None)
@given(steps=st.lists(st.integers(0, 9), min_size=1, max_size=25))
def test_the_whole_circle_has_exactly_one_owner_each(make: Callable[[], KeyRanges], steps: list[int]) -> None:
    ranges = make()
    present: dict[int, Consumer] = {}
    for step in steps:
        if step in present:
            ranges.remove(present.pop(step))
        else:
            # Two consumers may have the same name.
            present[step] = new_consumer(f"c{step % 5}")
            ranges.add(present[step])
        if not present:
            assert ranges.consumer(0) is None
            continue
        covers_the_circle_once(ranges)
        owned = ranges.ranges()
        for slot in SAMPLE:
            owner = ranges.consumer(slot)
            assert owner is not None
            assert any(start <= slot <= end for start, end in owned[owner])


def test_consistent_hashing_moves_only_keys_of_the_one_who_comes_or_goes() -> None:
    ranges = ConsistentHashing(100)
    for name in "abcde":
        ranges.add(new_consumer(name))
    before = {slot: ranges.consumer(slot) for slot in SAMPLE}
    newcomer = new_consumer("f")
    ranges.add(newcomer)
    after = {slot: ranges.consumer(slot) for slot in SAMPLE}
    moved = [slot for slot in SAMPLE if before[slot] is not after[slot]]
    assert all(after[slot] is newcomer for slot in moved)
    assert 0.05 < len(moved) / len(SAMPLE) < 0.35
    ranges.remove(newcomer)
    assert {slot: ranges.consumer(slot) for slot in SAMPLE} == before


def test_splitting_halves_the_largest_part() -> None:
    ranges = RangeSplitting()
    first, second, third = (new_consumer(name) for name in "abc")
    for consumer in (first, second, third):
        ranges.add(consumer)
    assert ranges.ranges() == {third: [(0, 16383)], second: [(16384, 32767)], first: [(32768, 65535)]}
    ranges.remove(first)
    assert ranges.ranges() == {third: [(0, 16383)], second: [(16384, 65535)]}


@pytest.mark.feature("F-SUB-17")
def test_sticky_ranges_that_overlap_are_refused_and_change_nothing() -> None:
    ranges = StickyRanges()
    first = new_consumer("a", key_ranges=[(0, 99), (200, 299)])
    ranges.add(first)
    for wrong in (
        [(99, 120)],
        [(150, 250)],
        [(0, 65535)],
        [(10, 5)],
        [(300, 70000)],
        [(-1, 5)],
        [],
        [(300, 310), (305, 320)],
    ):
        with pytest.raises(ConsumerAssignRefused):
            ranges.add(new_consumer("b", key_ranges=wrong))
    second = new_consumer("c", key_ranges=[(100, 199)])
    ranges.add(second)
    assert [ranges.consumer(slot) for slot in (0, 99, 100, 199, 200, 299, 300)] == [
        first, first, second, second, first, first, None,
    ]  # fmt: skip
    ranges.remove(first)
    assert ranges.ranges() == {second: [(100, 199)]}
