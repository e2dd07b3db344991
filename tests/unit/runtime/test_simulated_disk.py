# SPDX-License-Identifier: Apache-2.0
"""The simulated disk under faults: what a crash keeps, what errors do, how damage shows."""

import asyncio
import errno
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

import pytest

from magnetar.errors import DataDirectoryInUse
from magnetar.runtime.disk import SyncedLog
from magnetar.runtime.simulated_disk import SimulatedDisk
from magnetar.runtime.simulated_faults import Call, DiskCall, DiskFaults, Latency

RunOnLoop = Callable[[Coroutine[Any, Any, Any]], Any]


class Owner:
    def __init__(self) -> None:
        self.positions: list[int] = []
        self.errors: list[OSError] = []
        self.news = asyncio.Event()

    def on_synced(self, position: int) -> None:
        self.positions.append(position)
        self.news.set()

    def on_failed(self, error: OSError) -> None:
        self.errors.append(error)
        self.news.set()

    async def open(self, disk: SimulatedDisk, path: str, **settings: Any) -> SyncedLog:
        return await disk.open_synced_log(path, on_synced=self.on_synced, on_failed=self.on_failed, **settings)

    async def told(self) -> None:
        self.news.clear()
        await self.news.wait()


def test_power_loss_keeps_what_was_synced_with_its_name() -> None:
    async def scenario() -> None:
        for seed in range(50):
            disk = SimulatedDisk(Random(seed))
            await disk.make_directory("a/b")
            file = await disk.open("a/b/f", create=True)
            await file.write(0, [b"safe"])
            await file.sync()
            await disk.sync_directory("a/b")
            await file.write(4, [b"unsafe"])
            disk.kernel.lose_power()
            content = await disk.read_file("a/b/f", bytes_max=100)
            assert content[:4] == b"safe"

    asyncio.run(scenario())


def test_a_name_without_its_directory_synced_may_go_with_or_without_the_bytes() -> None:
    async def outcome(seed: int) -> str:
        disk = SimulatedDisk(Random(seed))
        file = await disk.open("synced", create=True)
        await file.write(0, [b"data"])
        await file.sync()
        other = await disk.open("named", create=True)
        await other.write(0, [b"data"])
        disk.kernel.lose_power()
        return " ".join([f"{name}={await disk.file_size(name)}" for name in await disk.list(".")])

    async def scenario() -> None:
        outcomes = {await outcome(seed) for seed in range(400)}
        assert {"", "synced=4", "named=4", "named=0 synced=4", "named=4 synced=4"} <= outcomes
        assert not [outcome for outcome in outcomes if "synced" in outcome and "synced=4" not in outcome]

    asyncio.run(scenario())


def test_replace_is_old_or_new_at_every_crash_point() -> None:
    """F28: crash at every call of a replacement, then look."""

    async def run(crash_at: int, seed: int) -> tuple[bytes, bool]:
        disk = SimulatedDisk(Random(seed))
        await disk.replace_file("f", b"old" * 1000)
        first = disk.kernel.calls

        def on_call(call: DiskCall) -> None:
            if call.number == first + crash_at:
                disk.kernel.lose_power()

        disk.kernel.faults.on_call = on_call
        task = asyncio.get_running_loop().create_task(disk.replace_file("f", b"new!" * 1000))
        await asyncio.sleep(0)
        finished = task.done()
        task.cancel()
        disk.kernel.faults.on_call = None
        content = await disk.read_file("f", bytes_max=10_000)
        return content, finished

    async def scenario() -> None:
        for crash_at in range(8):
            for seed in range(30):
                content, finished = await run(crash_at, seed)
                assert content in ((b"old" * 1000, b"new!" * 1000))
                if finished:
                    assert content == b"new!" * 1000

    asyncio.run(scenario())


def test_kill_keeps_what_was_written_and_frees_locks(loop_run: RunOnLoop) -> None:
    async def scenario() -> None:
        disk = SimulatedDisk()
        await disk.lock("lock")
        file = await disk.open("f", create=True)
        await file.write(0, [b"in the page cache"])
        with pytest.raises(DataDirectoryInUse):
            await disk.lock("lock")
        disk.kernel.kill()
        assert await disk.read_file("f", bytes_max=100) == b"in the page cache"
        await disk.lock("lock")
        with pytest.raises(OSError, match="dead"):
            await file.write(0, [b"from the grave"])

    loop_run(scenario())


def test_a_dead_process_is_told_nothing(loop_run: RunOnLoop) -> None:
    async def scenario() -> None:
        disk, owner = SimulatedDisk(faults=DiskFaults(sync_latency=Latency(1.0))), Owner()
        log = await owner.open(disk, "log")
        log.append([b"x"], 1)
        await asyncio.sleep(0)
        disk.kernel.lose_power()
        next_owner = Owner()
        next_log = await next_owner.open(disk, "next")
        next_log.append([b"y"], 1)
        await next_owner.told()
        assert (owner.positions, owner.errors) == ([], [])
        with pytest.raises(OSError, match="dead"):
            log.append([b"z"], 1)
        await log.close()

    loop_run(scenario())


