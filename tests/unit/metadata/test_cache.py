# SPDX-License-Identifier: Apache-2.0
"""The cache shows what the store holds: after changes, missed watches, races between a read and a change."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from magnetar.config.metadata import MetadataSettings
from magnetar.errors import MetadataError, OutcomeUnknown
from magnetar.metadata.cache import RecordCache
from magnetar.metadata.memory import MemoryStore, MemoryTree
from magnetar.metadata.store import Record, Stored

pytestmark = [pytest.mark.feature("F-MD-04")]


class CountingStore(MemoryStore):
    """Counts reads, and can hold a read back between the store's answer and its arrival."""

    def __init__(self, tree: MemoryTree) -> None:
        super().__init__(tree)
        self.reads = 0
        self.hold: asyncio.Event | None = None
        self.lose_answers = 0

    async def get(self, path: str) -> Record | None:
        self.reads += 1
        record = await super().get(path)
        if self.hold is not None:
            await self.hold.wait()
        return record

    async def children(self, path: str) -> list[str]:
        self.reads += 1
        return await super().children(path)

    async def put(
        self,
        path: str,
        value: bytes,
        *,
        expected_version: int | None = None,
        ephemeral: bool = False,
        sequential: bool = False,
    ) -> Stored:
        stored = await super().put(
            path, value, expected_version=expected_version, ephemeral=ephemeral, sequential=sequential
        )
        if self.lose_answers:
            self.lose_answers -= 1
            raise OutcomeUnknown("the answer was lost")
        return stored


Check = Callable[[CountingStore, MemoryStore, "RecordCache[int]"], Coroutine[Any, Any, None]]


def on_cache(check: Check, settings: MetadataSettings | None = None) -> None:
    async def run() -> None:
        tree = MemoryTree()
        store, other = CountingStore(tree), tree.open_session()
        cache = RecordCache(store, "/c", decode=int, encode=lambda value: b"%d" % value, settings=settings)
        await check(store, other, cache)
        cache.close()
        assert len(cache) == 0

    asyncio.run(run())


async def _told() -> None:
    """Let the watches tell: they do in the next turn of the loop."""
    await asyncio.sleep(0)
    await asyncio.sleep(0)


def test_a_second_read_does_not_ask_the_store_and_a_change_from_outside_shows() -> None:
    async def check(store: CountingStore, other: MemoryStore, cache: RecordCache[int]) -> None:
        assert await cache.get("/c/a") is None
        assert await cache.get("/c/a") is None
        assert store.reads == 1
        await other.put("/c/a", b"1")
        await _told()
        assert await cache.get("/c/a") == (1, 0)
        assert await cache.get("/c/a") == (1, 0)
        assert store.reads == 2
        await other.put("/c/a", b"2")
        await _told()
        assert await cache.get("/c/a") == (2, 1)
        await other.delete("/c/a")
        await _told()
        assert await cache.get("/c/a") is None

    on_cache(check)


def test_child_lists_follow_creation_and_deletion() -> None:
    async def check(store: CountingStore, other: MemoryStore, cache: RecordCache[int]) -> None:
        assert await cache.children("/c") == ()
        for name in ("b", "a"):
            await other.put(f"/c/{name}", b"1")
        await _told()
        assert await cache.children("/c") == ("a", "b")
        reads = store.reads
        await other.put("/c/a", b"2")
        await _told()
        assert await cache.children("/c") == ("a", "b")
        assert store.reads == reads
        await other.delete("/c/a")
        await _told()
        assert await cache.children("/c") == ("b",)

    on_cache(check)


def test_a_read_overtaken_by_a_change_is_not_kept() -> None:
    """The answer left the store before the change and arrives after the watch told of it."""

    async def check(store: CountingStore, other: MemoryStore, cache: RecordCache[int]) -> None:
        await other.put("/c/a", b"1")
        await _told()
        store.hold = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            reading = group.create_task(cache.get("/c/a"))
            await _told()
            await other.put("/c/a", b"2")
            await _told()
            store.hold.set()
        store.hold = None
        assert reading.result() == (1, 0)
        assert await cache.get("/c/a") == (2, 1)

    on_cache(check)


