# SPDX-License-Identifier: Apache-2.0
"""The machine of a coordinator: one outcome per transaction, the same after a replay of any prefix of its log."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from magnetar.broker.transactions.coordinator_state import (
    DEFAULT_TIMEOUT_MS,
    CoordinatorState,
    Status,
    decode,
)
from magnetar.broker.transactions.txn_id import TxnId
from magnetar.errors import (
    BadTransactionStatus,
    DamagedRecord,
    MagnetarError,
    TooManyRequests,
    TransactionNotFound,
)
from magnetar.ids import Position
from magnetar.wire.proto.transaction_metadata_pb2 import TransactionMetadataEntry as Record


def begun(state: CoordinatorState, now_ms: int = 0, timeout_ms: int = 1_000) -> TxnId:
    return TxnId(state.coordinator_id, state.new(timeout_ms, now_ms).txnid_least_bits)


@pytest.mark.feature("F-TXN-05")
def test_ids_name_their_coordinator_and_rise() -> None:
    state = CoordinatorState(3, last_id=41)
    ids = [begun(state) for _ in range(3)]
    assert ids == [TxnId(3, 42), TxnId(3, 43), TxnId(3, 44)]


def test_one_decision_and_the_same_answer_to_whoever_asks_again() -> None:
    state = CoordinatorState(0)
    txn = begun(state)
    assert state.end(txn, commit=True, now_ms=1) is not None
    assert state.end(txn, commit=True, now_ms=2) is None
    with pytest.raises(BadTransactionStatus):
        state.end(txn, commit=False, now_ms=3)
    state.finish(txn, 4)
    assert state.end(txn, commit=True, now_ms=5) is None
    with pytest.raises(BadTransactionStatus):
        state.end(txn, commit=False, now_ms=6)


def test_what_comes_late_is_refused() -> None:
    state = CoordinatorState(0)
    txn, later = begun(state), begun(state)
    state.end(txn, commit=False, now_ms=1)
    with pytest.raises(BadTransactionStatus):
        state.add_partitions(txn, ["t"], 2)
    with pytest.raises(BadTransactionStatus):
        state.add_subscriptions(txn, [("t", "s")], 2)
    assert not state.find(later).partitions
    with pytest.raises(TransactionNotFound):
        state.open(TxnId(1, later.least))


@pytest.mark.feature("F-TXN-13")
def test_a_time_out_and_a_commit_exclude_each_other() -> None:
    state = CoordinatorState(0)
    quick, slow = begun(state, timeout_ms=10), begun(state, timeout_ms=10)
    state.end(quick, commit=True, now_ms=9)
    assert state.expired(9) == []
    assert state.expired(10) == [slow]
    state.end(slow, commit=False, now_ms=10)
    with pytest.raises(BadTransactionStatus):
        state.end(slow, commit=True, now_ms=11)
    assert state.find(quick).status is Status.COMMITTING


def test_a_client_that_names_no_time_out_gets_one() -> None:
    state = CoordinatorState(0)
    txn = begun(state, now_ms=5, timeout_ms=0)
    assert state.find(txn).due_ms == 5 + DEFAULT_TIMEOUT_MS
    assert state.next_due_ms == 5 + DEFAULT_TIMEOUT_MS


def test_the_number_of_active_transactions_is_bounded() -> None:
    state = CoordinatorState(0, active_max=2)
    txn = begun(state)
    begun(state)
    with pytest.raises(TooManyRequests):
        begun(state)
    state.end(txn, commit=True, now_ms=1)
    state.finish(txn, 1)
    begun(state)


def test_the_log_is_kept_from_the_oldest_that_is_known() -> None:
    state = CoordinatorState(0, ended_max=1)
    ids = []
    for entry in range(3):
        record = state.new(10, 0)
        state.on_stored(record, Position(7, entry))
        ids.append(TxnId(0, record.txnid_least_bits))
    for txn in ids[:2]:
        state.end(txn, commit=True, now_ms=1)
        state.finish(txn, 1)
    # The first is forgotten, the second is the one outcome that is remembered.
    assert state.kept_from == Position(7, 1)
    assert state.low_watermark == ids[1].least
    with pytest.raises(TransactionNotFound):
        state.find(ids[0])


def test_what_is_no_record_is_damage() -> None:
    with pytest.raises(DamagedRecord):
        decode(b"\xff\xff\xff")


Step = tuple[str, int]


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(["new", "add", "sub", "commit", "abort", "finish", "expire"]), st.integers(1, 4))
    )
)
def test_a_replay_comes_to_the_same_state_and_outcomes_never_change(steps: list[Step]) -> None:
    state = CoordinatorState(0, ended_max=100)
    log: list[bytes] = []
    outcomes: dict[TxnId, bool] = {}

    def wish(step: str, txn: TxnId, now_ms: int) -> list[Record | None]:
        match step:
            case "new":
                return [state.new(3, now_ms)]
            case "add":
                return [state.add_partitions(txn, [f"t{now_ms}"], now_ms)]
            case "sub":
                return [state.add_subscriptions(txn, [("t", f"s{now_ms}")], now_ms)]
            case "finish":
                return [state.finish(txn, now_ms)]
            case "expire":
                return [state.end(each, commit=False, now_ms=now_ms) for each in state.expired(now_ms)]
        return [state.end(txn, commit=step == "commit", now_ms=now_ms)]

    for now_ms, (step, least) in enumerate(steps):
        try:
            records = wish(step, TxnId(0, least), now_ms)
        except MagnetarError:
            continue
        log += [record.SerializeToString() for record in records if record is not None]
        replayed = CoordinatorState(0, ended_max=100)
        for data in log:
            replayed.apply(decode(data))
        assert replayed.last_id == state.last_id
        for transaction in [*state.transactions()]:
            twin = replayed.find(transaction.id)
            assert (twin.status, twin.partitions, twin.subscriptions) == (
                transaction.status,
                transaction.partitions,
                transaction.subscriptions,
            )
        for number in range(1, state.last_id + 1):
            found = replayed.find(TxnId(0, number))
            if found.status is not Status.OPEN:
                assert outcomes.setdefault(found.id, found.is_commit) is found.is_commit
