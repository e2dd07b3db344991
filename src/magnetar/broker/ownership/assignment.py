# SPDX-License-Identifier: Apache-2.0
"""Where a bundle goes: gathers what is known of the cluster and has placement decide.

Owns the memory of bundles that were placed since their brokers last reported.
Carries.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from magnetar.broker.ownership.bundles import Bundle
from magnetar.broker.ownership.isolation import IsolationPolicy, decode_policies
from magnetar.broker.ownership.load_data import BrokerLoad
from magnetar.broker.ownership.placement import PlacementFacts, choose_broker
from magnetar.config.balance import BalanceSettings
from magnetar.config.metadata import MetadataSettings
from magnetar.metadata.cache import RecordCache
from magnetar.metadata.store import MetadataStore
from magnetar.names import CLUSTERS_ROOT, LOCAL_POLICIES_ROOT, NamespaceName, cluster_path
from magnetar.runtime.clock import WallClock

# A broker that is told to take a bundle has said so in its report by then, or has not taken it.
_REMEMBERED_S: Final = 60.0
_REMEMBERED_MAX: Final = 10_000
# Whoever asks again so soon gets the same answer: two brokers told to take one bundle would race for it.
_SAME_ANSWER_S: Final = 5.0


class Assignment:
    def __init__(
        self,
        store: MetadataStore,
        cluster_name: str,
        settings: Callable[[], BalanceSettings],
        metadata: MetadataSettings,
        clock: WallClock,
    ) -> None:
        self._cluster_path = cluster_path(cluster_name)
        self._settings = settings
        self._clock = clock
        self._clusters = RecordCache(store, CLUSTERS_ROOT, decode=_decoded, encode=_encoded, settings=metadata)
        self._local = RecordCache(store, LOCAL_POLICIES_ROOT, decode=_decoded, encode=_encoded, settings=metadata)
        # Whom each was given to, and when by a clock that nobody sets.
        self._given: dict[str, tuple[str, float]] = {}
        self._turn = 0
        # Messages a second by broker over a long time; the leader keeps it up to date.
        self.long_term: Mapping[str, float] = {}
        # The broker that shall have no bundles, if there is one.
        self.shunned: Callable[[], str] = str

    async def choose(self, bundle: Bundle, members: Mapping[str, BrokerLoad]) -> str | None:
        """The broker that shall have a bundle; None when none may."""
        namespace = str(bundle.namespace)
        given = self._given.get(str(bundle))
        if given is not None and given[0] in members and self._clock.elapsed_s() - given[1] < _SAME_ANSWER_S:
            return given[0]
        self._turn += 1
        facts = PlacementFacts(
            members,
            await self.isolation_policies(),
            await self._domains(),
            await self._group_of(bundle.namespace),
            self.bundles_of(members),
            self.long_term,
            self._turn,
            self.shunned(),
        )
        chosen = choose_broker(namespace, str(bundle), facts, self._settings())
        if chosen is not None:
            self.remember(str(bundle), chosen)
        return chosen

    def remember(self, bundle: str, broker_id: str) -> None:
        """A bundle is on its way to a broker that does not report it yet."""
        self._given.pop(bundle, None)
        self._given[bundle] = (broker_id, self._clock.elapsed_s())
        while len(self._given) > _REMEMBERED_MAX:
            del self._given[next(iter(self._given))]

    def bundles_of(self, members: Mapping[str, BrokerLoad]) -> dict[str, list[str]]:
        """Bundles by broker: what they report, changed by what was given away since."""
        now_s = self._clock.elapsed_s()
        self._given = {
            bundle: given
            for bundle, given in self._given.items()
            if now_s - given[1] < _REMEMBERED_S and not (given[0] in members and bundle in members[given[0]].bundles)
        }
        found = {
            broker: [bundle for bundle in load.bundles if bundle not in self._given] for broker, load in members.items()
        }
        for bundle, (broker, _) in self._given.items():
            if broker in found:
                found[broker].append(bundle)
        return found

    async def isolation_policies(self) -> list[IsolationPolicy]:
        kept = await self._clusters.get(f"{self._cluster_path}/namespaceIsolationPolicies")
        return decode_policies(None if kept is None else kept.value)

    def close(self) -> None:
        self._clusters.close()
        self._local.close()

    async def _domains(self) -> dict[str, str]:
        """Failure domain by broker."""
        if not self._settings().failure_domains:
            return {}
        root = f"{self._cluster_path}/failureDomain"
        found: dict[str, str] = {}
        for name in await self._clusters.children(root):
            kept = await self._clusters.get(f"{root}/{name}")
            for broker in () if kept is None else kept.value.get("brokers") or ():
                found[str(broker)] = name
        return found

    async def _group_of(self, namespace: NamespaceName) -> frozenset[str]:
        """The other namespaces of a namespace's anti-affinity group."""
        group = await self._anti_affinity(str(namespace))
        if not group:
            return frozenset()
        found = []
        for tenant in await self._local.children(LOCAL_POLICIES_ROOT):
            for local in await self._local.children(f"{LOCAL_POLICIES_ROOT}/{tenant}"):
                other = f"{tenant}/{local}"
                if other != str(namespace) and await self._anti_affinity(other) == group:
                    found.append(other)
        return frozenset(found)

    async def _anti_affinity(self, namespace: str) -> str:
        kept = await self._local.get(f"{LOCAL_POLICIES_ROOT}/{namespace}")
        return "" if kept is None else str(kept.value.get("namespaceAntiAffinityGroup") or "")


def _encoded(value: dict[str, Any]) -> bytes:
    return json.dumps(value).encode()


def _decoded(value: bytes) -> dict[str, Any]:
    """What cannot be read says nothing: placement goes on without it."""
    try:
        decoded = json.loads(value or b"{}")
    except (ValueError, RecursionError):
        return {}
    return decoded if isinstance(decoded, dict) else {}
