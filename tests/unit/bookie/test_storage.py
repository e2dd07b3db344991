# SPDX-License-Identifier: Apache-2.0
"""What a bookie's storage promises: adds and reads."""

import asyncio
from dataclasses import replace

import pytest

from magnetar.config.bookie import BookieSettings
from magnetar.errors import (
    EntryUnknown,
    NoSuchEntry,
    NoSuchLedger,
    TooManyRequests,
)
from magnetar.runtime.simulated_disk import SimulatedDisk
from magnetar.runtime.simulated_faults import Call, DiskCall, Latency
from tests.unit.bookie.benches import KEY, OK, ROOMY, SMALL, Answers, add_all, bench, code_of_add, packed, run

BAD_REQUEST, UNAUTHORIZED = 100, 102


def syncs_of(disk: SimulatedDisk, suffix: str) -> list[str]:
    """Record the paths of every sync from now on."""
    seen: list[str] = []

    def on_call(call: DiskCall) -> None:
        if call.call is Call.SYNC and call.path.endswith(suffix):
            seen.append(call.path)

    disk.kernel.faults.on_call = on_call
    return seen


@pytest.mark.feature("F-BKS-01")
def test_what_is_added_is_read_back_byte_for_byte() -> None:
    async def scenario() -> None:
        async with bench(SimulatedDisk()) as storage:
            answers = await add_all(storage, 1, range(40), lambda entry_id: bytes([entry_id]) * 100)
            assert set(answers.codes.values()) == {OK}
            for entry_id in range(40):
                assert await storage.read(1, entry_id) == packed(1, entry_id, bytes([entry_id]) * 100)
            assert await storage.entry_ids(1) == list(range(40))
            assert await storage.read(1, -1) == packed(1, 39, bytes([39]) * 100)
            with pytest.raises(NoSuchEntry):
                await storage.read(1, 40)
            with pytest.raises(NoSuchLedger):
                await storage.read(2, 0)

    run(scenario())


@pytest.mark.feature("F-BKS-02", "F-BKS-28")
def test_the_three_kinds_of_files_are_where_bookkeeper_has_them() -> None:
    async def scenario() -> None:
        disk = SimulatedDisk()
        async with bench(disk) as storage:
            await add_all(storage, 1, range(3))
            await storage.checkpoint()
            names = await disk.list("journal/current")
            assert "lastMark" in names
            assert any(name.endswith(".txn") for name in names)
            names = await disk.list("ledgers/current")
            assert "index" in names
            assert any(name.endswith(".log") for name in names)

    run(scenario())


@pytest.mark.feature("F-BKS-06")
def test_one_sync_answers_many_adds_in_one_call_per_listener() -> None:
    async def scenario() -> None:
        disk = SimulatedDisk()
        async with bench(disk, ROOMY) as storage:
            await add_all(storage, 1, range(1))
            await add_all(storage, 2, range(1))
            syncs = syncs_of(disk, ".txn")
            one, two = Answers(), Answers()
            for entry_id in range(1, 101):
                storage.add(1, entry_id, packed(1, entry_id), KEY, one)
                storage.add(2, entry_id, packed(2, entry_id), KEY, two)
            await one.until(100)
            await two.until(100)
            assert len(syncs) == 1
            assert one.calls == [(1, 100, OK)]
            assert two.calls == [(1, 100, OK)]

    run(scenario())


@pytest.mark.parametrize("settings", [SMALL, ROOMY], ids=["over many files", "in one piece"])
def test_a_run_is_stored_as_its_entries_one_by_one(settings: BookieSettings) -> None:
    async def scenario() -> None:
        disk = SimulatedDisk()
        bodies = {entry_id: bytes([entry_id]) * (entry_id * 7 % 900) for entry_id in range(120)}
        entries = [packed(1, entry_id, body) for entry_id, body in bodies.items()]
        async with bench(disk, settings) as storage:
            answers = Answers()
            # The first run begins the ledger; the second meets it; the third brings what is there again.
            for first, until in ((0, 40), (40, 119), (100, 120)):
                storage.add_run(1, first, entries[first:until], KEY, answers)
            await answers.until(139)
            assert set(answers.codes.values()) == {OK}
        async with bench(disk, settings) as storage:
            assert [await storage.read(1, entry_id) for entry_id in bodies] == entries

    run(scenario())


