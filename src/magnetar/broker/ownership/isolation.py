# SPDX-License-Identifier: Apache-2.0
"""Which brokers may serve a namespace: isolation policies with their primary and secondary brokers.

A namespace that a policy names lives on the policy's primaries, and on the secondaries as well when too few primaries
are there. Every other namespace lives on brokers that are no policy's primaries. Brokers are named by patterns, which
match the host or host:port of a broker whole.
Decides.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from math import isfinite
from typing import Any, NamedTuple

from magnetar.broker.ownership.load_data import BrokerLoad


class IsolationPolicy(NamedTuple):
    name: str
    namespaces: tuple[str, ...]
    primary: tuple[str, ...]
    secondary: tuple[str, ...] = ()
    # Fewer primaries than this, each used no more than the percentage, and the secondaries help.
    primaries_min: int = 1
    usage_percent_max: float = 100.0

    def covers(self, namespace: str) -> bool:
        return _matches(self.namespaces, (namespace,))

    def is_primary(self, broker_id: str) -> bool:
        return _matches(self.primary, _names(broker_id))

    def is_secondary(self, broker_id: str) -> bool:
        return _matches(self.secondary, _names(broker_id))


def decode_policies(record: Mapping[str, Any] | None) -> list[IsolationPolicy]:
    """From NamespaceIsolationData by name, as the cluster's record holds it; sorted by name."""
    found = []
    for name, data in sorted((record or {}).items()):
        if not isinstance(data, dict):
            continue
        failover = _object(data.get("auto_failover_policy"))
        parameters = _object(failover.get("parameters"))
        found.append(
            IsolationPolicy(
                name,
                _texts(data.get("namespaces")),
                _texts(data.get("primary")),
                _texts(data.get("secondary")),
                int(_number(parameters.get("min_limit"), 1.0)),
                _number(parameters.get("usage_threshold"), 100.0),
            )
        )
    return found


def allowed_brokers(
    namespace: str, policies: Sequence[IsolationPolicy], brokers: Mapping[str, BrokerLoad]
) -> list[str]:
    """The brokers that may serve a namespace, in the order given; none when isolation leaves none."""
    policy = next((policy for policy in policies if policy.covers(namespace)), None)
    if policy is None:
        return [broker for broker in brokers if not any(other.is_primary(broker) for other in policies)]
    primaries = [broker for broker in brokers if policy.is_primary(broker)]
    free = [broker for broker in primaries if _usage(brokers[broker]) <= policy.usage_percent_max]
    if len(free) >= max(1, policy.primaries_min):
        return free
    secondaries = [broker for broker in brokers if policy.is_secondary(broker) and broker not in primaries]
    return [*primaries, *secondaries]


def is_isolated(namespace: str, policies: Iterable[IsolationPolicy]) -> bool:
    return any(policy.covers(namespace) for policy in policies)


def _usage(load: BrokerLoad) -> float:
    return max(resource.percent for resource in load.resources)


def _names(broker_id: str) -> tuple[str, str]:
    return broker_id, broker_id.rpartition(":")[0]


def _matches(patterns: Iterable[str], names: Iterable[str]) -> bool:
    return any(
        compiled.fullmatch(name) is not None
        for compiled in map(_compiled, patterns)
        if compiled is not None
        for name in names
    )


@lru_cache(maxsize=1024)
def _compiled(pattern: str) -> re.Pattern[str] | None:
    """A pattern that is none matches nothing."""
    try:
        return re.compile(pattern)
    except (re.error, RecursionError, OverflowError):
        return None


def _object(data: object) -> Mapping[str, Any]:
    return data if isinstance(data, dict) else {}


def _texts(data: object) -> tuple[str, ...]:
    return tuple(str(each) for each in data) if isinstance(data, list) else ()


def _number(text: object, default: float) -> float:
    try:
        number = float(str(text))
    except ValueError:
        return default
    return number if isfinite(number) else default
