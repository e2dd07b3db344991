# SPDX-License-Identifier: Apache-2.0
"""A broker's part in its cluster: its registration, its bundles, and its way in and out.

Assembles.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import NamedTuple

import magnetar
from magnetar.broker.ownership.bundle_ranges import BundleRanges
from magnetar.broker.ownership.bundles import Bundle
from magnetar.broker.ownership.cluster_ownership import ClusterOwnership
from magnetar.broker.ownership.handovers import Handovers
from magnetar.broker.ownership.load_data import BrokerLoad
from magnetar.broker.ownership.membership import Membership
from magnetar.broker.ownership.owner import Owner
from magnetar.config.balance import BalanceSettings
from magnetar.config.metadata import MetadataSettings
from magnetar.errors import MagnetarError
from magnetar.metadata.coordination import Coordination
from magnetar.metadata.store import MetadataStore
from magnetar.runtime.clock import WallClock
from magnetar.runtime.tasks import Tasks

# A claim is a task.
_CLAIMS_MAX = 100_000

_log = logging.getLogger(__name__)


class Clustering(NamedTuple):
    """What a broker needs to know in order to be one of several."""

    settings: BalanceSettings
    metadata: MetadataSettings
    # Tells this process, and its successors on the same directory, from any other at its address.
    instance: str = ""

    def build(
        self,
        store: MetadataStore,
        ranges: BundleRanges,
        clock: WallClock,
        on_crash: Callable[[str, BaseException], None],
    ) -> "Cluster":
        return Cluster(store, ranges, self.settings, self.metadata, clock, on_crash, instance=self.instance)


class Cluster:
    """Made before the broker listens; `join` when it does, `leave` before it stops to."""

    def __init__(
        self,
        store: MetadataStore,
        ranges: BundleRanges,
        settings: BalanceSettings,
        metadata: MetadataSettings,
        clock: WallClock,
        on_crash: Callable[[str, BaseException], None],
        *,
        instance: str = "",
    ) -> None:
        self.settings = settings
        self._clock = clock
        self._instance = instance
        self._tasks = Tasks("ownership", on_crash, tasks_max=_CLAIMS_MAX)
        coordination = Coordination(store, self._tasks)
        self.membership = Membership(store, coordination, metadata)
        self.ownership = ClusterOwnership(
            store, ranges, self.membership, coordination, settings, metadata, self._tasks, self.choose
        )
        self.handovers = Handovers(store, self.ownership, self._tasks)

    async def join(self, own: Owner) -> None:
        now_ms = self._clock.now_ms()
        await self.membership.join(BrokerLoad(own, self._instance, now_ms, now_ms, magnetar.__version__))
        self.ownership.own = own
        self.handovers.start(own.broker_id)

    async def choose(self, bundle: Bundle, members: Mapping[str, BrokerLoad]) -> str | None:
        """The broker that shall have a bundle."""
        return min(members, key=lambda broker_id: (len(members[broker_id].bundles), broker_id), default=None)

    async def leave(self) -> None:
        """Hand every bundle over to another broker, or release it when there is none."""
        self.ownership.stop_claiming()
        own = self.ownership.own
        try:
            await self.membership.withdraw()
            members = {
                broker_id: load
                for broker_id, load in (await self.membership.members()).items()
                if own is None or broker_id != own.broker_id
            }
        except MagnetarError as error:
            _log.warning("the other brokers are not known, so that nothing is handed over: %s", error)
            members = {}
        turns = asyncio.Semaphore(self.settings.handovers_at_once_max)

        async def give_up(bundle: Bundle) -> None:
            async with turns:
                try:
                    chosen = await self.choose(bundle, members) if members else None
                    if chosen is None:
                        await self.ownership.release(bundle)
                    else:
                        await self.handovers.hand_over(bundle, members[chosen].owner)
                except MagnetarError as error:
                    _log.warning("giving up %s: %s", bundle, error)

        await asyncio.gather(*(give_up(bundle) for bundle in self.ownership.held()))

    async def close(self) -> None:
        self.handovers.close()
        self.membership.close()
        await self.ownership.close()
        await self._tasks.close()
