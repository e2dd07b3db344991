# SPDX-License-Identifier: Apache-2.0
"""What differs between a cluster and the file of `magnetar apply`, as the requests that would make them equal.

Reads the cluster and changes nothing. Only with `prune` is there a request that removes, and only of what belongs to
tenants and namespaces that the file names.
Carries.
"""

import json
from collections.abc import Iterator
from typing import Any, Final, NamedTuple
from urllib.parse import quote

from magnetar.admin.policy_table import NAMESPACE_POLICIES, TOPIC_POLICIES, PolicyRow
from magnetar.cli.desired import Desired, DesiredTopic, is_as_wanted
from magnetar.cli.exits import Failure
from magnetar.cli.http import AdminRefusal, HttpApi
from magnetar.cli.verbs.verb import AdminRequest
from magnetar.names import TopicName, encode_name


class Change(NamedTuple):
    # + made, ~ changed, - removed.
    sign: str
    what: str
    before: Any
    after: Any
    request: AdminRequest

    def text(self) -> str:
        if self.sign == "~":
            return f"~ {self.what}: {_short(self.before)} -> {_short(self.after)}"
        value = self.after if self.sign == "+" else self.before
        return f"{self.sign} {self.what}" + ("" if value is None else f": {_short(value)}")


_SYSTEM: Final = "__"


