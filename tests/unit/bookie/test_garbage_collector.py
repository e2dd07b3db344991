# SPDX-License-Identifier: Apache-2.0
"""Deleting and compacting: only with two proofs, and never the last copy of anything."""

import asyncio
import errno
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import replace
from random import Random
from unittest.mock import patch

import pytest

from magnetar.bookie.ledger_index import Place
from magnetar.bookie.ledger_questions import LedgerQuestions
from magnetar.bookie.storage import BookieStorage
from magnetar.config.bookie import BookieSettings
from magnetar.config.ledger import LedgerSettings
from magnetar.errors import EntryUnknown, MetadataError, NoSuchEntry, NoSuchLedger
from magnetar.ledger.catalog import LedgerCatalog
from magnetar.metadata.memory import MemoryTree
from magnetar.runtime.simulated_disk import SimulatedDisk
from magnetar.runtime.simulated_faults import Call, DiskCall
from tests.unit.bookie.benches import (
    KEY,
    OK,
    SMALL,
    Answers,
    add_all,
    bench,
    code_of_add,
    opened,
    packed,
    run,
    turns_until,
)
from tests.unit.ledger.test_catalog import new_record
from tests.unit.metadata.lagging_store import LaggingStore

FENCED = 104
# Logs of about two dozen entries, each shared by all ledgers.
SETTINGS = replace(
    SMALL, write_cache_bytes_max=1 << 20, entry_log_bytes_max=2048, compaction_bytes_per_second_max=1 << 40
)


class Metadata:
    """What exists, and how the store misbehaves."""

    def __init__(self, *ledger_ids: int) -> None:
        self.ledger_ids = set(ledger_ids)
        self.listing: list[int] | None = None
        self.fails = ""
        self.point_reads = 0

    async def existing(self) -> Iterable[int]:
        if self.fails == "listing":
            raise MetadataError("the store is away")
        return sorted(self.ledger_ids) if self.listing is None else self.listing

    async def exists(self, ledger_id: int) -> bool:
        self.point_reads += 1
        if self.fails == "point read":
            raise MetadataError("the store is away")
        return ledger_id in self.ledger_ids

    def questions(self) -> LedgerQuestions:
        return LedgerQuestions(self.existing, self.exists)


async def _fill(storage: BookieStorage, ledger_ids: Iterable[int], entries: int = 12) -> None:
    """Entries of all ledgers mixed, so that every log has some of each."""
    answers = Answers()
    count = 0
    for start in range(0, entries, 3):
        for ledger_id in ledger_ids:
            for entry_id in range(start, start + 3):
                storage.add(ledger_id, entry_id, packed(ledger_id, entry_id), KEY, answers)
                count += 1
        await answers.until(count)
        await storage.checkpoint()


async def _logs(disk: SimulatedDisk) -> list[str]:
    return [name for name in await disk.list("ledgers/current") if name.endswith(".log")]


async def _check(storage: BookieStorage, ledger_ids: Iterable[int], entries: int = 12) -> None:
    for ledger_id in ledger_ids:
        for entry_id in range(entries):
            assert await storage.read(ledger_id, entry_id) == packed(ledger_id, entry_id)


@pytest.mark.feature("F-GC-01", "F-GC-02")
def test_ledgers_that_are_gone_take_their_logs_with_them() -> None:
    async def scenario() -> None:
        disk = SimulatedDisk()
        metadata = Metadata(1, 2)
        async with bench(disk, SETTINGS, questions=metadata.questions()) as storage:
            await _fill(storage, (1, 2), 60)
            before = await _logs(disk)
            metadata.ledger_ids.clear()
            await storage.housekeeping.collect()
            with pytest.raises(NoSuchLedger):
                await storage.read(1, 0)
            after = await _logs(disk)
            assert len(after) == 1, "only the log being written to is left"
            assert len(before) > 3

    run(scenario())


