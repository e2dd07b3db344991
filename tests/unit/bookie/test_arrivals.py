# SPDX-License-Identifier: Apache-2.0
"""Adds gathered into runs: nothing is lost, a ledger's order is kept, a run is consecutive and of one key."""

from hypothesis import given
from hypothesis import strategies as st

from magnetar.bookie.arrivals import Arrivals

ADDS = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 5), st.sampled_from([b"a", b"b"])), max_size=30)


@given(ADDS)
def test_every_ledger_gets_its_adds_in_the_order_they_came(adds: list[tuple[int, int, bytes]]) -> None:
    arrivals = Arrivals()
    for number, (ledger_id, entry_id, key) in enumerate(adds):
        arrivals.take(ledger_id, entry_id, key, b"%d" % number)
    assert bool(arrivals) == bool(adds)
    came: dict[int, list[tuple[int, bytes, bytes]]] = {}
    for ledger_id, first, key, entries in arrivals.drain():
        came.setdefault(ledger_id, []).extend((entry_id, key, entry) for entry_id, entry in enumerate(entries, first))
    assert not arrivals
    assert arrivals.drain() == []
    for ledger_id in range(3):
        expected = [(entry, key, b"%d" % i) for i, (ledger, entry, key) in enumerate(adds) if ledger == ledger_id]
        assert came.get(ledger_id, []) == expected


def test_interleaved_ledgers_become_one_run_each() -> None:
    arrivals = Arrivals()
    for entry_id in range(10):
        for ledger_id in (7, 8):
            arrivals.take(ledger_id, entry_id, b"k", bytes(1))
    assert [(ledger_id, first, len(entries)) for ledger_id, first, _, entries in arrivals.drain()] == [
        (7, 0, 10),
        (8, 0, 10),
    ]
