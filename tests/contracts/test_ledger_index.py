# SPDX-License-Identifier: Apache-2.0
"""What every LedgerIndex does: RocksDB, and the plain one on a real and on a simulated disk."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from magnetar.bookie.ledger_index import ROW, LedgerIndex, Move, Place, location_of
from magnetar.bookie.plain_index import PlainLedgerIndex
from magnetar.bookie.rocks_index import RocksLedgerIndex
from magnetar.errors import Damaged
from magnetar.runtime.blocking_calls import BlockingCalls
from magnetar.runtime.disk import Disk
from magnetar.runtime.real_disk import RealDisk
from magnetar.runtime.simulated_disk import SimulatedDisk

Check = Callable[[LedgerIndex], Awaitable[None]]


class Shelf:
    """One place for an index, which can be closed and opened again."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    async def open(self) -> LedgerIndex:
        raise NotImplementedError

    async def end(self) -> None:
        raise NotImplementedError


class RocksShelf(Shelf):
    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._calls = BlockingCalls(2, name="index")

    async def open(self) -> LedgerIndex:
        return await RocksLedgerIndex.open(str(self._directory / "rocks"), self._calls)

    async def end(self) -> None:
        await self._calls.close()


class PlainShelf(Shelf):
    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._disk: Disk = RealDisk(str(directory))

    async def open(self) -> LedgerIndex:
        return await PlainLedgerIndex.open(self._disk, "plain")

    async def end(self) -> None:
        await self._disk.close()


class SimulatedShelf(PlainShelf):
    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._disk = SimulatedDisk(Random(1))


SHELVES: dict[str, type[Shelf]] = {"rocks": RocksShelf, "plain": PlainShelf, "plain-simulated": SimulatedShelf}


@pytest.fixture(params=sorted(SHELVES))
def on_shelf(request: pytest.FixtureRequest, tmp_path: Path, loop_run: Callable[[Any], Any]) -> Callable[..., None]:
    """Runs checks on one index, closed and opened again between them."""

    async def run_all(*checks: Check) -> None:
        shelf = SHELVES[request.param](tmp_path)
        try:
            for check in checks:
                index = await shelf.open()
                try:
                    await check(index)
                finally:
                    await index.close()
        finally:
            await shelf.end()

    return lambda *checks: loop_run(run_all(*checks))


def rows(ledger_id: int, entry_ids: range, *, log_id: int = 1) -> bytes:
    return b"".join(ROW.pack(ledger_id, entry_id, location_of(log_id, entry_id * 100), 50) for entry_id in entry_ids)


@pytest.mark.feature("F-BKS-20", "F-BKS-22")
def test_places_are_found_in_order_and_within_their_ledger(on_shelf: Callable[..., None]) -> None:
    async def check(index: LedgerIndex) -> None:
        await index.put_places(rows(2, range(5, 15)) + rows(1, range(3)) + rows(3, range(2)))
        places = await index.places(2, 0, 4)
        assert [place.entry_id for place in places] == [5, 6, 7, 8]
        assert places[0] == Place(5, location_of(1, 500), 50)
        assert (places[0].log_id, places[0].offset) == (1, 500)
        assert [place.entry_id for place in await index.places(2, 13, 10)] == [13, 14]
        assert await index.places(2, 15, 10) == []
        assert await index.places(9, 0, 10) == []
        assert [await index.last_entry_id(ledger_id) for ledger_id in (0, 1, 2, 3, 4)] == [None, 2, 14, 1, None]

    on_shelf(check)


def test_a_span_is_what_one_read_of_a_log_covers(on_shelf: Callable[..., None]) -> None:
    async def check(index: LedgerIndex) -> None:
        lies = {0: (1, 0), 1: (1, 100), 3: (1, 200), 4: (1, 900), 5: (2, 0), 6: (2, 100), 7: (2, 50)}
        rows = [ROW.pack(4, entry_id, location_of(*place), 60) for entry_id, place in lies.items()]
        await index.put_places(b"".join((*rows, ROW.pack(5, 8, location_of(2, 300), 60))))

        async def ends(first: int, count_max: int = 10, bytes_max: int = 500) -> tuple[int, int] | None:
            span = await index.span(4, first, count_max, bytes_max)
            return None if span is None else (span.first.entry_id, span.last.entry_id)

        assert await ends(0) == (0, 3)
        assert await ends(0, bytes_max=1_000) == (0, 4)
        assert await ends(0, count_max=2) == (0, 1)
        assert await ends(0, bytes_max=160) == (0, 1)
        assert await ends(0, bytes_max=0) == (0, 0)
        assert await ends(4, bytes_max=2**40) == (4, 4)
        assert await ends(6) == (6, 6)
        assert await ends(7) == (7, 7)
        assert await ends(2) is None
        assert await ends(9) is None
        assert await index.span(9, 0, 10, 500) is None

    on_shelf(check)


