# SPDX-License-Identifier: Apache-2.0
"""What every Disk promises: the real one, also with its compiled writer, the simulated one at once, and with delays."""

import asyncio
import errno
import os
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest

from magnetar.errors import DataDirectoryInUse
from magnetar.runtime import native_log
from magnetar.runtime.disk import Disk, GroupLimits, SyncedLog
from magnetar.runtime.real_disk import RealDisk
from magnetar.runtime.simulated_disk import SimulatedDisk
from magnetar.runtime.simulated_faults import DiskFaults, Latency
from magnetar.runtime.turn_end import turn_end

RunOnLoop = Callable[[Coroutine[Any, Any, Any]], Any]
Scenario = Callable[[Disk], Coroutine[Any, Any, None]]
RunOnDisk = Callable[[Scenario], None]

_MOMENT = Latency(0.1, 0.1)
_DISKS: dict[str, Callable[[Path], Disk]] = {
    "real": lambda root: RealDisk(str(root)),
    "real-compiled": lambda root: RealDisk(str(root)),
    "simulated": lambda root: SimulatedDisk(Random(1)),
    "simulated-with-delays": lambda root: SimulatedDisk(
        Random(2),
        faults=DiskFaults(_MOMENT, _MOMENT, _MOMENT, _MOMENT, short_write_chance=0.5),
    ),
}


@pytest.fixture(params=sorted(_DISKS))
def on_disk(
    request: pytest.FixtureRequest, tmp_path: Path, loop_run: RunOnLoop, monkeypatch: pytest.MonkeyPatch
) -> RunOnDisk:
    """Run a scenario on a fresh disk and close it; no thread may be left."""
    if request.param == "real-compiled":
        if not native_log.is_built():
            (pytest.fail if os.environ.get("CI") else pytest.skip)(
                "the compiled writer is not built: `make compile` builds it"
            )
        monkeypatch.delenv("MAGNETAR_PURE", raising=False)
    else:
        monkeypatch.setenv("MAGNETAR_PURE", "1")

    async def run(scenario: Scenario) -> None:
        before = threading.enumerate()
        disk = _DISKS[request.param](tmp_path)
        try:
            await scenario(disk)
        finally:
            await disk.close()
        assert [thread for thread in threading.enumerate() if thread not in before] == []

    return lambda scenario: loop_run(run(scenario))


@contextmanager
def raises_errno(number: int) -> Iterator[None]:
    with pytest.raises(OSError, match=rf"\[Errno {number}\]"):
        yield


def test_bytes_that_were_written_early_or_let_go_of_are_read_as_they_are(on_disk: RunOnDisk) -> None:
    data = bytes(range(256)) * 64

    async def scenario(disk: Disk) -> None:
        file = await disk.open("f", create=True)
        await file.write(0, [data, data], early=True)
        await file.let_go(0, len(data))
        assert await file.read(100, len(data)) == (data + data)[100 : 100 + len(data)]
        await file.sync()
        await file.let_go(0, 2 * len(data))
        assert await file.read(0, 3 * len(data)) == data + data
        await file.write(len(data), [b"other"])
        assert await file.read(len(data), 5) == b"other"
        await file.close()

    on_disk(scenario)


class Told:
    """What a log told its owner, and a way to wait for it."""

    def __init__(self) -> None:
        self.positions: list[int] = []
        self.errors: list[OSError] = []
        self._news = asyncio.Event()

    def on_synced(self, position: int) -> None:
        self.positions.append(position)
        self._news.set()

    def on_failed(self, error: OSError) -> None:
        self.errors.append(error)
        self._news.set()

    async def reaches(self, position: int) -> None:
        while not self.positions or self.positions[-1] < position:
            self._news.clear()
            await self._news.wait()

    async def fails(self) -> None:
        while not self.errors:
            self._news.clear()
            await self._news.wait()

    async def open(self, disk: Disk, path: str, **settings: Any) -> SyncedLog:
        return await disk.open_synced_log(path, on_synced=self.on_synced, on_failed=self.on_failed, **settings)


