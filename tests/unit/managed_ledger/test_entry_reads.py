# SPDX-License-Identifier: Apache-2.0
"""Reads of a log while it is written: the same entries whatever is in memory, with few ledgers open.

Carries.
"""

import asyncio

import pytest

from magnetar.ids import EARLIEST, Position
from magnetar.managed_ledger.cursors import PATIENCE
from tests.conftest import RunOnLoop
from tests.unit.ledger.cluster import settle
from tests.unit.managed_ledger.owners import World, read_all


@pytest.mark.feature("F-ML-05", "F-DISP-11")
@pytest.mark.parametrize("cache_bytes_max", [0, 300, 1 << 20])
def test_a_tailing_and_a_lagging_reader_see_the_same_with_any_cache(loop_run: RunOnLoop, cache_bytes_max: int) -> None:
    async def scenario() -> None:
        world = World(ledger_entries_max=7, cache_bytes_max=cache_bytes_max, open_readers_max=2)
        owner = world.owner()
        ledger = await owner.open()
        tailing = ledger.new_non_durable_cursor("tail", "latest")
        lagging = await ledger.open_cursor("lag", initial="earliest")
        seen: dict[str, dict[Position, bytes]] = {"tail": {}, "lag": {}}
        for turn in range(12):
            owner.publisher.append_many(6, f"t{turn}")
            await owner.publisher.rest()
            await settle()
            for cursor in (tailing, *([lagging] if turn % 4 == 3 else [])):
                while entries := await ledger.read(cursor.read_position, entries_max=5, bytes_max=60):
                    assert sum(len(entry.body) for entry in entries[:-1]) < 60
                    for entry in entries:
                        assert entry.position not in seen[cursor.name]
                        seen[cursor.name][entry.position] = bytes(entry.body)
                    cursor.read_position = Position(entries[-1].ledger_id, entries[-1].entry_id + 1)
            owner.logs.cache.check()
            assert owner.logs.cache.held_bytes <= cache_bytes_max
        assert seen["tail"] == seen["lag"] == owner.publisher.persisted
        if cache_bytes_max > 300:
            assert owner.logs.cache.hits > 0
        await owner.close()
        assert owner.logs.cache.held_bytes == 0
        world.check()

    loop_run(scenario())


@pytest.mark.feature("F-DISP-10")
def test_entries_stay_in_memory_only_while_a_cursor_is_near_the_end(loop_run: RunOnLoop) -> None:
    async def scenario() -> None:
        world = World(cache_lag_entries_max=10)
        owner = world.owner()
        ledger = await owner.open()
        owner.publisher.append_many(5)
        await owner.publisher.rest()
        assert owner.logs.cache.held_bytes == 0
        assert ledger.read_cached(EARLIEST, 5, 1000) is None
        reader = ledger.new_non_durable_cursor("reader", "latest")
        owner.publisher.append_many(5, "near")
        await owner.publisher.rest()
        cached = ledger.read_cached(reader.read_position, 10, 1000)
        assert cached is not None
        assert [bytes(entry.body) for entry in cached] == [f"near-{index}".encode() for index in range(5)]
        assert (owner.logs.cache.hits, owner.logs.cache.misses) == (5, 0), "of entries, not of reads"
        owner.publisher.append_many(20, "burst")
        await owner.publisher.rest()
        assert ledger.read_cached(reader.read_position, 10, 1000), "a burst does not take it away from its reader"
        owner.publisher.append_many(10 * PATIENCE, "far")
        await owner.publisher.rest()
        assert owner.logs.cache.held_bytes == 0
        assert ledger.read_cached(reader.read_position, 10, 1000) is None
        hits = owner.logs.cache.hits
        assert len(await read_all(ledger)) == 30 + 10 * PATIENCE
        assert (owner.logs.cache.hits - hits, owner.logs.cache.misses) == (0, 30 + 10 * PATIENCE)
        await reader.close()
        await owner.close()
        world.check()

    loop_run(scenario())


def test_whoever_reads_on_and_on_from_memory_lets_others_have_their_turn(loop_run: RunOnLoop) -> None:
    async def scenario() -> None:
        owner = World().owner()
        ledger = await owner.open()
        reader = ledger.new_non_durable_cursor("reader", "latest")
        owner.publisher.append_many(5)
        await owner.publisher.rest()
        assert ledger.read_cached(reader.read_position, 5, 1000), "in memory"
        turns: list[str] = []
        asyncio.get_running_loop().call_soon(turns.append, "another's")
        assert len(await ledger.read(reader.read_position, entries_max=5, bytes_max=1000)) == 5
        assert turns == ["another's"]
        await reader.close()
        await owner.close()

    loop_run(scenario())


def test_what_a_bookie_has_at_hand_is_read_without_waiting(loop_run: RunOnLoop) -> None:
    async def scenario() -> None:
        world = World(ledger_entries_max=7, cache_bytes_max=0)
        owner = world.owner()
        ledger = await owner.open()
        for turn in range(4):
            owner.publisher.append_many(6, f"t{turn}")
            await owner.publisher.rest()
            await settle()
        assert ledger.read_cached(EARLIEST, 5, 1000) is None
        for name in world.cluster.bookies:
            owner.client.channel(name).at_hand_max = 4
        assert ledger.read_cached(EARLIEST, 5, 1000) is None, "the ledger is not open for reading yet"
        assert await read_all(ledger) == owner.publisher.persisted
        position, seen = EARLIEST, {}
        while entries := ledger.read_cached(position, 5, 1000):
            assert len(entries) <= 4
            seen.update({entry.position: bytes(entry.body) for entry in entries})
            position = Position(entries[-1].ledger_id, entries[-1].entry_id + 1)
        assert entries == [], "the end of the log"
        assert seen == owner.publisher.persisted
        await owner.close()
        world.check()

    loop_run(scenario())


def test_few_ledgers_are_open_for_reading_at_once(loop_run: RunOnLoop) -> None:
    async def scenario() -> None:
        world = World(ledger_entries_max=4, open_readers_max=3)
        owner = world.owner()
        ledger = await owner.open()
        for turn in range(10):
            owner.publisher.append_many(4, f"t{turn}")
            await owner.publisher.rest()
            await settle()
        assert len(ledger.ledgers) > 6
        for _ in range(2):
            assert await read_all(ledger) == owner.publisher.persisted
            assert ledger.open_readers <= 3
        await owner.close()
        assert ledger.open_readers == 0
        world.check()

    loop_run(scenario())
