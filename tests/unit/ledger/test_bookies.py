# SPDX-License-Identifier: Apache-2.0
"""The watched list of bookies and their addresses."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from magnetar.errors import BookieUnavailable
from magnetar.ledger.bookies import Address, Bookies
from magnetar.ledger.paths import AVAILABLE, READONLY
from magnetar.metadata.memory import MemoryTree
from magnetar.runtime.tasks import Tasks
from magnetar.wire.proto.ledger_formats_pb2 import BookieServiceInfoFormat
from tests.unit.ledger.cluster import settle
from tests.unit.ledger.faulty_store import FaultyStore


@pytest.mark.feature("F-BKC-28")
def test_bookies_that_come_and_go_are_noticed() -> None:
    async def scenario() -> None:
        tree = MemoryTree()
        theirs, ours = tree.open_session(), tree.open_session()
        tasks = Tasks("test", lambda name, error: None)
        await theirs.put("/ledgers/available/b1:3181", b"", ephemeral=True)
        bookies = await Bookies.open(ours, tasks)
        assert list(bookies.writable) == ["b1:3181"]
        changed = asyncio.Event()
        end = bookies.listen(changed.set)

        async def next_change() -> None:
            async with asyncio.timeout(10):
                await changed.wait()
            changed.clear()

        await theirs.put("/ledgers/available/b2:3181", b"", ephemeral=True)
        await next_change()
        assert list(bookies.writable) == ["b1:3181", "b2:3181"]
        await theirs.put("/ledgers/available/readonly/b1:3181", b"", ephemeral=True)
        await next_change()
        assert (bookies.writable, bookies.read_only) == (("b2:3181",), ("b1:3181",))
        await theirs.close()
        while bookies.writable or bookies.read_only:
            await next_change()
        end()
        bookies.close()
        await tasks.close()

    asyncio.run(scenario())


def test_an_address_is_registered_or_is_the_id_itself() -> None:
    async def scenario() -> None:
        store = MemoryTree().open_session()
        info = BookieServiceInfoFormat()
        info.endpoints.add(id="httpserver", host="h", port=8000, protocol="http")
        info.endpoints.add(id="bookie", host="10.0.0.7", port=3181, protocol="bookie-rpc")
        await store.put("/ledgers/available/readonly/named", info.SerializeToString(), ephemeral=True)
        await store.put("/ledgers/available/old:3181", b"", ephemeral=True)
        tasks = Tasks("test", lambda name, error: None)
        bookies = await Bookies.open(store, tasks)
        assert await bookies.address("named") == Address("10.0.0.7", 3181)
        assert await bookies.address("old:3181") == Address("old", 3181)
        with pytest.raises(BookieUnavailable):
            await bookies.address("unheard-of")
        bookies.close()
        await tasks.close()

    asyncio.run(scenario())


class BetweenLists(FaultyStore):
    """Something happens right after each list was read."""

    happens: Callable[[str], Awaitable[None]] | None = None

    async def children(self, path: str) -> list[str]:
        names = await super().children(path)
        if self.happens is not None:
            await self.happens(path)
        return names


@pytest.mark.parametrize("is_writable", [True, False], ids=["becomes read-only", "becomes writable"])
def test_a_bookie_that_moves_from_one_list_to_the_other_is_never_lost(is_writable: bool) -> None:
    """F115: two lists are read one after the other, and it may be in neither at the time."""

    async def scenario() -> None:
        tree = MemoryTree()
        theirs, store = tree.open_session(), BetweenLists(tree.open_session())
        before, after = AVAILABLE, READONLY
        if not is_writable:
            before, after = after, before
        await theirs.put(f"{before}/b1:3181", b"", ephemeral=True)
        await theirs.put(f"{AVAILABLE}/b2:3181", b"", ephemeral=True)
        tasks = Tasks("test", lambda name, error: None)
        bookies = await Bookies.open(store, tasks)
        seen: list[tuple[str, ...]] = []
        bookies.listen(lambda: seen.append(tuple(sorted((*bookies.writable, *bookies.read_only)))))

        async def move(path: str) -> None:
            if path == AVAILABLE:
                store.happens = None
                await theirs.put(f"{after}/b1:3181", b"", ephemeral=True)
                await theirs.delete(f"{before}/b1:3181")

        store.happens = move
        await bookies.look()
        assert seen == [("b1:3181", "b2:3181")]
        await bookies.look()
        assert "b1:3181" in (bookies.read_only if is_writable else bookies.writable)
        assert {*seen} == {("b1:3181", "b2:3181")}
        bookies.close()
        await tasks.close()

    asyncio.run(scenario())


def test_a_slow_look_does_not_put_back_what_a_later_one_has_found() -> None:
    """F115: two looks at the same time."""

    async def scenario() -> None:
        tree = MemoryTree()
        theirs, store = tree.open_session(), BetweenLists(tree.open_session())
        await theirs.put(f"{AVAILABLE}/b1:3181", b"", ephemeral=True)
        tasks = Tasks("test", lambda name, error: None)
        bookies = await Bookies.open(store, tasks)
        read, go_on = asyncio.Event(), asyncio.Event()

        async def stand_still(path: str) -> None:
            store.happens = None
            read.set()
            await go_on.wait()

        store.happens = stand_still
        async with asyncio.TaskGroup() as group:
            group.create_task(bookies.look())
            await read.wait()
            await theirs.close()
            group.create_task(bookies.look())
            await settle()
            go_on.set()
        assert bookies.writable == ()
        bookies.close()
        await tasks.close()

    asyncio.run(scenario())
