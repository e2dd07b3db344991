# SPDX-License-Identifier: Apache-2.0
"""What a bookie does at intervals: look at its disks, free space, read everything again.

Owns when these happen and that a full disk brings garbage collection forward. Each job is one task; a job that fails on
the disk ends the role, as every other failed write does.
Carries.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence

from magnetar.bookie.disk_watch import DiskWatch
from magnetar.bookie.garbage_collector import GarbageCollector
from magnetar.bookie.scrubber import DamagedEntry, Scrubber
from magnetar.bookie.turns import Turns
from magnetar.config.bookie import BookieSettings
from magnetar.runtime.disk import Disk
from magnetar.runtime.tasks import Tasks

_log = logging.getLogger(__name__)


class Housekeeping:
    def __init__(
        self,
        disk: Disk,
        settings: BookieSettings,
        collectors: Sequence[GarbageCollector],
        scrubbers: Sequence[Scrubber],
        *,
        on_usage: Callable[[bool], None],
    ) -> None:
        self._disk = disk
        self._settings = settings
        self._collectors = collectors
        self._scrubbers = scrubbers
        self._on_usage = on_usage
        self._watch = DiskWatch(usage_max=settings.disk_usage_max, usage_low=settings.disk_usage_low)
        self._loop = asyncio.get_running_loop()
        self._minor_at = self._loop.time() + settings.minor_compaction_interval_ms / 1000
        self._major_at = self._loop.time() + settings.major_compaction_interval_ms / 1000
        self._hurry = asyncio.Event()
        self._turns = Turns()
        # The outcome of the last walk.
        self.damaged: list[DamagedEntry] = []

    def start(self, tasks: Tasks) -> None:
        if self._settings.read_only_enabled:
            tasks.start(self._watch_disks(), "disk watch")
        if self._collectors:
            tasks.start(self._free_space(), "garbage")
        if self._scrubbers and self._settings.scrub_interval_ms:
            tasks.start(self._scrub(), "scrubber")

    def suspend_compaction(self, suspended: bool) -> None:
        for collector in self._collectors:
            collector.compaction_suspended = suspended

    async def check_disks(self) -> bool:
        """Look at every disk now; returns whether there is too little room."""
        paths = (*self._settings.ledger_directories, *self._settings.journal_directories)
        usages = [await self._disk.usage(path) for path in paths]
        was_full = self._watch.is_full
        is_full = self._watch.on_usage(usages)
        if is_full != was_full:
            if is_full:
                _log.warning("the disks are more than %.0f %% full: read-only", self._settings.disk_usage_max * 100)
                self._hurry.set()
            else:
                _log.warning("there is room on the disks again")
        self._on_usage(is_full)
        return is_full

    async def collect(self, *, major: bool = False, minor: bool = False) -> None:
        """Free what can be freed now; with a compaction of either kind if asked."""
        await self._turns.take(lambda: self._collect(major=major, minor=minor))

    async def _collect(self, *, major: bool, minor: bool) -> None:
        for collector in self._collectors:
            await collector.collect()
            if major:
                await collector.compact(self._settings.major_compaction_share)
            elif minor:
                await collector.compact(self._settings.minor_compaction_share)

    async def check_consistency(self) -> list[DamagedEntry]:
        """Walk through everything once, and say what is damaged."""
        damaged: list[DamagedEntry] = []
        for scrubber in self._scrubbers:
            damaged += await scrubber.run()
        self.damaged = damaged
        return damaged

    async def _watch_disks(self) -> None:
        while True:
            await self.check_disks()
            await asyncio.sleep(self._settings.disk_check_interval_ms / 1000)

    async def _free_space(self) -> None:
        while True:
            hurried = await self._interval_or_hurry()
            now = self._loop.time()
            major = hurried or now >= self._major_at
            minor = now >= self._minor_at
            if major:
                self._major_at = now + self._settings.major_compaction_interval_ms / 1000
            if minor:
                self._minor_at = now + self._settings.minor_compaction_interval_ms / 1000
            await self.collect(major=major, minor=minor)

    async def _interval_or_hurry(self) -> bool:
        try:
            async with asyncio.timeout(self._settings.garbage_interval_ms / 1000):
                await self._hurry.wait()
        except TimeoutError:
            return False
        self._hurry.clear()
        return True

    async def _scrub(self) -> None:
        while True:
            await asyncio.sleep(self._settings.scrub_interval_ms / 1000)
            await self.check_consistency()
