# SPDX-License-Identifier: Apache-2.0
"""Policies over a real store: inheritance, changes told at once, versions, damage that stays where it is."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from magnetar.broker.policies.policies import Policies, topic_policies_path
from magnetar.broker.policies.topic_settings import storage_settings
from magnetar.broker.policies.values import DispatchRate, QuotaAction, Retention, SchemaCompatibility
from magnetar.config.broker import BrokerSettings
from magnetar.config.managed_ledger import ManagedLedgerSettings
from magnetar.errors import BadSetting, TopicNotFound
from magnetar.ledger.placement import ANYWHERE, Affinity
from magnetar.metadata.memory import MemoryStore
from magnetar.metadata.store import MetadataStore
from magnetar.names import NamespaceName, TopicName

NAMESPACE = NamespaceName.parse("public/default")
TOPIC = TopicName.parse("persistent://public/default/t")
PARTITION = TOPIC.partition(3)
OTHER = TopicName.parse("persistent://public/default/other")


def with_policies(
    body: Callable[[Policies, MetadataStore], Awaitable[None]], settings: BrokerSettings | None = None
) -> None:
    async def run() -> None:
        store = MemoryStore()
        await store.put(NAMESPACE.policies_path, b'{"replication_clusters": ["standalone"], "fromTheFuture": {"a": 1}}')
        policies = Policies(store, settings or BrokerSettings(), ManagedLedgerSettings())
        try:
            await body(policies, store)
        finally:
            policies.close()
            await store.close()

    asyncio.run(run())


@pytest.mark.feature("F-TOP-05")
def test_the_topic_is_before_the_namespace_and_the_namespace_before_the_broker() -> None:
    async def body(policies: Policies, store: MetadataStore) -> None:
        assert (await policies.effective(TOPIC)).message_ttl_s == 77
        await policies.set_namespace(NAMESPACE, "message_ttl_in_seconds", 60)
        assert (await policies.effective(TOPIC)).message_ttl_s == 60
        await policies.set_topic(TOPIC, "messageTTLInSeconds", 30, is_global=True)
        assert (await policies.effective(TOPIC)).message_ttl_s == 30
        await policies.set_topic(TOPIC, "messageTTLInSeconds", 0)
        assert (await policies.effective(PARTITION)).message_ttl_s == 0
        assert (await policies.effective(OTHER)).message_ttl_s == 60
        await policies.set_topic(TOPIC, "messageTTLInSeconds", None)
        await policies.set_topic(TOPIC, "messageTTLInSeconds", None, is_global=True)
        await policies.set_namespace(NAMESPACE, "message_ttl_in_seconds", None)
        assert (await policies.effective(TOPIC)).message_ttl_s == 77

    with_policies(body, BrokerSettings(message_ttl_s=77))


@pytest.mark.feature("F-TOP-05", "F-RET-02", "F-RET-12", "F-CMP-07", "F-SCH-07")
def test_values_of_every_shape_reach_the_answer() -> None:
    async def body(policies: Policies, store: MetadataStore) -> None:
        quota = {"destination_storage": {"limitSize": 5, "policy": "consumer_backlog_eviction"}}
        await policies.set_namespace(NAMESPACE, "backlog_quota_map", quota)
        retention = {"retentionTimeInMinutes": 5, "retentionSizeInMB": 6}
        await policies.set_namespace(NAMESPACE, "retention_policies", retention)
        rates = {"standalone": {"dispatchThrottlingRateInMsg": 9}, "elsewhere": {"dispatchThrottlingRateInMsg": 1}}
        await policies.set_namespace(NAMESPACE, "topicDispatchRate", rates)
        await policies.set_namespace(NAMESPACE, "schema_compatibility_strategy", "BACKWARD")
        await policies.set_topic(TOPIC, "compactionThreshold", 1000)
        await policies.set_topic(TOPIC, "schemaCompatibilityStrategy", "UNDEFINED")
        subscription = {"dispatchRate": {"dispatchThrottlingRateInMsg": 2}}
        await policies.set_topic(TOPIC, "subscriptionPolicies", {"s": subscription, "none": {}})
        found = await policies.effective(TOPIC)
        assert found.size_quota.action is QuotaAction.EVICT
        assert found.size_quota.limit_bytes == 5
        assert found.age_quota.limit_s == -1
        assert found.retention == Retention(5, 6)
        assert found.dispatch_rate == DispatchRate(9)
        assert found.schema_compatibility is SchemaCompatibility.BACKWARD
        assert found.compaction_threshold_bytes == 1000
        assert found.subscription_rates == {"s": DispatchRate(2)}
        assert not found.damage

    with_policies(body)


def test_a_change_is_told_and_holds_at_once() -> None:
    async def body(policies: Policies, store: MetadataStore) -> None:
        told: list[tuple[NamespaceName, TopicName | None]] = []
        end = policies.on_changed(lambda namespace, topic: told.append((namespace, topic)))
        # Another broker writes the record; no one here asks for it.
        await store.put(NAMESPACE.policies_path, b'{"message_ttl_in_seconds": 5}')
        await policies.set_topic(PARTITION, "maxProducerPerTopic", 2)
        await asyncio.sleep(0)
        assert told == [(NAMESPACE, None), (NAMESPACE, TOPIC)]
        assert (await policies.effective(TOPIC)).message_ttl_s == 5
        assert (await policies.effective(TOPIC)).producers_max == 2
        end()
        await policies.set_namespace(NAMESPACE, "message_ttl_in_seconds", 6)
        await asyncio.sleep(0)
        assert len(told) == 2

    with_policies(body)


def test_members_from_the_future_are_kept_on_rewrite() -> None:
    """F202."""

    async def body(policies: Policies, store: MetadataStore) -> None:
        await policies.set_namespace(NAMESPACE, "message_ttl_in_seconds", 5)
        record = await store.get(NAMESPACE.policies_path)
        assert record is not None
        assert json.loads(record.value)["fromTheFuture"] == {"a": 1}
        await store.put(topic_policies_path(TOPIC), b'{"local": {"later": 1}, "other": 2}')
        await policies.set_topic(TOPIC, "maxProducerPerTopic", 2)
        record = await store.get(topic_policies_path(TOPIC))
        assert record is not None
        assert json.loads(record.value) == {"local": {"later": 1, "maxProducerPerTopic": 2}, "other": 2}

    with_policies(body)


def test_writers_at_the_same_time_lose_nothing() -> None:
    async def body(policies: Policies, store: MetadataStore) -> None:
        names = ["max_producers_per_topic", "max_consumers_per_topic", "max_subscriptions_per_topic"]
        await asyncio.gather(*(policies.set_namespace(NAMESPACE, name, 4) for name in names))
        record = await policies.namespace(NAMESPACE)
        assert [record[name] for name in names] == [4, 4, 4]

    with_policies(body)


@pytest.mark.parametrize(
    ("name", "value"),
    [("message_ttl_in_seconds", -1), ("retention_policies", {"retentionTimeInMinutes": 1}), ("noSuchPolicy", 1)],
)
def test_what_cannot_be_used_is_not_written(name: str, value: Any) -> None:
    async def body(policies: Policies, store: MetadataStore) -> None:
        before = await store.get(NAMESPACE.policies_path)
        with pytest.raises(BadSetting):
            await policies.set_namespace(NAMESPACE, name, value)
        assert await store.get(NAMESPACE.policies_path) == before

    with_policies(body)


@pytest.mark.parametrize(
    "damaged", [b"\xff\xfe", b"[]", b'{"local": 7}', b'{"local": {"messageTTLInSeconds": "soon"}}']
)
def test_a_damaged_record_degrades_its_topic_alone_and_removes_nothing(damaged: bytes) -> None:
    async def body(policies: Policies, store: MetadataStore) -> None:
        await policies.set_namespace(NAMESPACE, "message_ttl_in_seconds", 60)
        await store.put(topic_policies_path(TOPIC), damaged)
        found = await policies.effective(TOPIC)
        assert topic_policies_path(TOPIC) in found.damage
        assert found.message_ttl_s == 0
        assert found.retention == Retention(-1, -1)
        assert not found.inactivity.delete
        other = await policies.effective(OTHER)
        assert (other.message_ttl_s, other.damage) == (60, "")
        await store.put(topic_policies_path(TOPIC), b"{}")
        await asyncio.sleep(0)
        assert (await policies.effective(TOPIC)).message_ttl_s == 60

    with_policies(body)


def test_a_damaged_namespace_record_degrades_the_namespace() -> None:
    async def body(policies: Policies, store: MetadataStore) -> None:
        await store.put(NAMESPACE.policies_path, b"no JSON")
        assert NAMESPACE.policies_path in (await policies.effective(TOPIC)).damage

    with_policies(body)


def test_a_namespace_that_is_not_there_has_no_policies_to_set() -> None:
    async def body(policies: Policies, store: MetadataStore) -> None:
        absent = NamespaceName.parse("public/absent")
        with pytest.raises(TopicNotFound):
            await policies.set_namespace(absent, "message_ttl_in_seconds", 1)
        with pytest.raises(TopicNotFound):
            await policies.namespace(absent)
        assert await policies.effective_namespace(absent) == policies.broker

    with_policies(body)


def test_a_deleted_topic_leaves_no_policies_and_a_deleted_partition_leaves_its_bases() -> None:
    async def body(policies: Policies, store: MetadataStore) -> None:
        await policies.set_topic(TOPIC, "maxProducerPerTopic", 2)
        await policies.delete_topic(PARTITION)
        assert await policies.topic(TOPIC) == {"maxProducerPerTopic": 2}
        await policies.delete_topic(TOPIC)
        await policies.delete_topic(TOPIC)
        assert await policies.topic(TOPIC) == {}

    with_policies(body)


@pytest.mark.feature("F-ISO-03")
def test_the_bookie_groups_of_a_namespace_hold_for_its_topics_and_a_change_is_told() -> None:
    async def body(policies: Policies, store: MetadataStore) -> None:
        told: list[NamespaceName] = []
        policies.on_changed(lambda namespace, topic: told.append(namespace))
        assert (await policies.effective(TOPIC)).bookie_affinity == ANYWHERE
        group = {"bookkeeperAffinityGroupPrimary": "hot, warm", "bookkeeperAffinityGroupSecondary": "cold"}
        await store.put(NAMESPACE.local_policies_path, json.dumps({"bookieAffinityGroup": group}).encode())
        for _ in range(10):
            await asyncio.sleep(0)
        assert told == [NAMESPACE]
        effective = await policies.effective(PARTITION)
        assert effective.bookie_affinity == Affinity(("hot", "warm"), ("cold",))
        storage = storage_settings(ManagedLedgerSettings(), effective)
        assert (storage.bookie_groups, storage.bookie_groups_secondary) == (("hot", "warm"), ("cold",))
        await store.put(
            NAMESPACE.local_policies_path, b'{"bookieAffinityGroup": {"bookkeeperAffinityGroupPrimary": 7}}'
        )
        for _ in range(10):
            await asyncio.sleep(0)
        assert "bookieAffinityGroup" in (await policies.effective(TOPIC)).damage

    with_policies(body)