@pytest.mark.parametrize(
    ("listing", "fails"),
    [([], ""), ([2], ""), ([2, 1], ""), (None, "listing"), ([], "point read"), ([99], "")],
    ids=["empty", "partial", "complete", "listing fails", "point read fails", "stale"],
)
def test_a_listing_alone_deletes_nothing(listing: list[int] | None, fails: str) -> None:
    """F41: an empty, partial, stale or failed answer costs point reads, never data."""

    async def scenario() -> None:
        disk = SimulatedDisk()
        metadata = Metadata(1, 2)
        async with bench(disk, SETTINGS, questions=metadata.questions()) as storage:
            await _fill(storage, (1, 2))
            metadata.listing, metadata.fails = listing, fails
            if fails == "point read":
                metadata.ledger_ids.clear()
            await storage.housekeeping.collect(major=True)
            await _check(storage, (1, 2))

    run(scenario())


def test_a_bookie_at_a_metadata_server_that_is_behind_keeps_what_was_made_since() -> None:
    """F115: neither the list nor the point read of that server alone knows the ledgers."""

    async def scenario() -> None:
        tree = MemoryTree()
        store = LaggingStore(tree)
        catalog, behind = (LedgerCatalog(each, Random(0), LedgerSettings()) for each in (tree.open_session(), store))

        async def existing() -> list[int]:
            return [ledger_id async for ledger_id in behind.ledger_ids()]

        store.fall_behind()
        for ledger_id in (1, 2):
            await catalog.create(new_record, ledger_id)
        assert not await behind.exists(1)
        async with bench(SimulatedDisk(), SETTINGS, questions=LedgerQuestions(existing, behind.exists)) as storage:
            await _fill(storage, (1, 2))
            await storage.housekeeping.collect(major=True)
            await _check(storage, (1, 2))
            store.fall_behind()
            await catalog.delete(1)
            await storage.housekeeping.collect(major=True)
            with pytest.raises(NoSuchLedger):
                await storage.read(1, 0)
            await _check(storage, (2,))

    run(scenario())


def test_without_anybody_to_ask_nothing_is_deleted() -> None:
    async def scenario() -> None:
        async with bench(SimulatedDisk(), SETTINGS) as storage:
            await _fill(storage, (1, 2))
            await storage.housekeeping.collect(major=True)
            await _check(storage, (1, 2))

    run(scenario())


def test_a_deleted_ledger_does_not_come_back_for_a_late_writer() -> None:
    """F43: the old owner still has it open; also after a restart."""

    async def life(disk: SimulatedDisk, metadata: Metadata) -> None:
        storage = await opened(disk, SETTINGS, questions=metadata.questions())
        await _fill(storage, (1, 2))
        metadata.ledger_ids.discard(1)
        await storage.housekeeping.collect()
        assert await code_of_add(storage, packed(1, 12)) == FENCED
        assert await code_of_add(storage, packed(1, 12), recovery=True) == FENCED

    async def after(disk: SimulatedDisk, metadata: Metadata) -> None:
        async with bench(disk, SETTINGS, questions=metadata.questions()) as storage:
            assert storage.damage == ()
            assert await code_of_add(storage, packed(1, 12)) == FENCED
            with pytest.raises(NoSuchLedger):
                await storage.read(1, 0)
            await _check(storage, (2,))

    disk = SimulatedDisk(Random(5))
    metadata = Metadata(1, 2)
    run(life(disk, metadata))
    disk.kernel.lose_power()
    run(after(disk, metadata))


def test_a_ledger_with_entries_still_to_be_written_out_waits_for_the_next_round() -> None:
    async def scenario() -> None:
        metadata = Metadata(1)
        async with bench(SimulatedDisk(), SETTINGS, questions=metadata.questions()) as storage:
            await _fill(storage, (1,))
            await add_all(storage, 1, range(12, 14))
            metadata.ledger_ids.clear()
            await storage.housekeeping.collect()
            assert await storage.read(1, 0) == packed(1, 0)
            await storage.checkpoint()
            await storage.housekeeping.collect()
            with pytest.raises(NoSuchLedger):
                await storage.read(1, 0)

    run(scenario())


