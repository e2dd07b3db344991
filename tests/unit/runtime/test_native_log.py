# SPDX-License-Identifier: Apache-2.0
"""The writer that needs no interpreter: what it writes itself, what it gives back, and how it ends.

What it has in common with the plain one is in tests/contracts/test_disk.py.
"""

import asyncio
import errno
import mmap
import os
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from magnetar.runtime import native_log, real_file
from magnetar.runtime.disk import GroupLimits
from magnetar.runtime.log_file import LogFile
from magnetar.runtime.native_log import NATIVE, NativeLog

RunOnLoop = Callable[[Coroutine[Any, Any, Any]], Any]

_ENDLESS = 2**62


@pytest.fixture
def native() -> ModuleType:
    if not native_log.is_built():
        (pytest.fail if os.environ.get("CI") else pytest.skip)(
            "the compiled writer is not built: `make compile` builds it"
        )
    return import_module(NATIVE)


@pytest.fixture
def wake() -> Iterator[int]:
    fd = os.eventfd(0, os.EFD_NONBLOCK)
    yield fd
    os.close(fd)


@pytest.fixture
def file(tmp_path: Path) -> Iterator[int]:
    fd = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    yield fd
    os.close(fd)


@contextmanager
def alone_with_interpreter() -> Iterator[None]:
    """No other thread gets the interpreter unless it is given away."""
    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(1_000)
    yield
    sys.setswitchinterval(interval_s)


@contextmanager
def mapped(path: Path) -> Iterator[mmap.mmap]:
    with path.open("rb") as file, mmap.mmap(file.fileno(), 4096, prot=mmap.PROT_READ) as seen:
        yield seen


class Owner:
    def __init__(self, native: Any, path: Path, **settings: Any) -> None:
        self.positions: list[int] = []
        self.errors: list[OSError] = []
        self.news = asyncio.Event()
        self.log = NativeLog(
            native,
            self._file(path),
            open_next=lambda next_path, _: self._file(Path(next_path)),
            on_synced=self._on_synced,
            on_failed=self._on_failed,
            on_ended=lambda _: None,
            limits=GroupLimits(**settings),
            name="log",
        )

    def _file(self, path: Path) -> LogFile:
        return LogFile(str(path), preallocate_bytes=4096, sync=True)

    def _on_synced(self, position: int) -> None:
        self.positions.append(position)
        self.news.set()

    def _on_failed(self, error: OSError) -> None:
        self.errors.append(error)
        self.news.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self.news.clear()
            await self.news.wait()


def test_a_group_is_what_fits_into_the_limits(native: ModuleType, wake: int, file: int) -> None:
    groups = native.Groups(10, 3, wake)
    for piece in ([b"abcd"], [b"ef", b"gh"], [b"i"], [b"0123456789abc"], [b"x"]):
        groups.put(piece, sum(map(len, piece)))
    groups.put_order()
    assert groups.write_groups(file, 0, _ENDLESS, False) == (native.ORDER, 23)
    assert os.pread(file, 100, 0) == b"abcdefghi0123456789abcx"
    assert groups.tell() == 23
    # Three buffers; one more would be too many; too large by itself; the rest.
    assert (groups.groups, groups.full, groups.empty) == (4, 4, 0)
    # However many groups there were, the loop is woken once until it asks.
    assert os.eventfd_read(wake) == 1


def test_buffers_of_any_kind_are_kept_until_they_are_told(native: ModuleType, wake: int, file: int) -> None:
    groups = native.Groups(100, 100, wake)
    changing = bytearray(b"bytearray ")
    groups.put([changing, memoryview(b"..view..")[2:6], b"", b" bytes"], 20)
    with pytest.raises(BufferError):
        changing.clear()
    groups.put_order()
    groups.write_groups(file, 0, _ENDLESS, False)
    assert os.pread(file, 100, 0) == b"bytearray view bytes"
    with pytest.raises(BufferError):
        changing.clear()
    groups.tell()
    changing.clear()


def test_what_does_not_fit_as_it_is_comes_back(native: ModuleType, wake: int, file: int) -> None:
    """A file that must grow first, a length that is wrong, more buffers than one call takes: one piece by hand."""
    groups = native.Groups(1 << 20, 10_000, wake)
    many = [b"x"] * 1_024
    for piece, length in (([b"beyond"], 6), ([b"wrong"], 4), (many, 1_024), ([b"end"], 3)):
        groups.put(piece, length)
    groups.put_order()
    assert groups.write_groups(file, 0, 5, False) == (native.BY_HAND, 0)
    assert groups.take() == ([b"beyond"], 6)
    groups.written(6, 0.5)
    for expected in (([b"wrong"], 4), (many, 1_024)):
        assert groups.write_groups(file, 6, _ENDLESS, False) == (native.BY_HAND, 6)
        assert groups.take() == expected
    assert groups.write_groups(file, 6, _ENDLESS, False) == (native.ORDER, 9)
    assert groups.tell() == 9
    assert groups.sync_seconds > 0.5


