# SPDX-License-Identifier: Apache-2.0
"""Lost copies restored: election, marks, locks, workers, decommission; and what happens when any of them fails."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from unittest.mock import patch

import pytest

from magnetar.config.ledger import RepairSettings
from magnetar.errors import LedgerFenced, NotEnoughBookies, Refused
from magnetar.ledger.auditor_election import AuditorElection, current_auditor
from magnetar.ledger.auto_recovery import AutoRecovery
from magnetar.ledger.bookies import Bookies
from magnetar.ledger.catalog import LedgerCatalog
from magnetar.ledger.paths import AUDITOR_ELECTION, BOOTS, COOKIES, repair_lock_path
from magnetar.ledger.record import LedgerRecord
from magnetar.ledger.writer import LedgerWriter
from magnetar.metadata.memory import MemoryStore
from magnetar.runtime.clock import WallClock
from magnetar.wire.bookkeeper.codes import ReturnCode
from tests.unit.ledger.cluster import Cluster, Confirmations, ModelClient, bodies, settle
from tests.unit.ledger.faulty_store import FaultOnce, FaultyStore


class HandClock(WallClock):
    """Time passes when a test says so."""

    def __init__(self) -> None:
        self.ms = 1_700_000_000_000

    def now_ms(self) -> int:
        return self.ms


class RepairWorld(Cluster):
    """A cluster whose bookies are registered, with sessions that can be ended one by one."""

    def __init__(self, bookies: int) -> None:
        super().__init__(bookies)
        self.clock = HandClock()
        self.sessions: dict[str, MemoryStore] = {}

    async def register(self, *names: str) -> None:
        for name in names or list(self.bookies):
            self.sessions[name] = self.tree.open_session()
            await self.sessions[name].put(f"/ledgers/available/{name}", b"", ephemeral=True)
            await self.sessions[name].put(f"{COOKIES}/{name}", b"cookie")

    async def lose(self, name: str) -> None:
        self.bookies[name].is_up = False
        await self.sessions.pop(name).close()

    @asynccontextmanager
    async def recovery(
        self, owner: str = "worker:1", settings: RepairSettings | None = None
    ) -> AsyncIterator[AutoRecovery]:
        client = self.client(owner)
        bookies = await Bookies.open(client.store, client.tasks)
        yield AutoRecovery(
            client.store, client.ledgers, bookies, self.clock, settings or RepairSettings(retry_delay_ms=1), owner
        )
        bookies.close()
        await client.tasks.close()

    async def record(self, ledger_id: int) -> LedgerRecord:
        return (await self.client().ledgers.catalog.load(ledger_id)).record

    async def check_full(self, ledger_id: int) -> None:
        """I11: every entry lies on every member of its write set, with the same bytes."""
        record = await self.record(ledger_id)
        for entry_id in range(record.last_entry + 1):
            segment = [s for s in record.segments if s.first_entry <= entry_id][-1]
            named = [segment.ensemble[member] for member in record.quorum.write_set(entry_id)]
            copies = {self.bookies[name].ledgers[ledger_id].entries.get(entry_id) for name in named}
            assert len(copies) == 1
            assert None not in copies


async def written(
    client: ModelClient, count: int, quorum: tuple[int, int, int] = (3, 3, 2)
) -> tuple[LedgerWriter, Confirmations]:
    writer, listener = await client.create(*quorum)
    for i in range(count):
        writer.append([b"entry %d" % i])
    if count:
        await listener.until_confirmed(count - 1)
    await settle()
    return writer, listener


@pytest.mark.feature("F-AR-03", "F-AR-05", "F-AR-07", "F-AR-09")
@pytest.mark.parametrize("quorum", [(3, 3, 2), (4, 2, 2), (3, 2, 1)])
def test_the_copies_of_a_lost_bookie_are_restored(quorum: tuple[int, int, int]) -> None:
    async def scenario() -> None:
        world = RepairWorld(6)
        await world.register()
        client = world.client()
        writers = [(await written(client, count, quorum))[0] for count in (0, 1, 40)]
        for writer in writers:
            await writer.close()
        lost = writers[2].known.record.last_segment.ensemble[1]
        await world.lose(lost)
        async with world.recovery() as recovery:
            named = [w.ledger_id for w in writers if lost in w.known.record.bookies()]
            assert await recovery.auditor.mark_lost() == len(named)
            assert sorted([i async for i in recovery.repairs.marked()]) == named
            reader = await client.open(writers[2].ledger_id)
            assert await bodies(reader) == [b"entry %d" % i for i in range(40)]
            assert await recovery.replicator.round() == len(named)
            assert [i async for i in recovery.repairs.marked()] == []
            assert await recovery.auditor.mark_lost() == 0
        for writer in writers:
            record = await world.record(writer.ledger_id)
            assert lost not in record.bookies()
            assert record.last_entry == writer.last_add_confirmed
            await world.check_full(writer.ledger_id)
        # A second replica may go now.
        await world.lose((await world.record(writers[2].ledger_id)).last_segment.ensemble[0])
        assert await bodies(await client.open(writers[2].ledger_id)) == [b"entry %d" % i for i in range(40)]

    asyncio.run(scenario())


@pytest.mark.feature("F-AR-08")
def test_copies_in_flight_are_bounded_and_sources_alternate() -> None:
    async def scenario() -> None:
        world = RepairWorld(4)
        await world.register()
        writer, _ = await written(world.client(), 60, (3, 3, 3))
        await writer.close()
        lost, *left = writer.known.record.last_segment.ensemble
        (target,) = set(world.bookies) - {lost, *left}
        await world.lose(lost)
        most = outstanding = 0
        bookie = world.bookies[target]
        bookie.weather.delay_max_ms = 1

        def on_request(client: str, kind: str) -> None:
            nonlocal most, outstanding
            if kind == "add":
                outstanding += 1
                most = max(most, outstanding)

        def on_add(ledger_id: int, entry_id: int, recovery: bool) -> int | None:
            nonlocal outstanding
            outstanding -= 1
            assert recovery
            return None

        bookie.on_request, bookie.refuse_add = on_request, on_add
        for name in left:
            world.bookies[name].reads = 0
        async with world.recovery(settings=RepairSettings(copied_entries_in_flight_max=8)) as recovery:
            await recovery.auditor.mark_lost()
            assert await recovery.replicator.round() == 1
        assert 1 < most <= 8
        assert all(world.bookies[name].reads > 0 for name in left)
        await world.check_full(writer.ledger_id)

    asyncio.run(scenario())


@pytest.mark.feature("F-AR-14")
def test_an_open_ledgers_last_fragment_gets_grace_then_its_writer_is_fenced() -> None:
    """F68: the writer learns of it, and the stored last entry is what its owner must take."""

    async def scenario() -> None:
        world = RepairWorld(5)
        await world.register()
        client = world.client(delay_ensemble_change=True)
        writer, listener = await written(client, 10)
        lost = writer.known.record.last_segment.ensemble[0]
        await world.lose(lost)
        async with world.recovery() as recovery:
            await recovery.auditor.mark_lost()
            assert await recovery.replicator.round() == 0
            assert (await world.record(writer.ledger_id)).is_open
            world.clock.ms += 29_000
            assert await recovery.replicator.round() == 0
            assert (await world.record(writer.ledger_id)).is_open
            world.clock.ms += 2_000
            assert await recovery.replicator.round() == 1
        record = await world.record(writer.ledger_id)
        assert record.is_closed
        assert record.last_entry == 9
        assert lost not in record.bookies()
        await world.check_full(writer.ledger_id)
        writer.append([b"late"])
        assert isinstance(await listener.until_failed(), LedgerFenced)
        assert listener.last == 9

    asyncio.run(scenario())


def test_a_writer_that_moved_on_by_itself_is_left_alone() -> None:
    async def scenario() -> None:
        world = RepairWorld(5)
        await world.register()
        writer, listener = await written(world.client(), 10)
        lost = writer.known.record.last_segment.ensemble[0]
        await world.lose(lost)
        async with world.recovery() as recovery:
            await recovery.auditor.mark_lost()
            for i in range(10, 20):
                writer.append([b"entry %d" % i])
            await listener.until_confirmed(19)
            await settle()
            world.clock.ms += 60_000
            assert await recovery.replicator.round() == 1
        record = await world.record(writer.ledger_id)
        assert record.is_open
        assert lost not in record.bookies()
        await writer.close()
        await world.check_full(writer.ledger_id)

    asyncio.run(scenario())


@pytest.mark.feature("F-AR-10")
def test_a_target_that_fails_is_not_put_on_record() -> None:
    """F71: the record never names a bookie that lacks data; the next round starts again."""

    async def scenario() -> None:
        world = RepairWorld(5)
        await world.register()
        writer, _ = await written(world.client(), 20, (3, 3, 3))
        await writer.close()
        lost, *left = writer.known.record.last_segment.ensemble
        await world.lose(lost)
        spares = sorted(set(world.bookies) - {lost, *left})
        for name in spares:
            world.bookies[name].refuse_add = lambda ledger_id, entry_id, recovery: (
                ReturnCode.IO_ERROR if entry_id == 15 else None
            )
        async with world.recovery() as recovery:
            await recovery.auditor.mark_lost()
            assert await recovery.replicator.round() == 0
            assert recovery.replicator.failed == 1
            assert (await world.record(writer.ledger_id)).segments == writer.known.record.segments
            assert not await world.tree.open_session().exists(repair_lock_path(writer.ledger_id))
            for name in spares:
                world.bookies[name].refuse_add = lambda ledger_id, entry_id, recovery: None
            assert await recovery.replicator.round() == 0  # not before its pause is over
            world.clock.ms += 10
            assert await recovery.replicator.round() == 1
        await world.check_full(writer.ledger_id)

    asyncio.run(scenario())


def test_what_cannot_be_read_does_not_hold_up_the_others() -> None:
    """F72: the only copy is gone; retries are bounded and slow down, other ledgers are repaired."""

    async def scenario() -> None:
        world = RepairWorld(4)
        await world.register()
        client = world.client()
        single, _ = await written(client, 3, (1, 1, 1))
        await single.close()
        lost = single.known.record.last_segment.ensemble[0]
        while True:
            other, _ = await written(client, 5, (3, 3, 2))
            await other.close()
            if lost in other.known.record.bookies():
                break
        await world.lose(lost)
        async with world.recovery(settings=RepairSettings(retry_delay_ms=1_000)) as recovery:
            await recovery.auditor.mark_lost()
            await recovery.replicator.round()
            assert lost not in (await world.record(other.ledger_id)).bookies()
            assert lost in (await world.record(single.ledger_id)).bookies()
            attempts = 0
            for _ in range(3_600):
                before = recovery.replicator.failed
                await recovery.replicator.round()
                attempts += recovery.replicator.failed - before
                world.clock.ms += 1_000
            assert 10 < attempts < 40

    asyncio.run(scenario())


@pytest.mark.feature("F-AR-04")
def test_a_check_finds_a_wiped_bookie_and_fills_it_again() -> None:
    """F70: as many bookies as the ensemble is large, one wiped and let in again."""

    async def scenario() -> None:
        world = RepairWorld(3)
        await world.register()
        writer, _ = await written(world.client(), 20, (3, 3, 3))
        await writer.close()
        world.bookies["b2"].ledgers.clear()
        async with world.recovery() as recovery:
            assert await recovery.auditor.mark_lost() == 0
            assert await recovery.auditor.check_all() == 1
            mark = await recovery.repairs.look(writer.ledger_id)
            assert mark is not None
            assert mark.missing == ("b2",)
            assert await recovery.replicator.round() == 1
            assert await recovery.auditor.check_all() == 0
        await world.check_full(writer.ledger_id)

    asyncio.run(scenario())


@pytest.mark.feature("F-AR-06")
def test_a_missing_last_entry_names_that_bookie_only() -> None:
    async def scenario() -> None:
        world = RepairWorld(4)
        await world.register()
        writer, _ = await written(world.client(), 9, (3, 3, 3))
        await writer.close()
        victim = writer.known.record.last_segment.ensemble[1]
        del world.bookies[victim].ledgers[writer.ledger_id].entries[8]
        async with world.recovery() as recovery:
            assert await recovery.auditor.check_all() == 1
            mark = await recovery.repairs.look(writer.ledger_id)
            assert mark is not None
            assert mark.missing == (victim,)

    asyncio.run(scenario())


def test_no_registered_bookie_marks_nothing() -> None:
    async def scenario() -> None:
        world = RepairWorld(3)
        writer, _ = await written(world.client(), 3)
        await writer.close()
        async with world.recovery() as recovery:
            assert await recovery.auditor.mark_lost() == 0
            await recovery.repairs.mark(writer.ledger_id, ["b1"])
            assert await recovery.replicator.round() == 0

    asyncio.run(scenario())


@pytest.mark.feature("F-AR-13")
def test_disabled_means_that_nothing_is_repaired() -> None:
    async def scenario() -> None:
        world = RepairWorld(5)
        await world.register()
        writer, _ = await written(world.client(), 3)
        await writer.close()
        await world.lose(writer.known.record.last_segment.ensemble[0])
        async with world.recovery() as recovery:
            await recovery.repairs.disable()
            await recovery.repairs.disable()
            await recovery.auditor.mark_lost()
            assert await recovery.replicator.round() == 0
            await recovery.repairs.enable()
            await recovery.repairs.enable()
            assert await recovery.replicator.round() == 1

    asyncio.run(scenario())


def test_marks_merge_and_one_added_meanwhile_stays() -> None:
    async def scenario() -> None:
        world = RepairWorld(3)
        async with world.recovery() as one, world.recovery("worker:2") as two:
            await one.repairs.prepare()
            await two.repairs.prepare()
            await one.repairs.mark(70_000, ["b1"])
            await two.repairs.mark(70_000, ["b2", "b1"])
            mark = await one.repairs.look(70_000)
            assert mark is not None
            assert mark.missing == ("b1", "b2")
            await two.repairs.mark(70_000, ["b3"])
            await one.repairs.finish(mark)
            assert (await one.repairs.look(70_000)) is not None
            assert await one.repairs.lock(70_000)
            assert not await two.repairs.lock(70_000)
            await two.repairs.unlock(70_000)
            assert not await two.repairs.lock(70_000)
            await one.repairs.unlock(70_000)
            assert await two.repairs.lock(70_000)
            latest = await one.repairs.look(70_000)
            assert latest is not None
            await one.repairs.finish(latest)
            assert [i async for i in one.repairs.marked()] == []
            assert await one.repairs.lost_bookie_delay_s() is None
            await one.repairs.set_lost_bookie_delay_s(300)
            assert await two.repairs.lost_bookie_delay_s() == 300

    asyncio.run(scenario())


def test_two_workers_at_once_agree_on_the_record() -> None:
    """F73: even when both believe to hold the lock."""

    async def scenario(seed: int) -> None:
        world = RepairWorld(7)
        world.random.seed(seed)
        await world.register()
        writer, _ = await written(world.client(), 15, (3, 3, 3))
        await writer.close()
        lost = writer.known.record.last_segment.ensemble[0]
        await world.lose(lost)
        for bookie in world.bookies.values():
            bookie.weather.random = world.random
            bookie.weather.delay_max_ms = 1
        async with world.recovery() as one, world.recovery("worker:2") as two:
            await one.auditor.mark_lost()
            mark = await one.repairs.look(writer.ledger_id)
            assert mark is not None
            await asyncio.gather(one.replicator.repair(mark), two.replicator.repair(mark), return_exceptions=True)
            world.clock.ms += 60_000
            await one.replicator.round()
        assert lost not in (await world.record(writer.ledger_id)).bookies()
        await world.check_full(writer.ledger_id)

    for seed in range(8):
        asyncio.run(scenario(seed))


def test_a_lock_whose_answer_was_lost_keeps_nobody_from_the_ledger() -> None:
    """Simulation, storage seed 300927: the store took the lock, and its owner never learnt of it."""

    async def scenario() -> None:
        world = RepairWorld(3)
        async with world.recovery() as one, world.recovery("worker:2") as two:
            path = repair_lock_path(7)
            assert await one.repairs.lock(7)
            taken = await world.tree.open_session().get(path)
            assert taken is not None
            await one.repairs.unlock(7)
            await world.tree.open_session().put(path, taken.value, ephemeral=True)
            assert not await two.repairs.lock(7), "it has an owner"
            assert await one.repairs.lock(7), "who may take it"
            assert not await one.repairs.lock(7), "for one of its workers"
            await one.repairs.unlock(7)
            assert await two.repairs.lock(7)

    asyncio.run(scenario())


@pytest.mark.feature("F-AR-11", "F-AR-12")
def test_decommissioning_empties_a_stopped_bookie_and_forgets_it() -> None:
    async def scenario() -> None:
        world = RepairWorld(5)
        await world.register()
        client = world.client()
        closed, _ = await written(client, 10)
        await closed.close()
        still_open, _ = await written(client, 4)
        leaving = closed.known.record.last_segment.ensemble[0]
        async with world.recovery() as recovery:
            with pytest.raises(Refused):
                await recovery.decommission(leaving)
            await world.lose(leaving)
            await settle()
            await world.tree.open_session().put(f"{BOOTS}/{leaving}", b"1")
            await recovery.decommission(leaving)
            for path in (COOKIES, BOOTS):
                assert leaving not in await world.tree.open_session().children(path)
        for ledger_id in (closed.ledger_id, still_open.ledger_id):
            assert leaving not in (await world.record(ledger_id)).bookies()
            await world.check_full(ledger_id)

    asyncio.run(scenario())


def test_decommissioning_without_a_place_to_go_is_refused() -> None:
    async def scenario() -> None:
        world = RepairWorld(3)
        await world.register()
        writer, _ = await written(world.client(), 3)
        await writer.close()
        await world.lose("b1")
        async with world.recovery() as recovery:
            with pytest.raises(NotEnoughBookies):
                await recovery.decommission("b1")
            assert "b1" in await world.tree.open_session().children(COOKIES)

    asyncio.run(scenario())


@pytest.mark.feature("F-AR-02")
def test_one_auditor_at_a_time_and_another_when_it_is_gone() -> None:
    async def scenario() -> None:
        world = RepairWorld(1)
        sessions = [world.tree.open_session() for _ in range(3)]
        elections = [AuditorElection(session, f"bookie:{i}") for i, session in enumerate(sessions)]
        assert [await election.look() for election in elections] == [True, False, False]
        assert await current_auditor(sessions[2]) == "bookie:0"
        waiting = asyncio.create_task(elections[1].until_elected())
        await settle()
        assert not waiting.done()
        await sessions[0].close()
        async with asyncio.timeout(10):
            await waiting
        assert await current_auditor(sessions[2]) == "bookie:1"
        await elections[1].withdraw()
        assert await elections[2].look()
        await elections[2].withdraw()
        assert await current_auditor(sessions[2]) is None

    asyncio.run(scenario())


class ForgetfulStore(FaultyStore):
    """Lists of votes that lack one, as long as it is named."""

    lacks: str | None = None

    async def children(self, path: str) -> list[str]:
        return [name for name in await super().children(path) if name != self.lacks]


@pytest.mark.parametrize("fault", ["unanswered", "lost", "refused"])
def test_a_vote_whose_answer_was_lost_keeps_nobody_from_being_elected(fault: str) -> None:
    """F115, F109: the vote that nobody knew of was the lowest, and stayed so as long as its session."""

    async def scenario() -> None:
        world = RepairWorld(1)
        store = FaultyStore(world.tree.open_session(), FaultOnce("put", AUDITOR_ELECTION, fault))
        one, two = AuditorElection(store, "bookie:1"), AuditorElection(world.tree.open_session(), "bookie:2")
        assert not await one.look()
        assert await one.look()
        assert not await two.look()
        assert len(await store.children(AUDITOR_ELECTION)) == 2
        await one.withdraw()
        assert await two.look()

    asyncio.run(scenario())


def test_a_list_that_lacks_our_vote_gives_us_no_second_one() -> None:
    """F115: elected is whose vote is the lowest of a list that has it; no other list elects anybody."""

    async def scenario() -> None:
        world = RepairWorld(1)
        store = ForgetfulStore(world.tree.open_session())
        one, two = AuditorElection(store, "bookie:1"), AuditorElection(world.tree.open_session(), "bookie:2")
        assert await one.look()
        assert not await two.look()
        store.lacks = (await store.children(AUDITOR_ELECTION))[0]
        assert not await one.look(), "by such a list another is first"
        assert not await two.look()
        store.lacks = None
        assert await one.look()
        assert len(await store.children(AUDITOR_ELECTION)) == 2

    asyncio.run(scenario())


def test_who_is_lost_is_read_anew_before_anything_is_marked_or_forgotten() -> None:
    """F115: a bookie is back, and the watch that would tell so has not come yet."""

    async def scenario() -> None:
        world = RepairWorld(5)
        await world.register()
        writer, _ = await written(world.client(), 3)
        await writer.close()
        back = writer.known.record.last_segment.ensemble[0]
        async with world.recovery() as recovery:
            watched = recovery.auditor._bookies
            for act in ("marks", "decommissions"):
                watched.writable = tuple(name for name in watched.writable if name != back)
                if act == "marks":
                    assert await recovery.auditor.mark_lost() == 0
                else:
                    with pytest.raises(Refused, match="still runs"):
                        await recovery.decommission(back)
                assert back in watched.writable
            assert [i async for i in recovery.repairs.marked()] == []
        assert back in await world.tree.open_session().children(COOKIES)
        assert back in (await world.record(writer.ledger_id)).bookies()

    asyncio.run(scenario())


def test_a_ledger_that_is_deleted_while_a_bookie_is_decommissioned_does_not_end_that() -> None:
    """F115: the list that is worked through names ledgers that are gone."""

    async def scenario() -> None:
        world = RepairWorld(6)
        await world.register()
        client = world.client()
        kept, doomed = [(await written(client, 4, (5, 2, 2)))[0] for _ in range(2)]
        for writer in (kept, doomed):
            await writer.close()
        leaving = next(name for name in kept.known.record.bookies() if name in doomed.known.record.bookies())
        await world.lose(leaving)
        async with world.recovery() as recovery:
            moved: list[int] = []
            move_off = recovery.replicator.move_off

            async def move(ledger_id: int, bookie: str) -> None:
                moved.append(ledger_id)
                if ledger_id == kept.ledger_id:
                    await client.ledgers.delete(doomed.ledger_id)
                await move_off(ledger_id, bookie)

            recovery.replicator.move_off = move  # type: ignore[method-assign]
            listed = recovery.ledgers.catalog.ledger_ids

            async def as_it_was() -> AsyncIterator[int]:
                for ledger_id in [each async for each in listed()]:
                    yield ledger_id

            with patch.object(LedgerCatalog, "ledger_ids", lambda _: as_it_was()):
                await recovery.decommission(leaving)
            assert moved == [kept.ledger_id]
        assert leaving not in await world.tree.open_session().children(COOKIES)
        assert leaving not in (await world.record(kept.ledger_id)).bookies()

    asyncio.run(scenario())


@pytest.mark.feature("F-AR-01", "F-AR-03")
def test_it_runs_by_itself() -> None:
    async def scenario() -> None:
        world = RepairWorld(5)
        await world.register()
        writer, _ = await written(world.client(), 12)
        await writer.close()
        lost = writer.known.record.last_segment.ensemble[2]
        settings = replace(RepairSettings(), retry_delay_ms=5, lost_bookie_delay_ms=5)
        async with world.recovery(settings=settings) as recovery:
            tasks = recovery.ledgers.parts.tasks
            await recovery.start(tasks)
            assert {name.rpartition("/")[2] for name in tasks.names()} >= {"auditor", "replication worker 0"}
            await world.lose(lost)
            async with asyncio.timeout(10):
                while lost in (await world.record(writer.ledger_id)).bookies():
                    await settle()
        await world.check_full(writer.ledger_id)
        assert not world.crashes

    asyncio.run(scenario())
