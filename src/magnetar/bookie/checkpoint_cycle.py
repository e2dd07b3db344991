# SPDX-License-Identifier: Apache-2.0
"""When checkpoints happen: at an interval, when the active cache is full, on request, and again after a full disk.

Owns the one checkpoint under way and the swap of the write caches that begins it. Does not know how a checkpoint is
made durable; tells its owner about room in the cache, a full disk (None when a flush went well again) and failure.
Carries.
"""

import asyncio
from collections.abc import Callable, Sequence

from magnetar.bookie.checkpoint import Checkpoints
from magnetar.bookie.counts import BookieCounts
from magnetar.bookie.journal import Journal, JournalPlace
from magnetar.bookie.ledger_table import LedgerTable
from magnetar.bookie.write_cache import WriteCaches
from magnetar.config.bookie import BookieSettings
from magnetar.errors import DiskFull, StorageFailed
from magnetar.runtime.tasks import Tasks


class CheckpointCycle:
    """Invariant: every entry in the flushing cache lies before `places` in its journal."""

    def __init__(
        self,
        settings: BookieSettings,
        checkpoints: Checkpoints,
        caches: WriteCaches,
        table: LedgerTable,
        journals: Sequence[Journal],
        tasks: Tasks,
        counts: BookieCounts,
        *,
        on_cache_full: Callable[[bool], None],
        on_disk_full: Callable[[DiskFull | None], None],
        on_failed: Callable[[StorageFailed], None],
    ) -> None:
        self._half_bytes_max = settings.write_cache_bytes_max // 2
        self._interval_s = settings.flush_interval_ms / 1000
        self._checkpoints = checkpoints
        self._caches = caches
        self._table = table
        self._journals = journals
        self._tasks = tasks
        self._counts = counts
        self._on_cache_full = on_cache_full
        self._on_disk_full = on_disk_full
        self._on_failed = on_failed
        self._places: list[JournalPlace] = []
        self._running: asyncio.Task[None] | None = None
        self._ended = False

    def on_active_full(self) -> None:
        """The active cache is full: swap, or say so while the other one is still being written."""
        if self._running is None and self._caches.flushing is None:
            self._begin()
        else:
            self._on_cache_full(True)

    def retry(self) -> None:
        """There may be space on the disk again."""
        if self._running is None and self._caches.flushing is not None and not self._ended:
            self._begin()

    async def run_now(self) -> None:
        """Write out everything that came before this call, and move the marks."""
        await self.at_rest()
        if not self._ended:
            await asyncio.wait((self._begin(),))

    async def at_rest(self) -> None:
        """Returns when no checkpoint is under way."""
        while self._running is not None:
            await asyncio.wait((self._running,))

    async def at_intervals(self) -> None:
        while True:
            await asyncio.sleep(self._interval_s)
            if self._running is None and self.has_news():
                self._begin()

    def has_news(self) -> bool:
        caches = self._caches
        return bool(caches.active.entries or caches.flushing is not None or self._table.has_changes())

    def end(self) -> None:
        self._ended = True

    def _begin(self, *, is_hurried: bool = False) -> asyncio.Task[None]:
        if self._caches.flushing is None:
            self._caches.swap()
            self._places = [journal.place() for journal in self._journals]
        self._running = self._tasks.start(self._run(is_hurried=is_hurried), "checkpoint")
        return self._running

    async def _run(self, *, is_hurried: bool) -> None:
        flushing = self._caches.flushing
        flushed_bytes = flushing.bytes_held if flushing is not None else 0
        loop = asyncio.get_running_loop()
        since = loop.time()
        completed = self._checkpoints.completed
        try:
            await self._checkpoints.run(self._journals, self._places, is_hurried=is_hurried)
            self._on_disk_full(None)
        except DiskFull as error:
            self._on_disk_full(error)
        except StorageFailed as error:
            self._ended = True
            self._on_failed(error)
        except OSError as error:
            self._ended = True
            failure = StorageFailed(f"entry logs, index or mark could not be written: {error}; restart to replay")
            failure.__cause__ = error
            self._on_failed(failure)
        finally:
            self._running = None
            self._counts.flush.observe((loop.time() - since) * 1000, ok=self._checkpoints.completed > completed)
            self._counts.flush_bytes.observe(flushed_bytes)
        is_full = self._caches.active.bytes_held >= self._half_bytes_max
        if is_full and not self._ended and self._caches.flushing is None:
            self._begin(is_hurried=True)
            is_full = False
        self._on_cache_full(is_full)
