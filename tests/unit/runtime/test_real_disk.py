# SPDX-License-Identifier: Apache-2.0
"""What only the real disk has: descriptors, threads, another process, the page cache."""

import asyncio
import errno
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from magnetar.errors import DataDirectoryInUse
from magnetar.runtime.real_disk import RealDisk

RunOnLoop = Callable[[Coroutine[Any, Any, Any]], Any]

_HOLD_LOCK = """
import asyncio, sys
from magnetar.runtime.real_disk import RealDisk

async def main():
    await RealDisk(sys.argv[1]).lock("lock")
    print("held", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)

asyncio.run(main())
"""


def test_a_lock_held_by_another_process_names_it_and_ends_with_it(tmp_path: Path, loop_run: RunOnLoop) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _HOLD_LOCK, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"

        async def scenario() -> None:
            disk = RealDisk(str(tmp_path))
            with pytest.raises(DataDirectoryInUse, match=f"in use by the process {holder.pid}"):
                await disk.lock("lock")
            holder.kill()
            holder.wait()
            lock = await disk.lock("lock")
            assert (tmp_path / "lock").read_text() == f"{os.getpid()}\n"
            await lock.release()
            await disk.close()

        loop_run(scenario())


def test_bytes_in_memory_are_read_without_a_thread(
    tmp_path: Path, loop_run: RunOnLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    pread_calls = []

    def counted(fd: int, length: int, offset: int) -> bytes:
        pread_calls.append((length, offset))
        return os_pread(fd, length, offset)

    os_pread = os.pread
    monkeypatch.setattr(os, "pread", counted)

    async def scenario() -> None:
        disk = RealDisk(str(tmp_path))
        file = await disk.open("f", create=True)
        await file.write(0, [b"x" * 100_000])
        assert await file.read(10, 1000) == b"x" * 1000
        assert pread_calls == []
        assert await file.read(99_990, 100) == b"x" * 10
        assert pread_calls == [(90, 100_000)]
        large = bytes(range(256)) * 8_192
        await file.write(0, [large])
        assert await file.read(7, 1024 * 1024) == large[7 : 7 + 1024 * 1024]
        assert len(pread_calls) == 1
        assert await file.read(0, len(large)) == large
        assert pread_calls[-1] == (len(large), 0)
        await disk.close()

    loop_run(scenario())


def test_bytes_that_are_not_in_memory_are_read_by_a_thread(
    tmp_path: Path, loop_run: RunOnLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    def would_block(*args: Any) -> int:
        raise BlockingIOError(errno.EAGAIN, "not in memory")

    async def scenario() -> None:
        disk = RealDisk(str(tmp_path))
        file = await disk.open("f", create=True)
        await file.write(0, [b"abcdef"])
        monkeypatch.setattr(os, "preadv", would_block)
        assert await file.read(1, 3) == b"bcd"
        await disk.close()

    loop_run(scenario())


def test_closing_the_disk_closes_descriptors_and_threads(tmp_path: Path, loop_run: RunOnLoop) -> None:
    async def scenario() -> None:
        before = (len(os.listdir("/proc/self/fd")), threading.enumerate())
        disk = RealDisk(str(tmp_path))
        files = [await disk.open(f"f{number}", create=True) for number in range(10)]
        for number in range(3):
            log = await disk.open_synced_log(f"log{number}", on_synced=lambda position: None, on_failed=print)
            log.append([b"x"], 1)
        async with asyncio.TaskGroup() as group:
            for file in files:
                group.create_task(file.write(0, [b"x" * 10_000]))
        await disk.close()
        assert len(os.listdir("/proc/self/fd")) == before[0]
        assert [thread for thread in threading.enumerate() if thread not in before[1]] == []

    loop_run(scenario())


def test_a_cancelled_opening_leaves_no_descriptor(tmp_path: Path, loop_run: RunOnLoop) -> None:
    async def scenario() -> None:
        disk = RealDisk(str(tmp_path))
        before = len(os.listdir("/proc/self/fd"))
        async with asyncio.TaskGroup() as group:
            wanted: list[Coroutine[Any, Any, Any]] = [disk.open("f", create=True) for _ in range(5)]
            wanted.append(disk.open_synced_log("l", on_synced=lambda p: None, on_failed=lambda e: None))
            wanted.append(disk.lock("lock"))
            tasks = [group.create_task(opening) for opening in wanted]
            await asyncio.sleep(0)
            for task in tasks:
                task.cancel()
        await disk.close()
        assert len(os.listdir("/proc/self/fd")) == before

    loop_run(scenario())


def test_a_file_whose_sync_failed_never_syncs_again(
    tmp_path: Path, loop_run: RunOnLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []

    def fail(fd: int) -> None:
        made.append(fd)
        raise OSError(errno.EIO, "injected")

    async def scenario() -> None:
        disk = RealDisk(str(tmp_path))
        file = await disk.open("f", create=True)
        await file.write(0, [b"x"])
        monkeypatch.setattr(os, "fdatasync", fail)
        for _ in range(3):
            with pytest.raises(OSError, match="injected"):
                await file.sync()
        assert len(made) == 1
        await disk.close()

    loop_run(scenario())
