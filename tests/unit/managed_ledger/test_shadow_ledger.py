# SPDX-License-Identifier: Apache-2.0
"""A log that shows another one's entries: all of them, only confirmed ones, and without a trace in the other log."""

import asyncio
from collections.abc import Callable
from typing import cast

import pytest

from magnetar.errors import MagnetarError, NotSupported
from magnetar.ids import Position
from magnetar.managed_ledger.shadow_ledger import ShadowLedger
from tests.conftest import RunOnLoop
from tests.unit.managed_ledger.owners import NAME, Owner, World, read_all

SHADOW = "public/default/persistent/shadow"


class Watcher:
    def __init__(self) -> None:
        self.last = Position(-1, -1)
        self.failures: list[MagnetarError] = []
        self._told = asyncio.Event()

    def on_persisted(self, ledger_id: int, first_entry: int, last_entry: int) -> None:
        assert Position(ledger_id, last_entry) > self.last, "the end of the other log only moves on"
        self.last = Position(ledger_id, last_entry)
        self._told.set()

    def on_append_failed(self, count: int, error: MagnetarError) -> None:
        self.failures.append(error)
        self._told.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(20):
            while not condition():
                self._told.clear()
                await self._told.wait()


async def follow(owner: Owner) -> tuple[ShadowLedger, Watcher]:
    watcher = Watcher()
    return cast("ShadowLedger", await owner.logs.open(SHADOW, watcher, source=NAME)), watcher


async def publish(owner: Owner, count: int, prefix: str) -> Position:
    owner.publisher.append_many(count, prefix)
    await owner.publisher.rest()
    return owner.publisher.ledger.last_confirmed


@pytest.mark.feature("B-15", "F-DISP-17")
def test_a_shadow_follows_through_rollovers_and_owners(loop_run: RunOnLoop) -> None:
    async def scenario() -> None:
        world = World(bookies=3, ledger_entries_max=4, confirmed_told_interval_ms=1)
        first, elsewhere = world.owner(), world.owner()
        await first.open()
        shadow, watcher = await follow(elsewhere)
        assert await read_all(shadow) == {}
        end = await publish(first, 11, "a")
        await watcher.until(lambda: watcher.last == end)
        assert list((await read_all(shadow)).values()) == [b"a-%d" % index for index in range(11)]
        assert not first.publisher.failures, "following fences nobody"
        cursor = await shadow.open_cursor("sub", initial="earliest")
        await first.die()
        second = world.owner()
        source = await second.open()
        end = await publish(second, 6, "b")
        await watcher.until(lambda: watcher.last == end)
        assert await read_all(shadow) == await read_all(source)
        shadow.ledgers.check()
        assert cursor.backlog_entries() == 17
        await elsewhere.close()
        assert not watcher.failures
        await second.close()
        world.check()

    loop_run(scenario())


@pytest.mark.feature("B-15")
def test_cursors_of_a_shadow_come_back_and_nothing_of_the_other_log_changes(loop_run: RunOnLoop) -> None:
    async def scenario() -> None:
        world = World(confirmed_told_interval_ms=1)
        owner, elsewhere = world.owner(), world.owner()
        source = await owner.open()
        end = await publish(owner, 10, "a")
        written = await owner.store.get(f"/managed-ledgers/{NAME}")
        shadow, watcher = await follow(elsewhere)
        cursor = await shadow.open_cursor("sub", initial="earliest")
        await watcher.until(lambda: shadow.last_confirmed == end)
        positions = list(await read_all(shadow))
        cursor.ack_cumulative(positions[5])
        cursor.ack(positions[7])
        assert await shadow.trim() == 0
        await shadow.set_properties({"PULSAR.SHADOW_SOURCE": "the source"})
        await elsewhere.close()
        again = world.owner()
        shadow, watcher = await follow(again)
        await watcher.until(lambda: shadow.last_confirmed == end)
        cursor = shadow.cursors["sub"]
        assert (cursor.mark_delete, cursor.is_acked(positions[7]), cursor.backlog_entries()) == (positions[5], True, 3)
        assert shadow.properties == {"PULSAR.SHADOW_SOURCE": "the source"}
        ledgers = [span.ledger_id for span in source.ledgers]
        await shadow.delete()
        assert await world.existing_ledgers() >= set(ledgers)
        assert list(await read_all(source)) == positions
        assert await owner.store.get(f"/managed-ledgers/{NAME}") == written
        assert list(source.cursors) == []
        await again.close()
        await owner.close()
        world.check()

    loop_run(scenario())


@pytest.mark.feature("B-15")
def test_what_the_other_log_trims_is_gone_from_the_shadow(loop_run: RunOnLoop) -> None:
    async def scenario() -> None:
        world = World(ledger_entries_max=4, confirmed_told_interval_ms=1, retention_ms=0, retention_bytes=0)
        owner, elsewhere = world.owner(), world.owner()
        source = await owner.open()
        keeper = await source.open_cursor("keeper", initial="earliest")
        await publish(owner, 5, "a")
        await publish(owner, 5, "c")
        shadow, watcher = await follow(elsewhere)
        cursor = await shadow.open_cursor("sub", initial="earliest")
        first = source.ledgers.first
        keeper.ack_cumulative(Position(first.ledger_id, first.entries - 1))
        await keeper.flush()
        await source.trim()
        end = await publish(owner, 4, "b")
        await watcher.until(lambda: watcher.last == end)
        assert await read_all(shadow) == await read_all(source)
        assert first.ledger_id not in source.ledgers
        assert cursor.backlog_entries() == source.entries
        shadow.ledgers.check()
        await elsewhere.close()
        await owner.close()
        world.check()

    loop_run(scenario())


@pytest.mark.feature("B-15")
def test_a_shadow_takes_nothing_and_is_told_ahead(loop_run: RunOnLoop) -> None:
    """Without anybody to tell it the last entry stays hidden until the next; a replicator's word shows it at once."""

    async def scenario() -> None:
        world = World()
        owner, elsewhere = world.owner(), world.owner()
        missing, _ = await follow(elsewhere)
        assert await read_all(missing) == {}, "a source that does not exist has no entries"
        await missing.close()
        await owner.open()
        end = await publish(owner, 3, "a")
        shadow, watcher = await follow(elsewhere)
        assert shadow.last_confirmed < end
        shadow.on_told(end)
        assert watcher.last == shadow.last_confirmed == end
        assert list((await read_all(shadow)).values()) == [b"a-0", b"a-1", b"a-2"]
        with pytest.raises(NotSupported):
            shadow.append((b"no",))
        for refused in (shadow.terminate, shadow.truncate):
            with pytest.raises(NotSupported):
                await refused()
        await owner.publisher.ledger.terminate()
        async with asyncio.timeout(20):
            while not shadow.is_terminated:  # noqa: ASYNC110 - told by a watch, a few turns later
                await asyncio.sleep(0.001)
        await elsewhere.close()
        await owner.close()
        world.check()

    loop_run(scenario())
