# SPDX-License-Identifier: Apache-2.0
"""One open file of a simulated disk: waits as long as the kernel says, then lets the effect happen.

Buffers are read when the write takes effect, not when it is asked for: a caller that changes them meanwhile is found
out. Carries.
"""

import asyncio
import errno
from collections.abc import Sequence
from math import inf

from magnetar.runtime.disk import Buffer, File
from magnetar.runtime.simulated_faults import Call
from magnetar.runtime.simulated_kernel import SimulatedKernel
from magnetar.runtime.simulated_pages import Pages


class Process:
    """The process that uses a disk, until it is killed; a call of a dead one never returns to it."""

    __slots__ = ("_generation", "_kernel")

    def __init__(self, kernel: SimulatedKernel) -> None:
        self._kernel = kernel
        self._generation = kernel.generation

    def is_dead(self) -> bool:
        return self._generation != self._kernel.generation

    async def call(self, call: Call, path: str) -> None:
        """Pass the time that a call takes; raises what the kernel injects."""
        if self.is_dead():
            raise OSError(errno.ENODEV, "the process that opened this is dead", path)
        delay_s, error = self._kernel.begin(call, path)
        if delay_s == inf or self.is_dead():
            await asyncio.get_running_loop().create_future()
        if delay_s > 0:
            await asyncio.sleep(delay_s)
            if self.is_dead():
                raise OSError(errno.ENODEV, "the process that opened this is dead", path)
        if error is not None:
            raise error


class SimulatedFile(File):
    def __init__(self, path: str, pages: Pages, kernel: SimulatedKernel) -> None:
        self.path = path
        self._pages = pages
        self._kernel = kernel
        self._process = Process(kernel)
        self._closed = False
        self._sync_error: OSError | None = None
        self._calls = 0
        self._quiet = asyncio.Event()

    def size(self) -> int:
        return len(self._pages)

    async def read(self, offset: int, length: int) -> bytes:
        await self._call(Call.READ)
        return bytes(self._pages.visible[offset : offset + length])

    def at_hand(self, offset: int, length: int) -> bytes:
        """Everything is memory, but where reads may fail the one that waits finds out whether this one does."""
        if self._closed or self._process.is_dead():
            raise OSError(errno.EBADF, "the file is closed", self.path)
        return b"" if self._kernel.faults.may_fail(Call.READ) else bytes(self._pages.visible[offset : offset + length])

    async def write(self, offset: int, buffers: Sequence[Buffer], *, early: bool = False) -> None:
        await self._call(Call.WRITE)
        data = b"".join(buffers)
        if data:
            self._kernel.write(self._pages, offset, data)

    async def sync(self) -> None:
        mark = self._pages.mark()
        try:
            await self._call(Call.SYNC)
        except OSError as error:
            if not self._process.is_dead() and not self._closed:
                self._sync_error = self._sync_error or error
                self._pages.forget(mark)
            raise
        if self._sync_error is not None:
            raise self._sync_error.with_traceback(None)
        self._pages.sync(mark)

    async def let_go(self, offset: int, length: int) -> None:
        """Everything here is memory."""

    async def truncate(self, length: int) -> None:
        await self._call(Call.WRITE)
        self._kernel.resize(self._pages, length)

    async def close(self) -> None:
        self._closed = True
        while self._calls and not self._process.is_dead():
            self._quiet.clear()
            await self._quiet.wait()

    async def _call(self, call: Call) -> None:
        if self._closed:
            raise OSError(errno.EBADF, "the file is closed", self.path)
        self._calls += 1
        try:
            await self._process.call(call, self.path)
        finally:
            self._calls -= 1
            self._quiet.set()
