# SPDX-License-Identifier: Apache-2.0
"""The synced log on a real file system: one thread that writes, syncs and rolls, and one number back to the loop.

The loop only appends to a deque and, when the writer is idle, rings its bell. The writer takes what is queued up to the
group limits, hands it to the kernel in one call, and wakes the loop once, however many groups it finished meanwhile. It
never looks at the bytes and never calls anyone except through the loop. Carries.
"""

import asyncio
import contextlib
import errno
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from typing import NamedTuple

from magnetar.runtime.disk import Buffer, GroupLimits, LogStats, SyncedLog
from magnetar.runtime.log_file import LogFile
from magnetar.runtime.short_turns import ask_for_short_turns
from magnetar.runtime.turn_end import turn_end


class End:
    """The last order of a log."""


class Roll(NamedTuple):
    path: str
    spare: str | None


class _LoopGone(Exception):
    """The loop is closed: nobody is left to tell, so nothing more may be written as if someone knew."""


# What the loop hands to the writer: buffers to append, the file to roll to, or the end.
_Order = Sequence[Buffer] | Roll | End


class ThreadedLog(SyncedLog):
    """See SyncedLog. The writer starts with the first file open and owns it from then on."""

    def __init__(
        self,
        file: LogFile,
        *,
        open_next: Callable[[str, str | None], LogFile],
        on_synced: Callable[[int], None],
        on_failed: Callable[[OSError], None],
        on_ended: Callable[["ThreadedLog"], None],
        limits: GroupLimits,
        name: str,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._turn_end = turn_end()
        self._open_next = open_next
        self._on_synced = on_synced
        self._on_failed = on_failed
        self._on_ended = on_ended
        self._limits = limits
        # The loop's.
        self._appended = 0
        self._told = 0
        self._failure: OSError | None = None
        self._closing = False
        self._ended = self._loop.create_future()
        # Shared. Each name has one writer, and every order of their reads and writes is harmless: a bell too many is
        # answered with a look at the queue, and a tell too many finds nothing new.
        self._queue: deque[tuple[_Order, int]] = deque()
        self._bell: SimpleQueue[None] = SimpleQueue()
        self._idle = False
        self._synced = 0
        self._telling = False
        # The writer's.
        self._groups = 0
        self._sync_seconds = 0.0
        self._full = self._waited = self._empty = 0
        self._thread = threading.Thread(target=self._run, args=(file,), name=name, daemon=True)
        self._thread.start()

    def append(self, buffers: Sequence[Buffer], length: int) -> int:
        if self._closing or self._failure is not None:
            raise self._refusal()
        position = self._noted(self._appended + length)
        self._queue.append((buffers, length))
        if self._idle:
            self._idle = False
            self._bell.put(None)
        return position

    def roll(self, path: str, spare: str | None = None) -> None:
        if self._closing or self._failure is not None:
            raise self._refusal()
        self._order(Roll(path, spare))

    def queued_bytes(self) -> int:
        return self._appended - self._told

    def stats(self) -> LogStats:
        return LogStats(self._groups, self._synced, self._sync_seconds, self._full, self._waited, self._empty)

    async def close(self) -> None:
        if not self._closing:
            self._closing = True
            self._order(End())
        await asyncio.shield(self._ended)

    def _noted(self, position: int) -> int:
        """So much is appended: the writer is at work until all of that is told."""
        if position > self._appended == self._told:
            self._turn_end.threads_at_work += 1
        self._appended = position
        return position

    def _order(self, order: Roll | End) -> None:
        self._queue.append((order, 0))
        if self._idle:
            self._idle = False
            self._bell.put(None)

    def _refusal(self) -> OSError:
        if self._failure is not None:
            return self._failure.with_traceback(None)
        return OSError(errno.EBADF, "the log is closed")

    def _tell(self) -> None:
        position = self._synced_so_far()
        if position > self._told and self._failure is None:
            self._told = position
            if position == self._appended:
                self._turn_end.threads_at_work -= 1
            self._on_synced(position)
            self._turn_end.run()

    def _synced_so_far(self) -> int:
        self._telling = False
        return self._synced

    def _let_go(self) -> None:
        """The writer has ended: forget what is still queued."""
        self._queue.clear()
        if self._told < self._appended:
            self._turn_end.threads_at_work -= 1

    def _end(self) -> None:
        # This call is the last thing the writer did, so it is gone at once.
        self._thread.join()
        try:
            self._tell()
        finally:
            self._let_go()
            if not self._ended.done():
                self._ended.set_result(None)
                self._on_ended(self)

    def _fail(self, error: OSError) -> None:
        try:
            self._tell()
        finally:
            self._failure = error
            self._end()
            self._on_failed(error)

    # --- on the writer's thread -------------------------------------------------------------

    def _run(self, file: LogFile) -> None:
        ask_for_short_turns()
        with contextlib.suppress(_LoopGone):
            self._write_and_report(file)

    def _write_and_report(self, file: LogFile) -> None:
        try:
            self._write_until_end(file)
        except _LoopGone:
            raise
        except OSError as error:
            self._post(self._fail, error)
        except BaseException as error:
            # A writer that dies of a bug must not leave its owner waiting: the same end as a failed disk.
            self._post(self._fail, OSError(errno.EIO, f"the log's writer died: {error!r}"))
        else:
            self._post(self._end)

    def _write_until_end(self, file: LogFile) -> None:
        queue = self._queue
        try:
            while True:
                if not queue:
                    self._rest(None)
                    continue
                order, length = queue.popleft()
                if isinstance(order, End):
                    break
                if isinstance(order, Roll):
                    file.finish()
                    file = self._open_next(order.path, order.spare)
                    continue
                group = list(order)
                length = self._gather(group, length)
                started = time.perf_counter()
                file.append(group, length)
                self._sync_seconds += time.perf_counter() - started
                self._groups += 1
                self._synced += length
                if not self._telling:
                    self._telling = True
                    self._post(self._tell)
            file.finish()
        finally:
            file.abandon()

    def _gather(self, group: list[Buffer], length: int) -> int:
        """Add what is queued to the group, up to the limits; returns its bytes."""
        queue = self._queue
        bytes_max, buffers_max, delay_max_ms = self._limits
        deadline = time.monotonic() + delay_max_ms / 1000 if delay_max_ms > 0 else 0.0
        while length < bytes_max and len(group) < buffers_max:
            if not queue:
                wait_s = deadline - time.monotonic() if deadline else 0.0
                if wait_s <= 0:
                    if deadline:
                        self._waited += 1
                    else:
                        self._empty += 1
                    return length
                self._rest(wait_s)
                continue
            order, order_bytes = queue[0]
            if isinstance(order, (Roll, End)):
                self._empty += 1
                return length
            if length + order_bytes > bytes_max or len(group) + len(order) > buffers_max:
                break
            queue.popleft()
            group += order
            length += order_bytes
        self._full += 1
        return length

    def _rest(self, timeout_s: float | None) -> None:
        """Wait for the bell. The second look at the queue catches what was appended before `_idle` could be seen."""
        self._idle = True
        if not self._queue:
            with contextlib.suppress(Empty):
                self._bell.get(timeout=timeout_s)
        self._idle = False

    def _post(self, callback: Callable[..., None], *args: OSError) -> None:
        try:
            self._loop.call_soon_threadsafe(callback, *args)
        except RuntimeError as error:
            raise _LoopGone from error
