# SPDX-License-Identifier: Apache-2.0
"""Durable cursors: what is saved comes back, also after kill -9, from a ledger or the record, with any number of holes.

Carries.
"""

import asyncio

import pytest

from magnetar.errors import BadPosition, LedgerFenced, PersistenceFailed, ServiceNotReady, SubscriptionNotFound
from magnetar.ids import EARLIEST, LATEST, Position
from magnetar.managed_ledger.cursor import Cursor
from magnetar.managed_ledger.cursor_record import CursorRecord
from magnetar.metadata.store import MetadataStore, Stored
from magnetar.wire.bookkeeper.codes import ReturnCode
from tests.conftest import RunOnLoop
from tests.unit.ledger.cluster import settle
from tests.unit.ledger.faulty_store import FaultyStore
from tests.unit.managed_ledger.owners import NAME, Owner, World


async def publish(owner: Owner, count: int) -> list[Position]:
    owner.publisher.append_many(count)
    await owner.publisher.rest()
    return sorted(owner.publisher.persisted)


async def stored(world: World, name: str) -> CursorRecord:
    found = await world.cluster.tree.open_session().get(f"/managed-ledgers/{NAME}/{name}")
    assert found is not None
    return CursorRecord.decode(found.value)


def holes(cursor: Cursor) -> list[tuple[int, int, int]]:
    return [tuple(run) for run in cursor.state.acked.runs()]  # type: ignore[misc]


@pytest.mark.feature("F-CUR-01", "F-CUR-03", "F-CUR-10")
@pytest.mark.parametrize(("clean", "parts"), [(True, False), (True, True), (False, True)])
def test_acks_that_were_saved_come_back(loop_run: RunOnLoop, clean: bool, parts: bool) -> None:
    """From the record after a clean end; parts of batches always from a ledger, where other brokers look for them."""

    async def scenario() -> None:
        world = World()
        owner = world.owner()
        ledger = await owner.open()
        cursor = await ledger.open_cursor("sub", initial="earliest", properties={"team": "blue"})
        positions = await publish(owner, 20)
        cursor.ack_cumulative(positions[3])
        for index in (6, 7, 12):
            cursor.ack(positions[index])
        if parts:
            cursor.ack(positions[9], [0b1010])
        await cursor.set_properties({"sequence": 41})
        assert cursor.saved_mark_delete == positions[3]
        await (owner.close() if clean else owner.die())
        record = await stored(world, "sub")
        assert (record.ledger_id == -1) == (clean and not parts)
        again = world.owner()
        ledger = await again.open()
        cursor = ledger.cursors["sub"]
        assert cursor.mark_delete == positions[3]
        assert cursor.read_position == positions[4]
        assert holes(cursor) == [(positions[6].ledger_id, 6, 7), (positions[6].ledger_id, 12, 12)]
        assert cursor.batch_words(positions[9]) == ([0b1010] if parts else [])
        assert cursor.properties == {"sequence": 41}
        assert cursor.user_properties == {"team": "blue"}
        assert cursor.backlog_entries() == 20 - 4 - 3
        await again.close()
        world.check()

    loop_run(scenario())


@pytest.mark.feature("F-CUR-10", "F-CUR-15", "D-17")
def test_many_acks_cost_few_saves_and_no_metadata_writes(loop_run: RunOnLoop) -> None:
    async def scenario() -> None:
        world = World(cursor_flush_interval_ms=60_000)
        owner = world.owner()
        ledger = await owner.open()
        cursor = await ledger.open_cursor("sub", initial="earliest")
        positions = await publish(owner, 500)
        cursor.ack(positions[0])
        await cursor.flush()
        calls, adds = len(owner.store.calls), world.cluster.bookies["b1"].adds
        for position in positions[1:]:
            cursor.ack(position)
            await asyncio.sleep(0)
        assert len(owner.store.calls) == calls
        assert world.cluster.bookies["b1"].adds == adds
        await cursor.flush()
        assert world.cluster.bookies["b1"].adds == adds + 1
        assert len(owner.store.calls) == calls
        assert cursor.saved_mark_delete == positions[-1]
        await cursor.flush()
        assert world.cluster.bookies["b1"].adds == adds + 1
        await owner.close()
        world.check()

    loop_run(scenario())