def test_readers_at_the_same_time_share_one_read() -> None:
    async def check(store: CountingStore, other: MemoryStore, cache: RecordCache[int]) -> None:
        await other.put("/c/a", b"1")
        await _told()
        store.hold = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            readings = [group.create_task(cache.get("/c/a")) for _ in range(10)]
            await _told()
            store.hold.set()
        assert [reading.result() for reading in readings] == [(1, 0)] * 10
        assert store.reads == 1

    on_cache(check)


def test_a_cancelled_reader_leaves_the_others_to_read() -> None:
    async def check(store: CountingStore, other: MemoryStore, cache: RecordCache[int]) -> None:
        await other.put("/c/a", b"1")
        store.hold = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            first = group.create_task(cache.get("/c/a"))
            second = group.create_task(cache.get("/c/a"))
            await _told()
            first.cancel()
            await _told()
            store.hold.set()
        assert second.result() == (1, 0)

    on_cache(check)


def test_after_a_lost_connection_nothing_old_is_believed() -> None:
    async def check(store: CountingStore, other: MemoryStore, cache: RecordCache[int]) -> None:
        await other.put("/c/a", b"1")
        await _told()
        assert await cache.get("/c/a") == (1, 0)
        store.disconnect()
        await _told()
        await other.put("/c/a", b"2")
        # During the outage the last known value is served; what is not known cannot be.
        assert await cache.get("/c/a") == (1, 0)
        with pytest.raises(MetadataError):
            await cache.get("/c/b")
        store.expire_session()
        store.reestablish_session()
        await _told()
        assert await cache.get("/c/a") == (2, 1)

    on_cache(check)


def test_the_cache_is_bounded_and_forgets_what_was_not_used() -> None:
    async def check(store: CountingStore, other: MemoryStore, cache: RecordCache[int]) -> None:
        for number in range(5):
            await cache.get(f"/c/{number}")
            await cache.get("/c/0")
        assert len(cache) == 3
        reads = store.reads
        await cache.get("/c/0")
        assert store.reads == reads
        await cache.get("/c/1")
        assert store.reads == reads + 1

    on_cache(check, MetadataSettings(cache_records_max=3))


def test_an_old_value_is_read_again_even_without_a_watch() -> None:
    async def check(store: CountingStore, other: MemoryStore, cache: RecordCache[int]) -> None:
        await cache.get("/c/a")
        await cache.get("/c/a")
        assert store.reads == 2

    on_cache(check, MetadataSettings(cache_expiry_ms=0))


@pytest.mark.feature("F-MD-05")
def test_two_updaters_at_once_keep_both_changes() -> None:
    async def check(store: CountingStore, other: MemoryStore, cache: RecordCache[int]) -> None:
        second = RecordCache(other, "/c", decode=int, encode=lambda value: b"%d" % value)

        async def add(target: RecordCache[int], step: int) -> None:
            for _ in range(20):
                await target.update("/c/sum", lambda value: (value or 0) + step)
                await asyncio.sleep(0)

        await asyncio.gather(add(cache, 1), add(second, 100), add(cache, 10_000))
        assert await cache.get("/c/sum") == (202_020, 59)
        second.close()

    on_cache(check)


def test_an_update_whose_answer_was_lost_is_not_applied_twice() -> None:
    async def check(store: CountingStore, other: MemoryStore, cache: RecordCache[int]) -> None:
        for expected in (1, 2):
            store.lose_answers = 1
            stored = await cache.update("/c/a", lambda value: (value or 0) + 1)
            assert stored.version == expected - 1
            assert await cache.get("/c/a") == (expected, expected - 1)

    on_cache(check)


def test_listeners_hear_which_record_changed() -> None:
    async def check(store: CountingStore, other: MemoryStore, cache: RecordCache[int]) -> None:
        heard: list[str] = []
        end = cache.on_changed(heard.append)
        await other.put("/c/a", b"1")
        await _told()
        assert "/c/a" in heard
        end()
        end()
        heard.clear()
        await other.put("/c/a", b"2")
        await _told()
        assert heard == []

    on_cache(check)
