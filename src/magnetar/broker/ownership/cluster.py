# SPDX-License-Identifier: Apache-2.0
"""A broker's part in its cluster: its registration, its bundles, its load, and its way in and out.

Assembles.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

import magnetar
from magnetar.broker.ownership.assignment import Assignment
from magnetar.broker.ownership.balancer import Balancer
from magnetar.broker.ownership.bundle_ranges import BundleRanges
from magnetar.broker.ownership.bundles import Bundle
from magnetar.broker.ownership.cluster_ownership import ClusterOwnership
from magnetar.broker.ownership.dedicated_leader import DedicatedLeader
from magnetar.broker.ownership.dynamic_settings import DynamicSettings
from magnetar.broker.ownership.handovers import Handovers
from magnetar.broker.ownership.level_keeper import LevelKeeper, announced_in
from magnetar.broker.ownership.load_data import BrokerLoad
from magnetar.broker.ownership.load_reports import LoadReports
from magnetar.broker.ownership.membership import LEADER_PATH, Membership
from magnetar.broker.ownership.orders import SPLIT, UNLOAD, Order, Orders, busy
from magnetar.broker.ownership.owner import Owner
from magnetar.broker.ownership.splitter import Splitter
from magnetar.broker.ownership.splitting import TopicPlace
from magnetar.broker.ownership.stall_watch import StallWatch
from magnetar.config.balance import BalanceSettings
from magnetar.config.metadata import MetadataSettings
from magnetar.errors import BadSetting, BundleBusy, MagnetarError, ServiceNotReady
from magnetar.metadata.coordination import Coordination
from magnetar.metadata.format_level import FormatLevel
from magnetar.metadata.store import MetadataStore
from magnetar.runtime.clock import WallClock
from magnetar.runtime.host import HostReading, read_host
from magnetar.runtime.tasks import Tasks

# A claim is a task.
_CLAIMS_MAX = 100_000
# How often an unload looks whether the one before it has ended.
_LOOK_AGAIN_S = 0.1

_log = logging.getLogger(__name__)


class Clustering(NamedTuple):
    """What a broker needs to know in order to be one of several."""

    settings: BalanceSettings
    metadata: MetadataSettings
    # Tells this process, and its successors on the same directory, from any other at its address.
    instance: str = ""
    read_host: Callable[[], HostReading] = read_host
    # What the process knows of the format level, where others of its parts ask for it, too.
    format_level: FormatLevel | None = None


class Cluster:
    """Made before the broker listens; `join` when it does, `leave` before it stops to."""

    def __init__(
        self,
        clustering: Clustering,
        cluster_name: str,
        store: MetadataStore,
        ranges: BundleRanges,
        clock: WallClock,
        on_crash: Callable[[str, BaseException], None],
        places: Callable[[Bundle], Awaitable[Sequence[TopicPlace]]],
    ) -> None:
        metadata = clustering.metadata
        level = clustering.format_level or FormatLevel(store, metadata.format_level_max)
        self._clock = clock
        self._instance = clustering.instance
        self._tasks = Tasks("ownership", on_crash, tasks_max=_CLAIMS_MAX)
        self.dynamic = DynamicSettings(store, clustering.settings)
        coordination = Coordination(store, self._tasks)
        self.membership = Membership(store, coordination, metadata)
        self.assignment = Assignment(store, cluster_name, self._current, metadata, clock)
        self.ownership = ClusterOwnership(
            store,
            ranges,
            self.membership,
            coordination,
            clustering.settings,
            metadata,
            self._tasks,
            self.assignment.choose,
        )
        self.leader = DedicatedLeader(
            self.ownership, self.membership, self._current, lambda bundle: self._give(bundle, "")
        )
        self.assignment.shunned = lambda: self.leader.shunned
        self.handovers = Handovers(store, self.ownership, self._tasks)
        self.splitter = Splitter(ranges, self.ownership, places)
        self.orders = Orders(store, self._tasks, self._carry_out, clustering.settings.unload_timeout_ms)
        self.reports = LoadReports(
            ranges,
            self.ownership,
            self._current,
            clock,
            clustering.read_host,
            instance=clustering.instance,
            format_level=level.highest,
        )
        # What is being done with bundles of this broker: one order at a time about each.
        self._under_way: dict[Bundle, str] = {}
        self._format_level = level
        self.levels = LevelKeeper(
            level,
            lambda: announced_in(store),
            lambda: self.membership.is_leader,
            lambda: self.settings.format_level_delay_ms,
        )
        # Stops listening to clients for so many seconds; set by the broker.
        self.hold_clients: Callable[[float], None] = _nobody
        self.stalls = StallWatch(
            store, LEADER_PATH, metadata.session_timeout_ms, lambda seconds: self.hold_clients(seconds)
        )
        self.balancer = Balancer(store, ranges, self.membership, self.assignment, self._current, clock, self.command)

    @property
    def settings(self) -> BalanceSettings:
        """What holds now."""
        return self.dynamic.current

    def _current(self) -> BalanceSettings:
        return self.dynamic.current

    async def join(self, own: Owner) -> None:
        now_ms = self._clock.now_ms()
        level = self._format_level
        load = BrokerLoad(own, self._instance, now_ms, now_ms, magnetar.__version__, format_level=level.highest)
        await self.membership.join(load)
        try:
            # Once more, now that whoever raises the level can see us.
            await level.check()
        except MagnetarError:
            await self.membership.withdraw()
            raise
        self.ownership.own = own
        self.handovers.start(own.broker_id)
        self.orders.start(own.broker_id)
        self._tasks.start(self.dynamic.run(), "dynamic settings")
        self._tasks.start(self.stalls.run(), "stall watch")
        self._tasks.start(self.reports.run(), "load reports")
        self._tasks.start(self.balancer.run(), "load balancer")
        self._tasks.start(self.leader.run(), "dedicated leader")
        self._tasks.start(level.follow(), "format level")
        self._tasks.start(self.levels.run(), "format level keeper")

    async def command(self, broker_id: str, order: Order) -> None:
        """Have a broker, this one or another, do something with a bundle that it has."""
        own = self.ownership.own
        if own is not None and broker_id == own.broker_id:
            await self._carry_out(order)
        else:
            await self.orders.send(broker_id, order)

    async def unload(self, bundle: Bundle, target: str = "") -> bool:
        """Take a bundle from its owner, whoever that is; False when it has none.

        ServiceNotReady, BadSetting; BundleBusy while it is split or given to somebody else. Who does not say where it
        shall go waits for another who is having it unloaded.
        """
        if target and target not in await self.membership.members():
            raise BadSetting(f"There is no broker {target} in this cluster")
        owner = await self.ownership.owner_of(bundle)
        until_s = self._clock.elapsed_s() + self.settings.unload_timeout_ms / 1000
        first = owner
        while owner is not None and owner == first:
            try:
                await self.command(owner.broker_id, Order(bundle, UNLOAD, target))
                break
            except BundleBusy as error:
                if target or error.action != UNLOAD or self._clock.elapsed_s() > until_s:
                    raise
            await asyncio.sleep(_LOOK_AGAIN_S)
            owner = await self.ownership.owner_of(bundle)
        return first is not None

    async def free(self, bundle: Bundle) -> None:
        """Have the owner of a bundle let it go, to nobody."""
        owner = await self.ownership.owner_of(bundle)
        if owner is not None:
            await self.command(owner.broker_id, Order(bundle, UNLOAD, owner.broker_id))

    async def split(self, bundle: Bundle, algorithm: str, positions: Sequence[int] = (), *, unload: bool) -> None:
        """Have the owner of a bundle split it; a bundle without owner gets one first."""
        order = Order(bundle, SPLIT, algorithm=algorithm, positions=tuple(positions), unload=unload)
        owner = await self.ownership.owner_of(bundle)
        if owner is None:
            await self.ownership.claim(bundle)
            owner = await self.ownership.owner_of(bundle)
        if owner is None:
            raise ServiceNotReady(f"{bundle} has no owner; try again")
        await self.command(owner.broker_id, order)

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
                    chosen = await self.assignment.choose(bundle, members) if members else None
                    if chosen is None:
                        await self.ownership.release(bundle)
                    else:
                        await self.handovers.hand_over(bundle, members[chosen].owner)
                except MagnetarError as error:
                    _log.warning("giving up %s: %s", bundle, error)

        await asyncio.gather(*(give_up(bundle) for bundle in self.ownership.held()))

    async def close(self) -> None:
        self.handovers.close()
        self.orders.close()
        self.dynamic.close()
        self.membership.close()
        self.assignment.close()
        await self.ownership.close()
        await self._tasks.close()

    async def _carry_out(self, order: Order) -> None:
        """An order about a bundle of this broker. ServiceNotReady when it is not this broker's."""
        bundle = order.bundle
        if bundle in self._under_way:
            raise busy(order, self._under_way[bundle])
        if not self.ownership.serves(bundle):
            raise ServiceNotReady(f"{bundle} is not this broker's")
        self._under_way[bundle] = order.action
        try:
            await self._do(order)
        finally:
            del self._under_way[bundle]

    async def _do(self, order: Order) -> None:
        bundle = order.bundle
        if order.action == SPLIT:
            parts = await self.splitter.split(bundle, order.algorithm or self.settings.split_algorithm, order.positions)
            if order.unload:
                for part in parts:
                    await self._give(part, "")
        elif order.action == UNLOAD:
            await self._give(bundle, order.target)
        else:
            raise BadSetting(f"{order.action!r} is nothing that a broker does with a bundle")

    async def _give(self, bundle: Bundle, target: str) -> None:
        """To the broker that is named, or to the one that placement chooses, which may be this one again."""
        own = self.ownership.own
        members = await self.membership.members()
        chosen = target or await self.assignment.choose(bundle, members) or ""
        if not chosen or chosen not in members or (own is not None and chosen == own.broker_id):
            await self.ownership.release(bundle)
            return
        self.assignment.remember(str(bundle), chosen)
        await self.handovers.hand_over(bundle, members[chosen].owner)


def _nobody(seconds: float) -> None:
    return
