# SPDX-License-Identifier: Apache-2.0
"""The leader's work: keeps averages, has loaded brokers give bundles up, has bundles split that grow too large.

Every broker has one and may be asked what it would do; only the leader's does it. So many moves are made in a minute
and no more; a bundle that was moved is left alone for a while.
Carries.
"""

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import NamedTuple

from magnetar.broker.ownership.assignment import Assignment
from magnetar.broker.ownership.averages import (
    BROKER_AVERAGES_ROOT,
    BUNDLE_DATA_ROOT,
    BundleAverages,
    encode_broker,
    encode_bundle,
)
from magnetar.broker.ownership.bundle_ranges import BundleRanges
from magnetar.broker.ownership.bundles import Bundle, parse_bundle
from magnetar.broker.ownership.isolation import is_isolated
from magnetar.broker.ownership.load_data import BrokerLoad
from magnetar.broker.ownership.membership import BROKERS_ROOT, Membership
from magnetar.broker.ownership.orders import SPLIT, UNLOAD, Order
from magnetar.broker.ownership.shedding import Move, ShedderMemory, find_moves
from magnetar.broker.ownership.splitting import reason_to_split
from magnetar.config.balance import BalanceSettings
from magnetar.errors import MagnetarError, NoRecord, TopicNotFound
from magnetar.metadata.store import MetadataStore
from magnetar.runtime.clock import WallClock

_MINUTE_S = 60.0

_log = logging.getLogger(__name__)


class Split(NamedTuple):
    bundle: str
    broker: str
    reason: str


class Plan(NamedTuple):
    """What would be done now, and what holds it back."""

    moves: list[Move]
    splits: list[Split]
    usage: Mapping[str, float]
    notes: list[str]


