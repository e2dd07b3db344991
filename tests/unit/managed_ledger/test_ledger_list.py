# SPDX-License-Identifier: Apache-2.0
"""The arithmetic of positions against a plain list of them."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from magnetar.ids import EARLIEST, LATEST, Position
from magnetar.managed_ledger.ledger_list import LedgerList, LedgerSpan

sizes = st.lists(st.integers(0, 4), min_size=1, max_size=6)


def made(entries: list[int], dropped: int = 0) -> tuple[LedgerList, list[Position]]:
    """A log of ledgers 10, 13, 16 … and its positions, after the oldest were dropped."""
    ledgers = LedgerList(LedgerSpan(10 + 3 * i, entries=count, size_bytes=count * 7) for i, count in enumerate(entries))
    dropped = min(dropped, len(entries) - 1)
    gone = ledgers.drop_oldest(dropped)
    positions = [Position(10 + 3 * i, e) for i, count in enumerate(entries) for e in range(count) if i >= dropped]
    assert len(gone) == dropped
    return ledgers, positions


places = st.builds(Position, st.integers(8, 30), st.integers(-1, 6))


@settings(max_examples=300, deadline=None)
@given(sizes, st.integers(0, 3), places)
def test_steps_and_counts_equal_those_of_a_plain_list(entries: list[int], dropped: int, place: Position) -> None:
    ledgers, positions = made(entries, dropped)
    ledgers.check()
    behind = [position for position in positions if position > place]
    before = [position for position in positions if position < place]
    assert ledgers.entries == len(positions)
    assert ledgers.entry_at_or_after(place) == next((p for p in positions if p >= place), None)
    if behind:
        assert ledgers.next_position(place) == behind[0]
    else:
        following = ledgers.next_position(place)
        assert following not in positions
        assert not positions or following > positions[-1]
    if before:
        assert ledgers.previous_position(place) == before[-1]
    else:
        assert ledgers.previous_position(place).entry_id == -1
    assert ledgers.contains(place) == (place in positions)
    assert ledgers.last_position == (positions[-1] if positions else ledgers.before_first)
    assert ledgers.ordinal(LATEST) - ledgers.ordinal(EARLIEST) == len(positions)


@settings(max_examples=300, deadline=None)
@given(sizes, st.integers(0, 3), places, places)
def test_entries_between_are_counted_exactly(entries: list[int], dropped: int, one: Position, other: Position) -> None:
    ledgers, positions = made(entries, dropped)
    assert ledgers.entries_between(one, other) == sum(one < position <= other for position in positions)


@settings(max_examples=200, deadline=None)
@given(sizes, st.integers(0, 3))
def test_an_ordinal_names_one_entry(entries: list[int], dropped: int) -> None:
    ledgers, positions = made(entries, dropped)
    for position in positions:
        assert ledgers.position_of(ledgers.ordinal(position)) == position
    assert ledgers.position_of(0) == ledgers.before_first


def test_what_was_dropped_can_be_put_back() -> None:
    ledgers, _ = made([3, 4, 5])
    before = [(span.ledger_id, span.first_ordinal) for span in ledgers]
    ledgers.restore_oldest(ledgers.drop_oldest(2))
    assert [(span.ledger_id, span.first_ordinal) for span in ledgers] == before
    ledgers.check()


def test_the_last_ledger_cannot_be_dropped() -> None:
    ledgers, _ = made([3, 4])
    with pytest.raises(AssertionError):
        ledgers.drop_oldest(2)


def test_bytes_behind_a_position_are_those_of_the_ledgers_and_a_share() -> None:
    ledgers, _ = made([4, 2, 4])
    assert ledgers.bytes_after(EARLIEST) == 70
    assert ledgers.bytes_after(Position(10, 3)) == 42
    assert ledgers.bytes_after(Position(16, 1)) == 14
    assert ledgers.bytes_after(LATEST) == 0
