# SPDX-License-Identifier: Apache-2.0
"""The ack state against a stupid twin that keeps every entry's unacked messages in a dictionary."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from magnetar.errors import BadPosition
from magnetar.ids import EARLIEST, LATEST, Position
from magnetar.managed_ledger.acked_entries import AckedEntries
from magnetar.managed_ledger.cursor_state import CursorState, words_of
from magnetar.managed_ledger.ledger_list import LedgerList, LedgerSpan

BATCH = 5
ALL = 2**BATCH - 1


class CursorMachine(RuleBasedStateMachine):
    """A log that grows, rolls and is trimmed under a cursor; the twin is one number of bits per entry."""

    def __init__(self) -> None:
        super().__init__()
        self.ledgers = LedgerList([LedgerSpan(1)])
        self.state = CursorState(self.ledgers, Position(1, -1))
        self.unacked: dict[Position, int] = {}
        self.positions: list[Position] = []

    @rule(count=st.integers(1, 6))
    def grow(self, count: int) -> None:
        span = self.ledgers.last
        for _ in range(count):
            position = Position(span.ledger_id, span.entries)
            span.entries += 1
            self.positions.append(position)
            self.unacked[position] = ALL

    @rule(gap=st.integers(1, 3))
    def roll(self, gap: int) -> None:
        self.ledgers.last.closed_ms = 1
        self.ledgers.append(LedgerSpan(self.ledgers.last.ledger_id + gap))

    @precondition(lambda self: self.positions)
    @rule(data=st.data())
    def ack(self, data: st.DataObject) -> None:
        position = data.draw(st.sampled_from(self.positions))
        assert self.state.ack(position)
        self.unacked.pop(position, None)

    @precondition(lambda self: self.positions)
    @rule(data=st.data())
    def ack_run(self, data: st.DataObject) -> None:
        positions = data.draw(st.lists(st.sampled_from(self.positions), min_size=1, max_size=6))
        before = self.state.changes
        if self.state.ack_run(positions):
            assert len({position.ledger_id for position in positions}) == 1
            for position in positions:
                self.unacked.pop(position, None)
        else:
            assert self.state.changes == before, "a refused run changed something"

    @precondition(lambda self: self.positions)
    @rule(data=st.data(), bits=st.integers(0, ALL))
    def ack_part(self, data: st.DataObject, bits: int) -> None:
        position = data.draw(st.sampled_from(self.positions))
        left = self.unacked.get(position, 0) & bits
        assert self.state.ack(position, words_of(bits) or [0]) == (left == 0)
        if left:
            self.unacked[position] = left
        else:
            self.unacked.pop(position, None)

    @precondition(lambda self: self.positions)
    @rule(data=st.data())
    def ack_cumulative(self, data: st.DataObject) -> None:
        position = data.draw(st.sampled_from(self.positions))
        self.state.ack_cumulative(position)
        self.unacked = {known: bits for known, bits in self.unacked.items() if known > position}

    @precondition(lambda self: self.positions)
    @rule(data=st.data(), index=st.integers(0, BATCH - 2))
    def ack_cumulative_within(self, data: st.DataObject, index: int) -> None:
        position = data.draw(st.sampled_from(self.positions))
        bits = ALL >> (index + 1) << (index + 1)
        self.state.ack_cumulative(position, words_of(bits))
        self.unacked = {known: left for known, left in self.unacked.items() if known >= position}
        if position in self.unacked:
            self.unacked[position] &= bits
            if not self.unacked[position]:
                del self.unacked[position]

    @precondition(lambda self: self.positions)
    @rule(data=st.data())
    def reset(self, data: st.DataObject) -> None:
        position = data.draw(st.sampled_from([*self.positions, EARLIEST, LATEST]))
        self.state.reset(position)
        self.unacked = {known: ALL for known in self.positions if known >= position}

    @precondition(lambda self: len(self.ledgers) > 1)
    @rule()
    def trim(self) -> None:
        first = next(iter(self.ledgers))
        if any(position.ledger_id == first.ledger_id for position in self.unacked):
            return
        self.ledgers.drop_oldest(1)
        self.positions = [position for position in self.positions if position.ledger_id > first.ledger_id]
        self.state.on_trimmed()

    @rule()
    def save_and_restore(self) -> None:
        kept = AckedEntries()
        for run in self.state.acked.runs():
            kept.add_run(run.ledger_id, run.first, run.last)
        restored = CursorState(self.ledgers, self.state.mark_delete)
        restored.restore(kept, dict(self.state.batches))
        self.state = restored

    @invariant()
    def equals_the_twin(self) -> None:
        self.state.check()
        assert self.state.backlog_entries == len(self.unacked)
        for position in self.positions:
            bits = self.unacked.get(position, 0)
            assert self.state.is_acked(position) == (bits == 0)
            assert self.state.batch_bits(position) in ((bits,) if 0 < bits < ALL else (0, bits))
            untouched = all(self.unacked.get(later, 0) == ALL for later in self.positions if later >= position)
            assert self.state.is_untouched_from(*position) <= untouched
        unacked = sorted(self.unacked)
        assert list(self.state.unacked(EARLIEST, count_max=1000)) == unacked
        prefix = [position for position in self.positions if position < (unacked[0] if unacked else LATEST)]
        if prefix:
            assert self.state.mark_delete == prefix[-1]


@pytest.mark.feature("F-CUR-02", "F-CUR-06", "F-CUR-17")
def test_a_cursor_under_a_living_log_equals_its_twin() -> None:
    run_state_machine_as_test(CursorMachine, settings=settings(max_examples=60, stateful_step_count=30, deadline=None))


def log_of(*entries: int) -> LedgerList:
    return LedgerList(LedgerSpan(10 + i, entries=count) for i, count in enumerate(entries))


@pytest.mark.feature("F-CUR-02", "F-CUR-04")
def test_mark_delete_moves_when_the_gap_is_filled() -> None:
    state = CursorState(log_of(10), Position(10, -1))
    for entry_id in (1, 2, 4):
        state.ack(Position(10, entry_id))
    assert state.mark_delete == Position(10, -1)
    state.ack(Position(10, 0))
    assert state.mark_delete == Position(10, 2)
    assert state.backlog_entries == 6
    state.ack_cumulative(Position(10, 9))
    assert state.read_position == Position(10, 10)
    assert state.backlog_entries == 0


def test_an_entry_that_does_not_exist_yet_cannot_be_acked() -> None:
    state = CursorState(log_of(3), Position(10, -1))
    for refused in (Position(10, 3), Position(11, 0)):
        with pytest.raises(BadPosition):
            state.ack(refused)
        with pytest.raises(BadPosition):
            state.ack_cumulative(refused)
    assert state.changes == 0


def test_an_ack_of_something_trimmed_changes_nothing() -> None:
    ledgers = log_of(3, 3)
    state = CursorState(ledgers, Position(10, 2))
    ledgers.drop_oldest(1)
    state.on_trimmed()
    assert state.mark_delete == Position(11, -1)
    before = state.changes
    assert state.ack(Position(10, 1))
    assert not state.ack_cumulative(Position(9, 77))
    assert state.changes == before


@pytest.mark.feature("F-CUR-08", "F-CUR-14")
def test_a_reset_forgets_holes_and_reads_from_its_target() -> None:
    state = CursorState(log_of(5, 5), Position(10, -1))
    state.ack(Position(10, 3))
    state.ack(Position(11, 2), [0b10])
    state.reset(Position(11, 0))
    assert state.mark_delete == Position(10, 4)
    assert state.read_position == Position(11, 0)
    assert state.acked.count == 0
    assert not state.batches
    state.reset(EARLIEST)
    assert state.read_position == Position(10, 0)
    assert state.backlog_entries == 10
    state.reset(LATEST)
    assert state.backlog_entries == 0


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, 63), unique=True))
def test_a_read_position_never_stays_behind_mark_delete(order: list[int]) -> None:
    state = CursorState(log_of(20, 24, 20), Position(10, -1))
    places = [Position(10, e) for e in range(20)] + [Position(11, e) for e in range(24)]
    places += [Position(12, e) for e in range(20)]
    for index in order:
        state.ack(places[index])
        assert state.read_position > state.mark_delete
