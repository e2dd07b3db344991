# SPDX-License-Identifier: Apache-2.0
"""The synced log whose writer needs no interpreter: used for `ThreadedLog` where `native/_groups.pyx` is built.

A thread that comes back from a sync waits for the interpreter as long as a busy loop holds it, and so does one that was
rung for: both waits are in every add. Here the thread stays outside from one group to the next, and wakes the loop by a
descriptor. What is rare comes back to plain code: orders, growing the file, short writes, pieces of very many buffers.
Carries.
"""

import contextlib
import os
import time
from collections import deque
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Final

from magnetar.runtime.disk import Buffer, GroupLimits, LogStats
from magnetar.runtime.log_file import LogFile
from magnetar.runtime.real_log import End, Roll, ThreadedLog

NATIVE: Final = "magnetar.runtime._groups"
# Goes up with every change of what the compiled part is given or gives; `EDITION` in native/_groups.pyx is the same.
EDITION: Final = 2


def is_built() -> bool:
    return find_spec(NATIVE) is not None


def load() -> ModuleType | None:
    """The compiled part, or None where the plain writer is to be used: as `wire/compiled.py` does for the loops."""
    if not is_built() or os.environ.get("MAGNETAR_PURE"):
        return None
    native = import_module(NATIVE)
    return native if getattr(native, "EDITION", None) == EDITION else None


class NativeLog(ThreadedLog):
    """See SyncedLog. For groups that are synced and do not wait for company."""

    def __init__(
        self,
        native: ModuleType,
        file: LogFile,
        *,
        open_next: Callable[[str, str | None], LogFile],
        on_synced: Callable[[int], None],
        on_failed: Callable[[OSError], None],
        on_ended: Callable[[ThreadedLog], None],
        limits: GroupLimits,
        name: str,
    ) -> None:
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._pieces = native.Groups(limits.bytes_max, limits.buffers_max, self._wake)
        self._order_reason: int = native.ORDER
        self._orders: deque[Roll | End] = deque()
        super().__init__(
            file,
            open_next=open_next,
            on_synced=on_synced,
            on_failed=on_failed,
            on_ended=on_ended,
            limits=limits,
            name=name,
        )
        self._loop.add_reader(self._wake, self._on_wake)

    def append(self, buffers: Sequence[Buffer], length: int) -> int:
        if self._closing or self._failure is not None:
            raise self._refusal()
        return self._noted(self._pieces.put(buffers, length))

    def stats(self) -> LogStats:
        pieces = self._pieces
        return LogStats(pieces.groups, self._told, pieces.sync_seconds, pieces.full, 0, pieces.empty)

    def _order(self, order: Roll | End) -> None:
        self._orders.append(order)
        self._pieces.put_order()

    def _on_wake(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._wake)
        self._tell()

    def _synced_so_far(self) -> int:
        position: int = self._pieces.tell()
        return position

    def _let_go(self) -> None:
        super()._let_go()
        self._pieces.clear()
        if self._wake >= 0:
            if not self._loop.is_closed():
                self._loop.remove_reader(self._wake)
            os.close(self._wake)
            self._wake = -1

    # --- on the writer's thread -------------------------------------------------------------

    def _write_until_end(self, file: LogFile) -> None:
        pieces = self._pieces
        try:
            while True:
                if file.append_groups(pieces) != self._order_reason:
                    group, length = pieces.take()
                    started = time.perf_counter()
                    file.append(group, length)
                    pieces.written(length, time.perf_counter() - started)
                    continue
                order = self._orders.popleft()
                if isinstance(order, End):
                    break
                file.finish()
                file = self._open_next(order.path, order.spare)
            file.finish()
        finally:
            file.abandon()
