# SPDX-License-Identifier: Apache-2.0
"""The write caches against a plain dictionary."""

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.bookie.write_cache import WriteCache, WriteCaches

entries = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 8), st.binary(max_size=20)), max_size=40)


def flat(lists: Iterator[list[bytes]]) -> list[bytes]:
    return [entry for some in lists for entry in some]


@pytest.mark.feature("F-BKS-12")
@given(entries, st.integers(1, 3))
def test_the_newest_entry_holds_and_the_order_is_by_ledger_then_entry(
    added: list[tuple[int, int, bytes]], parts: int
) -> None:
    cache = WriteCache()
    twin: dict[tuple[int, int], bytes] = {}
    for ledger_id, entry_id, rest in added:
        entry = b"%d:%d " % (ledger_id, entry_id) + rest
        assert cache.put(ledger_id, entry_id, entry) == cache.bytes_held
        twin[ledger_id, entry_id] = entry
        cache.check()
    assert flat(cache.in_order()) == [twin[key] for key in sorted(twin)]
    for part in range(parts):
        assert flat(cache.in_order(part, parts)) == [twin[key] for key in sorted(twin) if key[0] % parts == part]
    for ledger_id in range(7):
        ids = [entry_id for owner, entry_id in sorted(twin) if owner == ledger_id]
        assert cache.entry_ids(ledger_id) == ids
        assert cache.last_entry_id(ledger_id) == (ids[-1] if ids else None)
        assert cache.has_ledger(ledger_id) == bool(ids)
        assert cache.find(ledger_id, 3) == twin.get((ledger_id, 3))


@given(entries, st.integers(0, 5))
def test_a_dropped_ledger_leaves_no_trace(added: list[tuple[int, int, bytes]], dropped: int) -> None:
    cache = WriteCache()
    for ledger_id, entry_id, entry in added:
        cache.put(ledger_id, entry_id, entry)
    walk = cache.in_order()
    next(walk, None)
    cache.drop_ledger(dropped)
    cache.check()
    list(walk)
    assert not cache.has_ledger(dropped)
    cache.drop_ledger(dropped)


def test_entries_are_found_from_add_to_flush() -> None:
    caches = WriteCaches()
    caches.active.put(1, 0, b"old")
    assert caches.swap().entries == 1
    caches.active.put(1, 1, b"new")
    caches.active.put(1, 0, b"again")
    assert [caches.find(1, 0), caches.find(1, 1), caches.find(2, 0)] == [b"again", b"new", None]
    assert caches.entry_ids(1) == [0, 1]
    assert caches.last_entry_id(1) == 1
    assert list(caches.ledger_ids()) == [1]
    caches.flushed()
    assert caches.entry_ids(1) == [0, 1]
    caches.swap()
    caches.flushed()
    assert caches.find(1, 0) is None
    assert caches.last_entry_id(1) is None


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 6), st.lists(st.binary(max_size=9), max_size=4))))
def test_a_run_is_held_as_its_entries_one_by_one(runs: list[tuple[int, int, list[bytes]]]) -> None:
    cache, twin = WriteCache(), WriteCache()
    for ledger_id, first, run in runs:
        held = cache.put_run(ledger_id, first, run)
        for entry_id, entry in enumerate(run, first):
            twin.put(ledger_id, entry_id, entry)
        cache.check()
        assert held == cache.bytes_held == twin.bytes_held
        assert flat(cache.in_order()) == flat(twin.in_order())
