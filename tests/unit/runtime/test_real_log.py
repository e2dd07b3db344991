# SPDX-License-Identifier: Apache-2.0
"""The real writer thread when system calls fail, fall short or are missing; and in which order it makes them."""

import asyncio
import errno
import os
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from magnetar.runtime import log_file
from magnetar.runtime.disk import GroupLimits
from magnetar.runtime.log_file import write_fully
from magnetar.runtime.real_disk import RealDisk

RunOnLoop = Callable[[Coroutine[Any, Any, Any]], Any]


class Calls:
    """Stands before the system's calls of one module: counts them, and fails or shortens them on request."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.made: list[str] = []
        self.fail: dict[str, int] = {}
        self.write_bytes_max: int | None = None
        for name in ("pwritev", "fdatasync", "fsync", "posix_fallocate", "ftruncate"):
            monkeypatch.setattr(os, name, self._wrapped(name, getattr(os, name)))

    def _wrapped(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapper(fd: int, *args: Any) -> Any:
            synced = name == "pwritev" and len(args) > 2 and args[2]
            self.made.append("pwritev+sync" if synced else name)
            if name in self.fail:
                raise OSError(self.fail[name], "injected")
            if name == "pwritev" and self.write_bytes_max is not None:
                data = b"".join(args[0])[: self.write_bytes_max]
                return call(fd, [data], *args[1:])
            return call(fd, *args)

        return wrapper


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """The calls of the compiled writer are out of reach."""
    monkeypatch.setenv("MAGNETAR_PURE", "1")


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    return Calls(monkeypatch)


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

    async def until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self.news.clear()
            await self.news.wait()


@pytest.mark.parametrize("kind", [errno.EIO, errno.ENOSPC])
def test_a_failed_write_acknowledges_nothing_and_is_not_tried_again(
    tmp_path: Path, loop_run: RunOnLoop, calls: Calls, kind: int
) -> None:
    async def scenario() -> None:
        disk, owner = RealDisk(str(tmp_path)), Owner()
        log = await disk.open_synced_log("log", on_synced=owner.on_synced, on_failed=owner.on_failed)
        log.append([b"good"], 4)
        await owner.until(lambda: owner.positions == [4])
        calls.fail["pwritev"] = kind
        before = len(calls.made)
        for _ in range(50):
            log.append([b"bad"], 3)
        await owner.until(lambda: bool(owner.errors))
        del calls.fail["pwritev"]
        with pytest.raises(OSError, match="injected"):
            log.append([b"after"], 5)
        await log.close()
        await disk.close()
        assert owner.positions == [4]
        assert [error.errno for error in owner.errors] == [kind]
        assert calls.made[before:] == ["pwritev+sync"]

    loop_run(scenario())


def test_a_failed_sync_acknowledges_nothing(
    tmp_path: Path, loop_run: RunOnLoop, calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_file, "_WRITE_AND_SYNC", None)

    async def scenario() -> None:
        disk, owner = RealDisk(str(tmp_path)), Owner()
        log = await disk.open_synced_log("log", on_synced=owner.on_synced, on_failed=owner.on_failed)
        log.append([b"good"], 4)
        await owner.until(lambda: owner.positions == [4])
        calls.fail["fdatasync"] = errno.EIO
        log.append([b"bad"], 3)
        await owner.until(lambda: bool(owner.errors))
        await disk.close()
        assert owner.positions == [4]
        assert calls.made.count("fdatasync") == 2

    loop_run(scenario())


@pytest.mark.parametrize("write_and_sync", [True, False])
def test_one_write_and_one_sync_per_group(
    tmp_path: Path, loop_run: RunOnLoop, calls: Calls, monkeypatch: pytest.MonkeyPatch, write_and_sync: bool
) -> None:
    if not write_and_sync:
        monkeypatch.setattr(log_file, "_WRITE_AND_SYNC", None)

    async def scenario() -> None:
        disk, owner = RealDisk(str(tmp_path)), Owner()
        log = await disk.open_synced_log("log", on_synced=owner.on_synced, on_failed=owner.on_failed)
        for _ in range(500):
            log.append([b"x" * 10, b"y" * 10], 20)
        await owner.until(lambda: owner.positions[-1:] == [10_000])
        groups = log.stats().groups
        await disk.close()
        group = ["pwritev+sync"] if write_and_sync else ["pwritev", "fdatasync"]
        # The directory first: what is acknowledged must have a durable name.
        assert calls.made == ["fsync", *group * groups]

    loop_run(scenario())


def test_short_writes_are_completed_and_then_synced(tmp_path: Path, loop_run: RunOnLoop, calls: Calls) -> None:
    async def scenario() -> None:
        disk, owner = RealDisk(str(tmp_path)), Owner()
        log = await disk.open_synced_log("log", on_synced=owner.on_synced, on_failed=owner.on_failed)
        calls.write_bytes_max = 7
        log.append([b"0123456789", b"", b"abcdefghij", b"!"], 21)
        await owner.until(lambda: owner.positions == [21])
        await disk.close()
        assert (tmp_path / "log").read_bytes() == b"0123456789abcdefghij!"
        assert calls.made[-1] == "fdatasync"

    loop_run(scenario())


def test_a_group_may_have_more_buffers_than_one_call_takes(tmp_path: Path, loop_run: RunOnLoop, calls: Calls) -> None:
    async def scenario() -> None:
        disk, owner = RealDisk(str(tmp_path)), Owner()
        log = await disk.open_synced_log(
            "log", on_synced=owner.on_synced, on_failed=owner.on_failed, limits=GroupLimits(buffers_max=10_000)
        )
        buffers = [b"%05d" % number for number in range(5000)]
        log.append(buffers, 25_000)
        await owner.until(lambda: owner.positions == [25_000])
        await disk.close()
        assert (tmp_path / "log").read_bytes() == b"".join(buffers)
        assert calls.made == ["fsync", *["pwritev"] * 5, "fdatasync"]

    loop_run(scenario())


def test_a_wrong_length_ends_the_log(tmp_path: Path, loop_run: RunOnLoop) -> None:
    async def scenario() -> None:
        disk, owner = RealDisk(str(tmp_path)), Owner()
        log = await disk.open_synced_log("log", on_synced=owner.on_synced, on_failed=owner.on_failed)
        log.append([b"four"], 5)
        await owner.until(lambda: bool(owner.errors))
        assert "4 bytes were appended" in str(owner.errors[0])
        assert owner.positions == []
        await disk.close()

    loop_run(scenario())


def test_no_room_to_allocate_ahead_is_no_failure(tmp_path: Path, loop_run: RunOnLoop, calls: Calls) -> None:
    async def scenario() -> None:
        disk, owner = RealDisk(str(tmp_path)), Owner()
        log = await disk.open_synced_log(
            "log", on_synced=owner.on_synced, on_failed=owner.on_failed, preallocate_bytes=4096
        )
        calls.fail["posix_fallocate"] = errno.ENOSPC
        log.append([b"x" * 5000], 5000)
        await owner.until(lambda: owner.positions == [5000])
        log.append([b"x"], 1)
        await disk.close()
        assert calls.made.count("posix_fallocate") == 1
        assert owner.positions == [5000, 5001]
        assert (tmp_path / "log").stat().st_size == 5001

    loop_run(scenario())


def test_a_directory_that_cannot_be_synced_fails_the_opening(tmp_path: Path, loop_run: RunOnLoop, calls: Calls) -> None:
    async def scenario() -> None:
        disk, owner = RealDisk(str(tmp_path)), Owner()
        log = await disk.open_synced_log("one", on_synced=owner.on_synced, on_failed=owner.on_failed)
        calls.fail["fsync"] = errno.EIO
        with pytest.raises(OSError, match="injected"):
            await disk.open_synced_log("two", on_synced=owner.on_synced, on_failed=owner.on_failed)
        log.append([b"good"], 4)
        log.roll("three")
        log.append([b"bad"], 3)
        await owner.until(lambda: bool(owner.errors))
        assert owner.positions == [4]
        await disk.close()

    loop_run(scenario())


def test_the_writer_ends_when_its_loop_is_gone(tmp_path: Path) -> None:
    """A process that ends without closing leaves no thread that acknowledges into the void."""
    logs = []

    async def scenario() -> None:
        disk = RealDisk(str(tmp_path))
        owner = Owner()
        logs.append(await disk.open_synced_log("log", on_synced=owner.on_synced, on_failed=owner.on_failed))

    asyncio.run(scenario())
    writer = next(thread for thread in threading.enumerate() if thread.name.startswith("log"))
    logs[0].append([b"late"], 4)
    writer.join(timeout=30)
    assert not writer.is_alive()


def test_write_fully_gives_up_when_nothing_is_written(tmp_path: Path, calls: Calls) -> None:
    fd = os.open(tmp_path / "f", os.O_RDWR | os.O_CREAT)
    calls.write_bytes_max = 0
    try:
        with pytest.raises(OSError, match="wrote nothing"):
            write_fully(fd, [b"abc"], 0)
    finally:
        os.close(fd)