def test_a_file_reads_back_what_was_written(on_disk: RunOnDisk) -> None:
    async def scenario(disk: Disk) -> None:
        file = await disk.open("f", create=True)
        assert file.size() == 0
        await file.write(0, [b"hello ", bytearray(b"wor"), memoryview(b"ld")])
        await file.write(20, [b"far"])
        assert file.size() == 23
        assert await file.read(0, 11) == b"hello world"
        assert await file.read(6, 100) == b"world" + bytes(9) + b"far"
        assert await file.read(23, 5) == b""
        for offset, length in ((0, 11), (6, 100), (23, 5)):
            whole = await file.read(offset, length)
            at_hand = file.at_hand(offset, length)
            assert whole.startswith(at_hand), "it may have less of it, and nothing else"
        await file.write(0, [b"J"])
        await file.sync()
        await file.truncate(5)
        assert await file.read(0, 100) == b"Jello"
        await file.close()
        assert await disk.file_size("f") == 5
        assert await disk.read_file("f", bytes_max=5) == b"Jello"

    on_disk(scenario)


def test_many_buffers_are_one_write(on_disk: RunOnDisk) -> None:
    async def scenario(disk: Disk) -> None:
        file = await disk.open("f", create=True)
        buffers = [bytes((number % 256,)) * (number % 5) for number in range(3000)]
        await file.write(0, buffers)
        assert await file.read(0, 10_000) == b"".join(buffers)
        assert await file.read(0, 1) == b"\x01"

    on_disk(scenario)


def test_open_makes_or_empties_only_when_asked(on_disk: RunOnDisk) -> None:
    async def scenario(disk: Disk) -> None:
        with pytest.raises(FileNotFoundError):
            await disk.open("f")
        with pytest.raises(FileNotFoundError):
            await disk.open("no/such/f", create=True)
        await disk.replace_file("f", b"abc")
        kept = await disk.open("f", create=True)
        assert kept.size() == 3
        emptied = await disk.open("f", truncate=True)
        assert emptied.size() == 0
        assert await emptied.read(0, 3) == b""

    on_disk(scenario)


def test_a_closed_file_refuses_everything(on_disk: RunOnDisk) -> None:
    async def scenario(disk: Disk) -> None:
        file = await disk.open("f", create=True)
        await file.write(0, [b"abc"])
        await file.close()
        await file.close()
        for call in (file.read(0, 1), file.write(0, [b"x"]), file.sync(), file.truncate(0)):
            with raises_errno(errno.EBADF):
                await call
        with raises_errno(errno.EBADF):
            file.at_hand(0, 1)
        assert await disk.read_file("f", bytes_max=10) == b"abc"

    on_disk(scenario)


def test_closing_waits_for_calls_whose_task_was_cancelled(on_disk: RunOnDisk) -> None:
    async def scenario(disk: Disk) -> None:
        file = await disk.open("f", create=True)
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(file.write(0, [b"x" * 100_000])) for _ in range(8)]
            await asyncio.sleep(0)
            for task in tasks:
                task.cancel()
        await file.close()
        again = await disk.open("f")
        await again.write(0, [b"y" * 100_000])
        assert set(await again.read(0, 100_000)) == {ord("y")}

    on_disk(scenario)


def test_read_file_has_a_bound(on_disk: RunOnDisk) -> None:
    async def scenario(disk: Disk) -> None:
        await disk.replace_file("f", b"12345")
        assert await disk.read_file("f", bytes_max=5) == b"12345"
        with raises_errno(errno.EFBIG):
            await disk.read_file("f", bytes_max=4)
        with pytest.raises(FileNotFoundError):
            await disk.read_file("g", bytes_max=4)

    on_disk(scenario)


def test_replace_is_whole_also_when_several_replace(on_disk: RunOnDisk) -> None:
    async def scenario(disk: Disk) -> None:
        async with asyncio.TaskGroup() as group:
            for letter in (b"a", b"b", b"c", b"d"):
                group.create_task(disk.replace_file("f", letter * 5000))
        content = await disk.read_file("f", bytes_max=5000)
        assert len(content) == 5000
        assert len(set(content)) == 1
        assert await disk.list(".") == ["f"]

    on_disk(scenario)


