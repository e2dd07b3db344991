# SPDX-License-Identifier: Apache-2.0
"""What readers may see, against a twin that looks at the whole log each time."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from magnetar.broker.transactions.buffer import TransactionBuffer
from magnetar.broker.transactions.txn_id import TxnId
from magnetar.ids import Position
from magnetar.managed_ledger.ledger_list import LedgerList, LedgerSpan

# What an entry of the log is: of no transaction, a message of one, its commit, its abort.
Entry = tuple[str, int]


def replayed(log: list[Entry], buffer: TransactionBuffer | None = None, start: int = 0) -> TransactionBuffer:
    buffer = buffer or TransactionBuffer()
    span = LedgerSpan(3)
    span.entries = len(log)
    buffer.attach(LedgerList([span]))
    for entry_id, (kind, number) in list(enumerate(log))[start:]:
        position, txn_id = Position(3, entry_id), TxnId(0, number)
        if kind == "message":
            buffer.on_message(txn_id, position)
        elif kind != "plain":
            buffer.on_marker(txn_id, position, commit=kind == "commit")
    return buffer


def visible_to_a_reader(log: list[Entry], buffer: TransactionBuffer) -> list[int]:
    return [
        entry_id
        for entry_id, (kind, number) in enumerate(log)
        if not buffer.hides(Position(3, entry_id))
        and kind in ("plain", "message")
        and not (kind == "message" and buffer.is_aborted(TxnId(0, number)))
    ]


def visible_by_the_rule(log: list[Entry]) -> list[int]:
    ends = {number: kind for kind, number in log if kind in ("commit", "abort")}
    found = []
    for entry_id, (kind, number) in enumerate(log):
        if kind == "message" and number not in ends:
            break
        if kind == "plain" or (kind == "message" and ends[number] == "commit"):
            found.append(entry_id)
    return found


@st.composite
def logs(draw: st.DrawFn) -> list[Entry]:
    """Nothing of a transaction comes behind its end."""
    log: list[Entry] = []
    ended: set[int] = set()
    for kind, number in draw(
        st.lists(st.tuples(st.sampled_from(["plain", "message", "commit", "abort"]), st.integers(1, 4)), max_size=30)
    ):
        if kind != "plain" and number in ended:
            continue
        if kind in ("commit", "abort"):
            ended.add(number)
        log.append((kind, number))
    return log


@pytest.mark.feature("F-TXN-07", "F-TXN-12")
@settings(max_examples=300, deadline=None)
@given(logs())
def test_readers_see_what_the_rule_says(log: list[Entry]) -> None:
    assert visible_to_a_reader(log, replayed(log)) == visible_by_the_rule(log)


@pytest.mark.feature("F-TXN-11")
@settings(max_examples=200, deadline=None)
@given(logs(), st.integers(0, 30))
def test_a_snapshot_at_any_place_and_the_rest_of_the_log_come_to_the_same(log: list[Entry], at: int) -> None:
    at = min(at, len(log))
    restored = TransactionBuffer()
    before = replayed(log[:at])
    span = LedgerSpan(3)
    span.entries = len(log)
    restored.attach(LedgerList([span]))
    restored.restore(before.snapshot())
    whole = replayed(log)
    resumed = replayed(log, restored, at)
    assert (resumed.open, resumed.aborted, resumed.through) == (whole.open, whole.aborted, whole.through)
    assert list(resumed.open) == list(whole.open)


@settings(max_examples=200, deadline=None)
@given(logs(), st.integers(0, 30), st.integers(0, 30))
def test_who_looks_from_some_place_on_shows_what_the_rule_says_of_the_rest(
    log: list[Entry], start: int, looked: int
) -> None:
    """A topic that others write: what was not looked at is hidden, and who reads before that place is noticed."""
    start, looked = min(start, len(log)), min(looked, len(log))
    asked: list[Position] = []
    buffer = replayed(log[:looked], start=looked)
    buffer.look_from(Position(3, start))
    buffer.on_early = asked.append
    for entry_id, (kind, number) in list(enumerate(log))[start:looked]:
        if kind == "message":
            buffer.on_message(TxnId(0, number), Position(3, entry_id))
        elif kind != "plain":
            buffer.on_marker(TxnId(0, number), Position(3, entry_id), commit=kind == "commit")
        buffer.on_looked(Position(3, entry_id))
    seen = visible_to_a_reader(log, buffer)
    assert asked == [Position(3, entry_id) for entry_id in range(start)]
    assert seen == [start + entry_id for entry_id in visible_by_the_rule(log[start:looked])]


def test_what_was_aborted_in_ledgers_that_are_gone_is_forgotten() -> None:
    log: list[Entry] = [("message", 1), ("abort", 1)]
    buffer = replayed(log)
    assert buffer.is_aborted(TxnId(0, 1))
    buffer.attach(LedgerList([LedgerSpan(9)]))
    assert buffer.snapshot() == {}
    assert not buffer.is_aborted(TxnId(0, 1))
