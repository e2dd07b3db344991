# SPDX-License-Identifier: Apache-2.0
"""Brokers without clients: each with its own session on one metadata tree in memory."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from magnetar.broker.ownership.bundle_ranges import BundleRanges
from magnetar.broker.ownership.bundles import Bundle, hash_of
from magnetar.broker.ownership.cluster import Cluster, Clustering
from magnetar.broker.ownership.owner import Owner
from magnetar.broker.ownership.splitting import TopicPlace
from magnetar.config.balance import BalanceSettings
from magnetar.config.metadata import FORMAT_LEVEL_NEWEST, MetadataSettings
from magnetar.metadata.format_level import FormatLevel
from magnetar.metadata.memory import MemoryStore, MemoryTree
from magnetar.names import NamespaceName, TopicName
from magnetar.runtime.clock import SystemClock, WallClock
from magnetar.runtime.host import HostReading

NAMESPACE = NamespaceName("public", "default")
METADATA = MetadataSettings(session_timeout_ms=4_000)


class Member:
    """One broker: what it owns, and the bundles whose topics it was told to close."""

    def __init__(
        self,
        tree: MemoryTree,
        number: int,
        settings: BalanceSettings,
        clock: WallClock | None = None,
        *,
        highest: int = FORMAT_LEVEL_NEWEST,
    ) -> None:
        self.store = MemoryStore(tree)
        self.ranges = BundleRanges(self.store)
        self.closed: list[Bundle] = []
        self.crashes: list[BaseException] = []
        self.topics: list[TopicName] = []
        self.own = Owner(f"pulsar://b{number}:6650", f"http://b{number}:8080")
        self.cluster = Cluster(
            Clustering(
                settings,
                METADATA,
                f"instance-{number}",
                lambda: HostReading(1),
                FormatLevel(self.store, highest),
            ),
            "test",
            self.store,
            self.ranges,
            clock or SystemClock(),
            lambda _, error: self.crashes.append(error),
            self._places,
        )
        self.ownership = self.cluster.ownership
        self.ownership.close_topics = self._close

    async def join(self) -> None:
        await self.cluster.join(self.own)

    async def close(self) -> None:
        await self.cluster.close()
        self.ranges.close()
        await self.store.close()
        assert self.crashes == []

    async def _close(self, bundle: Bundle) -> None:
        self.closed.append(bundle)

    async def _places(self, bundle: Bundle) -> list[TopicPlace]:
        return [TopicPlace(hash_of(name)) for name in self.topics]


class Members:
    def __init__(self, count: int, *, bundles: int = 4, settings: BalanceSettings | None = None) -> None:
        self.tree = MemoryTree(SystemClock(), METADATA)
        self.store = MemoryStore(self.tree)
        self._bundles = bundles
        options = settings or BalanceSettings(claim_timeout_ms=2_000, report_interval_min_ms=1_000_000)
        self.all = [Member(self.tree, number, options) for number in range(count)]

    async def __aenter__(self) -> "Members":
        policies = f'{{"bundles":{{"numBundles":{self._bundles}}}}}'.encode()
        await self.store.put(NAMESPACE.policies_path, policies)
        for member in self.all:
            await member.join()
        return self

    async def __aexit__(self, *_: object) -> None:
        for member in self.all:
            await member.close()
        await self.store.close()

    async def owner_record(self, bundle: Bundle) -> bytes | None:
        found = await self.store.get(bundle.path)
        return None if found is None else found.value


def run(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(scenario())


async def until(condition: Callable[[], bool] | Callable[[], Awaitable[bool]]) -> None:
    """Wait for a condition, as long as it takes and no longer than a test may."""
    async with asyncio.timeout(10):
        while True:
            found = condition()
            if found is True or (not isinstance(found, bool) and await found):
                return
            await asyncio.sleep(0.005)
