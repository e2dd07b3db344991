# SPDX-License-Identifier: Apache-2.0
"""Which states are stored, forgotten, or known to be gone."""

from magnetar.bookie.ledger_table import LedgerTable


def test_changed_states_are_taken_once_and_come_back_after_a_failure() -> None:
    table = LedgerTable(idle_max=10)
    state = table.begin(1, b"key")
    taken = table.take_changed()
    assert list(taken) == [1]
    assert not table.has_changes()
    table.put_back(taken, deleted_too=False)
    assert list(table.take_changed()) == [1]
    state.fence()
    table.note_change(state)
    assert table.take_changed() == {1: state.encode()}


def test_idle_states_are_forgotten_beyond_the_bound_and_busy_ones_never() -> None:
    table = LedgerTable(idle_max=2)
    for ledger_id in range(6):
        table.begin(ledger_id, b"key")
    assert table.forget_idle({}) == 0, "changed states are not stored yet"
    table.take_changed()
    assert table.forget_idle({0: None}) == 4, "stored, not in a write cache, and more than are kept"
    assert sorted(table.states) == [0, 5]


def test_a_deleted_ledger_stays_deleted() -> None:
    table = LedgerTable(idle_max=10)
    table.begin(7, b"key")
    table.delete(7)
    assert table.is_deleted(7)
    assert not table.is_deleted(8)
    assert not table.is_deleted(-1)
    assert 7 not in table.states
    data = table.take_deleted()
    assert data is not None
    assert table.take_deleted() is None
    other = LedgerTable(idle_max=10)
    other.load_deleted(data)
    assert other.is_deleted(7)
    table.put_back({}, deleted_too=True)
    assert table.take_deleted() == data


def test_doubt_is_stored_when_it_changes() -> None:
    table = LedgerTable(idle_max=10)
    assert table.take_unsure() is None
    table.doubt()
    assert table.has_changes()
    assert table.take_unsure() == b"1"
    assert table.take_unsure() is None
    table.stop_doubting()
    assert table.take_unsure() == b"0"
