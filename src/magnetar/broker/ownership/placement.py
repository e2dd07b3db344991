# SPDX-License-Identifier: Apache-2.0
"""Which broker gets a bundle: filters that leave out brokers one after another, then a strategy that takes the best.

A filter that would leave nobody is passed over, except isolation, which is a promise. Load that is reported is old by
some seconds, so that bundles given away since count as well. The answer depends on what is given and nothing else.
Decides.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple
from zlib import crc32

from magnetar.broker.ownership.isolation import IsolationPolicy, allowed_brokers
from magnetar.broker.ownership.load_data import BrokerLoad
from magnetar.config.balance import BalanceSettings


class PlacementFacts(NamedTuple):
    """What is known when a bundle is placed."""

    brokers: Mapping[str, BrokerLoad]
    policies: Sequence[IsolationPolicy] = ()
    # Failure domain by broker, where it has one.
    domains: Mapping[str, str] = {}
    # Namespaces that shall not share a broker with this one.
    group: frozenset[str] = frozenset()
    # Bundles by broker, with those that were given away since the last report.
    bundles: Mapping[str, Sequence[str]] = {}
    # Messages a second by broker over a long time; the report's own rate where it is not known.
    long_term: Mapping[str, float] = {}
    turn: int = 0
    # A broker that gets no bundle unless there is no other; may be empty.
    shunned: str = ""


def weights_of(settings: BalanceSettings) -> tuple[float, ...]:
    return (
        settings.cpu_weight,
        settings.memory_weight,
        settings.direct_memory_weight,
        settings.bandwidth_in_weight,
        settings.bandwidth_out_weight,
    )


def choose_broker(namespace: str, bundle: str, facts: PlacementFacts, settings: BalanceSettings) -> str | None:
    """The broker for a bundle; None when no broker may have it."""
    left = allowed_brokers(namespace, facts.policies, facts.brokers)
    left = _or_all([broker for broker in left if broker != facts.shunned], left)
    left = _apart(left, facts, settings)
    left = _or_all([b for b in left if facts.brokers[b].total.topics < settings.topics_per_broker_max], left)
    left = _or_all([b for b in left if _usage(facts.brokers[b], settings) < settings.overloaded_percent], left)
    if settings.evenly and left:
        fewest = min(_count(namespace, broker, facts) for broker in left)
        left = [broker for broker in left if _count(namespace, broker, facts) == fewest]
    if not left:
        return None
    if settings.placement == "RoundRobinBrokerSelector":
        return sorted(left)[facts.turn % len(left)]
    if settings.placement == "AvgShedder":
        return sorted(left)[crc32(bundle.encode()) % len(left)]
    if settings.placement == "LeastResourceUsageWithWeight":
        return min(left, key=lambda broker: (round(_usage(facts.brokers[broker], settings)), *_ties(broker, facts)))
    return min(left, key=lambda broker: (_long_rate(broker, facts), *_ties(broker, facts)))


def _apart(left: list[str], facts: PlacementFacts, settings: BalanceSettings) -> list[str]:
    """Of an anti-affinity group: the domains, then the brokers, with the fewest of the group's other namespaces."""
    if not facts.group:
        return left
    if settings.failure_domains:
        of_domain: dict[str, int] = {}
        for broker in facts.brokers:
            domain = facts.domains.get(broker, "")
            of_domain[domain] = of_domain.get(domain, 0) + _of_group(broker, facts)
        left = _fewest(left, {broker: of_domain[facts.domains.get(broker, "")] for broker in left})
    return _fewest(left, {broker: _of_group(broker, facts) for broker in left})


def _fewest(left: list[str], counts: Mapping[str, int]) -> list[str]:
    fewest = min(counts.values(), default=0)
    return [broker for broker in left if counts[broker] == fewest]


def _of_group(broker: str, facts: PlacementFacts) -> int:
    return len({bundle.rpartition("/")[0] for bundle in facts.bundles.get(broker, ())} & facts.group)


def _count(namespace: str, broker: str, facts: PlacementFacts) -> int:
    return sum(bundle.rpartition("/")[0] == namespace for bundle in facts.bundles.get(broker, ()))


def _usage(load: BrokerLoad, settings: BalanceSettings) -> float:
    return load.weighted_usage(weights_of(settings))


def _long_rate(broker: str, facts: PlacementFacts) -> float:
    known = facts.long_term.get(broker)
    return round(facts.brokers[broker].total.messages if known is None else known, 1)


def _ties(broker: str, facts: PlacementFacts) -> tuple[int, str]:
    return len(facts.bundles.get(broker, ())), broker


def _or_all(some: list[str], everyone: list[str]) -> list[str]:
    return some or everyone
