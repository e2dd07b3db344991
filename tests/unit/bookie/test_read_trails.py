# SPDX-License-Identifier: Apache-2.0
"""Who reads on finds what follows without the index and without waiting, and never anything but what was asked for."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from magnetar.bookie import entry_reader, read_trails
from magnetar.bookie.entry_log_format import RECORD_HEAD_BYTES, RECORD_OVERHEAD_BYTES
from magnetar.bookie.ledger_index import Place
from magnetar.bookie.read_trails import ReadTrails
from magnetar.bookie.storage import BookieStorage
from magnetar.errors import EntryUnknown
from magnetar.runtime.simulated_disk import SimulatedDisk
from tests.unit.bookie.benches import ROOMY, add_all, bench, packed, run

LARGE = 1024 * 1024
# Two entries at a time, and nothing in the read cache.
SETTINGS = replace(
    ROOMY, read_ahead_entries_max=2, read_ahead_bytes_max=LARGE, read_cache_bytes_max=0, entry_log_bytes_max=LARGE
)


def expected(first: int, last: int) -> list[bytes]:
    return [packed(2, entry_id) for entry_id in range(first, last + 1)]


@contextmanager
def without_index(storage: BookieStorage) -> Iterator[None]:
    index = storage._directories[0].index
    span = index.span
    index.span = None  # type: ignore[assignment, method-assign]
    try:
        yield
    finally:
        index.span = span  # type: ignore[method-assign]


@pytest.mark.feature("F-BKS-25")
def test_what_follows_what_was_read_is_at_hand_without_the_index() -> None:
    async def scenario() -> None:
        async with bench(SimulatedDisk(), SETTINGS) as storage:
            await add_all(storage, 2, range(9))
            await storage.checkpoint()
            assert storage.run_at_hand(2, 0, 2, LARGE) == [], "nobody knows where it is"
            assert await storage.read_batch(2, 0, 2, LARGE) == expected(0, 1)
            assert storage.run_at_hand(2, 4, 2, LARGE) == [], "nobody has read this far"
            read_bytes = storage.counts.bytes_read
            with without_index(storage):
                assert storage.run_at_hand(2, 2, 2, LARGE) == expected(2, 3)
                assert storage.run_at_hand(2, 4, 4, LARGE) == expected(4, 7)
                assert storage.run_at_hand(2, 8, 4, LARGE) == expected(8, 8), "no more were written"
            assert storage.counts.bytes_read == read_bytes + sum(map(len, expected(2, 8)))
            assert storage.run_at_hand(2, 9, 4, LARGE) == []

    run(scenario())


def test_entries_that_do_not_follow_are_the_indexs_to_find() -> None:
    async def scenario() -> None:
        async with bench(SimulatedDisk(), SETTINGS) as storage:
            for entry_ids in (range(2), range(2, 4)):
                await add_all(storage, 2, entry_ids)
                await add_all(storage, 3, entry_ids)
                await storage.checkpoint()
            assert await storage.read_batch(2, 0, 2, LARGE) == expected(0, 1)
            assert storage.run_at_hand(2, 2, 2, LARGE) == [], "another ledger's entry lies there"
            assert await storage.read_batch(2, 2, 1, LARGE) == expected(2, 2)
            assert len(storage._reader._trails) == 1, "two were read, as many as are read ahead"
            assert await storage.read_batch(3, 3, 2, LARGE) == [packed(3, 3)]
            assert len(storage._reader._trails) == 1, "one more was asked for, and it did not follow"

    run(scenario())


def test_where_others_entries_follow_a_look_is_all_that_is_taken() -> None:
    async def scenario() -> None:
        async with bench(SimulatedDisk(), replace(SETTINGS, read_ahead_entries_max=100)) as storage:
            await add_all(storage, 2, range(4))
            await add_all(storage, 3, range(50))
            await storage.checkpoint()
            logs = storage._directories[0].logs
            at_hand, lengths = logs.range_at_hand, []

            def counted(log_id: int, offset: int, length: int) -> bytes:
                lengths.append(length)
                return at_hand(log_id, offset, length)

            logs.range_at_hand = counted  # type: ignore[method-assign]
            reader = storage._reader
            reader._trails.note(2, (await storage._directories[0].index.places(3, 0, 1))[0]._replace(entry_id=4))
            assert reader.run_at_hand(2, 4, 100, LARGE) == []
            assert lengths == [RECORD_HEAD_BYTES]

    run(scenario())


def test_small_entries_behind_a_large_one_are_read_as_many_as_are_asked_for_or_read_ahead() -> None:
    async def scenario() -> None:
        async with bench(SimulatedDisk(), SETTINGS) as storage:
            entries = [packed(2, 0), packed(2, 1), packed(2, 2, b"x" * 10_000)]
            entries += [packed(2, entry_id) for entry_id in range(3, 30)]
            await add_all(storage, 2, range(30), lambda entry_id: b"x" * 10_000 if entry_id == 2 else b"body")
            await storage.checkpoint()
            assert await storage.read_batch(2, 0, 2, LARGE) == entries[:2]
            (place,) = await storage._directories[0].index.places(2, 2, 1)
            found = storage._directories[0].run_at_hand(2, place, count_max=5, bytes_max=LARGE)
            assert found is not None
            assert len(found) == 5
            assert storage.run_at_hand(2, 2, 5, LARGE) == entries[2:7]

    run(scenario())


def test_reading_ahead_by_more_than_is_read_at_once_goes_on_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        async with bench(SimulatedDisk(), replace(SETTINGS, read_ahead_entries_max=1_000)) as storage:
            await add_all(storage, 2, range(90))
            await storage.checkpoint()
            size = 10 * (len(packed(2, 0)) + RECORD_OVERHEAD_BYTES)
            monkeypatch.setattr(entry_reader, "_ASKED_BYTES_MAX", size)
            assert await storage.read_batch(2, 0, 10, size)
            storage._reader._trails.note(2, (await storage._directories[0].index.places(2, 10, 1))[0])
            for first in (10, 20, 30, 40):
                assert len(storage.run_at_hand(2, first, 10, LARGE)) == 10
                await asyncio.sleep(0)

    run(scenario())


@pytest.mark.feature("F-BKS-25")
def test_what_is_damaged_or_gone_is_not_at_hand() -> None:
    async def scenario() -> None:
        disk = SimulatedDisk()
        async with bench(disk, SETTINGS) as storage:
            await add_all(storage, 2, range(9))
            await storage.checkpoint()
            (place,) = await storage._directories[0].index.places(2, 3, 1)
            disk.kernel.flip_bit("ledgers/current/0.log", place.offset + 20, 4)
            assert await storage.read_batch(2, 0, 2, LARGE) == expected(0, 1)
            assert storage.run_at_hand(2, 2, 2, LARGE) == expected(2, 2), "up to what is damaged"
            assert storage.run_at_hand(2, 3, 2, LARGE) == []
            with pytest.raises(EntryUnknown, match="damaged"):
                await storage.read_batch(2, 3, 2, LARGE)
            assert await storage.read_batch(2, 4, 2, LARGE) == expected(4, 5)
            await storage._directories[0].logs.close()
            assert storage.run_at_hand(2, 6, 2, LARGE) == [], "the log is not open"
            assert await storage.read_batch(2, 6, 1, LARGE) == expected(6, 6)
            storage._reader.forget(2)
            assert storage.run_at_hand(2, 8, 1, LARGE) == [], "the ledger is gone"

    run(scenario())


def test_of_what_is_read_mostly_of_others_nothing_else_is_kept() -> None:
    async def scenario() -> None:
        settings = replace(SETTINGS, read_cache_bytes_max=LARGE)
        async with bench(SimulatedDisk(), settings) as storage:
            for ledger_id, entry_ids in ((2, range(3)), (3, range(50))):
                await add_all(storage, ledger_id, entry_ids)
            await storage.checkpoint()
            assert await storage.read_batch(2, 0, 2, LARGE) == expected(0, 1)
            assert storage.run_at_hand(2, 2, 40, 1) == expected(2, 2)
            run = storage._reader._directory_of(2).run_at_hand(
                2, (await storage._directories[0].index.places(2, 2, 1))[0], count_max=40, bytes_max=LARGE
            )
            assert run is not None
            assert run.bytes_held == len(packed(2, 2)) + RECORD_OVERHEAD_BYTES

    run(scenario())


def test_a_turn_of_the_loop_has_few_reads_and_the_next_one_has_some_again() -> None:
    async def scenario() -> None:
        async with bench(SimulatedDisk(), SETTINGS) as storage:
            ledgers = range(2, 10)
            for ledger_id in ledgers:
                await add_all(storage, ledger_id, range(4))
                await storage.checkpoint()
            for ledger_id in ledgers:
                await storage.read_batch(ledger_id, 0, 2, LARGE)
            found = [len(storage.run_at_hand(ledger_id, 2, 2, LARGE)) for ledger_id in ledgers]
            assert found == [2, 2, 2, 2, 0, 0, 0, 0]
            await asyncio.sleep(0)
            found = [len(storage.run_at_hand(ledger_id, 2, 2, LARGE)) for ledger_id in ledgers]
            assert found == [0, 0, 0, 0, 2, 2, 2, 2], "what was not read is still known"

    run(scenario())


def test_nothing_of_a_deleted_ledger_is_at_hand() -> None:
    async def scenario() -> None:
        async with bench(SimulatedDisk(), SETTINGS) as storage:
            await add_all(storage, 2, range(9))
            await storage.checkpoint()
            assert await storage.read_batch(2, 0, 2, LARGE) == expected(0, 1)
            storage._ledgers.table.delete(2)
            assert storage.run_at_hand(2, 2, 2, LARGE) == []

    run(scenario())


def test_trails_are_bounded_and_each_is_taken_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_trails, "_TRAILS_MAX", 3)
    trails = ReadTrails()
    places = [Place(entry_id, 100 * entry_id, 10) for entry_id in range(4)]
    for place in places:
        trails.note(7, place)
    assert len(trails) == 3
    assert trails.take(7, 0) is None, "the oldest"
    assert trails.take(7, 1) == places[1]
    assert trails.take(7, 1) is None
    trails.note(8, places[0])
    trails.drop_ledger(7)
    assert (trails.take(7, 2), trails.take(8, 0), len(trails)) == (None, places[0], 0)