def test_a_malformed_entry_in_a_run_is_refused_alone() -> None:
    async def scenario() -> None:
        async with bench(SimulatedDisk()) as storage:
            await add_all(storage, 1, range(1))
            answers = Answers()
            storage.add_run(1, 1, [packed(1, 1), packed(2, 2), packed(1, 3)], KEY, answers)
            await answers.until(3)
            assert answers.codes == {1: OK, 2: BAD_REQUEST, 3: OK}

    run(scenario())


@pytest.mark.feature("F-BKS-03")
def test_no_answer_before_the_sync_ends() -> None:
    async def scenario() -> None:
        disk = SimulatedDisk()
        async with bench(disk) as storage:
            await add_all(storage, 1, range(1))
            disk.kernel.faults.sync_latency = Latency(20.0)
            answers = Answers()
            storage.add(1, 1, packed(1, 1), KEY, answers)
            assert await storage.read(1, 1) == packed(1, 1), "the cache has it before the journal"
            assert answers.count == 0
            await answers.until(1)

    run(scenario())


def test_a_duplicate_add_waits_for_its_own_sync() -> None:
    async def scenario() -> None:
        disk = SimulatedDisk()
        async with bench(disk) as storage:
            await add_all(storage, 1, range(2))
            syncs = syncs_of(disk, ".txn")
            assert await code_of_add(storage, packed(1, 1)) == OK
            assert len(syncs) == 1

    run(scenario())


@pytest.mark.parametrize(
    ("entry", "entry_id"),
    [
        (b"", 0),
        (b"x" * 31, 0),
        (packed(2, 0), 0),
        (packed(1, 7), 8),
        (packed(1, 0, bytes(65 * 1024)), 0),
        (packed(1, -2), -2),
    ],
    ids=["empty", "short", "other ledger", "other entry", "too large", "below zero"],
)
def test_a_malformed_entry_is_a_bad_request(entry: bytes, entry_id: int) -> None:
    async def scenario() -> None:
        async with bench(SimulatedDisk()) as storage:
            await add_all(storage, 1, range(1))
            answers = Answers()
            storage.add(1, entry_id, entry, KEY, answers)
            assert answers.count == 0, "refusals come later too"
            await answers.until(1)
            assert answers.codes == {entry_id: BAD_REQUEST}

    run(scenario())


def test_refusals_are_told_once_per_run() -> None:
    async def scenario() -> None:
        async with bench(SimulatedDisk()) as storage:
            await add_all(storage, 1, range(1))
            answers = Answers()
            for entry_id in range(1, 50):
                storage.add(1, entry_id, packed(1, entry_id), b"wrong", answers)
            await answers.until(49)
            assert answers.calls == [(1, 49, UNAUTHORIZED)]

    run(scenario())


def test_many_ledgers_begin_at_once_and_keep_their_order() -> None:
    async def scenario() -> None:
        async with bench(SimulatedDisk(), ROOMY) as storage:
            answers = [Answers() for _ in range(50)]
            for entry_id in range(4):
                for ledger_id in range(50):
                    storage.add(ledger_id, entry_id, packed(ledger_id, entry_id), KEY, answers[ledger_id])
            for one in answers:
                await one.until(4)
                assert one.calls == [(0, 3, OK)]

    run(scenario())


def test_batches_of_reads_end_at_a_hole_and_at_their_limits() -> None:
    async def scenario() -> None:
        async with bench(SimulatedDisk()) as storage:
            await add_all(storage, 1, range(6))
            await add_all(storage, 1, range(8, 10))
            size = len(packed(1, 0))
            assert await storage.read_batch(1, 2, 100, 1 << 20) == [packed(1, n) for n in range(2, 6)]
            assert len(await storage.read_batch(1, 0, 3, 1 << 20)) == 3
            assert len(await storage.read_batch(1, 0, 9, 2 * size)) == 2
            assert len(await storage.read_batch(1, 0, 9, 1)) == 1, "at least one, whatever its size"
            with pytest.raises(NoSuchEntry):
                await storage.read_batch(1, 6, 10, 1 << 20)

    run(scenario())


