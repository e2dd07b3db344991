# SPDX-License-Identifier: Apache-2.0
"""A bookie's bounds, its failures, and the files it leaves."""

import asyncio
import errno
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from magnetar.bookie.checkpoint import Checkpoints
from magnetar.bookie.journal_format import RecordKind
from magnetar.bookie.journal_replay import JournalReplay
from magnetar.bookie.storage import BookieStorage
from magnetar.bookie.write_cache import ENTRY_OVERHEAD_BYTES
from magnetar.errors import (
    DataDirectoryInUse,
    StorageFailed,
)
from magnetar.runtime.log_file import LogFile
from magnetar.runtime.real_disk import RealDisk
from magnetar.runtime.simulated_disk import SimulatedDisk
from magnetar.runtime.simulated_faults import Call, DiskCall, DiskFaults, Latency
from tests.simulation.world.loop import SimLoop
from tests.simulation.world.schedule import Policy, Schedule
from tests.unit.bookie.benches import (
    KEY,
    OK,
    ROOMY,
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

IO_ERROR, TOO_MANY_REQUESTS = 101, 106


def syncs_of(disk: SimulatedDisk, suffix: str) -> list[str]:
    """Record the paths of every sync from now on."""
    seen: list[str] = []

    def on_call(call: DiskCall) -> None:
        if call.call is Call.SYNC and call.path.endswith(suffix):
            seen.append(call.path)

    disk.kernel.faults.on_call = on_call
    return seen


@pytest.mark.feature("F-BP-06", "F-BP-07", "F-BP-01")
def test_adds_beyond_every_bound_are_refused_and_the_rest_is_stored() -> None:
    async def scenario() -> None:
        disk = SimulatedDisk()
        settings = replace(SMALL, held_adds_bytes_max=4096, journal_queue_bytes_max=4096)
        async with bench(disk, settings) as storage:
            await add_all(storage, 1, range(1))
            disk.kernel.faults.sync_latency = Latency(5.0)
            answers = Answers()
            for entry_id in range(1, 201):
                storage.add(1, entry_id, packed(1, entry_id, bytes(200)), KEY, answers)
                if entry_id % 10 == 0:
                    await asyncio.sleep(0)
            await answers.until(200)
            counts = {code: list(answers.codes.values()).count(code) for code in set(answers.codes.values())}
            assert set(counts) == {OK, TOO_MANY_REQUESTS}
            taken = [entry_id for entry_id, code in answers.codes.items() if code == OK]
            assert await storage.entry_ids(1) == [0, *sorted(taken)]

    run(scenario())


def test_adds_held_too_long_are_refused() -> None:
    async def scenario() -> None:
        disk = SimulatedDisk()
        settings = replace(SMALL, journal_queue_bytes_max=1000, held_adds_wait_max_ms=30)
        async with bench(disk, settings) as storage:
            await add_all(storage, 1, range(1))
            disk.kernel.faults.sync_latency = Latency(300.0)
            answers = Answers()
            for entry_id in range(1, 20):
                storage.add(1, entry_id, packed(1, entry_id, bytes(200)), KEY, answers)
                await asyncio.sleep(0)
            await answers.until(1)
            assert set(answers.codes.values()) == {TOO_MANY_REQUESTS}, "overdue before the slow sync ends"
            await answers.until(19)
            assert set(answers.codes.values()) == {OK, TOO_MANY_REQUESTS}

    run(scenario())


def test_a_flush_that_adds_waited_for_is_hurried_from_its_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    hurried: list[bool] = []
    storages: list[BookieStorage] = []
    run_checkpoint = Checkpoints.run

    async def noted(self: Checkpoints, *args: Any, is_hurried: bool = False) -> None:
        hurried.append(is_hurried)
        if hurried == [False]:
            await turns_until(lambda: storages[0].stats().held_adds > 0)
        await run_checkpoint(self, *args, is_hurried=is_hurried)

    monkeypatch.setattr(Checkpoints, "run", noted)

    async def scenario() -> None:
        async with bench(SimulatedDisk(), replace(SMALL, flush_interval_ms=3_600_000)) as storage:
            storages.append(storage)
            await add_all(storage, 1, range(1))
            assert hurried == []
            # Half of the cache, a whole one, and more: the second flush begins with adds in front of the door.
            answers = Answers()
            for entry_id in range(1, 41):
                storage.add(1, entry_id, packed(1, entry_id, bytes(400)), KEY, answers)
            await answers.until(40)
            assert hurried[:2] == [False, True]

    run(scenario())


def test_a_failed_sync_answers_nobody_with_ok_and_ends_the_role() -> None:
    """Issue F14: EIO once, then all would be well; fifty adds waited."""

    async def life(disk: SimulatedDisk, failures: list[StorageFailed]) -> Answers:
        storage = await opened(disk, ROOMY, failures=failures)
        await add_all(storage, 1, range(1))

        def on_call(call: DiskCall) -> None:
            if call.call is Call.SYNC and call.path.endswith(".txn"):
                disk.kernel.faults.on_call = None
                raise OSError(errno.EIO, "injected")

        disk.kernel.faults.on_call = on_call
        answers = Answers()
        for entry_id in range(1, 51):
            storage.add(1, entry_id, packed(1, entry_id), KEY, answers)
        fence = asyncio.ensure_future(storage.fence(1, KEY))
        await answers.until(50)
        with pytest.raises(StorageFailed):
            await fence
        assert await code_of_add(storage, packed(1, 51)) == IO_ERROR
        with pytest.raises(StorageFailed):
            await storage.read(1, 0)
        await storage.close()
        return answers

    async def after(disk: SimulatedDisk) -> None:
        async with bench(disk, ROOMY) as storage:
            assert await storage.read(1, 0) == packed(1, 0)

    disk = SimulatedDisk()
    failures: list[StorageFailed] = []
    answers: Answers = run(life(disk, failures))
    assert answers.calls == [(1, 50, IO_ERROR)]
    assert len(failures) == 1
    run(after(disk))


@pytest.mark.parametrize("is_pure", [False, True], ids=["compiled if built", "plain"])
def test_a_writer_that_dies_of_a_bug_answers_nobody_with_ok_and_ends_the_role(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_pure: bool
) -> None:
    """F40: what is queued and what still comes is refused, and closing waits for no writer."""
    if is_pure:
        monkeypatch.setenv("MAGNETAR_PURE", "1")

    def dies(self: LogFile, end: int) -> None:
        raise RuntimeError("a bug of the writer")

    async def life(failures: list[StorageFailed]) -> None:
        disk = RealDisk(str(tmp_path))
        storage = await opened(disk, ROOMY, failures=failures)
        await add_all(storage, 1, range(1))
        monkeypatch.setattr(LogFile, "_allocate", dies)
        answers = Answers()
        for entry_id in range(1, 11):
            storage.add(1, entry_id, packed(1, entry_id, bytes(1000)), KEY, answers)
        fence = asyncio.ensure_future(storage.fence(1, KEY))
        async with asyncio.timeout(30):
            await answers.until(10)
            with pytest.raises(StorageFailed):
                await fence
        assert set(answers.codes.values()) == {IO_ERROR}
        assert await code_of_add(storage, packed(1, 11)) == IO_ERROR
        with pytest.raises(StorageFailed, match="the log's writer died"):
            await storage.read(1, 0)
        await storage.close()
        await disk.close()

    failures: list[StorageFailed] = []
    run(life(failures))
    assert len(failures) == 1


@pytest.mark.parametrize("suffix", [".log", "index.plain", "lastMark.tmp"])
def test_a_checkpoint_that_fails_moves_no_mark_and_ends_the_role(suffix: str) -> None:
    async def life(disk: SimulatedDisk, failures: list[StorageFailed]) -> None:
        storage = await opened(disk, ROOMY, failures=failures)
        await add_all(storage, 1, range(5))
        mark = await disk.read_file("journal/current/lastMark", bytes_max=100)

        def on_call(call: DiskCall) -> None:
            if call.call is Call.SYNC and call.path.endswith(suffix):
                raise OSError(errno.EIO, "injected")

        disk.kernel.faults.on_call = on_call
        with pytest.raises(StorageFailed):
            await storage.checkpoint()
        disk.kernel.faults.on_call = None
        assert await disk.read_file("journal/current/lastMark", bytes_max=100) == mark
        await storage.close()

    async def after(disk: SimulatedDisk) -> None:
        async with bench(disk, ROOMY) as storage:
            assert await storage.entry_ids(1) == list(range(5))

    disk = SimulatedDisk(Random(3))
    failures: list[StorageFailed] = []
    run(life(disk, failures))
    assert len(failures) == 1
    disk.kernel.lose_power()
    run(after(disk))


def test_a_closed_storage_refuses() -> None:
    async def scenario() -> None:
        storage = await opened(SimulatedDisk())
        await add_all(storage, 1, range(1))
        await storage.close()
        await storage.close()
        assert await code_of_add(storage, packed(1, 1)) == IO_ERROR
        with pytest.raises(StorageFailed):
            await storage.read(1, 0)

    run(scenario())


def test_a_directory_in_use_is_refused() -> None:
    async def scenario() -> None:
        disk = SimulatedDisk()
        async with bench(disk):
            with pytest.raises(DataDirectoryInUse):
                await opened(disk)
        async with bench(disk):
            pass

    run(scenario())


@pytest.mark.feature("F-BKS-05", "F-BKS-19")
def test_a_ledger_always_uses_the_same_journal_and_directory() -> None:
    async def life(disk: SimulatedDisk) -> None:
        settings = replace(SMALL, journal_directories=("j0", "j1"), ledger_directories=("a", "b", "c"))
        async with bench(disk, settings) as storage:
            for ledger_id in range(6):
                await add_all(storage, ledger_id, range(4), lambda _: b"the body")
            await storage.checkpoint()
            for directory, ledger_ids in (("a", (0, 3)), ("b", (1, 4)), ("c", (2, 5))):
                data = await disk.read_file(f"{directory}/current/0.log", bytes_max=1 << 20)
                for ledger_id in range(6):
                    assert (packed(ledger_id, 0, b"the body") in data) == (ledger_id in ledger_ids)

    run(life(SimulatedDisk()))


@pytest.mark.feature("F-BKS-13")
@pytest.mark.parametrize("directories", [("a",), ("a", "b"), ("a", "b", "c")])
@pytest.mark.parametrize("ledgers", [1, 6])
def test_all_directories_share_one_write_cache_of_two_halves(directories: tuple[str, ...], ledgers: int) -> None:
    """However many directories there are and whichever the ledgers are in: what is held is bounded by the setting."""

    async def scenario() -> None:
        settings = replace(
            ROOMY,
            ledger_directories=directories,
            write_cache_bytes_max=32 * 1024,
            flush_interval_ms=3_600_000,
        )
        body = bytes(512)
        cost = len(packed(0, 0, body)) + ENTRY_OVERHEAD_BYTES
        fitting = settings.write_cache_bytes_max // 2 // cost
        async with bench(SimulatedDisk(), settings) as storage:
            answers = Answers()
            for number in range(fitting):
                ledger_id, entry_id = number % ledgers, number // ledgers
                storage.add(ledger_id, entry_id, packed(ledger_id, entry_id, body), KEY, answers)
            await answers.until(fitting)
            # One half, whatever the number of directories: nothing has to go yet.
            assert storage.stats().write_cache_bytes == fitting * cost
            assert storage.stats().checkpoints == 0
            storage.add(0, 9_999, packed(0, 9_999, body), KEY, answers)
            await answers.until(fitting + 1)
            assert storage.stats().write_cache_bytes <= settings.write_cache_bytes_max
            await storage.checkpoint()
            assert storage.stats().write_cache_bytes == 0
            assert storage.stats().entries_written_out == fitting + 1

    run(scenario())


@pytest.mark.feature("F-BKS-04")
def test_old_journals_go_after_checkpoints_but_for_the_backups() -> None:
    async def scenario() -> None:
        disk = SimulatedDisk()
        settings = replace(SMALL, journal_backups_max=2)
        async with bench(disk, settings) as storage:
            for start in range(0, 200, 20):
                await add_all(storage, 1, range(start, start + 20), lambda _: bytes(200))
            await storage.checkpoint()
            journals = [name for name in await disk.list("journal/current") if name.endswith(".txn")]
            assert len(journals) <= 3

    run(scenario())


@pytest.mark.feature("F-BKS-14", "F-BKS-18")
def test_a_flush_writes_each_ledgers_entries_together_into_shared_logs() -> None:
    async def scenario() -> None:
        disk = SimulatedDisk()
        async with bench(disk, ROOMY) as storage:
            answers = Answers()
            for entry_id in range(5):
                for ledger_id in (3, 1, 2):
                    storage.add(ledger_id, entry_id, packed(ledger_id, entry_id), KEY, answers)
            await answers.until(15)
            await storage.checkpoint()
            data = await disk.read_file("ledgers/current/0.log", bytes_max=1 << 20)
            places = [data.index(packed(ledger_id, entry_id)) for ledger_id in (1, 2, 3) for entry_id in range(5)]
            assert places == sorted(places)

    run(scenario())


@pytest.mark.feature("F-BKS-08")
def test_without_sync_answers_come_from_the_page_cache_and_it_is_said_loudly(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        disk = SimulatedDisk()
        syncs = syncs_of(disk, ".txn")
        async with bench(disk, replace(SMALL, journal_sync=False)) as storage:
            await add_all(storage, 1, range(5))
            assert syncs == []

    run(scenario())
    assert "journal_sync is off" in caplog.text


def test_a_journal_at_rest_says_that_it_is_synced() -> None:
    """A seal after the last record: a later broken record before it is then known to have been durable."""

    async def scenario(disk: SimulatedDisk) -> None:
        storage = await opened(disk, replace(SMALL, journal_seal_delay_ms=1))
        await add_all(storage, 1, range(3))
        sealed = asyncio.Event()

        def on_call(call: DiskCall) -> None:
            if call.call is Call.SYNC and call.path.endswith(".txn"):
                sealed.set()

        disk.kernel.faults.on_call = on_call
        await sealed.wait()

    async def after(disk: SimulatedDisk) -> None:
        replay = JournalReplay(disk, "journal/current", None, payload_bytes_max=1 << 20)
        kinds = [record.kind async for record in replay.records()]
        assert kinds[-1] == RecordKind.SEAL

    disk = SimulatedDisk()
    run(scenario(disk))
    disk.kernel.kill()
    run(after(disk))


@pytest.mark.parametrize("entries_max", [1, 2, 3, 4])
@pytest.mark.parametrize("queue_bytes_max", [1, 400])
def test_bursts_at_the_smallest_queues_end(entries_max: int, queue_bytes_max: int) -> None:
    """F45: one to four entries in a group, room for one or a few, and whoever is answered adds at once."""
    lanes, each = 5, 30
    settings = replace(
        SMALL,
        journal_group_entries_max=entries_max,
        journal_queue_bytes_max=queue_bytes_max,
        journal_answers_per_turn_max=1,
        journal_file_bytes_max=1_000,
        write_cache_bytes_max=2_000,
        journal_directories=("j0", "j1"),
    )

    class Lane:
        """Adds two entries for each answer, from inside of it, until all are sent."""

        def __init__(self, storage: BookieStorage, ledger_id: int) -> None:
            self._storage = storage
            self._ledger_id = ledger_id
            self._sent = 0
            self.answered: list[int] = []
            self.ended = asyncio.Event()

        def send(self, count: int) -> None:
            for entry_id in range(self._sent, min(self._sent + count, each)):
                self._sent += 1
                self._storage.add(self._ledger_id, entry_id, packed(self._ledger_id, entry_id), KEY, self)

        def on_added(self, bookie: str, first: int, last: int, code: int) -> None:
            assert code == OK
            self.answered += range(first, last + 1)
            self.send(2 * (last - first + 1))
            if len(self.answered) == each:
                self.ended.set()

    async def scenario() -> None:
        sync = Latency(0.5, 0.1)
        storage = await opened(SimulatedDisk(faults=DiskFaults(sync_latency=sync)), settings)
        burst = [Lane(storage, ledger_id) for ledger_id in range(lanes)]
        for lane in burst:
            lane.send(10)
        async with asyncio.timeout(1):
            for lane in burst:
                await lane.ended.wait()
            await storage.fence(1, KEY)
        assert all(lane.answered == list(range(each)) for lane in burst), "in order, each once"
        assert storage.stats().held_adds == 0
        await storage.close()

    with asyncio.Runner(loop_factory=lambda: SimLoop(Schedule(Policy.FIFO, Random(0)))) as runner:
        runner.run(scenario())
