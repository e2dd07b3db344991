# SPDX-License-Identifier: Apache-2.0
"""The read cache: bounded, what was read together leaves together, the oldest first."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.bookie.read_cache import ReadCache

BYTES_MAX = 100


@st.composite
def runs(draw: st.DrawFn) -> tuple[int, list[int], list[bytes]]:
    first = draw(st.integers(0, 9))
    sizes = draw(st.lists(st.integers(2, 30), min_size=1, max_size=5))
    return draw(st.integers(0, 2)), list(range(first, first + len(sizes))), [bytes(range(size)) for size in sizes]


@pytest.mark.feature("F-BKS-24")
@given(st.lists(runs(), max_size=40))
def test_it_holds_the_newest_runs_that_fit(puts: list[tuple[int, list[int], list[bytes]]]) -> None:
    cache = ReadCache(BYTES_MAX)
    newest: list[tuple[int, list[int], list[bytes]]] = []
    for run in puts:
        cache.put(*run)
        newest.append(run)
        while sum(len(entry) for _, _, entries in newest for entry in entries) > BYTES_MAX:
            newest.pop(0)
        cache.check()
    expected: dict[tuple[int, int], int] = {}
    for ledger_id, ids, entries in newest:
        expected |= {(ledger_id, entry_id): len(entry) for entry_id, entry in zip(ids, entries, strict=True)}
    for ledger_id in range(3):
        for entry_id in range(15):
            found = cache.find(ledger_id, entry_id)
            assert (None if found is None else len(found)) == expected.get((ledger_id, entry_id))
    cache.drop_ledger(1)
    cache.check()
    assert all(cache.find(1, entry_id) is None for entry_id in range(15))


def test_hits_are_counted_and_a_miss_is_its_owners_to_count() -> None:
    cache = ReadCache(10)
    cache.put(1, [1], [b"x"])
    cache.find(1, 1)
    cache.find(1, 2)
    assert (cache.hits, cache.misses) == (1, 0)
