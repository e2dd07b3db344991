# SPDX-License-Identifier: Apache-2.0
"""What a bookie does at intervals: look at its disks, free space, read everything again.

Owns when these happen and that a full disk brings garbage collection forward. Each job is one task; a job that fails on
the disk ends the role, as every other failed write does.
Carries.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final

from magnetar.bookie.counts import BookieCounts
from magnetar.bookie.disk_watch import DiskWatch
from magnetar.bookie.garbage_collector import GarbageCollector
from magnetar.bookie.reserve import Reserve
from magnetar.bookie.scrubber import DamagedEntry, Scrubber
from magnetar.bookie.turns import Turns
from magnetar.config.bookie import BookieSettings
from magnetar.runtime.clock import WallClock
from magnetar.runtime.disk import Disk
from magnetar.runtime.tasks import Tasks

# A window of the quantiles and peaks that are scraped.
WINDOW_S: Final = 60.0

_log = logging.getLogger(__name__)


class Housekeeping:
    def __init__(
        self,
        disk: Disk,
        settings: BookieSettings,
        clock: WallClock,
        counts: BookieCounts,
        collectors: Sequence[GarbageCollector],
        scrubbers: Sequence[Scrubber],
        *,
        on_usage: Callable[[bool], None],
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._counts = counts
        self._collectors = collectors
        self._scrubbers = scrubbers
        self._on_usage = on_usage
        self._reserve = Reserve(disk, settings)
        self._watch = DiskWatch(usage_max=settings.disk_usage_max, usage_low=settings.disk_usage_low)
        self._loop = asyncio.get_running_loop()
        self._minor_at = self._loop.time() + settings.minor_compaction_interval_ms / 1000
        self._major_at = self._loop.time() + settings.major_compaction_interval_ms / 1000
        self._surplus_at = self._loop.time() + settings.surplus_interval_ms / 1000
        self._counters = {"major": 0, "minor": 0}
        self._collected = {"major": 0, "minor": 0}
        self._running = ""
        self._hurry = asyncio.Event()
        self._turns = Turns()
        # The outcome of the last walk.
        self.damaged: list[DamagedEntry] = []

    def start(self, tasks: Tasks) -> None:
        tasks.start(self._rotate_counts(), "windows of metrics")
        if self._settings.read_only_enabled:
            tasks.start(self._watch_disks(), "disk watch")
        if self._collectors:
            tasks.start(self._free_space(), "garbage")
        if self._scrubbers and self._settings.scrub_interval_ms:
            tasks.start(self._scrub(), "scrubber")

    @property
    def ledgers_deleted(self) -> int:
        return sum(collector.ledgers_deleted for collector in self._collectors)

    @property
    def bytes_compacted(self) -> int:
        return sum(collector.compactor.bytes_copied for collector in self._collectors)

    def suspend_compaction(self, suspended: bool) -> None:
        for collector in self._collectors:
            collector.compaction_suspended = suspended

    async def check_disks(self) -> bool:
        """Look at every disk now; returns whether there is too little room."""
        paths = (*self._settings.ledger_directories, *self._settings.journal_directories)
        usages = [await self._reserve.usage(path) for path in paths]
        was_full = self._watch.is_full
        is_full = self._watch.on_usage(usages)
        if is_full != was_full:
            if is_full:
                _log.warning("the disks are more than %.0f %% full: read-only", self._settings.disk_usage_max * 100)
                self._hurry.set()
            else:
                _log.warning("there is room on the disks again")
        self._on_usage(is_full)
        if not is_full:
            await self._reserve.keep()
        return is_full

    async def collect(self, *, major: bool = False, minor: bool = False, surplus: bool = False) -> None:
        """Free what can be freed now; with a compaction of either kind, and without copies of others, if asked."""
        await self._turns.take(lambda: self._collect(major=major, minor=minor, surplus=surplus))

    async def _collect(self, *, major: bool, minor: bool, surplus: bool) -> None:
        kind = "major" if major else "minor" if minor else ""
        self._running = kind
        try:
            for collector in self._collectors:
                await collector.collect()
                if surplus:
                    await collector.collect_surplus()
                if major:
                    await collector.compact(self._settings.major_compaction_share)
                elif minor:
                    await collector.compact(self._settings.minor_compaction_share)
        finally:
            self._running = ""
        if kind:
            self._counters[kind] += 1
            self._collected[kind] = self._clock.now_ms()

    def details(self) -> dict[str, bool | int]:
        """What BookKeeper tells of garbage collection."""
        return {
            "forceCompacting": False,
            "majorCompacting": self._running == "major",
            "minorCompacting": self._running == "minor",
            "lastMajorCompactionTime": self._collected["major"],
            "lastMinorCompactionTime": self._collected["minor"],
            "majorCompactionCounter": self._counters["major"],
            "minorCompactionCounter": self._counters["minor"],
        }

    async def check_consistency(self) -> list[DamagedEntry]:
        """Walk through everything once, and say what is damaged."""
        damaged: list[DamagedEntry] = []
        for scrubber in self._scrubbers:
            damaged += await scrubber.run()
        self.damaged = damaged
        return damaged

    async def _rotate_counts(self) -> None:
        while True:
            await asyncio.sleep(WINDOW_S)
            self._counts.rotate()

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
            surplus = bool(self._settings.surplus_interval_ms) and now >= self._surplus_at
            if surplus:
                self._surplus_at = now + self._settings.surplus_interval_ms / 1000
            await self.collect(major=major, minor=minor, surplus=surplus)

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
