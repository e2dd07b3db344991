# SPDX-License-Identifier: Apache-2.0
"""When groups end, in which order adds and reads go, and what stays in memory or in few files."""

import asyncio
import os
from dataclasses import replace
from pathlib import Path

import pytest

from magnetar.bookie.counts import Outcomes
from magnetar.bookie.journal_format import RecordKind
from magnetar.bookie.journal_replay import JournalReplay
from magnetar.bookie.storage import BookieStorage
from magnetar.config.bookie import BookieSettings
from magnetar.errors import StorageFailed
from magnetar.runtime.disk import LogStats
from magnetar.runtime.real_disk import RealDisk
from magnetar.runtime.simulated_disk import SimulatedDisk
from magnetar.runtime.simulated_faults import Call, DiskCall, Latency
from tests.unit.bookie.benches import (
    KEY,
    OK,
    ROOMY,
    Answers,
    add_all,
    bench,
    code_of_add,
    opened,
    packed,
    run,
    turns,
    turns_until,
)

IO_ERROR = 101


def log_of(storage: BookieStorage) -> LogStats:
    return storage.stats().journals[0].log


async def ended_by(settings: BookieSettings, adds: int, *, rounds: int) -> tuple[int, int, int]:
    """How many groups ended full, after their wait, and with nothing behind them."""
    async with bench(SimulatedDisk(), settings) as storage:
        await add_all(storage, 1, range(1))
        before = log_of(storage)
        for turn in range(rounds):
            await add_all(storage, 1, range(1 + turn * adds, 1 + (turn + 1) * adds))
        after = log_of(storage)
    return (
        after.ended_full - before.ended_full,
        after.ended_waiting - before.ended_waiting,
        after.ended_empty - before.ended_empty,
    )


@pytest.mark.feature("F-BKS-07")
def test_each_reason_to_end_a_group_can_come_alone() -> None:
    patient = replace(ROOMY, journal_group_delay_max_ms=5.0)

    async def scenario() -> None:
        assert await ended_by(ROOMY, 1, rounds=5) == (0, 0, 5), "the queue was empty"
        assert await ended_by(patient, 1, rounds=3) == (0, 3, 0), "it had waited long enough"
        assert await ended_by(replace(patient, journal_group_bytes_max=200), 8, rounds=4) == (4, 0, 0), "bytes"
        assert await ended_by(replace(patient, journal_group_entries_max=10), 50, rounds=2) == (10, 0, 0), "entries"

    run(scenario())


@pytest.mark.feature("F-BKS-07")
def test_a_real_log_counts_the_same_reasons(tmp_path: Path) -> None:
    async def scenario() -> None:
        disk = RealDisk(str(tmp_path))
        try:
            async with bench(disk, replace(ROOMY, journal_group_entries_max=4)) as storage:
                for start in range(0, 40_000, 40):
                    await add_all(storage, 1, range(start, start + 40))
                    if (seen := log_of(storage)).ended_full:
                        break
                assert seen.ended_full, "four were never there at once, of forty"
                assert seen.ended_full + seen.ended_empty == seen.groups
        finally:
            await disk.close()

    run(scenario())


@pytest.mark.feature("F-BKS-09")
def test_without_sync_pages_are_written_at_an_interval() -> None:
    async def scenario() -> None:
        disk = SimulatedDisk()
        synced = asyncio.Event()
        calls: list[str] = []

        def on_call(call: DiskCall) -> None:
            if call.call is Call.SYNC and call.path.endswith(".txn"):
                calls.append(call.path)
                if len(calls) >= 3:
                    synced.set()

        settings = replace(ROOMY, journal_sync=False, journal_page_flush_interval_ms=2, journal_seal_delay_ms=60_000)
        async with bench(disk, settings) as storage:
            disk.kernel.faults.on_call = on_call
            answers = await add_all(storage, 1, range(20))
            assert set(answers.codes.values()) == {OK}
            async with asyncio.timeout(20):
                await synced.wait()
            # What was acknowledged is on the disk by now, although no add waited for it.
            assert disk.kernel.is_durable(calls[-1], 0, storage.stats().journals[0].log.synced_bytes)
        assert len(set(calls)) == 1

    run(scenario())


def test_with_sync_nothing_else_syncs_the_journal() -> None:
    async def scenario() -> None:
        async with bench(SimulatedDisk(), replace(ROOMY, journal_page_flush_interval_ms=1)) as storage:
            await add_all(storage, 1, range(5))
            assert not [task for task in asyncio.all_tasks() if "journal pages" in task.get_name()]

    run(scenario())