def test_names_and_directories(on_disk: RunOnDisk) -> None:
    async def scenario(disk: Disk) -> None:
        await disk.make_directory("a/b/c")
        await disk.make_directory("a/b/c")
        await disk.replace_file("a/b/two", b"2")
        await disk.replace_file("a/b/one", b"1")
        assert await disk.list("a/b") == ["c", "one", "two"]
        assert await disk.exists("a/b/c")
        assert not await disk.exists("a/x")
        await disk.rename("a/b/one", "a/b/c/moved")
        await disk.rename("a/b/two", "a/b/c/moved")
        await disk.sync_directory("a/b")
        await disk.sync_directory("a/b/c")
        assert await disk.list("a/b/c") == ["moved"]
        assert await disk.read_file("a/b/c/moved", bytes_max=9) == b"2"
        await disk.remove("a/b/c/moved")
        assert await disk.list("a/b/c") == []
        for call in (
            disk.remove("a/b/c/moved"),
            disk.rename("a/b/no", "a/b/yes"),
            disk.list("a/no"),
            disk.file_size("a/no"),
            disk.sync_directory("a/no"),
        ):
            with pytest.raises(FileNotFoundError):
                await call
        with pytest.raises(IsADirectoryError):
            await disk.open("a/b")
        await disk.replace_file("a/b/three", b"3")
        with pytest.raises(FileExistsError):
            await disk.make_directory("a/b/three")
        await disk.remove_directory("a")
        await disk.remove_directory("a")
        assert await disk.list(".") == []

    on_disk(scenario)


def test_usage_tells_total_and_free(on_disk: RunOnDisk) -> None:
    async def scenario(disk: Disk) -> None:
        usage = await disk.usage(".")
        assert 0 < usage.free_bytes <= usage.total_bytes
        with pytest.raises(FileNotFoundError):
            await disk.usage("no/such")

    on_disk(scenario)


def test_a_lock_has_one_holder(on_disk: RunOnDisk) -> None:
    async def scenario(disk: Disk) -> None:
        await disk.make_directory("data")
        held = await disk.lock("data/lock")
        with pytest.raises(DataDirectoryInUse, match="in use"):
            await disk.lock("data/lock")
        await held.release()
        await held.release()
        again = await disk.lock("data/lock")
        await again.release()

    on_disk(scenario)


def test_a_log_says_how_far(on_disk: RunOnDisk) -> None:
    async def scenario(disk: Disk) -> None:
        told = Told()
        log = await told.open(disk, "log")
        assert log.append([b"one", b"two"], 6) == 6
        assert log.append([b"three"], 5) == 11
        assert told.positions == []
        assert log.queued_bytes() == 11
        await told.reaches(11)
        assert log.queued_bytes() == 0
        for number in range(2000):
            log.append([b"%04d" % number], 4)
        await told.reaches(11 + 8000)
        assert told.positions == sorted(set(told.positions))
        stats = log.stats()
        assert stats.synced_bytes == 8011
        assert len(told.positions) <= stats.groups < 100
        await log.close()
        await log.close()
        content = await disk.read_file("log", bytes_max=100_000)
        assert content == b"onetwothree" + b"".join(b"%04d" % number for number in range(2000))
        assert told.errors == []

    on_disk(scenario)


def test_a_log_that_is_appended_to_from_on_synced_goes_on(on_disk: RunOnDisk) -> None:
    async def scenario(disk: Disk) -> None:
        done = asyncio.Event()

        def on_synced(position: int) -> None:
            if position < 500:
                log.append([b"xxxxx"], 5)
            else:
                done.set()

        log = await disk.open_synced_log("log", on_synced=on_synced, on_failed=lambda error: None)
        log.append([b"xxxxx"], 5)
        await done.wait()
        assert log.stats().groups == 100

    on_disk(scenario)


