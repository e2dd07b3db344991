# SPDX-License-Identifier: Apache-2.0
"""A process that stops does not wait for a metadata store that is away."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from magnetar.errors import MetadataError, OutcomeUnknown, StoreGivenUp
from magnetar.metadata import leaving
from magnetar.metadata.leaving import LeavingStore
from magnetar.metadata.memory import MemoryStore, MemoryTree
from magnetar.metadata.store import Record
from tests.unit.ledger.cluster import settle


class HangingStore(MemoryStore):
    """Asked while it hangs, it never answers, as a client of a server that is gone."""

    def __init__(self) -> None:
        super().__init__(MemoryTree())
        self.hangs = False

    async def get(self, path: str) -> Record | None:
        await self._answering()
        return await super().get(path)

    async def delete(self, path: str, *, expected_version: int | None = None) -> None:
        await self._answering()
        await super().delete(path, expected_version=expected_version)

    async def _answering(self) -> None:
        if self.hangs:
            await asyncio.Event().wait()

    def vanish(self) -> None:
        self.hangs = True
        self.disconnect()

    def come_back(self) -> None:
        self.hangs = False
        self.reconnect()


async def _asked(store: LeavingStore) -> tuple[asyncio.Task[Any], asyncio.Task[Any]]:
    asked = asyncio.create_task(store.get("/a")), asyncio.create_task(store.delete("/a"))
    await asyncio.sleep(0)
    return asked


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leaving, "PATIENCE_S", 0.0)


@pytest.mark.parametrize("leaves_first", [True, False])
def test_who_leaves_gives_up_what_a_store_that_is_away_does_not_answer(
    loop_run: Callable[[Any], Any], leaves_first: bool
) -> None:
    async def check() -> None:
        behind = HangingStore()
        store = LeavingStore(behind)
        await store.put("/a", b"1")
        if leaves_first:
            store.leave()
            behind.hangs = True
            reading, deleting = await _asked(store)
            behind.disconnect()
        else:
            behind.vanish()
            reading, deleting = await _asked(store)
            store.leave()
        with pytest.raises(MetadataError, match="No answer about /a"):
            await reading
        # Whether it was carried out nobody knows.
        with pytest.raises(OutcomeUnknown):
            await deleting
        with pytest.raises(StoreGivenUp, match="was not asked for"):
            await store.get("/a")
        await store.close()

    loop_run(check())


@pytest.mark.parametrize("leaves_first", [True, False])
def test_who_leaves_gives_up_a_store_that_is_connected_and_silent(
    loop_run: Callable[[Any], Any], leaves_first: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leaving, "SILENCE_S", 0.0)

    async def check() -> None:
        behind = HangingStore()
        store = LeavingStore(behind)
        behind.hangs = True
        if leaves_first:
            store.leave()
        reading, deleting = await _asked(store)
        if not leaves_first:
            await settle()
            assert not reading.done()
            store.leave()
        with pytest.raises(MetadataError, match="No answer about /a"):
            await reading
        with pytest.raises(OutcomeUnknown):
            await deleting
        with pytest.raises(StoreGivenUp, match="was not asked for"):
            await store.get("/a")
        # One that is found again is asked again.
        behind.hangs = False
        behind.disconnect()
        behind.reconnect()
        await settle()
        assert await store.children("/") == []
        await store.close()

    loop_run(check())


def test_who_stays_waits_and_so_does_who_leaves_while_the_store_answers(loop_run: Callable[[Any], Any]) -> None:
    async def check() -> None:
        behind = HangingStore()
        store = LeavingStore(behind)
        await store.put("/a", b"1")
        behind.vanish()
        reading, deleting = await _asked(store)
        await settle()
        assert not reading.done()
        assert not deleting.done()
        reading.cancel()
        deleting.cancel()
        behind.come_back()
        await settle()
        store.leave()
        found = await store.get("/a")
        assert found is not None
        assert await store.children("/") == ["a"]
        await store.delete("/a")
        await store.close()

    loop_run(check())
