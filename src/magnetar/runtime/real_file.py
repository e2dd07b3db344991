# SPDX-License-Identifier: Apache-2.0
"""One open file of the real disk.

Reads of bytes that the kernel has in memory are answered on the loop, without a thread; everything else goes to the
disk's threads. Carries.
"""

import asyncio
import contextlib
import errno
import io
import os
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from magnetar.runtime.blocking_calls import BlockingCalls, CallsUnderWay
from magnetar.runtime.disk import Buffer, File
from magnetar.runtime.kernel_memory import KernelMemory
from magnetar.runtime.log_file import write_fully
from magnetar.runtime.native_log import load

_T = TypeVar("_T")

_READ_NOW: int | None = getattr(os, "RWF_NOWAIT", None)
# A fifth of a millisecond on the loop. The way through a thread takes longer, and a turn of the loop on either side.
_READ_NOW_BYTES_MAX = 1024 * 1024 + 64 * 1024


class RealFile(File):
    def __init__(self, path: str, fd: int, calls: BlockingCalls, on_closed: Callable[["RealFile"], None]) -> None:
        self.path = path
        self._fd = fd
        self._calls = calls
        self._on_closed = on_closed
        self._size = os.fstat(fd).st_size
        # Whoever reads on says how much himself. The kernel would order more ahead from whoever reads, on the loop.
        _advise(fd, 0, 0, "POSIX_FADV_RANDOM")
        self._kernel_memory = KernelMemory()
        self._under_way = CallsUnderWay()
        self._sync_error: OSError | None = None

    def size(self) -> int:
        return self._size

    async def read(self, offset: int, length: int) -> bytes:
        start = self.at_hand(offset, length)
        if len(start) == length:
            return start
        rest = await self._run(_read_fully, self._open_fd(), offset + len(start), length - len(start))
        return start + rest if start else rest

    def at_hand(self, offset: int, length: int) -> bytes:
        if _READ_NOW is None or length > _READ_NOW_BYTES_MAX:
            return b""
        return self._read_now(offset, length)

    async def write(self, offset: int, buffers: Sequence[Buffer], *, early: bool = False) -> None:
        written = await self._run(_write_early if early else write_fully, self._open_fd(), buffers, offset)
        self._size = max(self._size, offset + written)

    async def sync(self) -> None:
        fd = self._open_fd()
        if self._sync_error is None:
            try:
                await self._run(os.fdatasync, fd)
            except OSError as error:
                self._sync_error = error
        # The kernel forgets what it could not write: a later sync would say yes to bytes that are gone.
        if self._sync_error is not None:
            raise self._sync_error.with_traceback(None)

    async def let_go(self, offset: int, length: int) -> None:
        await self._run(_advise, self._open_fd(), offset, length, "POSIX_FADV_DONTNEED")

    async def truncate(self, length: int) -> None:
        await self._run(os.ftruncate, self._open_fd(), length)
        self._size = length

    async def close(self) -> None:
        if self._fd < 0:
            return
        fd, self._fd = self._fd, -1
        await self._under_way.ended()
        self._on_closed(self)
        await self._calls.run(os.close, fd)

    def _open_fd(self) -> int:
        if self._fd < 0:
            raise OSError(errno.EBADF, "the file is closed", self.path)
        return self._fd

    def _read_now(self, offset: int, length: int) -> bytes:
        """All of it if the kernel has it at hand; the thread decides about errors and the end of the file."""
        fd = self._open_fd()
        return read_now(fd, offset, length) if self._kernel_memory.may_have(fd, offset, length) else b""

    async def _run(self, call: Callable[..., _T], *args: Any) -> _T:
        future = self._calls.start(call, *args)
        self._under_way.add(future)
        return await asyncio.shield(future)


def read_now(fd: int, offset: int, length: int) -> bytes:
    """What the kernel has of it at hand, from its beginning; b"" where it says no, unless the file is closed."""
    assert _READ_NOW is not None
    # The one way to have the kernel write into what becomes `bytes`, without a copy.
    holder = io.BytesIO(bytes(length))
    try:
        with holder.getbuffer() as buffer:
            count = os.preadv(fd, [buffer], offset, _READ_NOW)
    except OSError as error:
        if error.errno == errno.EBADF:
            raise
        return b""
    found = holder.getvalue()
    return found if count == length else found[:count]


def _read_fully(fd: int, offset: int, length: int) -> bytes:
    parts = []
    while length > 0:
        part = os.pread(fd, length, offset)
        if not part:
            break
        parts.append(part)
        offset += len(part)
        length -= len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _write_early(fd: int, buffers: Sequence[Buffer], offset: int) -> int:
    written = write_fully(fd, buffers, offset)
    # Of pages that are to leave, Linux first begins to write the dirty ones, and does not wait for them.
    _advise(fd, offset, written, "POSIX_FADV_DONTNEED")
    return written


def _advise(fd: int, offset: int, length: int, advice: str) -> None:
    """A wish: whoever cannot take it goes on without."""
    if hasattr(os, "posix_fadvise"):
        with contextlib.suppress(OSError):
            os.posix_fadvise(fd, offset, length, getattr(os, advice))


PLAIN = (read_now,)

if (_native := load()) is not None:
    read_now = _native.read_now
