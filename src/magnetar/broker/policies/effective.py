# SPDX-License-Identifier: Apache-2.0
"""What holds for one topic: its own policies before its global ones, before its namespace's, before the broker's.

Owns the order of the levels and the one typed answer. A record that cannot be used degrades the topics that it is
for: nothing of theirs is deleted, expired or evicted until someone repairs it, and they are served with the broker's
defaults. Never reads the store.
Decides.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

from magnetar.broker.policies.fields import Field, OfNamespace, OfNamespaceHere, OfTopic
from magnetar.broker.policies.values import (
    BacklogQuota,
    DelayedDelivery,
    DispatchRate,
    Inactivity,
    InactivityMode,
    Persistence,
    PublishRate,
    QuotaAction,
    QuotaType,
    Retention,
    SchemaCompatibility,
    SubscribeRate,
    TopicCreation,
)
from magnetar.config.broker import BrokerSettings
from magnetar.config.managed_ledger import ManagedLedgerSettings
from magnetar.ledger.placement import ANYWHERE, Affinity

T = TypeVar("T")

SUBSCRIPTION_TYPES: Final = ("Exclusive", "Shared", "Failover", "Key_Shared")

_KEEP_ALL: Final = Retention(-1, -1)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPolicies:
    """The answer. Limits of 0 are none, unless their type says otherwise."""

    retention: Retention
    message_ttl_s: int
    size_quota: BacklogQuota
    age_quota: BacklogQuota
    subscription_expiration_minutes: int
    inactivity: Inactivity

    deduplication_enabled: bool
    deduplication_snapshot_interval_s: int
    publish_rate: PublishRate
    dispatch_rate: DispatchRate
    subscription_dispatch_rate: DispatchRate
    # Of single subscriptions, by name, in place of subscription_dispatch_rate.
    subscription_rates: Mapping[str, DispatchRate]
    replicator_dispatch_rate: DispatchRate
    subscribe_rate: SubscribeRate

    producers_max: int
    consumers_max: int
    subscription_consumers_max: int
    consumer_unacked_max: int
    subscription_unacked_max: int
    subscriptions_max: int
    topics_max: int
    message_bytes_max: int

    persistence: Persistence
    bookie_affinity: Affinity = ANYWHERE
    compaction_threshold_bytes: int
    delayed_delivery: DelayedDelivery
    pause_until_acks_persist: bool
    entry_filters: tuple[str, ...] = ()
    subscription_types: tuple[str, ...]
    topic_creation: TopicCreation
    subscription_creation: bool
    encryption_required: bool

    schema_compatibility: SchemaCompatibility
    schema_auto_update: bool
    schema_validation_enforced: bool

    replication_clusters: tuple[str, ...] = ()
    shadow_topics: tuple[str, ...] = ()
    offload: Mapping[str, Any]
    resource_group: str = ""
    # Why these are the broker's defaults, when a record cannot be used; empty when all is well.
    damage: str = ""

    def quota(self, quota_type: QuotaType) -> BacklogQuota:
        return self.size_quota if quota_type is QuotaType.SIZE else self.age_quota


def broker_policies(settings: BrokerSettings, storage: ManagedLedgerSettings) -> TopicPolicies:
    """What holds where neither the topic nor its namespace says anything."""
    action = QuotaAction(settings.backlog_quota_action)
    quota = BacklogQuota(settings.backlog_quota_bytes, settings.backlog_quota_s, action)
    replicated = DispatchRate(settings.replicator_dispatch_messages_per_s, settings.replicator_dispatch_bytes_per_s)
    return TopicPolicies(
        retention=Retention(_divided(storage.retention_ms, 60_000), _divided(storage.retention_bytes, 1 << 20)),
        message_ttl_s=settings.message_ttl_s,
        size_quota=quota._replace(limit_s=-1),
        age_quota=quota._replace(limit_bytes=-1),
        subscription_expiration_minutes=settings.subscription_expiration_minutes,
        inactivity=Inactivity(
            settings.delete_inactive_topics,
            InactivityMode(settings.delete_inactive_topics_mode),
            settings.inactive_topic_duration_max_s or settings.inactive_topic_check_interval_s,
        ),
        deduplication_enabled=settings.deduplication_enabled,
        deduplication_snapshot_interval_s=settings.deduplication_snapshot_interval_s,
        publish_rate=PublishRate(settings.topic_publish_messages_per_s, settings.topic_publish_bytes_per_s),
        dispatch_rate=DispatchRate(
            settings.topic_dispatch_messages_per_s,
            settings.topic_dispatch_bytes_per_s,
            relative_to_publish=settings.dispatch_relative_to_publish,
        ),
        subscription_dispatch_rate=DispatchRate(
            settings.subscription_dispatch_messages_per_s,
            settings.subscription_dispatch_bytes_per_s,
            relative_to_publish=settings.dispatch_relative_to_publish,
        ),
        subscription_rates={},
        replicator_dispatch_rate=replicated,
        subscribe_rate=SubscribeRate(settings.subscribes_per_consumer, settings.subscribe_rate_period_s),
        producers_max=settings.producers_per_topic_max,
        consumers_max=settings.consumers_per_topic_max,
        subscription_consumers_max=settings.consumers_per_subscription_max,
        consumer_unacked_max=settings.unacked_messages_per_consumer_max,
        subscription_unacked_max=settings.unacked_messages_per_subscription_max,
        subscriptions_max=settings.subscriptions_per_topic_max,
        topics_max=settings.topics_per_namespace_max,
        message_bytes_max=settings.message_bytes_max,
        persistence=Persistence(storage.ensemble_size, storage.write_quorum, storage.ack_quorum),
        bookie_affinity=Affinity(storage.bookie_groups, storage.bookie_groups_secondary),
        compaction_threshold_bytes=settings.compaction_threshold_bytes,
        delayed_delivery=DelayedDelivery(
            settings.delayed_delivery_enabled, settings.delayed_delivery_tick_ms, settings.delayed_delivery_delay_max_ms
        ),
        pause_until_acks_persist=settings.pause_until_acks_persist,
        entry_filters=settings.entry_filter_names,
        subscription_types=settings.subscription_types,
        topic_creation=TopicCreation(
            settings.allow_auto_topic_creation,
            settings.default_partitions if settings.auto_topic_creation_partitioned else 0,
        ),
        subscription_creation=settings.allow_auto_subscription_creation,
        encryption_required=settings.encryption_required,
        schema_compatibility=SchemaCompatibility(settings.schema_compatibility),
        schema_auto_update=settings.schema_auto_update,
        schema_validation_enforced=settings.schema_validation_enforced,
        offload={},
    )


def degraded(broker: TopicPolicies, damage: str) -> TopicPolicies:
    """What holds while a record cannot be used: the defaults, without anything that takes data away."""
    return replace(
        broker,
        retention=_KEEP_ALL,
        message_ttl_s=0,
        size_quota=BacklogQuota(),
        age_quota=BacklogQuota(),
        subscription_expiration_minutes=0,
        inactivity=Inactivity(),
        damage=damage,
    )


def namespace_policies(record: Mapping[str, Any], broker: TopicPolicies, cluster: str) -> TopicPolicies:
    """What holds for every topic of a namespace that has no policies of its own. BadSetting when it cannot be used."""
    ns = OfNamespace
    quotas = ns.BACKLOG_QUOTAS.of(record) or {}
    old_rate = _of_cluster(ns.OLD_DISPATCH_RATE, record, cluster, broker.dispatch_rate)
    compatibility = _or(ns.SCHEMA_COMPATIBILITY.of(record), broker.schema_compatibility)
    return replace(
        broker,
        retention=_or(ns.RETENTION.of(record), broker.retention),
        message_ttl_s=_or(ns.MESSAGE_TTL.of(record), broker.message_ttl_s),
        size_quota=quotas.get(QuotaType.SIZE, broker.size_quota),
        age_quota=quotas.get(QuotaType.AGE, broker.age_quota),
        subscription_expiration_minutes=_or(
            ns.SUBSCRIPTION_EXPIRATION.of(record), broker.subscription_expiration_minutes
        ),
        inactivity=_or(ns.INACTIVITY.of(record), broker.inactivity),
        deduplication_enabled=_or(ns.DEDUPLICATION.of(record), broker.deduplication_enabled),
        deduplication_snapshot_interval_s=_or(
            ns.DEDUPLICATION_SNAPSHOT_INTERVAL.of(record), broker.deduplication_snapshot_interval_s
        ),
        publish_rate=_of_cluster(ns.PUBLISH_RATE, record, cluster, broker.publish_rate),
        dispatch_rate=_of_cluster(ns.DISPATCH_RATE, record, cluster, old_rate),
        subscription_dispatch_rate=_of_cluster(
            ns.SUBSCRIPTION_DISPATCH_RATE, record, cluster, broker.subscription_dispatch_rate
        ),
        replicator_dispatch_rate=_of_cluster(
            ns.REPLICATOR_DISPATCH_RATE, record, cluster, broker.replicator_dispatch_rate
        ),
        subscribe_rate=_of_cluster(ns.SUBSCRIBE_RATE, record, cluster, broker.subscribe_rate),
        producers_max=_or(ns.PRODUCERS_MAX.of(record), broker.producers_max),
        consumers_max=_or(ns.CONSUMERS_MAX.of(record), broker.consumers_max),
        subscription_consumers_max=_or(ns.SUBSCRIPTION_CONSUMERS_MAX.of(record), broker.subscription_consumers_max),
        consumer_unacked_max=_or(ns.CONSUMER_UNACKED_MAX.of(record), broker.consumer_unacked_max),
        subscription_unacked_max=_or(ns.SUBSCRIPTION_UNACKED_MAX.of(record), broker.subscription_unacked_max),
        subscriptions_max=_or(ns.SUBSCRIPTIONS_MAX.of(record), broker.subscriptions_max),
        topics_max=_or(ns.TOPICS_MAX.of(record), broker.topics_max),
        persistence=_filled(ns.PERSISTENCE.of(record), broker.persistence),
        compaction_threshold_bytes=_or(ns.COMPACTION_THRESHOLD.of(record), broker.compaction_threshold_bytes),
        delayed_delivery=_or(ns.DELAYED_DELIVERY.of(record), broker.delayed_delivery),
        pause_until_acks_persist=_or(ns.PAUSE_UNTIL_ACKS_PERSIST.of(record), broker.pause_until_acks_persist),
        entry_filters=_or(ns.ENTRY_FILTERS.of(record), broker.entry_filters),
        subscription_types=ns.SUBSCRIPTION_TYPES.of(record) or broker.subscription_types,
        topic_creation=_or(ns.TOPIC_CREATION.of(record), broker.topic_creation),
        subscription_creation=_or(ns.SUBSCRIPTION_CREATION.of(record), broker.subscription_creation),
        encryption_required=ns.ENCRYPTION_REQUIRED.of(record) or broker.encryption_required,
        schema_compatibility=_defined(compatibility, broker.schema_compatibility),
        schema_auto_update=_or(ns.SCHEMA_AUTO_UPDATE.of(record), broker.schema_auto_update),
        schema_validation_enforced=ns.SCHEMA_VALIDATION_ENFORCED.of(record) or broker.schema_validation_enforced,
        replication_clusters=ns.REPLICATION_CLUSTERS.of(record) or (),
        offload=_or(ns.OFFLOAD.of(record), broker.offload),
        resource_group=_or(ns.RESOURCE_GROUP.of(record), ""),
    )


def cluster_policies(record: Mapping[str, Any], outer: TopicPolicies) -> TopicPolicies:
    """The same with what the namespace's record of this cluster alone says. BadSetting when it cannot be used."""
    affinity = OfNamespaceHere.BOOKIE_AFFINITY.of(record)
    return outer if affinity is None else replace(outer, bookie_affinity=affinity)


