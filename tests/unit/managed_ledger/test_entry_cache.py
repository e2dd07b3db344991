# SPDX-License-Identifier: Apache-2.0
"""Tails and the cache over them: nothing unconfirmed is ever let go, the bytes stay within their bound."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from magnetar.ids import LATEST, Position
from magnetar.managed_ledger.entry_cache import EntryCache
from magnetar.managed_ledger.ledger_tail import LedgerTail

HEADER = 4


def body_of(ledger_id: int, entry_id: int) -> bytes:
    return f"{ledger_id}:{entry_id}".encode()


class CacheMachine(RuleBasedStateMachine):
    """Three ledgers with a reader each; entries are appended, confirmed, read and evicted."""

    def __init__(self) -> None:
        super().__init__()
        self.cache = EntryCache(200, 0.5)
        self.tails = [LedgerTail(i, HEADER) for i in range(3)]
        self.pushed = [0, 0, 0]
        self.read_from = [0, 0, 0]

    def _needed(self, index: int) -> Position:
        return Position(index, self.read_from[index])

    @rule(index=st.integers(0, 2), count=st.integers(1, 5))
    def append(self, index: int, count: int) -> None:
        for _ in range(count):
            self.tails[index].entries.append(b"head" + body_of(index, self.pushed[index]))
            self.pushed[index] += 1

    @precondition(lambda self: any(self.pushed))
    @rule(data=st.data())
    def confirm(self, data: st.DataObject) -> None:
        index = data.draw(st.sampled_from([i for i in range(3) if self.pushed[i]]))
        tail = self.tails[index]
        entry_id = data.draw(st.integers(max(tail.confirmed, 0), self.pushed[index] - 1))
        if entry_id > tail.confirmed:
            if not tail.cached_bytes and data.draw(st.booleans()):
                expected = len(b"head") * (entry_id - tail.confirmed)
                expected += sum(len(body_of(index, each)) for each in range(tail.confirmed + 1, entry_id + 1))
                assert tail.pass_on(entry_id) == expected
                assert tail.base == tail.confirmed + 1 == entry_id + 1
                return
            size = tail.on_confirmed(entry_id)
            self.cache.on_confirmed(tail, size, lambda: self._needed(index))
            assert self.cache.held_bytes <= 200

    @rule(index=st.integers(0, 2), step=st.integers(1, 5))
    def read_on(self, index: int, step: int) -> None:
        self.read_from[index] = min(self.read_from[index] + step, self.tails[index].confirmed + 1)

    @rule(index=st.integers(0, 2))
    def drop(self, index: int) -> None:
        self.cache.drop(self.tails[index])

    @invariant()
    def holds_what_it_must(self) -> None:
        self.cache.check()
        for index, tail in enumerate(self.tails):
            tail.check()
            assert tail.base + len(tail.entries) == self.pushed[index]
            for entry_id in range(tail.base, tail.confirmed + 1):
                (found,) = tail.read(entry_id, entries_max=1, bytes_max=1)
                assert found.position == Position(index, entry_id)
                assert bytes(found.body) == body_of(index, entry_id)


@pytest.mark.feature("F-DISP-11")
def test_the_cache_stays_within_its_bytes_and_keeps_what_is_unconfirmed() -> None:
    run_state_machine_as_test(CacheMachine, settings=settings(max_examples=60, stateful_step_count=40, deadline=None))


def filled(cache: EntryCache, ledger_id: int, count: int, needed: Position) -> LedgerTail:
    tail = LedgerTail(ledger_id, HEADER)
    for _ in range(count):
        tail.entries.append(b"x" * 10)
    cache.on_confirmed(tail, tail.on_confirmed(count - 1), lambda: needed)
    return tail


@pytest.mark.feature("F-DISP-11", "B-03")
def test_what_every_cursor_has_read_goes_before_what_one_still_needs() -> None:
    cache = EntryCache(100, 0.9)
    read = filled(cache, 1, 5, Position(1, 4))
    wanted = filled(cache, 2, 4, Position(2, 0))
    filled(cache, 3, 2, Position(3, 0))
    assert (read.base, wanted.base) == (4, 0)
    assert cache.held_bytes == 70


def test_without_readers_everything_goes_first() -> None:
    cache = EntryCache(100, 0.9)
    tail = filled(cache, 1, 10, LATEST)
    other = filled(cache, 2, 5, Position(2, 0))
    assert tail.cached_bytes == 0
    assert other.cached_bytes == 50


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 20), st.integers(0, 20), st.integers(1, 30), st.integers(1, 300))
def test_a_read_gives_at_least_one_entry_and_about_its_bytes(
    count: int, first: int, entries_max: int, bytes_max: int
) -> None:
    first = min(first, count - 1)
    tail = LedgerTail(7, HEADER)
    for _ in range(count + 3):
        tail.entries.append(b"x" * 10)
    tail.on_confirmed(count - 1)
    found = tail.read(first, entries_max=entries_max, bytes_max=bytes_max)
    assert [entry.entry_id for entry in found] == list(range(first, first + len(found)))
    assert 1 <= len(found) <= max(1, min(entries_max, count - first, bytes_max // 10))


def test_unconfirmed_bodies_can_be_taken_out() -> None:
    tail = LedgerTail(7, HEADER)
    for index in range(5):
        tail.entries.append(b"head" + bytes([index]))
    tail.on_confirmed(1)
    assert [bytes(body) for body in tail.take_unconfirmed()] == [b"\x02", b"\x03", b"\x04"]
    assert len(tail.entries) == 2