def test_group_limits_are_kept(on_disk: RunOnDisk) -> None:
    async def scenario(disk: Disk) -> None:
        told = Told()
        log = await told.open(disk, "log", limits=GroupLimits(bytes_max=100, buffers_max=4))
        for _ in range(40):
            log.append([b"x" * 10, b"y" * 10], 20)
        log.append([b"z" * 1000], 1000)
        await told.reaches(1800)
        assert log.stats().groups >= 21
        await log.close()

    on_disk(scenario)


def test_a_group_waits_for_company_only_as_long_as_it_is_not_full(on_disk: RunOnDisk) -> None:
    async def scenario(disk: Disk) -> None:
        told = Told()
        log = await told.open(disk, "log", limits=GroupLimits(bytes_max=100, delay_max_ms=3_600_000))
        log.append([b"x" * 40], 40)
        await asyncio.sleep(0)
        log.append([b"x" * 60], 60)
        await told.reaches(100)
        assert log.stats().groups == 1
        log.append([b"x"], 1)
        log.roll("next")
        await told.reaches(101)
        log.append([b"y"], 1)
        await log.close()
        assert told.positions[-1] == 102

    on_disk(scenario)


def test_roll_goes_on_in_a_new_file(on_disk: RunOnDisk) -> None:
    async def scenario(disk: Disk) -> None:
        await disk.make_directory("logs")
        told = Told()
        log = await told.open(disk, "logs/0", preallocate_bytes=1 << 16)
        log.append([b"first"], 5)
        log.roll("logs/1")
        log.roll("logs/2")
        assert log.append([b"second"], 6) == 11
        await told.reaches(11)
        await log.close()
        assert await disk.list("logs") == ["0", "1", "2"]
        contents = [await disk.read_file(f"logs/{number}", bytes_max=99) for number in range(3)]
        assert contents == [b"first", b"", b"second"]

    on_disk(scenario)


def test_roll_goes_on_in_a_spare_over_what_is_there(on_disk: RunOnDisk) -> None:
    async def scenario(disk: Disk) -> None:
        await disk.make_directory("logs")
        await disk.replace_file("logs/spare", b"o" * 9000)
        told = Told()
        log = await told.open(disk, "logs/0", preallocate_bytes=1 << 16)
        log.append([b"first"], 5)
        log.roll("logs/1", "logs/spare")
        assert log.append([b"sec", b"ond"], 6) == 11
        await told.reaches(11)
        assert await disk.list("logs") == ["0", "1"]
        # Zeros up to the end of the page, so that nothing had to be read; then what was there.
        assert await disk.read_file("logs/1", bytes_max=1 << 17) == b"second" + bytes(4090) + b"o" * 4904
        log.append([b"x" * 4090], 4090)
        log.append([b"third"], 5)
        await told.reaches(4106)
        await log.close()
        assert await disk.read_file("logs/1", bytes_max=1 << 17) == b"second" + b"x" * 4090 + b"third"

    on_disk(scenario)


def test_a_spare_is_outgrown(on_disk: RunOnDisk) -> None:
    async def scenario(disk: Disk) -> None:
        await disk.replace_file("spare", b"o" * 100)
        told = Told()
        log = await told.open(disk, "0", preallocate_bytes=4096)
        log.roll("1", "spare")
        log.append([b"x" * 9000], 9000)
        await told.reaches(9000)
        assert await disk.file_size("1") == 12_288
        await log.close()
        assert await disk.read_file("1", bytes_max=1 << 17) == b"x" * 9000

    on_disk(scenario)


def test_a_spare_that_is_gone_is_done_without(on_disk: RunOnDisk) -> None:
    async def scenario(disk: Disk) -> None:
        told = Told()
        log = await told.open(disk, "0")
        log.roll("1", "spare")
        log.append([b"new"], 3)
        await told.reaches(3)
        await log.close()
        assert await disk.read_file("1", bytes_max=99) == b"new"

    on_disk(scenario)


def test_preallocation_grows_in_steps_and_is_cut_off_at_the_end(on_disk: RunOnDisk) -> None:
    async def scenario(disk: Disk) -> None:
        told = Told()
        log = await told.open(disk, "log", preallocate_bytes=4096)
        log.append([b"x" * 5000], 5000)
        await told.reaches(5000)
        assert await disk.file_size("log") == 8192
        assert (await disk.read_file("log", bytes_max=8192))[5000:] == bytes(3192)
        await log.close()
        assert await disk.file_size("log") == 5000

    on_disk(scenario)