@pytest.mark.feature("F-BKS-11", "F-BKS-27")
def test_adds_go_through_the_cache_to_the_journal_in_the_order_they_came() -> None:
    async def cached() -> None:
        disk = SimulatedDisk()
        storage = await opened(disk, ROOMY)
        await add_all(storage, 1, range(1))
        await add_all(storage, 2, range(1))
        disk.kernel.faults.hanging = frozenset({Call.SYNC})
        answers = Answers()
        sent = [(1, 1), (2, 1), (2, 2), (1, 2), (1, 3), (2, 3)]
        for ledger_id, entry_id in sent:
            storage.add(ledger_id, entry_id, packed(ledger_id, entry_id), KEY, answers)
            # In the cache before anything else happens; the journal has not even been handed it.
            assert await storage.read(ledger_id, entry_id) == packed(ledger_id, entry_id)
        await turns_until(lambda: disk.kernel.injected["hang"] > 0)
        await turns(20)
        assert answers.count == 0, "not durable, not answered"
        disk.kernel.kill()

    async def replayed() -> None:
        disk = SimulatedDisk()
        storage = await opened(disk, ROOMY)
        answers = Answers()
        sent = [(7, 0), (8, 0), (9, 0), (8, 1), (7, 1), (9, 1), (7, 2)]
        for ledger_id, entry_id in sent:
            storage.add(ledger_id, entry_id, packed(ledger_id, entry_id), KEY, answers)
        await answers.until(len(sent))
        disk.kernel.kill()
        replay = JournalReplay(disk, "journal/current", None, payload_bytes_max=1 << 20)
        found = [
            (int.from_bytes(record.payload[:8], "big"), int.from_bytes(record.payload[8:16], "big"))
            async for record in replay.records()
            if record.kind == RecordKind.ENTRY
        ]
        by_ledger = {ledger: [each for each in sent if each[0] == ledger] for ledger in (7, 8, 9)}
        assert {ledger: [each for each in found if each[0] == ledger] for ledger in (7, 8, 9)} == by_ledger
        assert len(found) == len(sent)

    run(cached())
    run(replayed())


@pytest.mark.feature("F-BKS-11")
def test_a_failed_journal_fails_the_add_although_the_cache_has_it() -> None:
    async def scenario() -> None:
        disk = SimulatedDisk()
        failures: list[StorageFailed] = []
        storage = await opened(disk, ROOMY, failures=failures)
        await add_all(storage, 1, range(1))
        disk.kernel.faults.sync_error_chance = 1.0
        assert await code_of_add(storage, packed(1, 1)) == IO_ERROR
        assert len(failures) == 1
        disk.kernel.faults.sync_error_chance = 0.0
        await storage.close()

    run(scenario())


@pytest.mark.feature("F-BKS-34")
def test_an_answer_waits_for_the_sync_and_for_nothing_the_system_does_by_itself() -> None:
    """The trace of one add: written, synced, and only then answered; a power loss right after loses nothing."""

    async def scenario(disk: SimulatedDisk) -> None:
        trace: list[str] = []

        def on_call(call: DiskCall) -> None:
            if call.path.endswith(".txn"):
                trace.append(call.call.value)

        storage = await opened(disk, ROOMY)
        await add_all(storage, 1, range(1))
        disk.kernel.faults.on_call = on_call
        disk.kernel.faults.sync_latency = Latency(2.0)
        answers = await add_all(storage, 1, range(1, 2))
        trace.append("answer")
        assert answers.codes == {1: OK}
        assert trace == ["write", "sync", "answer"]
        disk.kernel.lose_power()

    async def after(disk: SimulatedDisk) -> None:
        async with bench(disk, ROOMY) as storage:
            assert await storage.read(1, 1) == packed(1, 1)

    disk = SimulatedDisk()
    run(scenario(disk))
    disk.kernel.faults.on_call = None
    run(after(disk))


