# SPDX-License-Identifier: Apache-2.0
"""The read cache and its runs: bounded, what was read together leaves together, the oldest first."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.bookie.entry_run import EntryRun
from magnetar.bookie.read_cache import ReadCache

BYTES_MAX = 100
GAP = b"##"


def run_of(ledger_id: int, first: int, entries: list[bytes]) -> EntryRun:
    """Entries with something between them, as records have."""
    begins = [len(GAP) * (at + 1) + sum(map(len, entries[:at])) for at in range(len(entries))]
    ends = [begin + len(entry) for begin, entry in zip(begins, entries, strict=True)]
    return EntryRun(ledger_id, first, b"".join(GAP + entry for entry in entries), begins, ends)


@st.composite
def runs(draw: st.DrawFn) -> tuple[int, int, list[bytes]]:
    sizes = draw(st.lists(st.integers(2, 30), min_size=1, max_size=5))
    return draw(st.integers(0, 2)), draw(st.integers(0, 9)), [bytes(range(size)) for size in sizes]


@pytest.mark.feature("F-BKS-24")
@given(st.lists(runs(), max_size=40))
def test_it_holds_the_newest_runs_that_fit(puts: list[tuple[int, int, list[bytes]]]) -> None:
    cache = ReadCache(BYTES_MAX)
    newest: list[tuple[int, int, list[bytes]]] = []
    for run in puts:
        cache.put(run_of(*run))
        newest.append(run)
        while sum(len(GAP + entry) for _, _, entries in newest for entry in entries) > BYTES_MAX:
            newest.pop(0)
        cache.check()
    expected: dict[tuple[int, int], set[bytes]] = {}
    for ledger_id, first, entries in newest:
        for at, entry in enumerate(entries):
            expected.setdefault((ledger_id, first + at), set()).add(entry)
    for ledger_id in range(3):
        for entry_id in range(15):
            # Two runs may have an entry; in the log both copies are the same.
            found = cache.find(ledger_id, entry_id)
            assert found in expected.get((ledger_id, entry_id), {None})
            cache.check()
    cache.drop_ledger(1)
    cache.check()
    assert all(cache.find(1, entry_id) is None for entry_id in range(15))
    assert len(cache) == sum(len(entries) for ledger_id, _, entries in newest if ledger_id != 1)


def test_hits_are_counted_and_a_miss_is_its_owners_to_count() -> None:
    cache = ReadCache(10)
    cache.put(run_of(1, 1, [b"x"]))
    cache.find(1, 1)
    cache.find(1, 2)
    assert (cache.hits, cache.misses) == (1, 0)


def test_the_front_of_a_run_is_what_was_asked_for_and_one_at_least() -> None:
    run = run_of(1, 7, [b"aaaa", b"bb", b"c"])
    assert run.front(10, 100) == [b"aaaa", b"bb", b"c"]
    assert run.front(2, 100) == [b"aaaa", b"bb"]
    assert run.front(10, 6) == [b"aaaa", b"bb"]
    assert run.front(10, 5) == run.front(1, 0) == [b"aaaa"]
    assert (len(run), run.entry_bytes, run.bytes_held) == (3, 7, 13)
    assert [run.find(entry_id) for entry_id in (6, 7, 9, 10)] == [None, b"aaaa", b"c", None]
