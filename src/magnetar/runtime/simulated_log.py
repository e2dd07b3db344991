# SPDX-License-Identifier: Apache-2.0
"""The synced log of a simulated disk: the steps of the real writer thread as callbacks on the loop.

Groups, rolls, pre-allocation, failure and the one number are as in `real_log.py`; each step takes the time, or fails
with the error, that the kernel says. Carries.
"""

import asyncio
import errno
from collections import deque
from collections.abc import Callable, Sequence
from math import inf
from typing import NamedTuple

from magnetar.runtime.disk import PAGE_BYTES, Buffer, GroupLimits, LogStats, SyncedLog
from magnetar.runtime.simulated_faults import Call
from magnetar.runtime.simulated_file import Process
from magnetar.runtime.simulated_kernel import SimulatedKernel
from magnetar.runtime.simulated_pages import Pages
from magnetar.runtime.turn_end import turn_end


class _Roll(NamedTuple):
    path: str
    spare: str | None


class SimulatedLog(SyncedLog):
    def __init__(
        self,
        path: str,
        pages: Pages,
        kernel: SimulatedKernel,
        *,
        on_synced: Callable[[int], None],
        on_failed: Callable[[OSError], None],
        limits: GroupLimits,
        preallocate_bytes: int,
        sync: bool,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._kernel = kernel
        self._process = Process(kernel)
        self._on_synced = on_synced
        self._on_failed = on_failed
        self._limits = limits
        self._preallocate_bytes = preallocate_bytes
        self._sync = sync
        self._path = path
        self._pages = pages
        self._written = 0
        self._fills_pages = False
        self._queue: deque[tuple[Sequence[Buffer] | _Roll, int]] = deque()
        self._queued_buffers = 0
        self._appended = 0
        self._taken = 0
        self._synced = 0
        self._groups = 0
        self._sync_seconds = 0.0
        self._full = self._waited = self._empty = 0
        self._busy = False
        self._company: asyncio.TimerHandle | None = None
        self._closing = False
        self._failure: OSError | None = None
        self._ended = self._loop.create_future()

    def append(self, buffers: Sequence[Buffer], length: int) -> int:
        self._check()
        self._appended += length
        self._queued_buffers += len(buffers)
        self._order(buffers, length)
        return self._appended

    def roll(self, path: str, spare: str | None = None) -> None:
        self._check()
        self._order(_Roll(path, spare), 0)

    def queued_bytes(self) -> int:
        return self._appended - self._synced

    def stats(self) -> LogStats:
        return LogStats(self._groups, self._synced, self._sync_seconds, self._full, self._waited, self._empty)

    async def close(self) -> None:
        if self._process.is_dead():
            return
        if not self._closing:
            self._closing = True
            self._wake()
        await asyncio.shield(self._ended)

    def has_ended(self) -> bool:
        return self._ended.done() or self._process.is_dead()

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure.with_traceback(None)
        if self._process.is_dead():
            raise OSError(errno.ENODEV, "the process that opened this log is dead", self._path)
        if self._closing:
            raise OSError(errno.EBADF, "the log is closed", self._path)

    def _order(self, order: Sequence[Buffer] | _Roll, length: int) -> None:
        self._queue.append((order, length))
        self._wake()

    def _wake(self) -> None:
        if not self._busy:
            self._busy = True
            self._loop.call_soon(self._next)
        elif self._company is not None and (self._closing or self._is_group_full()):
            self._company.cancel()
            self._company = None
            self._loop.call_soon(self._write_group)

    def _is_group_full(self) -> bool:
        return (
            self._queued_buffers >= self._limits.buffers_max
            or self._appended - self._taken >= self._limits.bytes_max
            or isinstance(self._queue[-1][0], _Roll)
        )

    # --- the steps -----------------------------------------------------------------------------

    def _step(self, call: Call, path: str, effect: Callable[[], None]) -> None:
        """Let a call take its time, then its effect."""
        fate = self._kernel.begin(call, path)
        if self._process.is_dead() or fate.delay_s == inf:
            return
        if call is Call.SYNC:
            self._sync_seconds += fate.delay_s
        if fate.delay_s > 0:
            self._loop.call_later(fate.delay_s, self._take_effect, call, effect, fate.error)
        else:
            self._loop.call_soon(self._take_effect, call, effect, fate.error)

    def _take_effect(self, call: Call, effect: Callable[[], None], error: OSError | None) -> None:
        if self._process.is_dead():
            return
        if error is not None:
            if call is Call.SYNC:
                self._pages.forget(self._pages.mark())
            self._fail(error)
            return
        try:
            effect()
        except OSError as failure:
            self._fail(failure)

    def _next(self) -> None:
        if self._process.is_dead():
            return
        if not self._queue:
            self._busy = False
            if self._closing:
                self._finish_file()
                self._ended.set_result(None)
            return
        order, _ = self._queue[0]
        if isinstance(order, _Roll):
            self._queue.popleft()
            self._step(Call.NAME, order.path, lambda: self._roll_to(order))
        elif self._limits.delay_max_ms > 0 and not self._is_group_full() and not self._closing:
            self._company = self._loop.call_later(self._limits.delay_max_ms / 1000, self._write_group)
        else:
            self._write_group()

    def _write_group(self) -> None:
        self._company = None
        if self._process.is_dead():
            return
        group: list[Buffer] = []
        length = 0
        while self._queue:
            order, order_bytes = self._queue[0]
            if isinstance(order, _Roll):
                break
            if group and (
                length + order_bytes > self._limits.bytes_max or len(group) + len(order) > self._limits.buffers_max
            ):
                break
            self._queue.popleft()
            group += order
            length += order_bytes
        self._queued_buffers -= len(group)
        self._taken += length
        if self._queue or length >= self._limits.bytes_max or len(group) >= self._limits.buffers_max:
            self._full += 1
        elif self._limits.delay_max_ms > 0:
            self._waited += 1
        else:
            self._empty += 1
        self._step(Call.WRITE, self._path, lambda: self._write(group, length))

    def _write(self, group: list[Buffer], length: int) -> None:
        data = b"".join(group)
        assert len(data) == length, f"{len(data)} bytes were appended to {self._path} as {length}"
        self._allocate(self._written + length)
        padding = -(self._written + length) % PAGE_BYTES if self._fills_pages else 0
        self._kernel.write(self._pages, self._written, data + bytes(padding))
        self._written += length
        if self._sync:
            mark = self._pages.mark()
            self._step(Call.SYNC, self._path, lambda: self._synced_to(mark, length))
        else:
            self._synced_to(None, length)

    def _synced_to(self, mark: int | None, length: int) -> None:
        if mark is not None:
            self._pages.sync(mark)
        self._groups += 1
        self._synced += length
        try:
            self._on_synced(self._synced)
            turn_end().run()
        finally:
            self._next()

    def _roll_to(self, order: _Roll) -> None:
        self._finish_file()
        path, spare = order
        if self._kernel.names.find(path) is not None:
            raise FileExistsError(errno.EEXIST, "the file exists", path)
        if spare is not None and self._kernel.names.find(spare) is None:
            spare = None
        if spare is not None:
            self._kernel.rename(spare, path)
        pages = self._kernel.create(path) if spare is None else self._kernel.names.file(path)
        self._path, self._pages, self._written = path, pages, 0
        self._fills_pages = spare is not None
        directory = path.rpartition("/")[0]
        if self._sync:
            self._step(Call.SYNC_DIRECTORY, directory, lambda: self._directory_synced(directory))
        else:
            self._next()

    def _directory_synced(self, directory: str) -> None:
        self._kernel.names.sync(directory)
        self._next()

    def _finish_file(self) -> None:
        if len(self._pages) > self._written:
            self._kernel.resize(self._pages, self._written)

    def _allocate(self, end: int) -> None:
        step = self._preallocate_bytes
        if step and end > len(self._pages):
            try:
                self._kernel.resize(self._pages, -(-end // step) * step)
            except OSError:
                # As in the real writer: the write itself decides whether there is room.
                self._preallocate_bytes = 0

    def _fail(self, error: OSError) -> None:
        self._failure = error
        self._queue.clear()
        if not self._ended.done():
            self._ended.set_result(None)
        self._on_failed(error)