@pytest.mark.parametrize("latency", [Latency(), Latency(0.1, 0.5)])
def test_a_log_never_says_more_than_is_durable(latency: Latency) -> None:
    """R1, asked of the model at the moment of telling; and after a power loss at any time, what was told is there."""

    async def run(seed: int) -> None:
        random = Random(seed)
        disk = SimulatedDisk(random, faults=DiskFaults(write_latency=latency, sync_latency=latency))
        told: list[int] = []
        data = random.randbytes(4000)

        def on_synced(position: int) -> None:
            assert disk.kernel.is_durable("log", 0, position)
            told.append(position)
            if len(told) == stop_after or position == len(data):
                stopped.set()

        stopped = asyncio.Event()
        stop_after = random.randrange(1, 8)
        log = await disk.open_synced_log("log", on_synced=on_synced, on_failed=print, preallocate_bytes=512)
        for number in range(20):
            log.append([data[number * 200 : number * 200 + 200]], 200)
            if random.random() < 0.7:
                await asyncio.sleep(0)
        await stopped.wait()
        disk.kernel.lose_power()
        content = await disk.read_file("log", bytes_max=10_000)
        assert content[: told[-1]] == data[: told[-1]]

    async def scenario() -> None:
        for seed in range(40):
            await run(seed)

    asyncio.run(scenario())


def test_a_failed_sync_ends_the_log_and_the_bytes(loop_run: RunOnLoop) -> None:
    """F14."""

    async def scenario() -> None:
        disk, owner = SimulatedDisk(), Owner()
        log = await owner.open(disk, "log")
        log.append([b"good"], 4)
        await owner.told()
        disk.kernel.faults.sync_error_chance = 1.0
        for _ in range(50):
            log.append([b"bad!"], 4)
        await owner.told()
        disk.kernel.faults.sync_error_chance = 0.0
        assert owner.positions == [4]
        assert [error.errno for error in owner.errors] == [errno.EIO]
        assert (await disk.read_file("log", bytes_max=1000)) == b"good" + b"bad!" * 50
        disk.kernel.lose_power()
        assert (await disk.read_file("log", bytes_max=1000)) == b"good"

    loop_run(scenario())


def test_a_file_whose_sync_failed_never_syncs_again(loop_run: RunOnLoop) -> None:
    async def scenario() -> None:
        disk = SimulatedDisk()
        file = await disk.open("f", create=True)
        await disk.sync_directory(".")
        await file.write(0, [b"x"])
        disk.kernel.faults.sync_error_chance = 1.0
        with pytest.raises(OSError, match="sync error"):
            await file.sync()
        disk.kernel.faults.sync_error_chance = 0.0
        await file.write(1, [b"y"])
        with pytest.raises(OSError, match="sync error"):
            await file.sync()
        assert not disk.kernel.is_durable("f", 0, 1)

    loop_run(scenario())


def test_a_failed_write_leaves_what_was_written_before_to_chance() -> None:
    async def length(seed: int) -> int:
        disk, owner = SimulatedDisk(Random(seed), capacity_bytes=10), Owner()
        log = await owner.open(disk, "log")
        log.append([b"x" * 20], 20)
        await owner.told()
        disk.kernel.lose_power()
        return await disk.file_size("log")

    async def scenario() -> None:
        assert {0, 10} <= {await length(seed) for seed in range(40)}

    asyncio.run(scenario())


def test_closing_a_file_waits_for_its_calls(loop_run: RunOnLoop) -> None:
    async def scenario() -> None:
        disk = SimulatedDisk(faults=DiskFaults(write_latency=Latency(1.0)))
        file = await disk.open("f", create=True)
        async with asyncio.TaskGroup() as group:
            group.create_task(file.write(0, [b"late"]))
            await asyncio.sleep(0)
            await file.close()
            assert await disk.read_file("f", bytes_max=9) == b"late"

    loop_run(scenario())


def test_a_full_disk_takes_a_part_and_refuses_the_rest(loop_run: RunOnLoop) -> None:
    """F19: no space in the middle of a record."""

    async def scenario() -> None:
        disk, owner = SimulatedDisk(capacity_bytes=1000), Owner()
        log = await owner.open(disk, "log", preallocate_bytes=4096)
        log.append([b"x" * 990], 990)
        await owner.told()
        log.append([b"y" * 20], 20)
        await owner.told()
        assert owner.positions == [990]
        assert owner.errors[0].errno == errno.ENOSPC
        assert await disk.read_file("log", bytes_max=2000) == b"x" * 990 + b"y" * 10
        assert (await disk.usage(".")).free_bytes == 0
        await disk.remove("log")
        assert (await disk.usage(".")).free_bytes == 1000
        await disk.replace_file("f", b"z" * 400)
        await disk.replace_file("f", b"z" * 500)
        assert (await disk.usage(".")).free_bytes == 500
        with pytest.raises(OSError, match="no space"):
            await disk.replace_file("f", b"z" * 501)
        assert await disk.read_file("f", bytes_max=1000) == b"z" * 500

    loop_run(scenario())


