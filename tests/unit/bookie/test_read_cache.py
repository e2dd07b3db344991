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
    return EntryRun(ledger_id, first, 0, b"".join(GAP + entry for entry in entries), begins, ends)


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


def test_a_part_of_a_run_begins_anywhere_in_it() -> None:
    run = run_of(1, 5, [b"aaaa", b"bb", b"c"])
    assert [entry_id for entry_id in range(10) if entry_id in run] == [5, 6, 7]
    assert run.part(6, 10, 100) == [b"bb", b"c"]
    assert run.part(6, 1, 100) == run.part(6, 10, 2) == run.part(6, 10, 0) == run.part(6, 0, 100) == [b"bb"]


@given(
    st.lists(runs(), max_size=12),
    st.integers(0, 2),
    st.integers(0, 14),
    st.integers(0, 9),
    st.integers(0, 80),
)
def test_what_is_found_together_is_what_is_found_one_by_one(
    puts: list[tuple[int, int, list[bytes]]], ledger_id: int, first: int, count_max: int, bytes_max: int
) -> None:
    cache = ReadCache(10_000)
    for run in puts:
        # Of an entry every copy is the same.
        entries = [bytes([at]) * (2 + at * 3 % 7) for at in range(run[1], run[1] + len(run[2]))]
        cache.put(run_of(run[0], run[1], entries))
    found: list[bytes] = []
    room = bytes_max
    for entry_id in range(first, first + max(1, count_max)):
        entry = cache.find(ledger_id, entry_id)
        if entry is None:
            break
        room -= len(entry)
        if found and room < 0:
            break
        found.append(entry)
    hits = cache.hits
    assert cache.find_all(ledger_id, first, count_max, bytes_max) == found
    assert cache.hits == hits + len(found)
    cache.check()