def test_an_ack_is_saved_without_being_asked(loop_run: RunOnLoop) -> None:
    async def scenario() -> None:
        world = World()
        owner = world.owner()
        ledger = await owner.open()
        cursor = await ledger.open_cursor("sub", initial="earliest")
        (position,) = await publish(owner, 1)
        cursor.ack(position)
        bookie = world.cluster.bookies["b1"]
        saved = asyncio.Event()
        bookie.on_request = lambda client, kind: saved.set() if kind == "add" else None
        async with asyncio.timeout(20):
            await saved.wait()
            await cursor.flush()
        await owner.die()
        again = world.owner()
        ledger = await again.open()
        assert ledger.cursors["sub"].mark_delete == position
        await again.close()
        world.check()

    loop_run(scenario())


class SilentStore(FaultyStore):
    """Carries out what it is asked to write, and does not answer until it is told to."""

    def __init__(self, inner: MetadataStore) -> None:
        super().__init__(inner)
        self.answers = asyncio.Event()
        self.answers.set()

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
        await self.answers.wait()
        return stored


def test_a_store_that_falls_silent_delays_a_save_and_costs_no_ownership(loop_run: RunOnLoop) -> None:
    async def scenario() -> None:
        world = World(append_timeout_ms=50, cursor_flush_interval_ms=60_000)
        store = SilentStore(world.cluster.tree.open_session())
        owner = Owner(world, "patient", world.settings, store=store)
        ledger = await owner.open()
        cursor = await ledger.open_cursor("sub", initial="earliest")
        positions = await publish(owner, 5)
        cursor.ack(positions[0])
        store.answers.clear()
        with pytest.raises(PersistenceFailed):
            await cursor.flush()
        assert cursor.saved_mark_delete < positions[0]
        store.answers.set()
        cursor.ack(positions[1])
        await cursor.flush()
        assert cursor.saved_mark_delete == positions[1]
        assert not owner.publisher.failures
        await owner.die()
        again = world.owner()
        ledger = await again.open()
        assert ledger.cursors["sub"].mark_delete == positions[1]
        await again.close()
        world.check()

    loop_run(scenario())


def test_an_idle_log_is_opened_and_closed_with_one_write_per_record(loop_run: RunOnLoop) -> None:
    """Taking over is one write each; closing what did not change is none."""

    async def scenario() -> None:
        world = World()
        owner = world.owner()
        ledger = await owner.open()
        cursor = await ledger.open_cursor("sub", initial="earliest")
        positions = await publish(owner, 5)
        cursor.ack(positions[2])
        await owner.close()
        again = world.owner()
        await again.open()
        await again.close()
        writes = [path for operation, path in again.store.calls if operation != "get" and operation != "children"]
        assert sorted(writes) == [f"/managed-ledgers/{NAME}", f"/managed-ledgers/{NAME}/sub"]
        heir = world.owner()
        assert (await heir.open()).cursors["sub"].is_acked(positions[2])
        await heir.close()
        world.check()

    loop_run(scenario())


@pytest.mark.feature("F-CUR-12")
def test_a_full_cursor_ledger_is_replaced_and_deleted(loop_run: RunOnLoop) -> None:
    async def scenario() -> None:
        world = World(cursor_ledger_entries_max=3)
        owner = world.owner()
        ledger = await owner.open()
        cursor = await ledger.open_cursor("sub", initial="earliest")
        positions = await publish(owner, 10)
        used = set()
        for position in positions:
            cursor.ack(position)
            await cursor.flush()
            used.add((await stored(world, "sub")).ledger_id)
        assert len(used) == 4
        existing = await world.existing_ledgers()
        assert existing & used == {(await stored(world, "sub")).ledger_id}
        await owner.die()
        again = world.owner()
        ledger = await again.open()
        assert ledger.cursors["sub"].mark_delete == positions[-1]
        await again.close()
        world.check()

    loop_run(scenario())


@pytest.mark.feature("F-CUR-11", "D-17")
def test_when_no_ledger_can_be_written_the_record_takes_the_state(loop_run: RunOnLoop) -> None:
    async def scenario() -> None:
        world = World(append_timeout_ms=200)
        owner = world.owner()
        ledger = await owner.open()
        cursor = await ledger.open_cursor("sub", initial="earliest")
        positions = await publish(owner, 10)
        cursor.ack(positions[0])
        await cursor.flush()
        assert (await stored(world, "sub")).ledger_id >= 0
        bookie = world.cluster.bookies["b1"]
        bookie.refuse_add = lambda ledger_id, entry_id, recovery: int(ReturnCode.IO_ERROR)
        cursor.ack(positions[1])
        cursor.ack(positions[5])
        await cursor.flush()
        record = await stored(world, "sub")
        assert record.ledger_id == -1
        assert record.mark_delete == positions[1]
        bookie.refuse_add = lambda ledger_id, entry_id, recovery: None
        cursor.ack(positions[2])
        await cursor.flush()
        assert (await stored(world, "sub")).ledger_id >= 0
        await owner.die()
        again = world.owner()
        ledger = await again.open()
        assert ledger.cursors["sub"].mark_delete == positions[2]
        assert ledger.cursors["sub"].is_acked(positions[5])
        await again.close()
        world.check()

    loop_run(scenario())