def test_nobody_seeks_among_what_is_left_of_a_deleted_ledger() -> None:
    """RocksDB passes over each of its rows, with the interpreter held: 76 ms for 200,000 entries."""

    async def scenario() -> None:
        metadata = Metadata(1, 2)
        settings = replace(SETTINGS, major_compaction_share=0.8)
        async with bench(SimulatedDisk(), settings, questions=metadata.questions()) as storage:
            await _fill(storage, (1, 2), 60)
            index = storage.housekeeping._collectors[0]._directory.index
            sought: list[int] = []
            seek, look = index.last_entry_id, index.places

            async def last_entry_id(ledger_id: int) -> int | None:
                sought.append(ledger_id)
                return await seek(ledger_id)

            async def places(ledger_id: int, first_entry_id: int, count_max: int) -> list[Place]:
                sought.append(ledger_id)
                return await look(ledger_id, first_entry_id, count_max)

            metadata.ledger_ids.discard(2)
            with patch.object(index, "last_entry_id", last_entry_id), patch.object(index, "places", places):
                await storage.housekeeping.collect()
                await storage.housekeeping.collect(major=True)
            assert storage.housekeeping._collectors[0].compactor.entries_passed > 0, "it was there to be looked at"
            assert set(sought) == {1}

    run(scenario())


@pytest.mark.feature("F-GC-03", "F-GC-04", "F-GC-05")
def test_compaction_keeps_what_is_alive_and_frees_the_rest() -> None:
    async def scenario() -> None:
        disk = SimulatedDisk()
        metadata = Metadata(*range(10))
        async with bench(disk, SETTINGS, questions=metadata.questions()) as storage:
            await _fill(storage, range(10))
            full = await _bytes(disk)
            metadata.ledger_ids = {0, 5, 9}
            await storage.housekeeping.collect(minor=True)
            assert await _bytes(disk) > full * 0.9, "three in ten are more than the minor share"
            await storage.housekeeping.collect(major=True)
            assert await _bytes(disk) < full * 0.6
            await _check(storage, (0, 5, 9))
            await add_all(storage, 0, range(12, 20))
            await storage.checkpoint()
            await _check(storage, (0,), 20)

    async def _bytes(disk: SimulatedDisk) -> int:
        return sum([await disk.file_size(f"ledgers/current/{name}") for name in await _logs(disk)])

    run(scenario())


@pytest.mark.feature("F-GC-09")
def test_suspended_compaction_does_nothing() -> None:
    async def scenario() -> None:
        disk = SimulatedDisk()
        metadata = Metadata(*range(10))
        async with bench(disk, SETTINGS, questions=metadata.questions()) as storage:
            await _fill(storage, range(10))
            metadata.ledger_ids = {0}
            storage.housekeeping.suspend_compaction(True)
            before = await _logs(disk)
            await storage.housekeeping.collect(major=True)
            assert await _logs(disk) == before
            storage.housekeeping.suspend_compaction(False)
            await storage.housekeeping.collect(major=True)
            assert len(await _logs(disk)) < len(before)

    run(scenario())


@pytest.mark.parametrize("offset", [0, 9, 40, 64, 70, 300])
def test_a_damaged_log_stays_and_the_others_go(offset: int) -> None:
    """F6, F7: junk in header, map offset or records; nothing alive is deleted, the rest of the round goes on."""

    async def scenario() -> None:
        disk = SimulatedDisk()
        metadata = Metadata(*range(10))
        async with bench(disk, SETTINGS, questions=metadata.questions()) as storage:
            await _fill(storage, range(10))
            for bit in (0, 7):
                disk.kernel.flip_bit("ledgers/current/2.log", offset, bit)
            metadata.ledger_ids = {3}
            before = len(await _logs(disk))
            await storage.housekeeping.collect(major=True)
            await storage.housekeeping.collect(major=True)
            assert len(await _logs(disk)) < before
            lost = 0
            for entry_id in range(12):
                try:
                    assert await storage.read(3, entry_id) == packed(3, entry_id)
                except EntryUnknown:
                    lost += 1
            assert lost <= 1

    run(scenario())


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_compaction_that_cannot_write_changes_nothing_and_may_be_tried_again(code: int) -> None:
    """F35."""

    async def scenario() -> None:
        disk = SimulatedDisk()
        metadata = Metadata(*range(10))
        failures: list[Exception] = []
        async with bench(disk, SETTINGS, questions=metadata.questions(), failures=failures) as storage:
            await _fill(storage, range(10))
            metadata.ledger_ids = {0, 1}
            await storage.housekeeping.collect()
            before = await _logs(disk)

            def on_call(call: DiskCall) -> None:
                if call.call is Call.WRITE and call.path.endswith(".log"):
                    raise OSError(code, "injected")

            disk.kernel.faults.on_call = on_call
            for _ in range(3):
                await storage.housekeeping.collect(major=True)
            disk.kernel.faults.on_call = None
            assert set(before) <= set(await _logs(disk))
            await _check(storage, (0, 1))
            await storage.housekeeping.collect(major=True)
            assert len(await _logs(disk)) < len(before)
            await _check(storage, (0, 1))
        assert failures == []

    run(scenario())