@pytest.mark.feature("F-BKS-23")
def test_a_reader_in_order_reads_the_disk_once_for_many_entries() -> None:
    async def scenario() -> None:
        disk = SimulatedDisk()
        settings = replace(SMALL, entry_log_bytes_max=1 << 20, read_cache_bytes_max=1 << 20, read_ahead_entries_max=50)
        async with bench(disk, settings) as storage:
            await add_all(storage, 1, range(100))
            await storage.checkpoint()
            reads: list[str] = []

            def on_call(call: DiskCall) -> None:
                if call.call is Call.READ:
                    reads.append(call.path)

            disk.kernel.faults.on_call = on_call
            for entry_id in range(100):
                assert await storage.read(1, entry_id) == packed(1, entry_id)
            assert len(reads) == 2

    run(scenario())


@pytest.mark.feature("F-BP-03")
def test_reads_that_wait_for_the_disk_are_bounded() -> None:
    async def scenario() -> None:
        disk = SimulatedDisk()
        async with bench(disk, replace(SMALL, reads_max=3)) as storage:
            await add_all(storage, 1, range(10))
            await storage.checkpoint()
            disk.kernel.faults.read_latency = Latency(10.0)
            reads = [asyncio.ensure_future(storage.read(1, entry_id)) for entry_id in range(10)]
            done, _ = await asyncio.wait(reads)
            refused = [read for read in done if isinstance(read.exception(), TooManyRequests)]
            assert len(refused) == 7

    run(scenario())


def test_a_flipped_bit_is_unknown_and_never_an_absence() -> None:
    async def scenario() -> None:
        disk = SimulatedDisk()
        async with bench(disk) as storage:
            await add_all(storage, 1, range(3), lambda entry_id: b"findme%d" % entry_id)
            await storage.checkpoint()
            path = "ledgers/current/0.log"
            data = await disk.read_file(path, bytes_max=1 << 20)
            disk.kernel.flip_bit(path, data.index(b"findme1") + 3, 2)
            assert await storage.read(1, 0) == packed(1, 0, b"findme0")
            with pytest.raises(EntryUnknown):
                await storage.read(1, 1)
            assert await storage.read(1, 2) == packed(1, 2, b"findme2")
            with pytest.raises(NoSuchEntry):
                await storage.read(1, 3)

    run(scenario())


def test_a_missing_entry_log_is_unknown() -> None:
    async def scenario() -> None:
        disk = SimulatedDisk()
        async with bench(disk) as storage:
            await add_all(storage, 1, range(3))
            await storage.checkpoint()
            await disk.remove("ledgers/current/0.log")
            with pytest.raises(EntryUnknown):
                await storage.read(1, 1)

    run(scenario())


def test_a_read_error_is_unknown() -> None:
    async def scenario() -> None:
        disk = SimulatedDisk()
        async with bench(disk) as storage:
            await add_all(storage, 1, range(3))
            await storage.checkpoint()
            disk.kernel.faults.read_error_chance = 1.0
            with pytest.raises(EntryUnknown):
                await storage.read(1, 1)
            disk.kernel.faults.read_error_chance = 0.0
            assert await storage.read(1, 1) == packed(1, 1)

    run(scenario())


@pytest.mark.feature("F-BP-09")
def test_the_storage_can_say_how_it_is() -> None:
    async def scenario() -> None:
        async with bench(SimulatedDisk(), ROOMY) as storage:
            await add_all(storage, 1, range(5))
            await code_of_add(storage, packed(1, 5), key=b"wrong")
            before = storage.stats()
            assert (before.write_cache_entries, before.journal_queued_bytes, before.entry_logs) == (5, 0, 0)
            assert before.adds_refused == {UNAUTHORIZED: 1}
            assert before.journal_syncs > 0
            await storage.checkpoint()
            after = storage.stats()
            assert (after.write_cache_entries, after.write_cache_bytes, after.entry_logs) == (0, 0, 1)
            assert (after.checkpoints, after.entries_written_out, after.ledgers_in_memory) == (1, 5, 1)
            await storage.read(1, 0)
            await storage.read(1, 1)
            assert (storage.stats().read_cache_hits, storage.stats().read_cache_misses) == (1, 1)
            assert not after.is_read_only
            assert not after.is_unsure

    run(scenario())