@pytest.mark.feature("F-BKS-25")
def test_reads_of_a_ledger_go_one_after_another_and_hold_up_nobody_else() -> None:
    async def scenario() -> None:
        disk = SimulatedDisk()
        settings = replace(
            ROOMY, ledger_directories=("l0", "l1"), read_ahead_entries_max=1, entry_log_bytes_max=1 << 20
        )
        async with bench(disk, settings) as storage:
            await add_all(storage, 2, range(6))
            await add_all(storage, 3, range(6))
            await storage.checkpoint()
            gate = asyncio.Event()
            read = storage._directories[0].logs.read_range
            under_way = most = 0

            async def slow(log_id: int, offset: int, length: int) -> bytes:
                nonlocal under_way, most
                under_way += 1
                most = max(most, under_way)
                await gate.wait()
                under_way -= 1
                return await read(log_id, offset, length)

            storage._directories[0].logs.read_range = slow  # type: ignore[method-assign]
            finished: list[int] = []

            async def one(entry_id: int) -> None:
                assert await storage.read(2, entry_id) == packed(2, entry_id)
                finished.append(entry_id)

            waiting = [asyncio.ensure_future(one(entry_id)) for entry_id in range(6)]
            for entry_id in range(6):
                assert await storage.read(3, entry_id) == packed(3, entry_id), "another ledger is not held up"
            assert not finished
            gate.set()
            await asyncio.gather(*waiting)
            assert finished == list(range(6)), "in the order they were asked for"
            assert most == 1

    run(scenario())


@pytest.mark.feature("F-BKS-25")
def test_what_is_at_hand_overtakes_no_read_of_its_ledger() -> None:
    async def scenario() -> None:
        disk = SimulatedDisk()
        async with bench(disk, ROOMY) as storage:
            for ledger_id in (1, 2):
                await add_all(storage, ledger_id, range(3))
            await storage.checkpoint()
            assert storage.at_hand(1, 0) is None, "it is in the entry log"
            assert storage.run_at_hand(1, 0, 3, 1 << 20) == []
            for ledger_id in (1, 2):
                await add_all(storage, ledger_id, range(3, 4))
            disk.kernel.faults.read_latency = Latency(5.0)
            reading = asyncio.get_running_loop().create_task(storage.read(1, 0))
            await turns_until(lambda: storage.stats().reads_in_progress == 1)
            assert storage.at_hand(1, 3) is None, "somebody of this ledger waits"
            assert storage.run_at_hand(1, 3, 1, 1 << 20) == []
            assert storage.at_hand(2, 3) == packed(2, 3)
            assert await reading == packed(1, 0)
            assert storage.at_hand(1, 3) == packed(1, 3)
            assert storage.at_hand(1, 1) == packed(1, 1), "it was read ahead"
            read_bytes = storage.counts.bytes_read
            assert storage.run_at_hand(1, 0, 9, 1 << 20) == [packed(1, entry_id) for entry_id in range(4)]
            assert storage.counts.bytes_read == read_bytes + sum(len(packed(1, entry_id)) for entry_id in range(4))

    run(scenario())


@pytest.mark.feature("F-BKS-25")
def test_a_read_that_is_given_up_lets_the_next_one_pass() -> None:
    async def scenario() -> None:
        disk = SimulatedDisk()
        async with bench(disk, replace(ROOMY, read_ahead_entries_max=1)) as storage:
            await add_all(storage, 2, range(4))
            await storage.checkpoint()
            disk.kernel.faults.read_latency = Latency(100.0)
            reads = [asyncio.ensure_future(storage.read(2, entry_id)) for entry_id in range(4)]
            await turns_until(lambda: storage.stats().reads_in_progress == 4)
            disk.kernel.faults.read_latency = Latency(0.0)
            reads[1].cancel()
            done = await asyncio.gather(*reads, return_exceptions=True)
            assert [each for each in done if isinstance(each, bytes)] == [packed(2, i) for i in (0, 2, 3)]
            assert storage.stats().reads_in_progress == 0
            assert await storage.read(2, 1) == packed(2, 1)

    run(scenario())


@pytest.mark.feature("F-BKS-25")
def test_a_read_that_is_given_up_when_its_turn_has_come_lets_the_next_one_pass() -> None:
    async def scenario() -> None:
        disk = SimulatedDisk()
        async with bench(disk, replace(ROOMY, read_ahead_entries_max=1)) as storage:
            await add_all(storage, 2, range(3))
            await storage.checkpoint()
            disk.kernel.faults.read_latency = Latency(5.0)
            reads = [asyncio.ensure_future(storage.read(2, entry_id)) for entry_id in range(3)]
            # Told of the end of the first before the second is: by then it is the second's turn.
            reads[0].add_done_callback(lambda _: reads[1].cancel())
            done = await asyncio.gather(*reads, return_exceptions=True)
            assert [each for each in done if isinstance(each, bytes)] == [packed(2, i) for i in (0, 2)]
            assert isinstance(done[1], asyncio.CancelledError)
            assert storage.stats().reads_in_progress == 0

    run(scenario())


