# SPDX-License-Identifier: Apache-2.0
"""The watched list of bookies and their addresses."""

import asyncio

import pytest

from magnetar.errors import BookieUnavailable
from magnetar.ledger.bookies import Address, Bookies
from magnetar.metadata.memory import MemoryTree
from magnetar.runtime.tasks import Tasks
from magnetar.wire.proto.ledger_formats_pb2 import BookieServiceInfoFormat


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