@pytest.mark.parametrize("entry_bytes", [[60], [10, 200], [200, 10, 10, 10]])
def test_a_long_span_holds_what_fits_and_not_much_less(on_shelf: Callable[..., None], entry_bytes: list[int]) -> None:
    """Entries of one size and of several, in a row; to the end of the ledger and in the midst of it."""

    async def check(index: LedgerIndex) -> None:
        places, at = [], 0
        for entry_id in range(1_000):
            places.append(Place(entry_id, location_of(3, at), entry_bytes[entry_id % len(entry_bytes)]))
            at += places[-1].entry_bytes + 16
        await index.put_places(b"".join(ROW.pack(4, *place) for place in places))
        for first, bytes_max in ((0, 50_000), (3, 50_000), (500, 10_000), (900, 50_000), (999, 50_000), (0, 10**9)):
            span = await index.span(4, first, 1_000, bytes_max)
            assert span is not None
            last = places[span.last.entry_id]
            assert (span.first, span.last) == (places[first], last)
            covered, end = last.location + last.entry_bytes - span.first.location, at - 16 - places[first].offset
            assert covered <= bytes_max
            assert span.last.entry_id - first >= 64 or covered == end or covered >= bytes_max // 4
            assert covered >= min(bytes_max, end) // 16

    on_shelf(check)


def test_the_newest_place_holds_and_changes_survive_a_sync(on_shelf: Callable[..., None]) -> None:
    async def write(index: LedgerIndex) -> None:
        await index.put_places(rows(1, range(3)))
        await index.put_places(rows(1, range(1, 2), log_id=7))
        await index.put_ledgers({1: b"one", 2: b"two"})
        await index.put_note("checkpoint", b"\x00\x07")
        await index.sync()

    async def read(index: LedgerIndex) -> None:
        assert [place.log_id for place in await index.places(1, 0, 10)] == [1, 7, 1]
        assert [await index.ledger(ledger_id) for ledger_id in (1, 2, 3)] == [b"one", b"two", None]
        assert await index.ledger_ids() == [1, 2]
        assert await index.note("checkpoint") == b"\x00\x07"
        assert await index.note("other") is None

    on_shelf(write, read, read)


def test_a_move_happens_only_from_the_place_it_names(on_shelf: Callable[..., None]) -> None:
    async def check(index: LedgerIndex) -> None:
        await index.put_places(rows(1, range(4)))
        await index.put_places(rows(1, range(2, 3), log_id=5))
        moves = [Move(1, entry_id, location_of(1, entry_id * 100), location_of(9, entry_id)) for entry_id in range(6)]
        assert await index.move_places(moves) == 3
        assert [place.log_id for place in await index.places(1, 0, 10)] == [9, 9, 5, 9]
        assert {place.entry_bytes for place in await index.places(1, 0, 10)} == {50}
        assert await index.move_places([]) == 0

    on_shelf(check)


def test_locations_are_those_of_these_very_entries(on_shelf: Callable[..., None]) -> None:
    async def check(index: LedgerIndex) -> None:
        for ledger_id in (1, 2, 3):
            await index.put_places(rows(ledger_id, range(200), log_id=ledger_id))
        await index.put_places(rows(1, range(7, 8), log_id=9))
        await index.delete_ledger(2)
        asked = [(ledger_id, entry_id) for entry_id in range(198, 202) for ledger_id in (3, 1, 2, 4)]
        found = await index.locations([*asked, (1, 7), (1, 2**63 - 1)])
        assert found == [
            *(
                location_of(ledger_id, entry_id * 100) if ledger_id in (1, 3) and entry_id < 200 else None
                for ledger_id, entry_id in asked
            ),
            location_of(9, 700),
            None,
        ]
        assert await index.locations([(3, entry_id) for entry_id in range(200)]) == [
            location_of(3, entry_id * 100) for entry_id in range(200)
        ]
        assert await index.locations([]) == []

    on_shelf(check)


def test_a_deleted_ledger_is_gone_and_its_neighbours_stay(on_shelf: Callable[..., None]) -> None:
    async def write(index: LedgerIndex) -> None:
        for ledger_id in (1, 2, 3):
            await index.put_places(rows(ledger_id, range(5)))
            await index.put_ledgers({ledger_id: b"state"})
        await index.put_places(ROW.pack(2, 2**63 - 1, location_of(1, 0), 1))
        await index.delete_ledger(2)
        await index.delete_ledger(99)
        await index.sync()

    async def read(index: LedgerIndex) -> None:
        assert await index.ledger_ids() == [1, 3]
        assert await index.places(2, 0, 10) == []
        assert await index.last_entry_id(2) is None
        assert len(await index.places(1, 0, 10)) == 5
        assert len(await index.places(3, 0, 10)) == 5

    on_shelf(write, read)