def test_groups_in_a_spare_are_followed_by_zeros_to_the_end_of_their_page(
    native: ModuleType, wake: int, file: int
) -> None:
    os.pwrite(file, b"\xff" * 12_288, 0)
    groups = native.Groups(1 << 20, 100, wake)
    groups.put([b"a" * 4_000], 4_000)
    groups.put_order()
    assert groups.write_groups(file, 0, 12_288, True) == (native.ORDER, 4_000)
    groups.put([b"b" * 4_192], 4_192)
    groups.put_order()
    assert groups.write_groups(file, 4_000, 12_288, True) == (native.ORDER, 8_192)
    assert os.pread(file, 20_000, 0) == b"a" * 4_000 + b"b" * 4_192 + b"\xff" * 4_096


def test_an_error_is_told_with_its_number_and_nothing_as_synced(native: ModuleType, wake: int) -> None:
    unwritable = os.open(os.devnull, os.O_RDONLY)
    groups = native.Groups(100, 100, wake)
    groups.put([b"x"], 1)
    with pytest.raises(OSError, match=rf"\[Errno {errno.EBADF}\]"):
        groups.write_groups(unwritable, 0, _ENDLESS, False)
    assert groups.tell() == 0
    os.close(unwritable)


def test_the_thread_writes_while_the_loop_holds_the_interpreter(
    native: ModuleType, tmp_path: Path, loop_run: RunOnLoop
) -> None:
    async def scenario() -> None:
        owner = Owner(native, tmp_path / "log")
        owner.log.append([b"first"], 5)
        await owner.until(lambda: owner.positions == [5])
        with alone_with_interpreter(), mapped(tmp_path / "log") as seen:
            owner.log.append([b"second"], 6)
            while seen[5:11] != b"second":
                pass
        assert owner.positions == [5]
        await owner.until(lambda: owner.positions == [5, 11])
        await owner.log.close()
        (tmp_path / "log").unlink()

    loop_run(scenario())


def test_rolls_and_growth_keep_the_order(native: ModuleType, tmp_path: Path, loop_run: RunOnLoop) -> None:
    async def scenario() -> None:
        owner = Owner(native, tmp_path / "0", bytes_max=2_000)
        for number in range(1, 4):
            for _ in range(10):
                owner.log.append([bytes([number]) * 700, memoryview(b"!")], 701)
            owner.log.roll(str(tmp_path / str(number)))
        owner.log.append([b"end"], 3)
        await owner.log.close()
        assert owner.positions[-1] == 30 * 701 + 3
        assert owner.log.queued_bytes() == 0
        for number in range(1, 4):
            assert (tmp_path / str(number - 1)).read_bytes() == (bytes([number]) * 700 + b"!") * 10
        assert (tmp_path / "3").read_bytes() == b"end"

    before = threading.enumerate()
    loop_run(scenario())
    assert [thread for thread in threading.enumerate() if thread not in before] == []


def test_a_build_of_another_edition_is_not_used(native: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MAGNETAR_PURE", raising=False)
    assert native_log.load() is native
    monkeypatch.setattr(native_log, "EDITION", native_log.EDITION + 1)
    assert native_log.load() is None
    monkeypatch.undo()
    monkeypatch.setenv("MAGNETAR_PURE", "1")
    assert native_log.load() is None


def test_after_a_failed_write_nothing_more_is_written(native: ModuleType, tmp_path: Path, loop_run: RunOnLoop) -> None:
    class Failing(native.Groups):  # type: ignore[misc, name-defined]
        calls = 0

        def write_groups(self, *arguments: Any) -> Any:
            Failing.calls += 1
            raise OSError(errno.EIO, "injected")

    async def scenario() -> None:
        Failing.calls = 0
        owner = Owner(SimpleNamespace(Groups=Failing, ORDER=native.ORDER), tmp_path / "log")
        await owner.until(lambda: bool(owner.errors))
        with pytest.raises(OSError, match="injected"):
            owner.log.append([b"after"], 5)
        await owner.log.close()
        assert (owner.positions, [error.errno for error in owner.errors]) == ([], [errno.EIO])
        assert Failing.calls == 1
        (tmp_path / "log").unlink()

    loop_run(scenario())


@pytest.mark.skipif(not hasattr(os, "RWF_NOWAIT"), reason="only Linux has reads that do not wait")
def test_reads_that_do_not_wait_are_the_same_in_both(native: ModuleType, file: int) -> None:
    os.write(file, bytes(range(256)) * 40)
    for read_now in (native.read_now, *real_file.PLAIN):
        assert read_now(file, 300, 5_000) == (bytes(range(256)) * 40)[300:5_300]
        assert read_now(file, 10_000, 1_000) == (bytes(range(256)) * 40)[10_000:]
        assert read_now(file, 20_000, 10) == b""
        assert read_now(file, 0, 0) == b""
        assert read_now(file, -1, 10) == b""
        with pytest.raises(OSError) as caught:  # noqa: PT011 - the number says which
            read_now(-1, 0, 10)
        assert caught.value.errno == errno.EBADF
    with pytest.raises(ValueError, match="not negative"):
        native.read_now(file, 0, -1)
