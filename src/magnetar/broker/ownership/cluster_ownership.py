# SPDX-License-Identifier: Apache-2.0
"""The bundles of one broker among several: claimed when someone looks a topic up, served, handed over, lost.

Owns the claims. A bundle that nobody owns is given to the broker that the leader chooses; that broker claims it, and
only the store says who has it. While the store is away, what is held is served on. When the session is lost, every
bundle is let go and its topics are closed; they are claimed anew like any other. Two brokers may believe that they own
a bundle for a moment: only one of them can write, because opening a topic fences its ledgers.

Invariant: a bundle in `_held` has a claim that is held or uncertain; one that is leaving serves no new client.
Carries.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, TypeVar

from magnetar.broker.ownership.bundle_ranges import BundleRanges
from magnetar.broker.ownership.bundles import OWNERSHIP_ROOT, Bundle
from magnetar.broker.ownership.load_data import BrokerLoad
from magnetar.broker.ownership.membership import Membership
from magnetar.broker.ownership.owner import Located, Owner, decode_owner, encode_owner
from magnetar.config.balance import BalanceSettings
from magnetar.config.metadata import MetadataSettings
from magnetar.errors import LedgerFenced, LockHeld, MagnetarError, MetadataError, ServiceNotReady
from magnetar.metadata.cache import RecordCache
from magnetar.metadata.coordination import Claim, ClaimState, Coordination
from magnetar.metadata.store import MetadataStore, SessionEvent
from magnetar.names import TopicName
from magnetar.runtime.tasks import Tasks

_ATTEMPTS: Final = 5
# Namespaces whose second part is a broker's id belong to that broker: it looks after itself there.
_PERSONAL_TENANTS: Final = ("pulsar", "sla-monitor")

_log = logging.getLogger(__name__)

Result = TypeVar("Result")
Choose = Callable[[Bundle, Mapping[str, BrokerLoad]], Awaitable[str | None]]


class HeldBundle:
    __slots__ = ("claim", "is_leaving", "target")

    def __init__(self, claim: Claim) -> None:
        self.claim = claim
        self.is_leaving = False
        # Who has it next, once it is leaving and that is known.
        self.target: Owner | None = None


class ClusterOwnership:
    def __init__(
        self,
        store: MetadataStore,
        ranges: BundleRanges,
        membership: Membership,
        coordination: Coordination,
        settings: BalanceSettings,
        metadata: MetadataSettings,
        tasks: Tasks,
        choose: Choose,
    ) -> None:
        self.own: Owner | None = None
        self.ranges = ranges
        self.membership = membership
        # Closes every topic of a bundle that is served here; set by the broker.
        self.close_topics: Callable[[Bundle], Awaitable[None]] = _nothing
        self._settings = settings
        self._coordination = coordination
        self._tasks = tasks
        self._choose = choose
        self._held: dict[Bundle, HeldBundle] = {}
        self._claiming: dict[Bundle, asyncio.Future[None]] = {}
        self._is_leaving = False
        self._is_connected = True
        self._owners = RecordCache(store, OWNERSHIP_ROOT, decode=decode_owner, encode=encode_owner, settings=metadata)
        self._unwatch_session = store.watch_session(self._on_session)

    # --- questions --------------------------------------------------------------------------------

    def held(self) -> list[Bundle]:
        """The bundles that this broker has, sorted."""
        return sorted(self._held)

    def serves(self, bundle: Bundle) -> bool:
        held = self._held.get(bundle)
        return held is not None and not held.is_leaving

    async def locate(self, topic: TopicName, *, authoritative: bool = False, listener: str = "") -> Located:
        """Who serves a topic; a bundle that nobody has is assigned now."""
        for _ in range(_ATTEMPTS):
            bundle = await self._bundle_of(topic)
            located = await self.locate_bundle(bundle, authoritative=authoritative)
            if located is not None:
                return _through(located, listener)
        raise ServiceNotReady(f"The owner of {topic} changes all the time; look it up again")

    async def locate_bundle(self, bundle: Bundle, *, authoritative: bool = False) -> Located | None:
        """As `locate`, of a bundle; None when it must be asked again."""
        own = self._require_own()
        held = self._held.get(bundle)
        if held is not None:
            if not held.is_leaving:
                return Located(own)
            if held.target is None:
                raise ServiceNotReady(f"{bundle} is being unloaded; look the topic up again")
            return Located(held.target, is_redirect=True)
        if bundle in self._claiming:
            await self.claim(bundle)
            return None
        try:
            found = await self._in_time(self._owners.get(bundle.path))
        except MetadataError as error:
            raise ServiceNotReady(f"Who has {bundle} cannot be told now: {error}") from error
        if found is not None and found.value.broker_id != own.broker_id:
            return Located(found.value)
        if not self._is_connected:
            raise ServiceNotReady(f"{bundle} has no owner and the metadata store does not answer; try again")
        try:
            mine = authoritative or found is not None
            chosen = Located(own) if mine else await self._in_time(self._assigned(bundle, own))
        except MetadataError as error:
            raise ServiceNotReady(f"{bundle} has no owner and cannot get one now: {error}") from error
        if chosen.is_redirect:
            return chosen
        if self._is_leaving:
            raise ServiceNotReady("The broker is stopping; look the topic up again")
        await self.claim(bundle)
        return None

    async def owner_of(self, bundle: Bundle) -> Owner | None:
        """Who has a bundle now; nothing is assigned."""
        if bundle in self._held:
            return self.own
        found = await self._owners.get(bundle.path)
        return None if found is None else found.value

    async def check_served(self, topic: TopicName) -> None:
        bundle = await self._bundle_of(topic)
        if bundle in self._claiming or (bundle not in self._held and await self._is_on_record(bundle)):
            await self.claim(bundle)
        if not self.serves(bundle):
            raise ServiceNotReady(f"Topic {topic} is not served by this broker; look it up again")

    async def _is_on_record(self, bundle: Bundle) -> bool:
        """Whether others send clients here for a bundle that is not held: after a lost answer, or a former process."""
        own = self._require_own()
        try:
            found = await self._owners.get(bundle.path)
        except MetadataError:
            return False
        return found is not None and found.value.broker_id == own.broker_id and not self._is_leaving

    def moved_to(self, topic: TopicName) -> Owner | None:
        for bundle, held in self._held.items():
            if held.is_leaving and held.target is not None and bundle.has(topic):
                return held.target
        return None

    # --- claiming ---------------------------------------------------------------------------------

    async def claim(self, bundle: Bundle) -> None:
        """Try to own a bundle. Whether it worked is told by `serves`; ServiceNotReady when the store is away."""
        claiming = self._claiming.get(bundle)
        if claiming is None:
            if bundle in self._held:
                return
            claiming = asyncio.get_running_loop().create_future()
            self._tasks.start(self._claim(bundle, claiming), f"claim {bundle}")
            self._claiming[bundle] = claiming
        await asyncio.shield(claiming)

    def await_handover(self, bundle: Bundle) -> None:
        """Another broker is about to release a bundle to this one: take it as soon as it is free."""
        if bundle not in self._claiming and bundle not in self._held and not self._is_leaving:
            claiming = asyncio.get_running_loop().create_future()
            self._tasks.start(self._claim(bundle, claiming, patient=True), f"await {bundle}")
            self._claiming[bundle] = claiming

    async def _claim(self, bundle: Bundle, claiming: asyncio.Future[None], *, patient: bool = False) -> None:
        try:
            await self._hold(bundle, patient)
        except LockHeld:
            self._owners.forget(bundle.path)
        except MagnetarError as error:
            claiming.set_exception(ServiceNotReady(f"{bundle} could not be claimed: {error}"))
            # Every client that waited may have left.
            claiming.exception()
        finally:
            del self._claiming[bundle]
            if not claiming.done():
                claiming.set_result(None)

    async def _hold(self, bundle: Bundle, patient: bool) -> None:
        timeout_ms = self._settings.handover_timeout_ms if patient else self._settings.claim_timeout_ms
        value = encode_owner(self._require_own())
        claim: Claim | None = None
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                if patient:
                    claim = await self._patient_claim(bundle, value)
                else:
                    claim = await self._coordination.lock(bundle.path, value, on_state=self._on_claim)
                # A split may have come between the look-up and the claim.
                is_current = (await self.ranges.fresh(bundle.namespace)).has(bundle)
        except TimeoutError:
            if claim is not None:
                await claim.release()
            raise ServiceNotReady(f"The metadata store did not answer in {timeout_ms} ms") from None
        except BaseException:
            if claim is not None:
                await claim.release()
            raise
        if not is_current or not claim.is_held or self._is_leaving:
            await claim.release()
            return
        self._held[bundle] = HeldBundle(claim)
        _log.info("this broker owns %s", bundle)

    async def _patient_claim(self, bundle: Bundle, value: bytes) -> Claim:
        held = asyncio.Event()

        def on_state(claim: Claim) -> None:
            if claim.is_held:
                held.set()
            self._on_claim(claim)

        claim = self._coordination.candidate(bundle.path, value, on_state=on_state)
        try:
            await held.wait()
        except asyncio.CancelledError:
            await claim.release()
            raise
        return claim

    def hold_parts(self, whole: Bundle, claims: Mapping[Bundle, Claim]) -> None:
        """A bundle was split: its parts are held instead of it, and its topics are served without a break."""
        for part, claim in claims.items():
            self._held[part] = HeldBundle(claim)
        self._held.pop(whole, None)

    async def lock(self, bundle: Bundle) -> Claim:
        """A claim that nobody looks after yet; for a split."""
        return await self._coordination.lock(bundle.path, encode_owner(self._require_own()), on_state=self._on_claim)

    def claim_of(self, bundle: Bundle) -> Claim | None:
        held = self._held.get(bundle)
        return None if held is None or held.is_leaving else held.claim

    # --- letting go -------------------------------------------------------------------------------

    async def release(self, bundle: Bundle, target: Owner | None = None) -> bool:
        """Close a bundle's topics and give it up; its clients are told where to go when that is known.

        False when it is not held, or is leaving already.
        """
        held = self._held.get(bundle)
        if held is None or held.is_leaving:
            return False
        held.is_leaving, held.target = True, target
        try:
            async with asyncio.timeout(self._settings.unload_timeout_ms / 1000):
                await self.close_topics(bundle)
        except TimeoutError:
            _log.warning("the topics of %s did not close in time; its next owner fences them", bundle)
        finally:
            if self._held.get(bundle) is held:
                await held.claim.release()
                self._owners.forget(bundle.path)
                self._held.pop(bundle, None)
        _log.info("this broker has given up %s", bundle)
        return True

    def on_storage_failed(self, topic: TopicName, error: MagnetarError) -> None:
        """A topic that another broker has fenced while nobody could tell who owns it: the other one does."""
        if not isinstance(error, LedgerFenced):
            return
        for bundle, held in list(self._held.items()):
            if bundle.has(topic) and held.claim.state is ClaimState.UNCERTAIN:
                self._lose(bundle, "another broker writes its topics")

    def stop_claiming(self) -> None:
        """The broker is about to leave: what it has it may still serve, and it takes nothing new."""
        self._is_leaving = True

    async def close(self) -> None:
        self._is_leaving = True
        self._unwatch_session()
        self._owners.close()
        await self._coordination.close()
        self._held.clear()

    # --- inside -----------------------------------------------------------------------------------

    async def _bundle_of(self, topic: TopicName) -> Bundle:
        try:
            return (await self._in_time(self.ranges.of(topic.namespace))).of(topic)
        except MetadataError as error:
            raise ServiceNotReady(f"The bundle of {topic} cannot be told now: {error}") from error

    async def _in_time(self, question: Awaitable[Result]) -> Result:
        """What the store says; a client that looks up learns soon that it says nothing, and asks again."""
        limit_ms = self._settings.claim_timeout_ms
        try:
            async with asyncio.timeout(limit_ms / 1000):
                return await question
        except TimeoutError:
            raise MetadataError(f"the metadata store did not answer in {limit_ms} ms") from None

    async def _assigned(self, bundle: Bundle, own: Owner) -> Located:
        """Where a bundle without owner shall go: as the leader says, or this broker when it leads or nobody does."""
        members = await self.membership.members()
        namespace = bundle.namespace
        if namespace.tenant in _PERSONAL_TENANTS and namespace.name in members:
            return self._to(namespace.name, members, own)
        leader = self.membership.leader
        if self._settings.centralized and leader is not None and leader.broker_id != own.broker_id:
            found = members.get(leader.broker_id)
            if found is not None:
                return Located(found.owner, is_redirect=True, is_authoritative=False)
        chosen = await self._choose(bundle, members)
        if chosen is None:
            raise ServiceNotReady(f"No broker may serve {bundle} now; try again")
        return self._to(chosen, members, own)

    @staticmethod
    def _to(broker_id: str, members: Mapping[str, BrokerLoad], own: Owner) -> Located:
        if broker_id == own.broker_id:
            return Located(own)
        return Located(members[broker_id].owner, is_redirect=True)

    def _require_own(self) -> Owner:
        if self.own is None:
            raise ServiceNotReady("The broker is starting")
        return self.own

    def _on_session(self, event: SessionEvent) -> None:
        self._is_connected = event in (SessionEvent.RECONNECTED, SessionEvent.REESTABLISHED)

    def _on_claim(self, claim: Claim) -> None:
        if claim.state not in (ClaimState.LOST, ClaimState.HELD_BY_OTHER):
            return
        for bundle, held in list(self._held.items()):
            if held.claim is claim:
                self._lose(bundle, f"the claim is {claim.state.value}")

    def _lose(self, bundle: Bundle, reason: str) -> None:
        """Stop serving at once; closing the topics takes as long as it takes."""
        held = self._held.pop(bundle)
        held.claim.abandon()
        self._owners.forget(bundle.path)
        _log.warning("this broker has lost %s: %s", bundle, reason)
        if not held.is_leaving and not self._tasks.is_closed:
            self._tasks.start(self._close_lost(bundle), f"close {bundle}")

    async def _close_lost(self, bundle: Bundle) -> None:
        try:
            await self.close_topics(bundle)
        except MagnetarError as error:
            _log.warning("closing the topics of %s: %s", bundle, error)


def _through(located: Located, listener: str) -> Located:
    owner = located.owner.through(listener)
    if owner is None:
        raise ServiceNotReady(f"the broker do not have {listener} listener")
    return located._replace(owner=owner)


async def _nothing(bundle: Bundle) -> None:
    return