def topic_policies(record: Mapping[str, Any], outer: TopicPolicies) -> TopicPolicies:
    """What holds for a topic, given its own record and what holds around it. BadSetting when it cannot be used."""
    of = OfTopic
    quotas = of.BACKLOG_QUOTAS.of(record) or {}
    rates = of.SUBSCRIPTION_RATES.of(record) or {}
    delayed = outer.delayed_delivery
    return replace(
        outer,
        retention=_or(of.RETENTION.of(record), outer.retention),
        message_ttl_s=_or(of.MESSAGE_TTL.of(record), outer.message_ttl_s),
        size_quota=quotas.get(QuotaType.SIZE, outer.size_quota),
        age_quota=quotas.get(QuotaType.AGE, outer.age_quota),
        inactivity=_or(of.INACTIVITY.of(record), outer.inactivity),
        deduplication_enabled=_or(of.DEDUPLICATION.of(record), outer.deduplication_enabled),
        deduplication_snapshot_interval_s=_or(
            of.DEDUPLICATION_SNAPSHOT_INTERVAL.of(record), outer.deduplication_snapshot_interval_s
        ),
        publish_rate=_or(of.PUBLISH_RATE.of(record), outer.publish_rate),
        dispatch_rate=_or(of.DISPATCH_RATE.of(record), outer.dispatch_rate),
        subscription_dispatch_rate=_or(of.SUBSCRIPTION_DISPATCH_RATE.of(record), outer.subscription_dispatch_rate),
        subscription_rates={
            **outer.subscription_rates,
            **{name: rate for name, rate in rates.items() if rate is not None},
        },
        replicator_dispatch_rate=_or(of.REPLICATOR_DISPATCH_RATE.of(record), outer.replicator_dispatch_rate),
        subscribe_rate=_or(of.SUBSCRIBE_RATE.of(record), outer.subscribe_rate),
        producers_max=_or(of.PRODUCERS_MAX.of(record), outer.producers_max),
        consumers_max=_or(of.CONSUMERS_MAX.of(record), outer.consumers_max),
        subscription_consumers_max=_or(of.SUBSCRIPTION_CONSUMERS_MAX.of(record), outer.subscription_consumers_max),
        consumer_unacked_max=_or(of.CONSUMER_UNACKED_MAX.of(record), outer.consumer_unacked_max),
        subscription_unacked_max=_or(of.SUBSCRIPTION_UNACKED_MAX.of(record), outer.subscription_unacked_max),
        subscriptions_max=_or(of.SUBSCRIPTIONS_MAX.of(record), outer.subscriptions_max),
        message_bytes_max=of.MESSAGE_BYTES_MAX.of(record) or outer.message_bytes_max,
        persistence=_filled(of.PERSISTENCE.of(record), outer.persistence),
        compaction_threshold_bytes=_or(of.COMPACTION_THRESHOLD.of(record), outer.compaction_threshold_bytes),
        delayed_delivery=DelayedDelivery(
            _or(of.DELAYED_ACTIVE.of(record), delayed.active),
            _or(of.DELAYED_TICK.of(record), delayed.tick_ms),
            _or(of.DELAYED_DELAY_MAX.of(record), delayed.delay_ms_max),
        ),
        pause_until_acks_persist=_or(of.PAUSE_UNTIL_ACKS_PERSIST.of(record), outer.pause_until_acks_persist),
        entry_filters=_or(of.ENTRY_FILTERS.of(record), outer.entry_filters),
        subscription_types=_types(of.SUBSCRIPTION_TYPES.of(record)) or outer.subscription_types,
        subscription_creation=_or(of.SUBSCRIPTION_CREATION.of(record), outer.subscription_creation),
        schema_compatibility=_defined(
            _or(of.SCHEMA_COMPATIBILITY.of(record), outer.schema_compatibility), outer.schema_compatibility
        ),
        schema_validation_enforced=_or(of.SCHEMA_VALIDATION_ENFORCED.of(record), outer.schema_validation_enforced),
        replication_clusters=_or(of.REPLICATION_CLUSTERS.of(record), outer.replication_clusters),
        shadow_topics=_or(of.SHADOW_TOPICS.of(record), outer.shadow_topics),
        offload=_or(of.OFFLOAD.of(record), outer.offload),
    )


def _or(value: T | None, default: T) -> T:
    return default if value is None else value


def _of_cluster(field: Field[dict[str, T]], record: Mapping[str, Any], cluster: str, default: T) -> T:
    """Rates of a namespace are kept per cluster."""
    return (field.of(record) or {}).get(cluster, default)


def _defined(value: SchemaCompatibility, default: SchemaCompatibility) -> SchemaCompatibility:
    return default if value is SchemaCompatibility.UNDEFINED else value


def _filled(value: Persistence | None, default: Persistence) -> Persistence:
    """Numbers of copies that are 0 are those of the level around."""
    if value is None:
        return default
    if not (value.ensemble and value.write_quorum and value.ack_quorum):
        return default._replace(mark_delete_rate=value.mark_delete_rate)
    return value


def _types(names: tuple[str, ...] | None) -> tuple[str, ...]:
    return tuple(name for name in names or () if name in SUBSCRIPTION_TYPES)


def _divided(value: int, unit: int) -> int:
    """Rounded up, so that something small does not become nothing; limits below zero stay what they are."""
    return value if value < 0 else -(-value // unit)