def test_readers_go_on_while_entries_move() -> None:
    async def scenario() -> None:
        disk = SimulatedDisk()
        metadata = Metadata(*range(10))
        settings = replace(SETTINGS, read_cache_bytes_max=0)
        async with bench(disk, settings, questions=metadata.questions()) as storage:
            await _fill(storage, range(10))
            metadata.ledger_ids = {4}
            done = asyncio.Event()

            async def read_on() -> int:
                rounds = 0
                while not done.is_set():
                    await _check(storage, (4,))
                    rounds += 1
                    await asyncio.sleep(0)
                return rounds

            reader = asyncio.ensure_future(read_on())
            await storage.housekeeping.collect(major=True)
            done.set()
            assert await reader > 0

    run(scenario())


def _lives(how: str, number: int) -> tuple[SimulatedDisk, Metadata, bool]:
    """Fill, delete, compact; with a crash at the n-th call after filling. Says whether it came to that."""
    disk = SimulatedDisk(Random(number))
    metadata = Metadata(*range(6))

    async def fill() -> None:
        async with bench(disk, SETTINGS, questions=metadata.questions()) as storage:
            await _fill(storage, range(6), 18)

    async def collect() -> bool:
        storage = await opened(disk, SETTINGS, questions=metadata.questions())
        crashed = asyncio.Event()
        first = disk.kernel.calls

        def on_call(call: DiskCall) -> None:
            if call.number == first + number:
                if how == "kill":
                    disk.kernel.kill()
                else:
                    disk.kernel.lose_power()
                crashed.set()

        disk.kernel.faults.on_call = on_call
        work = asyncio.ensure_future(storage.housekeeping.collect(major=True))
        crash = asyncio.ensure_future(crashed.wait())
        await asyncio.wait((work, crash), return_when=asyncio.FIRST_COMPLETED)
        crash.cancel()
        work.cancel()
        await asyncio.wait((work,), timeout=0)
        return crashed.is_set()

    run(fill())
    metadata.ledger_ids = {1, 4}
    crashed: bool = run(collect())
    disk.kernel.faults.on_call = None
    disk.kernel.kill()
    return disk, metadata, crashed


@pytest.mark.parametrize("how", ["kill", "lose-power"])
def test_a_crash_at_any_call_of_a_collection_loses_nothing_alive(how: str) -> None:
    """F10, F33, F34: one readable copy afterwards, and the space is freed by the next round."""

    async def after(disk: SimulatedDisk, metadata: Metadata, settings: BookieSettings = SETTINGS) -> None:
        async with bench(disk, settings, questions=metadata.questions()) as storage:
            assert storage.damage == ()
            await _check(storage, (1, 4), 18)
            await storage.housekeeping.collect(major=True)
            await _check(storage, (1, 4), 18)
            for ledger_id in (0, 2, 3, 5):
                with pytest.raises(NoSuchLedger):
                    await storage.read(ledger_id, 0)
            assert await code_of_add(storage, packed(1, 18)) == OK

    number, crashed = 0, True
    while crashed:
        disk, metadata, crashed = _lives(how, number)
        run(after(disk, metadata))
        number += 1
    assert number > 40


class Watch:
    """asyncio as far as compaction uses it, on a clock that only its own rests move."""

    now_s = 0.0

    @classmethod
    async def sleep(cls, delay_s: float) -> None:
        cls.now_s += delay_s
        await asyncio.sleep(0)

    @classmethod
    def get_running_loop(cls) -> "type[Watch]":
        return cls

    @classmethod
    def time(cls) -> float:
        return cls.now_s


