# SPDX-License-Identifier: Apache-2.0
"""The records of policies, kept right by watches: what a topic must do, and setting it.

The broker asks `effective` when it loads a topic and again when `on_changed` tells that a record changed.
Administration reads and changes records, each by the version it read. A record that cannot be used degrades only the
topics that it is for (`TopicPolicies.damage` says why); a record that cannot be reached is an error to try again.

A topic's record holds two objects of upstream's TopicPolicies, `local` and `global`; a partition has those of its
base. Members that are not known are kept on every write.
Carries.
"""

import contextlib
import copy
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from magnetar.broker.policies.effective import (
    TopicPolicies,
    broker_policies,
    cluster_policies,
    degraded,
    namespace_policies,
    topic_policies,
)
from magnetar.broker.policies.fields import NAMESPACE_FIELDS, TOPIC_FIELDS, OfTopic, check_namespace, check_topic
from magnetar.config.broker import BrokerSettings
from magnetar.config.managed_ledger import ManagedLedgerSettings
from magnetar.errors import BadSetting, DamagedRecord, NoRecord, TopicNotFound
from magnetar.metadata.cache import Cached, RecordCache
from magnetar.metadata.json_record import decode_json, encode_json
from magnetar.metadata.store import MetadataStore
from magnetar.names import LOCAL_POLICIES_ROOT, POLICIES_ROOT, NamespaceName, TopicDomain, TopicName, decode_name

TOPIC_POLICIES_ROOT: Final = "/admin/topic-policies"
LOCAL: Final = "local"
GLOBAL: Final = "global"

# Namespaces whose policies are kept as one object for all their topics.
_NAMESPACES_KEPT: Final = 1_000

Json = dict[str, Any]
# Told the namespace, and the topic when only one is concerned (the base, for partitions).
Listener = Callable[[NamespaceName, TopicName | None], None]

_log = logging.getLogger(__name__)


class _Around(NamedTuple):
    """Two records of a namespace, and what they make of the broker's defaults."""

    record: Cached[Json] | None
    here: Cached[Json] | None
    policies: TopicPolicies


