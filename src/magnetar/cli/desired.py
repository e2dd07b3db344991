# SPDX-License-Identifier: Apache-2.0
"""The file of `magnetar apply`: which tenants, namespaces, topics, policies and permissions there should be.

Policies have the names of their paths in the HTTP interface (`messageTTL`, `retention`, …) and values as it takes them.
Says what a file means and whether a value is as wanted; never asks a cluster.
Decides.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from magnetar.admin.policy_table import NAMESPACE_POLICIES, TOPIC_POLICIES
from magnetar.cli.values import WrongUse
from magnetar.names import NamespaceName, TopicName, check_tenant

# Policies with paths of their own, beside those of the tables.
NAMESPACE_EXTRA: Final = ("backlogQuota", "replication", "properties", "delayedDelivery")
TOPIC_EXTRA: Final = ("backlogQuota", "delayedDelivery")
_ACTIONS: Final = ("produce", "consume", "functions", "sources", "sinks", "packages")


@dataclass(slots=True)
class DesiredTenant:
    admin_roles: list[str] | None = None
    allowed_clusters: list[str] | None = None


@dataclass(slots=True)
class DesiredNamespace:
    bundles: int | None = None
    policies: dict[str, Any] = field(default_factory=dict)
    permissions: dict[str, list[str]] = field(default_factory=dict)


@dataclass(slots=True)
class DesiredTopic:
    # None: not partitioned.
    partitions: int | None = None
    policies: dict[str, Any] = field(default_factory=dict)
    permissions: dict[str, list[str]] = field(default_factory=dict)
    subscriptions: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Desired:
    tenants: dict[str, DesiredTenant] = field(default_factory=dict)
    namespaces: dict[str, DesiredNamespace] = field(default_factory=dict)
    topics: dict[str, DesiredTopic] = field(default_factory=dict)


def desired_of(loaded: Any) -> Desired:
    """What a file wants. WrongUse names the place that cannot be used."""
    top = _members("the file", loaded, ("tenants", "namespaces", "topics"))
    desired = Desired()
    for name, content in _members("tenants", top.get("tenants")).items():
        each = _members(f"tenants.{name}", content, ("adminRoles", "allowedClusters"))
        desired.tenants[check_tenant(name)] = DesiredTenant(
            _texts(f"tenants.{name}.adminRoles", each.get("adminRoles")),
            _texts(f"tenants.{name}.allowedClusters", each.get("allowedClusters")),
        )
    for name, content in _members("namespaces", top.get("namespaces")).items():
        desired.namespaces[str(NamespaceName.parse(name))] = _namespace(f"namespaces.{name}", content)
    for name, content in _members("topics", top.get("topics")).items():
        desired.topics[str(TopicName.parse(name))] = _topic(f"topics.{name}", content)
    return desired


def is_as_wanted(found: Any, wanted: Any) -> bool:
    """Whether a value is as the file wants it: members that the file does not name may be anything."""
    if isinstance(wanted, Mapping) and isinstance(found, Mapping):
        return all(key in found and is_as_wanted(found[key], value) for key, value in wanted.items())
    if isinstance(wanted, list) and isinstance(found, list):
        return sorted(map(str, found)) == sorted(map(str, wanted))
    return bool(found == wanted)


def _namespace(where: str, content: Any) -> DesiredNamespace:
    each = _members(where, content, ("bundles", "policies", "permissions"))
    policies = _members(f"{where}.policies", each.get("policies"), (*NAMESPACE_POLICIES, *NAMESPACE_EXTRA))
    return DesiredNamespace(
        _count(f"{where}.bundles", each.get("bundles")),
        dict(policies),
        _permissions(f"{where}.permissions", each.get("permissions")),
    )


def _topic(where: str, content: Any) -> DesiredTopic:
    each = _members(where, content, ("partitions", "policies", "permissions", "subscriptions"))
    policies = _members(f"{where}.policies", each.get("policies"), (*TOPIC_POLICIES, *TOPIC_EXTRA))
    return DesiredTopic(
        _count(f"{where}.partitions", each.get("partitions")),
        dict(policies),
        _permissions(f"{where}.permissions", each.get("permissions")),
        _texts(f"{where}.subscriptions", each.get("subscriptions")) or [],
    )


def _permissions(where: str, content: Any) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for role, actions in _members(where, content).items():
        found[role] = _texts(f"{where}.{role}", actions) or []
        for action in found[role]:
            if action not in _ACTIONS:
                raise WrongUse(f"{where}.{role}: {action!r} should be one of {', '.join(_ACTIONS)}")
    return found


def _members(where: str, content: Any, known: tuple[str, ...] = ()) -> dict[str, Any]:
    if content is None:
        return {}
    if not isinstance(content, Mapping):
        raise WrongUse(f"{where} should have members")
    for name in content:
        if known and name not in known:
            raise WrongUse(f"{where} has no member {name}; there are {', '.join(sorted(known))}")
    return {str(name): value for name, value in content.items()}


def _texts(where: str, content: Any) -> list[str] | None:
    if content is None:
        return None
    if not isinstance(content, list) or not all(isinstance(each, str) for each in content):
        raise WrongUse(f"{where} should be a list of names")
    return list(content)


def _count(where: str, content: Any) -> int | None:
    if content is None or (isinstance(content, int) and not isinstance(content, bool) and content > 0):
        return content
    raise WrongUse(f"{where} should be a number above zero")