@pytest.mark.feature("F-GC-07")
@pytest.mark.parametrize("by_bytes", [True, False])
def test_compaction_keeps_to_its_pace(monkeypatch: pytest.MonkeyPatch, by_bytes: bool) -> None:
    """On the loop's clock it takes as long as copying so much may take, and an eighth of that for what is dead."""
    Watch.now_s = 0.0
    settings = replace(
        SETTINGS,
        major_compaction_share=0.8,
        compaction_throttled_by_bytes=by_bytes,
        compaction_bytes_per_second_max=50_000,
        compaction_entries_per_second_max=700,
    )

    async def scenario() -> None:
        metadata = Metadata(1, 2)
        async with bench(SimulatedDisk(), settings, questions=metadata.questions()) as storage:
            await _fill(storage, (1, 2), 60)
            metadata.ledger_ids.discard(2)
            monkeypatch.setattr("magnetar.bookie.compaction.asyncio", Watch)
            await storage.housekeeping.collect(major=True)
            compactor = storage.housekeeping._collectors[0].compactor
            assert compactor.entries_copied > 0
            assert compactor.entries_passed > 0
            copied, passed = (
                (compactor.bytes_copied, compactor.bytes_passed)
                if by_bytes
                else (compactor.entries_copied, compactor.entries_passed)
            )
            assert (copied + passed / 8) / Watch.now_s == pytest.approx(50_000 if by_bytes else 700)
            await _check(storage, (1,), 60)

    run(scenario())


class Elsewhere:
    """Which ledgers other bookies hold instead, and how often that was asked."""

    def __init__(self) -> None:
        self.ledger_ids: set[int] = set()
        self.fails = False
        self.held = 0

    @asynccontextmanager
    async def surplus(self, bookie: str, ledger_id: int) -> AsyncIterator[bool]:
        if self.fails:
            raise MetadataError("the store is away")
        self.held += 1
        try:
            yield ledger_id in self.ledger_ids
        finally:
            self.held -= 1


@pytest.mark.feature("F-GC-08")
def test_a_copy_that_others_hold_instead_goes_and_its_fence_stays() -> None:
    async def scenario(disk: SimulatedDisk) -> None:
        metadata, elsewhere = Metadata(1, 2, 3), Elsewhere()
        questions = LedgerQuestions(metadata.existing, metadata.exists, elsewhere.surplus)
        async with bench(disk, SETTINGS, questions=questions) as storage:
            await _fill(storage, (1, 2), 60)
            await _fill(storage, (3,), 240)
            before = len(await _logs(disk))
            elsewhere.ledger_ids = {3}
            elsewhere.fails = True
            await storage.housekeeping.collect(surplus=True)
            await _check(storage, (1, 2, 3), 60)
            elsewhere.fails = False
            await storage.housekeeping.collect()
            await _check(storage, (3,), 60)
            await storage.housekeeping.collect(surplus=True)
            assert elsewhere.held == 0
            with pytest.raises(NoSuchEntry):
                await storage.read(3, 0)
            await _check(storage, (1, 2), 60)
            assert len(await _logs(disk)) < before, "its space is free"
            assert await code_of_add(storage, packed(3, 99)) == FENCED, "a writer of old finds the fence"

    async def next_life(disk: SimulatedDisk) -> None:
        async with bench(disk, SETTINGS, questions=Metadata(1, 2, 3).questions()) as storage:
            assert await code_of_add(storage, packed(3, 99)) == FENCED
            # It may be asked to hold the ledger again one day.
            assert await code_of_add(storage, packed(3, 0), recovery=True) == OK
            assert await storage.read(3, 0) == packed(3, 0)
            await _check(storage, (1, 2), 60)

    disk = SimulatedDisk()
    run(scenario(disk))
    run(next_life(disk))


@pytest.mark.feature("F-GC-08")
def test_surplus_copies_are_looked_for_at_their_own_interval() -> None:
    async def scenario() -> None:
        metadata, elsewhere = Metadata(1), Elsewhere()
        settings = replace(SETTINGS, garbage_interval_ms=5, surplus_interval_ms=10)
        questions = LedgerQuestions(metadata.existing, metadata.exists, elsewhere.surplus)
        async with bench(SimulatedDisk(), settings, questions=questions) as storage:
            await _fill(storage, (1,), 6)
            elsewhere.ledger_ids = {1}
            (collector,) = storage.housekeeping._collectors
            await turns_until(lambda: collector.surplus_removed == 1)
            assert await storage.entry_ids(1) == []

    run(scenario())