class Policies:
    """Made on the loop that uses it; closing ends the watches."""

    def __init__(self, store: MetadataStore, settings: BrokerSettings, storage: ManagedLedgerSettings) -> None:
        self.broker: Final = broker_policies(settings, storage)
        self._cluster = settings.cluster_name
        self._store = store
        self._namespaces: RecordCache[Json] = RecordCache(store, POLICIES_ROOT, decode=decode_json, encode=encode_json)
        # What holds in this cluster alone.
        self._here: RecordCache[Json] = RecordCache(store, LOCAL_POLICIES_ROOT, decode=decode_json, encode=encode_json)
        self._topics: RecordCache[Json] = RecordCache(
            store, TOPIC_POLICIES_ROOT, decode=decode_json, encode=encode_json
        )
        self._namespaces.on_changed(self._on_namespace_changed)
        self._here.on_changed(self._on_namespace_changed)
        self._topics.on_changed(self._on_topic_changed)
        # What the records of a namespace were last made into: topics that share it keep one.
        self._around: dict[NamespaceName, _Around] = {}
        self._listeners: list[Listener] = []
        # Refuses names of entry filters that the broker does not have; whoever loads them sets it.
        self.check_filters: Callable[[Sequence[str]], None] | None = None

    # --- what holds ---------------------------------------------------------------------------------

    async def effective(self, topic: TopicName) -> TopicPolicies:
        """What holds for a topic now. Costs no reading while nothing has changed."""
        around = await self.effective_namespace(topic.namespace)
        path = topic_policies_path(topic)
        try:
            kept = await self._topics.get(path)
            if kept is None:
                return around
            return topic_policies(_level(kept.value, LOCAL), topic_policies(_level(kept.value, GLOBAL), around))
        except (BadSetting, DamagedRecord) as error:
            return self._degraded(path, error)

    async def effective_namespace(self, namespace: NamespaceName) -> TopicPolicies:
        """What holds for the topics of a namespace that have no policies of their own."""
        path = namespace.policies_path
        try:
            kept = await self._namespaces.get(path)
            path = namespace.local_policies_path
            here = await self._here.get(path)
            known = self._around.pop(namespace, None)
            if known is None or known.record is not kept or known.here is not here:
                path = namespace.policies_path
                around = self.broker if kept is None else namespace_policies(kept.value, self.broker, self._cluster)
                path = namespace.local_policies_path
                known = _Around(kept, here, around if here is None else cluster_policies(here.value, around))
            self._around[namespace] = known
            if len(self._around) > _NAMESPACES_KEPT:
                del self._around[next(iter(self._around))]
            return known.policies
        except (BadSetting, DamagedRecord) as error:
            return self._degraded(path, error)

    def on_changed(self, listener: Listener) -> Callable[[], None]:
        """Tell of every changed record; returns the call that ends it."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener) if listener in self._listeners else None

    # --- records of namespaces ----------------------------------------------------------------------

    async def namespace(self, namespace: NamespaceName) -> Json:
        """The record as it is, to read only. TopicNotFound without the namespace."""
        return (await self._required(namespace)).value

    async def set_namespace(self, namespace: NamespaceName, name: str, value: object) -> None:
        """Set one policy by its name in upstream's JSON; None removes it. BadSetting says what is wrong with it."""
        _require_known(NAMESPACE_FIELDS, name)
        await self.change_namespace(namespace, lambda record: _set(record, name, value))

    async def change_namespace(self, namespace: NamespaceName, change: Callable[[Json], None]) -> None:
        """Change the record in place, in a copy that is checked and written whole; again when another was faster."""
        await self._required(namespace)

        def changed(record: Json | None) -> Json:
            if record is None:
                raise _no_namespace(namespace)
            following = copy.deepcopy(record)
            change(following)
            check_namespace(following)
            self._check_filters(record, following)
            return following

        await self._namespaces.update(namespace.policies_path, changed)

    # --- records of topics --------------------------------------------------------------------------

    async def topic(self, topic: TopicName, *, is_global: bool = False) -> Json:
        """What a topic sets itself, to read only; empty when it sets nothing."""
        kept = await self._topics.get(topic_policies_path(topic))
        return {} if kept is None else _level(kept.value, GLOBAL if is_global else LOCAL)

    async def set_topic(self, topic: TopicName, name: str, value: object, *, is_global: bool = False) -> None:
        """Set one policy by its name in upstream's JSON; None removes it. BadSetting says what is wrong with it."""
        _require_known(TOPIC_FIELDS, name)
        await self.change_topic(topic, lambda record: _set(record, name, value), is_global=is_global)

    async def change_topic(self, topic: TopicName, change: Callable[[Json], None], *, is_global: bool = False) -> None:
        """Change what a topic sets, as `change_namespace` does. Whether the topic exists is the caller's question."""
        level = GLOBAL if is_global else LOCAL

        def changed(record: Json | None) -> Json:
            following = copy.deepcopy(record or {})
            policies = following.setdefault(level, {})
            change(policies)
            check_topic(policies)
            self._check_filters(_level(record or {}, level), policies)
            return following

        await self._topics.update(topic_policies_path(topic), changed)

    async def delete_topic(self, topic: TopicName) -> None:
        """Forget what a topic sets, when it is deleted. A partition shares its base's, which stay."""
        if topic.is_partition:
            return
        with contextlib.suppress(NoRecord):
            await self._store.delete(topic_policies_path(topic))
        self._topics.forget(topic_policies_path(topic))

    def close(self) -> None:
        self._listeners.clear()
        self._namespaces.close()
        self._here.close()
        self._topics.close()

    # --- inside -------------------------------------------------------------------------------------

    async def _required(self, namespace: NamespaceName) -> Cached[Json]:
        kept = await self._namespaces.get(namespace.policies_path)
        if kept is None:
            raise _no_namespace(namespace)
        return kept

    def _check_filters(self, before: Json, after: Json) -> None:
        """Names that are set now must be known; what another broker set before is left alone."""
        field = OfTopic.ENTRY_FILTERS
        if self.check_filters is not None and after.get(field.name) != before.get(field.name):
            self.check_filters(field.of(after) or ())

    def _degraded(self, path: str, error: Exception) -> TopicPolicies:
        damage = f"The record {path} cannot be used: {error}"
        _log.error("policies: %s; its topics are served with defaults, and nothing of theirs is removed", damage)
        return degraded(self.broker, damage)

    def _on_namespace_changed(self, path: str) -> None:
        parts = path.split("/")[3:]
        if len(parts) == 2:
            self._tell(NamespaceName(*parts), None)

    def _on_topic_changed(self, path: str) -> None:
        parts = path.split("/")[3:]
        if len(parts) == 4:
            tenant, namespace, domain, encoded = parts
            topic = TopicName(TopicDomain(domain), NamespaceName(tenant, namespace), decode_name(encoded))
            self._tell(topic.namespace, topic)

    def _tell(self, namespace: NamespaceName, topic: TopicName | None) -> None:
        for listener in tuple(self._listeners):
            listener(namespace, topic)


def topic_policies_path(topic: TopicName) -> str:
    return f"{TOPIC_POLICIES_ROOT}/{topic.base.persistence_name}"


def _no_namespace(namespace: NamespaceName) -> TopicNotFound:
    return TopicNotFound(f"Namespace not found: {namespace}. Create it, or use one that exists")


def _require_known(table: Mapping[str, object], name: str) -> None:
    if name not in table:
        raise BadSetting(f"There is no policy {name!r}")


def _set(record: Json, name: str, value: object) -> None:
    if value is None:
        record.pop(name, None)
    else:
        record[name] = value


def _level(record: Json, level: str) -> Json:
    policies = record.get(level, {})
    if not isinstance(policies, dict):
        raise DamagedRecord(f"{level} is not a JSON object")
    return policies