def test_a_log_never_overwrites_a_file(on_disk: RunOnDisk) -> None:
    async def scenario(disk: Disk) -> None:
        await disk.replace_file("there", b"precious")
        told = Told()
        with pytest.raises(FileExistsError):
            await told.open(disk, "there")
        log = await told.open(disk, "log")
        log.append([b"kept"], 4)
        log.roll("there")
        log.append([b"lost"], 4)
        await told.fails()
        assert told.positions == [4]
        assert isinstance(told.errors[0], FileExistsError)
        assert await disk.read_file("there", bytes_max=99) == b"precious"

    on_disk(scenario)


def test_a_spare_never_overwrites_a_file_either(on_disk: RunOnDisk) -> None:
    async def scenario(disk: Disk) -> None:
        await disk.replace_file("there", b"precious")
        await disk.replace_file("spare", b"old")
        told = Told()
        log = await told.open(disk, "log")
        log.roll("there", "spare")
        await told.fails()
        assert isinstance(told.errors[0], FileExistsError)
        assert await disk.read_file("there", bytes_max=99) == b"precious"

    on_disk(scenario)


def test_a_failed_log_tells_once_and_refuses_the_rest(on_disk: RunOnDisk) -> None:
    async def scenario(disk: Disk) -> None:
        told = Told()
        log = await told.open(disk, "log")
        log.append([b"kept"], 4)
        log.roll("no/such/directory/log")
        log.append([b"never"], 5)
        await told.fails()
        for _ in range(2):
            with pytest.raises(FileNotFoundError):
                log.append([b"more"], 4)
        with pytest.raises(FileNotFoundError):
            log.roll("other")
        await log.close()
        assert told.positions == [4]
        assert len(told.errors) == 1
        assert log.queued_bytes() == 5

    on_disk(scenario)


def test_a_log_is_at_work_from_its_first_piece_until_all_are_told_or_none_can_be(tmp_path: Path) -> None:
    async def scenario() -> None:
        disk, told = RealDisk(str(tmp_path)), Told()
        log = await told.open(disk, "log")
        assert turn_end().threads_at_work == 0
        log.append([], 0)
        assert turn_end().threads_at_work == 0
        for _ in range(3):
            log.append([b"kept"], 4)
            assert turn_end().threads_at_work == 1
        await told.reaches(12)
        assert turn_end().threads_at_work == 0
        log.roll("no/such/directory/log")
        log.append([b"never"], 5)
        assert turn_end().threads_at_work == 1
        await told.fails()
        assert turn_end().threads_at_work == 0
        await log.close()
        await disk.close()

    asyncio.run(scenario())


def test_a_closed_log_refuses(on_disk: RunOnDisk) -> None:
    async def scenario(disk: Disk) -> None:
        told = Told()
        log = await told.open(disk, "log", sync=False)
        log.append([b"kept"], 4)
        await log.close()
        assert told.positions == [4]
        with raises_errno(errno.EBADF):
            log.append([b"more"], 4)

    on_disk(scenario)


def test_closing_the_disk_closes_its_logs(on_disk: RunOnDisk) -> None:
    async def scenario(disk: Disk) -> None:
        told = Told()
        log = await told.open(disk, "log")
        log.append([b"kept"], 4)
        await disk.close()
        assert told.positions == [4]

    on_disk(scenario)


def test_a_machines_life_has_one_name(on_disk: RunOnDisk) -> None:
    async def scenario(disk: Disk) -> None:
        name = await disk.machine_life()
        assert name
        assert name.isascii()
        assert len(name) <= 64
        if isinstance(disk, SimulatedDisk):
            disk.kernel.kill()
            assert await disk.machine_life() == name, "what a process wrote outlives it"
            disk.kernel.lose_power()
            assert await disk.machine_life() != name
        else:
            assert await disk.machine_life() == name

    on_disk(scenario)