@pytest.mark.feature("F-CUR-08", "F-CUR-14")
def test_a_reset_that_returned_survives_a_crash(loop_run: RunOnLoop) -> None:
    async def scenario() -> None:
        world = World(ledger_entries_max=5, retention_ms=0, retention_bytes=0)
        owner = world.owner()
        ledger = await owner.open()
        cursor = await ledger.open_cursor("sub", initial="earliest")
        positions = await publish(owner, 12)
        cursor.ack_cumulative(positions[2])
        cursor.ack(positions[7])
        saving = asyncio.ensure_future(cursor.flush())
        cursor.ack_cumulative(positions[8])
        resetting = asyncio.ensure_future(cursor.reset(positions[1]))
        await asyncio.gather(saving, resetting)
        assert cursor.read_position == positions[1]
        assert cursor.saved_mark_delete == positions[0]
        await ledger.trim()
        await owner.die()
        again = world.owner()
        ledger = await again.open()
        assert ledger.cursors["sub"].read_position == positions[1]
        assert ledger.cursors["sub"].backlog_entries() == 11
        await again.close()
        world.check()

    loop_run(scenario())


@pytest.mark.feature("F-CUR-07", "B-25")
def test_more_holes_than_fit_an_entry_or_the_record_survive_close_and_crash(loop_run: RunOnLoop) -> None:
    async def scenario() -> None:
        world = World(cursor_entry_bytes_max=150, cursor_record_bytes_max=1_000)
        owner = world.owner()
        ledger = await owner.open()
        cursor = await ledger.open_cursor("sub", initial="earliest")
        positions = await publish(owner, 2_000)
        for index in range(1, 2_000, 2):
            cursor.ack(positions[index])
        await cursor.flush()
        assert cursor.store is not None
        assert cursor.store.last_entry > 3
        await owner.die()
        closer = world.owner()
        cursor = (await closer.open()).cursors["sub"]
        assert cursor.state.acked.count == 1_000
        assert cursor.backlog_entries() == 1_000
        assert not cursor.is_acked(positions[4])
        assert cursor.is_acked(positions[5])
        cursor.ack(positions[0])
        await closer.close()
        assert (await stored(world, "sub")).ledger_id >= 0, "too much for the record"
        heir = world.owner()
        cursor = (await heir.open()).cursors["sub"]
        assert cursor.mark_delete == positions[1]
        assert cursor.backlog_entries() == 999
        cursor.state.check()
        await heir.close()
        world.check()

    loop_run(scenario())


def test_a_state_cut_off_by_a_crash_gives_way_to_the_one_before(loop_run: RunOnLoop) -> None:
    async def scenario() -> None:
        world = World(cursor_entry_bytes_max=60, cursor_record_bytes_max=0)
        owner = world.owner()
        ledger = await owner.open()
        cursor = await ledger.open_cursor("sub", initial="earliest")
        positions = await publish(owner, 1_000)
        cursor.ack(positions[0])
        await cursor.flush()
        cursor_ledger = (await stored(world, "sub")).ledger_id
        bookie = world.cluster.bookies["b1"]
        # The second state is many entries; the bookie takes three of them.
        bookie.refuse_add = lambda ledger_id, entry_id, recovery: (
            int(ReturnCode.IO_ERROR) if ledger_id == cursor_ledger and entry_id > 3 and not recovery else None
        )
        for index in range(2, 1_000, 2):
            cursor.ack(positions[index])
        saving = asyncio.ensure_future(cursor.flush())
        await settle()
        await owner.die()
        saving.cancel()
        await asyncio.gather(saving, return_exceptions=True)
        again = world.owner()
        ledger = await again.open()
        cursor = ledger.cursors["sub"]
        assert cursor.mark_delete == positions[0]
        assert cursor.state.acked.count in (0, 499)
        await again.close()
        world.check()

    loop_run(scenario())


