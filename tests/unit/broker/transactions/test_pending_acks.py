# SPDX-License-Identifier: Apache-2.0
"""Claims of acknowledgements: no message is claimed twice, and what is claimed is not sent."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from magnetar.broker.transactions.pending_acks import WHOLE, PendingAcks, claim_of
from magnetar.broker.transactions.txn_id import TxnId
from magnetar.errors import TransactionConflict
from magnetar.ids import Position
from magnetar.managed_ledger.cursor_state import CursorState
from magnetar.managed_ledger.ledger_list import LedgerList, LedgerSpan

ONE, OTHER = TxnId(0, 1), TxnId(0, 2)


def at(entry_id: int) -> Position:
    return Position(3, entry_id)


def cursor(entries: int = 20) -> CursorState:
    span = LedgerSpan(3)
    span.entries = entries
    ledgers = LedgerList([span])
    return CursorState(ledgers, ledgers.before_first)


def claim(pending: PendingAcks, state: CursorState, txn: TxnId, entry_id: int, ack_set: tuple[int, ...] = ()) -> None:
    claims = [claim_of(at(entry_id), ack_set, 4 if ack_set else 0)]
    pending.check(txn, claims, state)
    pending.add(txn, claims)


@pytest.mark.feature("F-TXN-14")
def test_the_second_who_claims_a_message_is_refused() -> None:
    pending, state = PendingAcks(), cursor()
    claim(pending, state, ONE, 0)
    with pytest.raises(TransactionConflict):
        claim(pending, state, OTHER, 0)
    claim(pending, state, ONE, 0)
    claim(pending, state, OTHER, 1)
    assert pending.remove(ONE) == ([claim_of(at(0), (), 0)], None)
    claim(pending, state, OTHER, 0)


def test_what_is_acknowledged_cannot_be_claimed() -> None:
    pending, state = PendingAcks(), cursor()
    state.ack(at(2))
    state.ack(at(3), [0b1110])
    with pytest.raises(TransactionConflict):
        claim(pending, state, ONE, 2)
    with pytest.raises(TransactionConflict):
        claim(pending, state, ONE, 3, (0b1110,))
    claim(pending, state, ONE, 3, (0b1101,))


def test_parts_of_a_batch_are_claimed_apart() -> None:
    pending, state = PendingAcks(), cursor()
    claim(pending, state, ONE, 0, (0b1110,))
    claim(pending, state, OTHER, 0, (0b1101,))
    with pytest.raises(TransactionConflict):
        claim(pending, state, OTHER, 0, (0b1100,))
    assert pending.claimed(at(0)) == 0b0011
    assert pending.left_of(at(0), (), 4) == ([0b1100], 2)
    claim(pending, state, ONE, 0, (0b0110,))
    assert pending.left_of(at(0), (), 4) == ([0b0100], 1)
    claims, _ = pending.remove(ONE)
    assert claims[0].ack_set == (0b0110,)


def test_cumulative_claims_exclude_those_of_others() -> None:
    pending, state = PendingAcks(), cursor()
    claim(pending, state, ONE, 5)
    everything = claim_of(at(7), (), 0)
    with pytest.raises(TransactionConflict):
        pending.check_cumulative(OTHER, everything, state)
    pending.check_cumulative(ONE, everything, state)
    pending.add_cumulative(ONE, everything)
    with pytest.raises(TransactionConflict):
        claim(pending, state, OTHER, 6)
    with pytest.raises(TransactionConflict):
        pending.check_cumulative(OTHER, claim_of(at(9), (), 0), state)
    claim(pending, state, OTHER, 8)
    assert pending.claimed(at(6)) == WHOLE
    assert pending.left_of(at(6), (), 1) is None
    assert pending.left_of(at(9), (), 1) == ((), 1)
    assert pending.remove(ONE)[1] == everything
    assert pending.claimed(at(6)) == 0


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("claim"), st.integers(1, 3), st.integers(0, 3), st.integers(0, 15)),
            st.tuples(st.just("end"), st.integers(1, 3), st.just(0), st.just(0)),
        ),
        max_size=40,
    )
)
def test_no_message_is_ever_claimed_twice(steps: list[tuple[str, int, int, int]]) -> None:
    pending, state = PendingAcks(), cursor()
    # The twin: message by message.
    held: dict[tuple[int, int], int] = {}
    for step, number, entry_id, left in steps:
        txn = TxnId(0, number)
        if step == "end":
            pending.remove(txn)
            held = {message: holder for message, holder in held.items() if holder != number}
            continue
        wanted = [(entry_id, index) for index in range(4) if not left >> index & 1]
        is_free = all(held.get(message, number) == number for message in wanted)
        try:
            claim(pending, state, txn, entry_id, (left,) if left else ())
        except TransactionConflict:
            assert not is_free
        else:
            assert is_free
            held.update(dict.fromkeys(wanted, number))
    for entry_id in range(4):
        found = pending.left_of(at(entry_id), (), 4)
        free = [index for index in range(4) if (entry_id, index) not in held]
        assert (found[1] if found is not None else 0) == len(free)
