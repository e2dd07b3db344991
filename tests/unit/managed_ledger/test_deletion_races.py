# SPDX-License-Identifier: Apache-2.0
"""An owner that stands still while it deletes a log, and goes on when another has finished that and begun anew; owners
whose store lists cursors that are not all of them.

Carries.
"""

import asyncio

import pytest

from magnetar.errors import HasChildren, MagnetarError, TopicNotFound
from magnetar.managed_ledger.catalog import ROOT
from magnetar.metadata.store import MetadataStore, Record, Stored
from tests.unit.ledger.faulty_store import FaultyStore
from tests.unit.managed_ledger.owners import NAME, Owner, World, read_all
from tests.unit.metadata.lagging_store import LaggingStore


class HaltingStore(FaultyStore):
    """Stands still before the call of a number; counts from when it is told to."""

    def __init__(self, inner: MetadataStore) -> None:
        super().__init__(inner)
        self.calls_left: int | None = None
        self.halted = asyncio.Event()
        self.go_on = asyncio.Event()

    async def _turn(self) -> None:
        if self.calls_left is None:
            return
        self.calls_left -= 1
        if self.calls_left == 0:
            self.halted.set()
            await self.go_on.wait()

    async def get(self, path: str) -> Record | None:
        await self._turn()
        return await super().get(path)

    async def put(
        self,
        path: str,
        value: bytes,
        *,
        expected_version: int | None = None,
        ephemeral: bool = False,
        sequential: bool = False,
    ) -> Stored:
        await self._turn()
        return await super().put(
            path, value, expected_version=expected_version, ephemeral=ephemeral, sequential=sequential
        )

    async def delete(self, path: str, *, expected_version: int | None = None) -> None:
        await self._turn()
        await super().delete(path, expected_version=expected_version)

    async def children(self, path: str) -> list[str]:
        await self._turn()
        return await super().children(path)


async def halted_deletion(call: int) -> bool:
    """Another owner makes the log and its cursors anew meanwhile; False when the deletion ended before that call."""
    world = World(ledger_entries_max=5)
    paused = Owner(world, "paused", world.settings, store=HaltingStore(world.owner().store.inner))
    store = paused.store
    assert isinstance(store, HaltingStore)
    ledger = await paused.open()
    for name in ("first", "second"):
        cursor = await ledger.open_cursor(name, initial="earliest")
        # Some versions on, so that no record that is made anew has the same.
        for index in range(9):
            await cursor.set_user_properties({"index": str(index)})
            await ledger.set_properties({"index": str(index), "cursor": name})
    store.calls_left = call
    deleting = asyncio.create_task(ledger.delete())
    halting = asyncio.create_task(store.halted.wait())
    await asyncio.wait((deleting, halting), return_when=asyncio.FIRST_COMPLETED)
    is_halted = store.halted.is_set()
    halting.cancel()
    next_one = world.owner()
    ledger = await next_one.open()
    for name in ("first", "second"):
        if name not in ledger.cursors:
            await ledger.open_cursor(name, initial="earliest")
    next_one.publisher.append_many(3)
    await next_one.publisher.rest()
    store.go_on.set()
    try:
        await deleting
    except MagnetarError:
        assert is_halted
    await next_one.die()
    heir = world.owner()
    ledger = await heir.open(create=False)
    assert sorted(ledger.cursors) == ["first", "second"], f"halted before call {call}"
    await heir.close()
    await paused.die()
    return is_halted


@pytest.mark.feature("F-ML-16")
def test_who_stands_still_in_a_deletion_deletes_nothing_that_was_made_after_it() -> None:
    """F155: halted before each of its calls, while another makes the topic anew."""

    async def scenario() -> None:
        call = 1
        while await halted_deletion(call):
            call += 1
        assert call > 8

    asyncio.run(scenario())


class PartialList(FaultyStore):
    """Lists the records below a path without the last of them, once."""

    lacks_at: str | None = None

    async def children(self, path: str) -> list[str]:
        names = await super().children(path)
        if path == self.lacks_at:
            self.lacks_at = None
            return names[:-1]
        return names


def test_a_log_whose_list_of_cursors_lacked_one_is_not_gone_before_that_one_is() -> None:
    """F115: nothing of it is left behind that nobody knows of."""

    async def scenario() -> None:
        world = World()
        store = PartialList(world.cluster.tree.open_session())
        owner = Owner(world, "owner", world.settings, store=store)
        ledger = await owner.open()
        owner.publisher.append_many(3)
        await owner.publisher.rest()
        for name in ("first", "second"):
            await (await ledger.open_cursor(name, initial="earliest")).set_user_properties({"a": "b"})
        store.lacks_at = f"{ROOT}/{NAME}"
        with pytest.raises(HasChildren):
            await ledger.delete()
        await owner.die()
        heir = world.owner()
        with pytest.raises(TopicNotFound):
            await heir.open(create=False)
        assert await heir.store.get(f"{ROOT}/{NAME}") is None
        assert await world.existing_ledgers() == set()
        await heir.close()

    asyncio.run(scenario())


def test_an_owner_at_a_server_that_is_behind_finds_every_cursor() -> None:
    """F115: without the one that was made since, the ledgers that only it needs would be trimmed."""

    async def scenario() -> None:
        world = World(ledger_entries_max=5, retention_ms=0, retention_bytes=0)
        late = LaggingStore(world.cluster.tree, lists_lag=True)
        first = world.owner()
        ledger = await first.open()
        late.fall_behind()
        await ledger.open_cursor("since", initial="earliest")
        bodies = first.publisher.append_many(12)
        await first.publisher.rest()
        await first.die()
        heir = Owner(world, "heir", world.settings, store=FaultyStore(late))
        ledger = await heir.open(create=False)
        assert list(ledger.cursors) == ["since"]
        await ledger.trim()
        assert list((await read_all(ledger)).values()) == bodies
        await heir.close()

    asyncio.run(scenario())
