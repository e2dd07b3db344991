# SPDX-License-Identifier: Apache-2.0
"""The backlog in messages, kept without counting, against somebody who counts."""

from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from magnetar.ids import EARLIEST, LATEST, Position
from magnetar.managed_ledger.acked_entries import AckedEntries
from magnetar.managed_ledger.cursor_state import CursorState
from magnetar.managed_ledger.ledger_list import LedgerList, LedgerSpan
from magnetar.managed_ledger.message_tally import ACKED_PROPERTY, MessageTally, restored


class Log:
    """Entries with their messages, over two ledgers; what was forgotten cannot be looked up."""

    def __init__(self, sizes: list[int], roll_at: int) -> None:
        self.ledgers = LedgerList([LedgerSpan(3)])
        self.sizes: dict[Position, int] = {}
        self.numbers: dict[Position, int] = {}
        self.forgotten: set[Position] = set()
        self.last_number = -1
        for index, size in enumerate(sizes):
            if index == roll_at:
                self.ledgers.append(LedgerSpan(5))
            self.append(size)

    def append(self, size: int) -> None:
        span = self.ledgers.last
        position = Position(span.ledger_id, span.entries)
        span.entries += 1
        self.last_number += size
        self.sizes[position], self.numbers[position] = size, self.last_number

    def size_of(self, position: Position) -> int | None:
        return None if position in self.forgotten else self.sizes.get(position)

    def number_of(self, position: Position) -> int | None:
        return None if position in self.forgotten else self.numbers.get(position)

    def counted(self, state: CursorState) -> int:
        total = 0
        for position, size in self.sizes.items():
            if not state.is_acked(position):
                total += state.batch_bits(position).bit_count() or size
        return total


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["ack", "ack", "part", "through", "part through", "append", "reset"]),
        st.integers(0, 19),
        st.integers(0, 15),
    ),
    max_size=25,
)


@pytest.mark.feature("F-CUR-13", "F-RET-10")
@example([2, 1], 0, [("part through", 0, 1)], set())
@settings(max_examples=300, deadline=None)
@given(st.lists(st.integers(1, 4), min_size=1, max_size=15), st.integers(0, 14), STEPS, st.sets(st.integers(0, 14)))
def test_it_is_what_counting_gives_or_unknown(
    sizes: list[int], roll_at: int, steps: list[tuple[str, int, int]], forgotten: set[int]
) -> None:
    log = Log(sizes, roll_at)
    log.forgotten = {position for index, position in enumerate(log.sizes) if index in forgotten}
    state = CursorState(log.ledgers, log.ledgers.before_first)
    tally = state.tally = MessageTally(log.size_of, log.number_of, 0)
    was_reset = False
    for step, which, bits in steps:
        position = list(log.sizes)[which % len(log.sizes)]
        size = log.sizes[position]
        left = bits & (1 << size) - 1
        if step == "append":
            log.append(1 + bits % 4)
        elif step == "reset":
            state.reset((EARLIEST, LATEST, position)[bits % 3])
            assert tally.acked is None
            was_reset = True
        elif step == "ack":
            state.ack(position)
        elif step == "part":
            state.ack(position, [left])
        else:
            state.ack_cumulative(position, [left] if step == "part through" else ())
        if tally.acked is not None:
            assert log.last_number + 1 - tally.acked == log.counted(state)
        elif not was_reset:
            assert log.forgotten, "unknown only where something cannot be looked up"
        if was_reset and bits % 2:
            tally.acked = log.last_number + 1 - log.counted(state)
            was_reset = False


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, 9), max_size=8), st.lists(st.integers(0, 9), max_size=3))
def test_what_was_saved_is_taken_for_the_same_state_only(acked: list[int], later: list[int]) -> None:
    log = Log([2] * 10, 5)
    state = CursorState(log.ledgers, log.ledgers.before_first)
    tally = state.tally = MessageTally(log.size_of, log.number_of, 0)
    places = list(log.sizes)
    for index in acked:
        state.ack(places[index])
    properties: dict[str, Any] = {"mine": 7, **tally.saved(state.fits)}
    counted = log.counted(state)
    again = CursorState(log.ledgers, state.mark_delete)
    holes = AckedEntries()
    for run in state.acked.runs():
        holes.add_run(*run)
    again.restore(holes, {})
    assert log.last_number + 1 - (restored(dict(properties), again.fits) or 0) == counted
    changed = False
    for index in later:
        changed |= not again.is_acked(places[index])
        again.ack(places[index])
    found = restored(properties, again.fits)
    assert (found is None) is changed, "moved by another who did not count: unknown, not wrong"
    assert properties == {"mine": 7}
    assert ACKED_PROPERTY not in properties