class Difference:
    def __init__(self, api: HttpApi, desired: Desired, *, prune: bool) -> None:
        self._api = api
        self._desired = desired
        self._prune = prune
        self._new: set[str] = set()

    def changes(self) -> Iterator[Change]:
        """In an order in which they can be made: parents first, removals at the end."""
        yield from self._tenants()
        yield from self._namespaces()
        yield from self._topics()
        if self._prune:
            yield from self._surplus()

    # --- tenants ---------------------------------------------------------------------------------

    def _tenants(self) -> Iterator[Change]:
        clusters: list[str] | None = None
        for name, wanted in self._desired.tenants.items():
            path = f"/admin/v2/tenants/{encode_name(name)}"
            found = self._read(path)
            body = {"adminRoles": wanted.admin_roles, "allowedClusters": wanted.allowed_clusters}
            if found is None:
                if body["allowedClusters"] is None:
                    clusters = clusters if clusters is not None else self._api.get("/admin/v2/clusters")
                    body["allowedClusters"] = clusters
                body["adminRoles"] = body["adminRoles"] or []
                self._new.add(name)
                yield _put("+", f"tenant {name}", None, body, "PUT", path)
            else:
                named = {key: value for key, value in body.items() if value is not None}
                if not is_as_wanted(found, named):
                    yield _put("~", f"tenant {name}", found, {**found, **named}, "POST", path)

    # --- namespaces ------------------------------------------------------------------------------

    def _namespaces(self) -> Iterator[Change]:
        for name, wanted in self._desired.namespaces.items():
            path = f"/admin/v2/namespaces/{name}"
            if self._is_new(name.partition("/")[0]) or self._read(path) is None:
                self._new.add(name)
                body = {"bundles": {"numBundles": wanted.bundles}} if wanted.bundles else None
                yield _put("+", f"namespace {name}", None, body, "PUT", path)
            is_new = self._is_new(name)
            yield from self._policies(f"namespace {name}", path, wanted.policies, NAMESPACE_POLICIES, is_new)
            yield from self._permissions(f"namespace {name}", path, wanted.permissions, is_new)

    def _policies(
        self, what: str, path: str, wanted: dict[str, Any], rows: dict[str, PolicyRow], is_new: bool
    ) -> Iterator[Change]:
        for name, value in wanted.items():
            if name == "backlogQuota":
                yield from self._quotas(what, path, value, is_new)
                continue
            found = None if is_new else self._read(f"{path}/{name}")
            if found is not None and is_as_wanted(found, value):
                continue
            method = rows[name].verb if name in rows else ("PUT" if name == "properties" else "POST")
            target = f"{path}/{name}"
            body: Any = value
            if name == "messageTTL" and rows is TOPIC_POLICIES:
                target, body = f"{target}?messageTTL={value}", None
            request = AdminRequest(method, target, None if body is None else json.dumps(body).encode())
            yield Change("+" if found is None else "~", f"{what} {name}", found, value, request)

    def _quotas(self, what: str, path: str, wanted: Any, is_new: bool) -> Iterator[Change]:
        found = ({} if is_new else self._read(f"{path}/backlogQuotaMap")) or {}
        for kind, value in dict(wanted).items():
            if not is_as_wanted(found.get(kind), value):
                target = f"{path}/backlogQuota?backlogQuotaType={quote(kind)}"
                sign = "~" if kind in found else "+"
                yield _put(sign, f"{what} backlogQuota {kind}", found.get(kind), value, "POST", target)

    def _permissions(self, what: str, path: str, wanted: dict[str, list[str]], is_new: bool) -> Iterator[Change]:
        found = ({} if is_new or not wanted else self._read(f"{path}/permissions")) or {}
        for role, actions in wanted.items():
            if not is_as_wanted(found.get(role), actions):
                target = f"{path}/permissions/{encode_name(role)}"
                sign = "~" if role in found else "+"
                yield _put(sign, f"{what} permission of {role}", found.get(role), actions, "POST", target)

    # --- topics ----------------------------------------------------------------------------------

    def _topics(self) -> Iterator[Change]:
        for text, wanted in self._desired.topics.items():
            topic = TopicName.parse(text)
            path = f"/admin/v2/{topic.lookup_name}"
            is_new_namespace = self._is_new(str(topic.namespace))
            is_new = is_new_namespace or not self._exists(topic, wanted)
            if is_new:
                self._new.add(text)
                yield self._made(text, path, wanted)
            else:
                yield from self._grown(text, path, wanted)
            yield from self._policies(f"topic {text}", path, wanted.policies, TOPIC_POLICIES, is_new)
            yield from self._permissions(f"topic {text}", path, wanted.permissions, is_new)
            there = [] if is_new or not wanted.subscriptions else (self._read(f"{path}/subscriptions") or [])
            for name in wanted.subscriptions:
                if name not in there:
                    target = f"{path}/subscription/{encode_name(name)}"
                    yield _put("+", f"topic {text} subscription {name}", None, "latest", "PUT", target)

    def _exists(self, topic: TopicName, wanted: DesiredTopic) -> bool:
        domain = topic.lookup_name.partition("/")[0]
        suffix = "/partitioned" if wanted.partitions else ""
        return str(topic) in (self._read(f"/admin/v2/{domain}/{topic.namespace}{suffix}") or [])

    def _made(self, text: str, path: str, wanted: DesiredTopic) -> Change:
        if wanted.partitions:
            return _put("+", f"topic {text} partitions", None, wanted.partitions, "PUT", f"{path}/partitions")
        return Change("+", f"topic {text}", None, None, AdminRequest("PUT", path))

    def _grown(self, text: str, path: str, wanted: DesiredTopic) -> Iterator[Change]:
        if not wanted.partitions:
            return
        now = self._read(f"{path}/partitions")["partitions"]
        if now > wanted.partitions:
            raise Failure(
                f"{text} has {now} partitions, the file wants {wanted.partitions}: partitions cannot be taken away"
            )
        if now < wanted.partitions:
            yield _put("~", f"topic {text} partitions", now, wanted.partitions, "POST", f"{path}/partitions")

    # --- what the file does not name -------------------------------------------------------------

    def _surplus(self) -> Iterator[Change]:
        for name, wanted in self._desired.namespaces.items():
            if not self._is_new(name):
                yield from self._surplus_of_namespace(name, wanted.policies, wanted.permissions)
        for tenant in self._desired.tenants:
            if not self._is_new(tenant):
                for name in self._read(f"/admin/v2/namespaces/{encode_name(tenant)}") or ():
                    if name not in self._desired.namespaces:
                        path = f"/admin/v2/namespaces/{name}?force=true"
                        yield Change("-", f"namespace {name}", None, None, AdminRequest("DELETE", path))

    def _surplus_of_namespace(
        self, name: str, policies: dict[str, Any], permissions: dict[str, list[str]]
    ) -> Iterator[Change]:
        path = f"/admin/v2/namespaces/{name}"
        for policy, row in NAMESPACE_POLICIES.items():
            found = self._read(f"{path}/{policy}") if row.is_removable and policy not in policies else None
            if found is not None and found != row.unset:
                yield Change("-", f"namespace {name} {policy}", found, None, AdminRequest("DELETE", f"{path}/{policy}"))
        for role in self._read(f"{path}/permissions") or {}:
            if role not in permissions:
                target = f"{path}/permissions/{encode_name(role)}"
                yield Change("-", f"namespace {name} permission of {role}", None, None, AdminRequest("DELETE", target))
        partitioned = self._read(f"/admin/v2/persistent/{name}/partitioned") or []
        for text in sorted({*partitioned, *(self._read(f"/admin/v2/persistent/{name}") or ())}):
            topic = TopicName.parse(text)
            named = text in self._desired.topics or str(topic.base) in self._desired.topics
            if named or topic.local_name.startswith(_SYSTEM) or (topic.is_partition and str(topic.base) in partitioned):
                continue
            target = f"/admin/v2/{topic.lookup_name}{'/partitions' if text in partitioned else ''}?force=true"
            yield Change("-", f"topic {text}", None, None, AdminRequest("DELETE", target))

    def _is_new(self, name: str) -> bool:
        return name in self._new

    def _read(self, path: str) -> Any:
        """What is there; None where there is nothing."""
        try:
            return self._api.get(path)
        except AdminRefusal as refusal:
            if refusal.status != 404:
                raise
            return None


def _put(sign: str, what: str, before: Any, after: Any, method: str, path: str) -> Change:
    body = None if after is None else json.dumps(after).encode()
    return Change(sign, what, before, after, AdminRequest(method, path, body))


def _short(value: Any) -> str:
    return json.dumps(value)