def test_the_nth_call_can_fail(loop_run: RunOnLoop) -> None:
    async def scenario() -> None:
        disk = SimulatedDisk()
        seen: list[DiskCall] = []

        def on_call(call: DiskCall) -> None:
            seen.append(call)
            if call.number == 2:
                raise OSError(errno.EIO, "the third call")

        disk.kernel.faults.on_call = on_call
        file = await disk.open("f", create=True)
        await file.write(0, [b"x"])
        with pytest.raises(OSError, match="the third call"):
            await file.write(0, [b"y"])
        assert await file.read(0, 9) == b"x"
        assert [call.call for call in seen] == [Call.NAME, Call.WRITE, Call.WRITE, Call.READ]

    loop_run(scenario())


def test_a_hanging_sync_never_returns(loop_run: RunOnLoop) -> None:
    async def scenario() -> None:
        disk, owner = SimulatedDisk(), Owner()
        log = await owner.open(disk, "log")
        disk.kernel.faults.hanging = frozenset({Call.SYNC})
        log.append([b"x"], 1)
        file = await disk.open("f", create=True)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await file.sync()
        assert owner.positions == []
        assert disk.kernel.injected["hang"] == 2

    loop_run(scenario())


def test_buffers_are_read_when_written_so_that_a_change_meanwhile_shows(loop_run: RunOnLoop) -> None:
    async def scenario() -> None:
        disk, owner = SimulatedDisk(), Owner()
        log = await owner.open(disk, "log")
        buffer = bytearray(b"mine")
        log.append([buffer], 4)
        buffer[:] = b"your"
        await owner.told()
        assert await disk.read_file("log", bytes_max=9) == b"your"

    loop_run(scenario())


def test_damage_at_rest(loop_run: RunOnLoop) -> None:
    async def scenario() -> None:
        disk = SimulatedDisk()
        kernel = disk.kernel
        await disk.make_directory("one")
        await disk.make_directory("two")
        await disk.replace_file("one/f", b"\x00" * 2000)
        await disk.replace_file("two/g", b"\xff" * 2000)
        image = kernel.image()
        kernel.flip_bit("one/f", 700, 3)
        assert (await disk.read_file("one/f", bytes_max=2000))[700] == 8
        kernel.zero_sector("two/g", 600)
        assert (await disk.read_file("two/g", bytes_max=2000))[512:1024] == bytes(512)
        kernel.swap("one", "two")
        assert await disk.list("one") == ["g"]
        await disk.remove("one/g")
        kernel.restore(image)
        assert await disk.read_file("one/f", bytes_max=2000) == b"\x00" * 2000
        assert await disk.read_file("two/g", bytes_max=2000) == b"\xff" * 2000
        kernel.wipe()
        assert await disk.list(".") == []
        assert sorted(kernel.injected) == ["bit-flip", "roll-back", "sector-zeroed", "swap", "wipe"]

    loop_run(scenario())


def test_lost_and_misdirected_writes_show_when_memory_is_dropped(loop_run: RunOnLoop) -> None:
    async def scenario() -> None:
        disk = SimulatedDisk(Random(3))
        await disk.replace_file("f", bytes(4096))
        file = await disk.open("f")
        disk.kernel.faults.lost_write_chance = 1.0
        await file.write(0, [b"lost"])
        disk.kernel.faults.lost_write_chance = 0.0
        disk.kernel.faults.misdirected_write_chance = 1.0
        await file.write(8, [b"astray"])
        await file.sync()
        assert (await file.read(0, 14)) == b"lost" + bytes(4) + b"astray"
        disk.kernel.evict()
        content = await file.read(0, 10_000)
        assert b"lost" not in content
        assert content.find(b"astray") % 512 == 0

    loop_run(scenario())


def test_a_rename_between_directories_is_never_lost_on_both_sides() -> None:
    async def scenario() -> None:
        for seed in range(100):
            disk = SimulatedDisk(Random(seed))
            await disk.make_directory("a")
            await disk.make_directory("b")
            await disk.replace_file("a/f", b"x")
            await disk.rename("a/f", "b/f")
            if seed % 3 == 0:
                await disk.sync_directory("a" if seed % 2 else "b")
            disk.kernel.lose_power()
            found = [name for name in ("a", "b") if await disk.list(name)]
            assert found == ["b"] if seed % 3 == 0 else len(found) == 1

    asyncio.run(scenario())


def test_the_same_seed_gives_the_same_losses() -> None:
    async def run(seed: int) -> tuple[bytes, list[tuple[str, int]]]:
        disk = SimulatedDisk(Random(seed), faults=DiskFaults(short_write_chance=0.5))
        for number in range(20):
            file = await disk.open(f"f{number}", create=True)
            await file.write(0, [bytes((number,)) * 3000])
        disk.kernel.lose_power()
        names = await disk.list(".")
        content = b"".join([await disk.read_file(name, bytes_max=9999) for name in names])
        return content, sorted(disk.kernel.injected.items())

    assert asyncio.run(run(7)) == asyncio.run(run(7))
    assert asyncio.run(run(7)) != asyncio.run(run(8))
