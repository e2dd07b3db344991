# SPDX-License-Identifier: Apache-2.0
"""What a role needs for a request, and whether the records of a tenant and a namespace give it that.

The one place that decides. What no rule allows is refused.
Decides.
"""

from collections.abc import Iterable, Mapping
from enum import Enum, unique
from typing import Any, NamedTuple

from magnetar.names import NamespaceName, TopicName

Record = Mapping[str, Any]


@unique
class Need(Enum):
    """What someone must be, or have been granted; the words complete `is not allowed to …`."""

    NOTHING = "knock"
    ANY_ROLE = "connect"
    LOOK_UP = "look up"
    PRODUCE = "produce on"
    CONSUME = "consume from"
    LIST = "list the topics of"
    CONSUME_ALL = "consume from all of"
    TENANT_ADMIN = "administer"
    SUPER_USER = "act as a super user on"


class Target(NamedTuple):
    """What a request is about, as far as it says."""

    tenant: str = ""
    namespace: NamespaceName | None = None
    topic: TopicName | None = None
    subscription: str = ""

    @classmethod
    def of(cls, topic: TopicName, subscription: str = "") -> "Target":
        return cls(topic.namespace.tenant, topic.namespace, topic, subscription)

    def __str__(self) -> str:
        return str(self.topic or self.namespace or self.tenant or "the cluster")


class Grants(NamedTuple):
    """What was granted: the record of the tenant and that of the namespace, None where there is none."""

    tenant: Record | None
    namespace: Record | None
    wildcards: bool = False

    def allow(self, role: str, need: Need, target: Target) -> bool:
        """Whether a role that is no super user may do this."""
        if need in (Need.NOTHING, Need.ANY_ROLE):
            return True
        if need is Need.SUPER_USER:
            return False
        if self._is_admin(role):
            return True
        match need:
            case Need.PRODUCE:
                return self._has(role, ("produce",), target.topic)
            case Need.CONSUME:
                return self._may_consume(role, target)
            case Need.LOOK_UP:
                return self._has(role, ("produce", "consume"), target.topic)
            case Need.LIST:
                return self._has(role, ("produce", "consume"), None)
            case Need.CONSUME_ALL:
                return self._has(role, ("consume",), None)
        return False

    def _is_admin(self, role: str) -> bool:
        roles = (self.tenant or {}).get("adminRoles")
        return isinstance(roles, list) and role in roles

    def _may_consume(self, role: str, target: Target) -> bool:
        """A subscription that was granted to some roles is theirs alone."""
        if not self._has(role, ("consume",), target.topic):
            return False
        if not target.subscription:
            return True
        mode = (self.namespace or {}).get("subscription_auth_mode")
        if mode == "Prefix" and not target.subscription.startswith(role):
            return False
        owners = _member(self._auth(), "subscription_auth_roles").get(target.subscription)
        return not owners or role in owners

    def _has(self, role: str, actions: Iterable[str], topic: TopicName | None) -> bool:
        auth = self._auth()
        granted = [_member(auth, "namespace_auth")]
        if topic is not None:
            by_topic = _member(auth, "destination_auth")
            granted += [_member(by_topic, str(name)) for name in dict.fromkeys((topic, topic.base))]
        return any(action in self._actions(roles, role) for roles in granted for action in actions)

    def _actions(self, roles: Record, role: str) -> list[str]:
        found = roles.get(role)
        actions = list(found) if isinstance(found, list) else []
        if self.wildcards:
            for pattern, granted in roles.items():
                if _matches(pattern, role) and isinstance(granted, list):
                    actions += granted
        return actions

    def _auth(self) -> Record:
        return _member(self.namespace or {}, "auth_policies")


def _member(record: Record, name: str) -> Record:
    found = record.get(name)
    return found if isinstance(found, dict) else {}


def _matches(pattern: str, role: str) -> bool:
    if pattern.endswith("*") and len(pattern) > 1:
        return role.startswith(pattern[:-1])
    return pattern.startswith("*") and len(pattern) > 1 and role.endswith(pattern[1:])
