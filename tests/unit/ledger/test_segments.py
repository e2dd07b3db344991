# SPDX-License-Identifier: Apache-2.0
"""Segments: who holds an entry, and how the list may change."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.ledger.segments import (
    Segment,
    check_segments,
    last_entry_of,
    segment_at,
    with_ensemble,
    with_replacements,
    without_empty_tail,
)

ABC, BCD, CDE = ("a", "b", "c"), ("b", "c", "d"), ("c", "d", "e")


@pytest.mark.feature("F-BKC-16")
def test_a_segment_holds_up_to_the_next_first_entry() -> None:
    segments = (Segment(0, ABC), Segment(501, BCD))
    assert segment_at(segments, 0).ensemble == ABC
    assert segment_at(segments, 500).ensemble == ABC
    assert segment_at(segments, 501).ensemble == BCD
    assert last_entry_of(segments, 0, 700) == 500
    assert last_entry_of(segments, 0, 300) == 300
    assert last_entry_of(segments, 1, 700) == 700


@given(firsts=st.sets(st.integers(1, 50), max_size=6), entry_id=st.integers(0, 60))
def test_look_up_agrees_with_a_scan(firsts: set[int], entry_id: int) -> None:
    segments = tuple(Segment(first, ABC) for first in sorted({0, *firsts}))
    assert segment_at(segments, entry_id).first_entry == max(
        s.first_entry for s in segments if s.first_entry <= entry_id
    )


def test_a_change_adds_a_segment_or_replaces_an_empty_one() -> None:
    one = (Segment(0, ABC),)
    two = with_ensemble(one, 5, BCD)
    assert two == (Segment(0, ABC), Segment(5, BCD))
    assert with_ensemble(two, 5, CDE) == (Segment(0, ABC), Segment(5, CDE))
    with pytest.raises(AssertionError):
        with_ensemble(two, 4, CDE)


def test_a_copy_takes_a_members_place_in_one_segment() -> None:
    segments = (Segment(0, ABC), Segment(5, ABC))
    assert with_replacements(segments, 5, {1: "x"}) == (Segment(0, ABC), Segment(5, ("a", "x", "c")))
    with pytest.raises(AssertionError):
        with_replacements(segments, 5, {1: "c"})


def test_closing_drops_segments_after_the_end() -> None:
    segments = (Segment(0, ABC), Segment(5, BCD), Segment(9, CDE))
    assert without_empty_tail(segments, 8) == segments[:2]
    assert without_empty_tail(segments, 9) == segments
    assert without_empty_tail(segments, -1) == segments[:1]


@pytest.mark.parametrize(
    "segments",
    [(), (Segment(1, ABC),), (Segment(0, ABC), Segment(0, BCD)), (Segment(0, ("a", "a", "b")),), (Segment(0, ("a",)),)],
)
def test_impossible_segments_are_noticed(segments: tuple[Segment, ...]) -> None:
    with pytest.raises(AssertionError):
        check_segments(segments, 3)