def test_clear_forgets_everything(on_shelf: Callable[..., None]) -> None:
    async def write(index: LedgerIndex) -> None:
        await index.put_places(rows(1, range(5)))
        await index.put_ledgers({1: b"state"})
        await index.put_note("n", b"v")
        await index.sync()
        await index.clear()
        assert await index.places(1, 0, 10) == []
        await index.put_ledgers({4: b"new"})
        await index.sync()

    async def read(index: LedgerIndex) -> None:
        assert await index.ledger_ids() == [4]
        assert await index.places(1, 0, 10) == []
        assert await index.note("n") is None

    on_shelf(write, read)


def test_changes_and_syncs_at_the_same_time_do_not_harm_each_other(on_shelf: Callable[..., None]) -> None:
    async def write(index: LedgerIndex) -> None:
        async def one(ledger_id: int) -> None:
            for start in range(0, 50, 10):
                await index.put_places(rows(ledger_id, range(start, start + 10)))
                await index.sync()

        await asyncio.gather(*(one(ledger_id) for ledger_id in range(5)))

    async def read(index: LedgerIndex) -> None:
        for ledger_id in range(5):
            assert [place.entry_id for place in await index.places(ledger_id, 0, 100)] == list(range(50))

    on_shelf(write, read)


changes = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.integers(0, 3), st.integers(0, 12), st.integers(0, 5)),
        st.tuples(st.just("move"), st.integers(0, 3), st.integers(0, 12), st.integers(0, 5)),
        st.tuples(st.just("delete"), st.integers(0, 3), st.just(0), st.just(0)),
        st.tuples(st.just("reopen"), st.just(0), st.just(0), st.just(0)),
    ),
    max_size=25,
)


@pytest.mark.parametrize("shelf_name", sorted(SHELVES))
@given(changes)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_changes_give_what_a_dictionary_gives(
    shelf_name: str, tmp_path_factory: pytest.TempPathFactory, todo: list[tuple[str, int, int, int]]
) -> None:
    async def scenario() -> None:
        shelf = SHELVES[shelf_name](tmp_path_factory.mktemp("index"))
        index = await shelf.open()
        twin: dict[tuple[int, int], int] = {}
        for what, ledger_id, entry_id, log_id in todo:
            if what == "put":
                await index.put_places(ROW.pack(ledger_id, entry_id, location_of(log_id, entry_id), 9))
                twin[ledger_id, entry_id] = log_id
            elif what == "move":
                target = location_of(log_id + 100, entry_id)
                moved = await index.move_places([Move(ledger_id, entry_id, location_of(log_id, entry_id), target)])
                expected = twin.get((ledger_id, entry_id)) == log_id
                assert moved == expected
                if expected:
                    twin[ledger_id, entry_id] = log_id + 100
            elif what == "delete":
                await index.delete_ledger(ledger_id)
                twin = {key: value for key, value in twin.items() if key[0] != ledger_id}
            else:
                await index.sync()
                await index.close()
                index = await shelf.open()
        for ledger_id in range(4):
            expected_places = [
                Place(entry_id, location_of(twin[owner, entry_id], entry_id), 9)
                for owner, entry_id in sorted(twin)
                if owner == ledger_id
            ]
            assert await index.places(ledger_id, 0, 100) == expected_places
            assert await index.last_entry_id(ledger_id) == (expected_places[-1].entry_id if expected_places else None)
        await index.close()
        await shelf.end()

    asyncio.run(scenario())


def test_a_database_that_cannot_be_opened_is_damage(tmp_path: Path) -> None:
    async def scenario() -> None:
        shelf = RocksShelf(tmp_path)
        index = await shelf.open()
        await index.put_ledgers({1: b"state"})
        await index.sync()
        await index.close()
        (tmp_path / "rocks" / "CURRENT").write_bytes(b"junk\n")
        with pytest.raises(Damaged):
            await shelf.open()
        await shelf.end()

    asyncio.run(scenario())


def test_a_plain_index_of_another_kind_is_damage() -> None:
    async def scenario() -> None:
        disk = SimulatedDisk()
        await disk.make_directory("plain")
        await disk.replace_file("plain/index.plain", b"something else entirely")
        with pytest.raises(Damaged):
            await PlainLedgerIndex.open(disk, "plain")

    asyncio.run(scenario())


def test_a_plain_index_drops_what_was_not_synced_and_keeps_the_rest() -> None:
    async def write(disk: SimulatedDisk) -> None:
        index = await PlainLedgerIndex.open(disk, "plain")
        await index.put_ledgers({1: b"kept"})
        await index.sync()
        await index.put_ledgers({2: b"lost"})

    async def read(disk: SimulatedDisk) -> None:
        index = await PlainLedgerIndex.open(disk, "plain")
        assert await index.ledger_ids() == [1]
        await index.put_ledgers({3: b"new"})
        await index.sync()
        await index.close()
        index = await PlainLedgerIndex.open(disk, "plain")
        assert await index.ledger_ids() == [1, 3]

    disk = SimulatedDisk(Random(1))
    asyncio.run(write(disk))
    disk.kernel.lose_power()
    asyncio.run(read(disk))
