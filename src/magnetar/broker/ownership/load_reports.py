# SPDX-License-Identifier: Apache-2.0
"""Says how loaded this broker is: looks at fixed intervals, reports what has changed enough, or after a long time.

Carries.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence

import magnetar
from magnetar.broker.ownership.bundle_ranges import BundleRanges
from magnetar.broker.ownership.bundles import Bundle, Bundles
from magnetar.broker.ownership.cluster_ownership import ClusterOwnership
from magnetar.broker.ownership.load_data import BrokerLoad
from magnetar.broker.ownership.owner import Owner
from magnetar.broker.ownership.traffic import TopicCounts, TrafficMeter, by_bundle
from magnetar.broker.ownership.usage import UsageMeter
from magnetar.config.balance import BalanceSettings
from magnetar.errors import MagnetarError, TopicNotFound
from magnetar.names import NamespaceName, TopicName
from magnetar.runtime.clock import WallClock
from magnetar.runtime.host import HostReading

_log = logging.getLogger(__name__)


class LoadReports:
    def __init__(
        self,
        ranges: BundleRanges,
        ownership: ClusterOwnership,
        settings: Callable[[], BalanceSettings],
        clock: WallClock,
        read_host: Callable[[], HostReading],
        *,
        instance: str,
        format_level: int,
    ) -> None:
        self._ranges = ranges
        self._ownership = ownership
        self._settings = settings
        self._clock = clock
        self._read_host = read_host
        self._instance = instance
        self._format_level = format_level
        self._started_ms = clock.now_ms()
        # The counters of every topic that is served here; set by the broker.
        self.counts: Callable[[], Sequence[TopicCounts]] = tuple
        self.traffic = TrafficMeter()
        self.usage = UsageMeter(settings().network_gbps)
        self.latest: BrokerLoad | None = None
        self._reported: BrokerLoad | None = None

    async def run(self) -> None:
        while True:
            settings = self._settings()
            await asyncio.sleep(settings.report_interval_min_ms / 1000)
            own = self._ownership.own
            if own is None or not settings.enabled:
                continue
            try:
                await self.look(own)
                await self.report()
            except MagnetarError as error:
                _log.info("the load of this broker is not known: %s", error)

    async def look(self, own: Owner) -> BrokerLoad:
        """Measure now. What is still served of a namespace that is gone belongs to no bundle."""
        now_s = asyncio.get_running_loop().time()
        topics = self.traffic.look(self.counts(), now_s)
        bundles: dict[NamespaceName, Bundles | None] = {}
        for name in topics:
            if name.namespace not in bundles:
                bundles[name.namespace] = await self._present(name.namespace)

        def find(name: TopicName) -> Bundle | None:
            found = bundles[name.namespace]
            return None if found is None else found.of(name)

        self.latest = BrokerLoad(
            own,
            self._instance,
            self._started_ms,
            self._clock.now_ms(),
            magnetar.__version__,
            self.usage.look(self._read_host(), now_s),
            by_bundle(topics, self._ownership.held(), find),
            self._format_level,
        )
        return self.latest

    async def _present(self, namespace: NamespaceName) -> Bundles | None:
        try:
            return await self._ranges.of(namespace)
        except TopicNotFound:
            return None

    async def report(self, *, in_any_case: bool = False) -> bool:
        """Put the latest look on record when it differs enough from the last one there."""
        latest, reported, settings = self.latest, self._reported, self._settings()
        if latest is None:
            return False
        if not in_any_case and reported is not None and not _differs(reported, latest, settings):
            return False
        if await self._ownership.membership.report(latest):
            self._reported = latest
            return True
        return False


def _differs(before: BrokerLoad, now: BrokerLoad, settings: BalanceSettings) -> bool:
    if now.updated_ms - before.updated_ms >= settings.report_interval_max_ms:
        return True
    if before.bundles.keys() != now.bundles.keys():
        return True
    limit = settings.report_threshold_percent
    used = zip(before.resources, now.resources, strict=True)
    if any(abs(new.percent - old.percent) > limit for old, new in used):
        return True
    old, new = before.total, now.total
    if (old.topics, old.producers, old.consumers) != (new.topics, new.producers, new.consumers):
        return True
    return any(
        abs(after - earlier) * 100 > limit * max(earlier, 1.0)
        for earlier, after in ((old.messages, new.messages), (old.bytes, new.bytes))
    )