@pytest.mark.feature("F-CUR-16")
def test_a_non_durable_cursor_leaves_nothing_behind(loop_run: RunOnLoop) -> None:
    async def scenario() -> None:
        world = World()
        owner = world.owner()
        ledger = await owner.open()
        positions = await publish(owner, 5)
        reader = ledger.new_non_durable_cursor("reader", positions[2])
        assert not reader.is_durable
        assert reader.read_position == positions[2]
        reader.ack_cumulative(positions[3])
        assert reader.backlog_entries() == 1
        await reader.flush()
        assert not ledger.cursors
        latest = ledger.new_non_durable_cursor("tail", LATEST)
        assert latest.backlog_entries() == 0
        await reader.close()
        await owner.close()
        again = world.owner()
        assert not (await again.open()).cursors
        await again.close()
        world.check()

    loop_run(scenario())


def test_a_deleted_cursor_is_gone_with_its_ledger_and_can_be_made_anew(loop_run: RunOnLoop) -> None:
    async def scenario() -> None:
        world = World()
        owner = world.owner()
        ledger = await owner.open()
        cursor = await ledger.open_cursor("a/b c", initial="earliest")
        positions = await publish(owner, 5)
        cursor.ack_cumulative(positions[4])
        await cursor.flush()
        data = {span.ledger_id for span in ledger.ledgers}
        assert len(await world.existing_ledgers()) == len(data) + 1
        await ledger.delete_cursor("a/b c")
        assert await world.existing_ledgers() == data
        with pytest.raises(SubscriptionNotFound):
            await ledger.delete_cursor("a/b c")
        cursor = await ledger.open_cursor("a/b c", initial="earliest")
        assert cursor.backlog_entries() == 5
        assert await ledger.open_cursor("a/b c", initial="latest") is cursor
        await owner.close()
        world.check()

    loop_run(scenario())


def test_a_cursor_whose_record_has_another_owner_is_fenced(loop_run: RunOnLoop) -> None:
    async def scenario() -> None:
        world = World()
        old = world.owner()
        ledger = await old.open()
        cursor = await ledger.open_cursor("sub", initial="earliest")
        positions = await publish(old, 5)
        cursor.ack(positions[0])
        await cursor.flush()
        new = world.owner()
        new_ledger = await new.open()
        cursor.ack(positions[1])
        with pytest.raises(LedgerFenced):
            await cursor.flush()
        assert isinstance(old.publisher.failures[0], LedgerFenced)
        assert new_ledger.cursors["sub"].mark_delete == positions[0]
        new_ledger.cursors["sub"].ack(positions[3])
        await new_ledger.cursors["sub"].flush()
        await new.close()
        await old.die()
        world.check()

    loop_run(scenario())


@pytest.mark.parametrize("ending", ["fenced", "closed"])
def test_a_reset_that_cannot_be_saved_any_more_says_so(loop_run: RunOnLoop, ending: str) -> None:
    """Whoever was told that the cursor stands at a place finds it there, whoever owns the log."""

    async def scenario() -> None:
        world = World()
        owner = world.owner()
        ledger = await owner.open()
        cursor = await ledger.open_cursor("sub", initial="earliest")
        positions = await publish(owner, 5)
        await cursor.reset(positions[3])
        if ending == "closed":
            await cursor.close()
            await cursor.flush()
        else:
            heir = world.owner()
            await heir.open()
            with pytest.raises(LedgerFenced):
                await cursor.reset(positions[2])
            await heir.die()
        with pytest.raises(ServiceNotReady, match="not saved"):
            await cursor.reset(positions[1])
        await owner.die()
        again = world.owner()
        found = (await again.open()).cursors["sub"]
        assert found.read_position == positions[3]
        await again.close()

    loop_run(scenario())


def test_a_mark_delete_in_a_ledger_that_is_gone_is_read_as_the_next_one(loop_run: RunOnLoop) -> None:
    """An empty ledger disappears when the log is opened anew; a cursor that stood before it keeps its place."""

    async def scenario() -> None:
        world = World()
        owner = world.owner()
        ledger = await owner.open()
        cursor = await ledger.open_cursor("sub", initial="latest")
        assert cursor.mark_delete == ledger.last_confirmed
        await owner.die()
        again = world.owner()
        ledger = await again.open()
        cursor = ledger.cursors["sub"]
        assert cursor.mark_delete.ledger_id in ledger.ledgers
        positions = await publish(again, 3)
        assert cursor.backlog_entries() == 3
        assert cursor.next_unacked(EARLIEST) == positions[0]
        with pytest.raises(BadPosition):
            cursor.ack(Position(positions[2].ledger_id, 3))
        await again.close()
        world.check()

    loop_run(scenario())
