# SPDX-License-Identifier: Apache-2.0
"""Which brokers there are, what each says of its load, and who leads them.

Owns this broker's registration, an ephemeral record with its load, and its candidature for the leadership; both are
claimed again after a lost session. Never decides where a bundle goes.
Carries.
"""

import asyncio
import json
import logging
from collections.abc import Mapping
from typing import Final, NamedTuple

from magnetar.broker.ownership.load_data import BrokerLoad, decode_load, encode_load
from magnetar.broker.ownership.owner import Owner
from magnetar.config.metadata import MetadataSettings
from magnetar.errors import BadVersion, CannotStart, DamagedRecord, MetadataError
from magnetar.metadata.cache import RecordCache
from magnetar.metadata.coordination import Claim, ClaimState, Coordination
from magnetar.metadata.store import MetadataStore

BROKERS_ROOT: Final = "/loadbalance/brokers"
LEADER_PATH: Final = "/loadbalance/leader"
# How much longer than a session a record may stay that belongs to one that has ended.
_LEFTOVER_MARGIN_S: Final = 5.0

_log = logging.getLogger(__name__)


class Leader(NamedTuple):
    broker_id: str
    web_url: str


class Membership:
    def __init__(self, store: MetadataStore, coordination: Coordination, settings: MetadataSettings) -> None:
        self._store = store
        self._coordination = coordination
        self._session_timeout_s = settings.session_timeout_ms / 1000
        self._members = RecordCache(store, BROKERS_ROOT, decode=_lenient, encode=_encoded, settings=settings)
        self._registration: Claim | None = None
        self._candidature: Claim | None = None

    @property
    def is_registered(self) -> bool:
        return self._registration is not None and self._registration.is_held

    async def join(self, load: BrokerLoad) -> None:
        """Register, and stand for the leadership. CannotStart when another live broker has this address."""
        path = f"{BROKERS_ROOT}/{load.broker_id}"
        await self._remove_leftover(path, load)
        held = asyncio.Event()
        claim = self._registration = self._coordination.candidate(
            path, encode_load(load), on_state=lambda claim: held.set() if claim.is_held else held.clear()
        )
        try:
            async with asyncio.timeout(self._session_timeout_s + _LEFTOVER_MARGIN_S):
                await claim.settled()
                if not claim.is_held:
                    _log.warning("a broker is registered as %s; waiting until its session ends", load.broker_id)
                await held.wait()
        except TimeoutError:
            await claim.release()
            raise CannotStart(
                f"Another broker of this cluster is registered as {load.broker_id}: stop it, or give this one an "
                "address of its own with advertisedAddress or --http-port"
            ) from None
        url = load.owner.web_url or load.owner.web_url_tls
        leader = json.dumps({"brokerId": load.broker_id, "serviceUrl": url}).encode()
        self._candidature = self._coordination.candidate(LEADER_PATH, leader)
        await self._candidature.settled()

    async def report(self, load: BrokerLoad) -> bool:
        """Say how loaded this broker is; False when that cannot be said now."""
        claim = self._registration
        if claim is None or not claim.is_held:
            return False
        try:
            await claim.update(encode_load(load))
        except (BadVersion, MetadataError) as error:
            _log.info("the load could not be reported: %s", error)
            return False
        return True

    async def members(self) -> Mapping[str, BrokerLoad]:
        """Every registered broker by its id, sorted."""
        found: dict[str, BrokerLoad] = {}
        for broker_id in await self._members.children(BROKERS_ROOT):
            kept = await self._members.get(f"{BROKERS_ROOT}/{broker_id}")
            if kept is not None and kept.value is not None:
                found[broker_id] = kept.value
        return found

    @property
    def leader(self) -> Leader | None:
        """Who leads, as far as is known."""
        claim = self._candidature
        if claim is None:
            return None
        value = claim.value if claim.is_held else claim.holder
        if value is None or claim.state in (ClaimState.LOST, ClaimState.SEEKING, ClaimState.RELEASED):
            return None
        try:
            record = json.loads(value)
            return Leader(str(record["brokerId"]), str(record.get("serviceUrl") or ""))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return None

    @property
    def is_leader(self) -> bool:
        return self._candidature is not None and self._candidature.is_held

    async def withdraw(self) -> None:
        """No bundle is placed here from now on, and someone else leads."""
        for claim in (self._registration, self._candidature):
            if claim is not None:
                await claim.release()
        self._candidature = self._registration = None

    def close(self) -> None:
        self._members.close()

    async def _remove_leftover(self, path: str, load: BrokerLoad) -> None:
        """The record of a former process on our own directory, which is dead: its session has not noticed yet."""
        record = await self._store.get(path)
        if record is None or not load.instance:
            return
        former = _lenient(record.value)
        if former is not None and former.instance == load.instance:
            try:
                await self._store.delete(path, expected_version=record.version)
            except MetadataError as error:
                _log.info("the registration that a former process left: %s", error)


def owner_of(members: Mapping[str, BrokerLoad], broker_id: str) -> Owner | None:
    found = members.get(broker_id)
    return None if found is None else found.owner


def _encoded(load: BrokerLoad | None) -> bytes:
    return b"" if load is None else encode_load(load)


def _lenient(value: bytes) -> BrokerLoad | None:
    """A record that cannot be read is a broker that gets no work; it must not stop the others."""
    try:
        return decode_load(value)
    except DamagedRecord as error:
        _log.warning("%s", error)
        return None
