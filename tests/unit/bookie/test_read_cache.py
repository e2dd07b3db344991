# SPDX-License-Identifier: Apache-2.0
"""The read cache: bounded, the oldest go first."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.bookie.read_cache import ReadCache


@pytest.mark.feature("F-BKS-24")
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 9), st.integers(0, 50)), max_size=60))
def test_it_holds_the_newest_entries_that_fit(puts: list[tuple[int, int, int]]) -> None:
    cache = ReadCache(100)
    order: dict[tuple[int, int], int] = {}
    for ledger_id, entry_id, size in puts:
        cache.put(ledger_id, entry_id, bytes(size))
        order.pop((ledger_id, entry_id), None)
        order[ledger_id, entry_id] = size
        while sum(order.values()) > 100:
            del order[next(iter(order))]
        cache.check()
    for ledger_id in range(3):
        for entry_id in range(10):
            found = cache.find(ledger_id, entry_id)
            assert (None if found is None else len(found)) == order.get((ledger_id, entry_id))
    cache.drop_ledger(1)
    cache.check()
    assert all(cache.find(1, entry_id) is None for entry_id in range(10))


def test_hits_and_misses_are_counted() -> None:
    cache = ReadCache(10)
    cache.put(1, 1, b"x")
    cache.find(1, 1)
    cache.find(1, 2)
    assert (cache.hits, cache.misses) == (1, 1)