@pytest.mark.feature("F-BKS-25")
def test_one_read_of_the_disk_answers_all_who_wait_for_it_and_the_next_reader_too() -> None:
    async def scenario() -> None:
        disk = SimulatedDisk()
        large = 1024 * 1024
        settings = replace(ROOMY, read_ahead_entries_max=1_000, read_cache_bytes_max=large, entry_log_bytes_max=large)
        async with bench(disk, settings) as storage:
            await add_all(storage, 2, range(300))
            await storage.checkpoint()
            disk.kernel.faults.read_latency = Latency(5.0)
            calls = 0

            def count(call: DiskCall) -> None:
                nonlocal calls
                calls += call.call is Call.READ and call.path.endswith(".log")

            disk.kernel.faults.on_call = count
            reads = [asyncio.ensure_future(storage.read(2, entry_id)) for entry_id in range(300)]
            assert await asyncio.gather(*reads) == [packed(2, entry_id) for entry_id in range(300)]
            assert calls == 1
            assert [storage.at_hand(2, entry_id) for entry_id in (0, 299)] == [packed(2, 0), packed(2, 299)]

    run(scenario())


@pytest.mark.feature("F-BKS-31")
def test_tail_reads_stay_in_memory_while_others_scan() -> None:
    async def scenario() -> None:
        disk = SimulatedDisk()
        settings = replace(ROOMY, read_cache_bytes_max=4096, read_ahead_entries_max=8)
        async with bench(disk, settings) as storage:
            await add_all(storage, 1, range(400), lambda entry_id: bytes(100))
            await storage.checkpoint()
            counts = storage.counts
            hits = misses = 0
            for entry_id in range(400):
                # One writes and is read at its tail; the other reads everything from the disk, more than the cache.
                await add_all(storage, 2, range(entry_id, entry_id + 1))
                before = (counts.write_cache_hits, storage.stats().read_cache_misses)
                assert await storage.read(2, entry_id) == packed(2, entry_id)
                hits += counts.write_cache_hits - before[0]
                misses += storage.stats().read_cache_misses - before[1]
                await storage.read(1, entry_id)
            assert (hits, misses) == (400, 0)
            assert storage.stats().read_cache_misses >= 400 // 8, "the scan did go to the disk"

    run(scenario())


@pytest.mark.feature("F-BKS-32")
def test_ten_thousand_ledgers_share_a_few_files(tmp_path: Path) -> None:
    async def scenario() -> None:
        disk = RealDisk(str(tmp_path))
        try:
            async with bench(disk, BookieSettings()) as storage:
                await add_all(storage, 0, range(1))
                before = len(os.listdir("/proc/self/fd"))
                answers = Answers()
                for ledger_id in range(1, 10_001):
                    storage.add(ledger_id, 0, packed(ledger_id, 0), KEY, answers)
                    if ledger_id % 1000 == 0:
                        await answers.until(ledger_id)
                assert len(os.listdir("/proc/self/fd")) - before <= 2
                await storage.checkpoint()
                assert len(os.listdir("/proc/self/fd")) - before <= 4
                files = await storage.holdings.files()
                assert (len(files["journal"]), len(files["entrylog"])) == (1, 1)
        finally:
            await disk.close()

    run(scenario())


class Flushes(Outcomes):
    """Counts that can be waited for."""

    __slots__ = ("_changed",)

    def __init__(self) -> None:
        super().__init__()
        self._changed = asyncio.Event()

    def observe(self, value: int | float, *, ok: bool = True, times: int = 1) -> None:
        super().observe(value, ok=ok, times=times)
        self._changed.set()

    async def until(self, count: int) -> None:
        async with asyncio.timeout(20):
            while self.ok.count < count:
                self._changed.clear()
                await self._changed.wait()


@pytest.mark.feature("F-BKS-15")
def test_flushes_come_by_interval_and_by_a_full_cache() -> None:
    async def scenario() -> None:
        async with bench(SimulatedDisk(), replace(ROOMY, flush_interval_ms=5)) as storage:
            flushes = storage.counts.flush = Flushes()
            await add_all(storage, 1, range(3))
            await flushes.until(1)
            assert storage.stats().write_cache_entries == 0
            await add_all(storage, 1, range(3, 6))
            await flushes.until(2)
        never = replace(ROOMY, flush_interval_ms=3_600_000, write_cache_bytes_max=16 * 1024)
        async with bench(SimulatedDisk(), never) as storage:
            flushes = storage.counts.flush = Flushes()
            await add_all(storage, 1, range(20), lambda entry_id: bytes(100))
            assert storage.counts.flush.count == 0
            await add_all(storage, 1, range(20, 60), lambda entry_id: bytes(100))
            await flushes.until(1)
            assert storage.counts.flush_bytes.sum >= never.write_cache_bytes_max // 2

    run(scenario())