class Balancer:
    def __init__(
        self,
        store: MetadataStore,
        ranges: BundleRanges,
        membership: Membership,
        assignment: Assignment,
        settings: Callable[[], BalanceSettings],
        clock: WallClock,
        command: Callable[[str, Order], Awaitable[None]],
    ) -> None:
        self._store = store
        self._ranges = ranges
        self._membership = membership
        self._assignment = assignment
        self._settings = settings
        self._clock = clock
        self._command = command
        self._memory = ShedderMemory()
        self._averages: dict[str, BundleAverages] = {}
        # When each was moved, by a clock that nobody sets.
        self._moved_s: dict[str, float] = {}
        self._recent_s: deque[float] = deque()
        self.rounds = 0
        self.moves_made = 0
        self.splits_made = 0

    async def run(self) -> None:
        """Look as often as the shortest of the intervals; each task of the leader has its own."""
        shed_s = split_s = stored_s = self._clock.elapsed_s()
        while True:
            settings = self._settings()
            await asyncio.sleep(min(settings.shedding_interval_ms, settings.split_interval_ms) / 1000)
            now_s = self._clock.elapsed_s()
            if not self._membership.is_leader or not settings.enabled:
                continue
            try:
                members = await self._membership.members()
                self.keep_averages(members)
                if now_s - stored_s >= settings.averages_interval_ms / 1000:
                    stored_s = now_s
                    await self.store_averages(members)
                if settings.split_enabled and now_s - split_s >= settings.split_interval_ms / 1000:
                    split_s = now_s
                    await self.split_round()
                if settings.shedding_enabled and now_s - shed_s >= settings.shedding_interval_ms / 1000:
                    shed_s = now_s
                    await self.shed_round()
            except MagnetarError as error:
                _log.warning("this look of the load balancer found nothing: %s", error)

    async def plan(self, memory: ShedderMemory | None = None) -> Plan:
        """What would move and be split now; nothing is done, and nothing is remembered of it without the memory."""
        settings = self._settings()
        members = await self._membership.members()
        scratch = memory or ShedderMemory()
        if memory is None:
            scratch.usage = dict(self._memory.usage)
            scratch.low_hits = dict(self._memory.low_hits)
            scratch.high_hits = dict(self._memory.high_hits)
        fixed, notes = await self._fixed(members)
        if not settings.enabled or not settings.shedding_enabled:
            notes.append("shedding is switched off")
        moves = find_moves(members, settings, scratch, fixed=fixed)
        left = self._moves_left()
        if len(moves) > left:
            notes.append(f"{len(moves)} moves are wanted, {left} are left in this minute")
        splits = await self._splits(members)
        if not settings.split_enabled:
            notes.append("splitting is switched off")
        return Plan(moves[:left], splits, scratch.usage, notes)

    async def shed_round(self) -> list[Move]:
        """Carry out what the plan says; returns what was done."""
        self.rounds += 1
        plan = await self.plan(self._memory)
        done: list[Move] = []
        for move in plan.moves:
            bundle = parse_bundle(move.bundle)
            if bundle is None:
                continue
            try:
                target = move.target or await self._target(bundle, move.takers)
                if not target:
                    continue
                _log.info("%s goes from %s to %s: %s", move.bundle, move.source, target, move.reason)
                self._moved_s[move.bundle] = self._clock.elapsed_s()
                self._recent_s.append(self._clock.elapsed_s())
                await self._command(move.source, Order(bundle, UNLOAD, target))
            except MagnetarError as error:
                _log.warning("%s stays with %s: %s", move.bundle, move.source, error)
                continue
            self.moves_made += 1
            done.append(move._replace(target=target))
        return done

    async def split_round(self) -> list[Split]:
        done: list[Split] = []
        settings = self._settings()
        for split in await self._splits(await self._membership.members()):
            bundle = parse_bundle(split.bundle)
            if bundle is None:
                continue
            order = Order(bundle, SPLIT, algorithm=settings.split_algorithm, unload=settings.split_unloads)
            try:
                await self._command(split.broker, order)
            except MagnetarError as error:
                _log.warning("%s is not split: %s", split.bundle, error)
                continue
            self.splits_made += 1
            done.append(split)
        return done

    async def store_averages(self, members: Mapping[str, BrokerLoad]) -> None:
        for bundle, averages in self._averages.items():
            await self._store.put(f"{BUNDLE_DATA_ROOT}/{bundle}", encode_bundle(averages))
        for broker, load in members.items():
            own = [self._averages[bundle] for bundle in load.bundles if bundle in self._averages]
            await self._store.put(f"{BROKER_AVERAGES_ROOT}/{broker}", encode_broker(own))
        # The members are as a cache knows them, and one may have come since: what is deleted goes by the store.
        gone = [broker for broker in await self._store.children(BROKER_AVERAGES_ROOT) if broker not in members]
        present = await self._store.children(BROKERS_ROOT) if gone else ()
        for broker in gone:
            if broker not in present:
                with contextlib.suppress(NoRecord):
                    await self._store.delete(f"{BROKER_AVERAGES_ROOT}/{broker}")

    def keep_averages(self, members: Mapping[str, BrokerLoad]) -> None:
        """Take what every broker reports into the averages."""
        looks = {bundle: load for member in members.values() for bundle, load in member.bundles.items()}
        self._averages = {
            bundle: self._averages.get(bundle, BundleAverages()).after(load) for bundle, load in looks.items()
        }
        self._assignment.long_term = {
            broker: sum(self._averages[bundle].long.load.messages for bundle in load.bundles)
            for broker, load in members.items()
        }

    # --- inside -----------------------------------------------------------------------------------

    async def _fixed(self, members: Mapping[str, BrokerLoad]) -> tuple[list[str], list[str]]:
        """Bundles that stay, and why, in words."""
        settings, now_s = self._settings(), self._clock.elapsed_s()
        self._moved_s = {
            bundle: moved
            for bundle, moved in self._moved_s.items()
            if now_s - moved < settings.shedding_grace_ms / 1000
        }
        notes = [f"{bundle} was moved lately and stays" for bundle in self._moved_s]
        policies = [] if settings.shedding_isolated else await self._assignment.isolation_policies()
        fixed = list(self._moved_s)
        for load in members.values():
            for bundle in load.bundles:
                namespace = bundle.rpartition("/")[0]
                if namespace in settings.shedding_excluded_namespaces or is_isolated(namespace, policies):
                    fixed.append(bundle)
                    notes.append(f"{bundle} belongs to a namespace that is not balanced")
        return fixed, notes

    def _moves_left(self) -> int:
        now_s = self._clock.elapsed_s()
        while self._recent_s and now_s - self._recent_s[0] >= _MINUTE_S:
            self._recent_s.popleft()
        return max(0, self._settings().moves_per_minute_max - len(self._recent_s))

    async def _target(self, bundle: Bundle, takers: Sequence[str]) -> str:
        """Placement has rules of its own, such as as many bundles for each: it chooses among those whom it helps."""
        members = {broker: load for broker, load in (await self._membership.members()).items() if broker in takers}
        return await self._assignment.choose(bundle, members) or ""

    async def _splits(self, members: Mapping[str, BrokerLoad]) -> list[Split]:
        found: list[Split] = []
        for broker, load in members.items():
            for name, each in load.bundles.items():
                bundle = parse_bundle(name)
                if bundle is None:
                    continue
                try:
                    bundles = await self._ranges.of(bundle.namespace)
                except TopicNotFound:
                    continue  # deleted since its broker reported
                reason = reason_to_split(each, len(bundles.bounds) - 1, self._settings())
                if reason is not None and bundles.has(bundle):
                    found.append(Split(name, broker, reason))
        return found
