# SPDX-License-Identifier: Apache-2.0
"""Every policy that a namespace and a topic can have: its name in Apache Pulsar's JSON, and how its value is read.

Owns the two tables and the rules between policies of one record. A name that is in neither table belongs to a later
version: it is kept as it is. Never reads a record, never combines levels.
Decides.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, Generic, TypeVar

from magnetar.broker.policies import values
from magnetar.broker.policies.values import INT32_MAX, INT64_MAX, BacklogQuota, QuotaType, Retention
from magnetar.errors import BadSetting

T = TypeVar("T")


class Field(Generic[T]):
    """One policy of a record. Read it with `of`; None where the record does not set it."""

    __slots__ = ("_read", "name")

    def __init__(self, name: str, read: Callable[[object], T]) -> None:
        self.name = name
        self._read = read

    def of(self, record: Mapping[str, Any]) -> T | None:
        value = record.get(self.name)
        if value is None:
            return None
        try:
            return self._read(value)
        except BadSetting as error:
            raise BadSetting(f"{self.name}: {error}") from None


_COUNT: Final = values.whole(0, INT32_MAX)
_LIMIT: Final = values.whole(-1, INT32_MAX)
_BYTES: Final = values.whole(-1, INT64_MAX)


class OfNamespace:
    """The record of a namespace, /admin/policies/{tenant}/{namespace}."""

    AUTH = Field("auth_policies", values.members)
    REPLICATION_CLUSTERS = Field("replication_clusters", values.texts)
    ALLOWED_CLUSTERS = Field("allowed_clusters", values.texts)
    BUNDLES = Field("bundles", values.members)
    BACKLOG_QUOTAS = Field("backlog_quota_map", values.backlog_quotas)
    OLD_DISPATCH_RATE = Field("clusterDispatchRate", values.map_of(values.dispatch_rate))
    DISPATCH_RATE = Field("topicDispatchRate", values.map_of(values.dispatch_rate))
    SUBSCRIPTION_DISPATCH_RATE = Field("subscriptionDispatchRate", values.map_of(values.dispatch_rate))
    REPLICATOR_DISPATCH_RATE = Field("replicatorDispatchRate", values.map_of(values.dispatch_rate))
    SUBSCRIBE_RATE = Field("clusterSubscribeRate", values.map_of(values.subscribe_rate))
    PUBLISH_RATE = Field("publishMaxMessageRate", values.map_of(values.publish_rate))
    PERSISTENCE = Field("persistence", values.persistence)
    DEDUPLICATION = Field("deduplicationEnabled", values.flag)
    DEDUPLICATION_SNAPSHOT_INTERVAL = Field("deduplicationSnapshotIntervalSeconds", _COUNT)
    TOPIC_CREATION = Field("autoTopicCreationOverride", values.topic_creation)
    SUBSCRIPTION_CREATION = Field("autoSubscriptionCreationOverride", values.subscription_creation)
    LATENCY_SAMPLE_RATE = Field("latency_stats_sample_rate", values.map_of(_COUNT))
    MESSAGE_TTL = Field("message_ttl_in_seconds", _COUNT)
    SUBSCRIPTION_EXPIRATION = Field("subscription_expiration_time_minutes", _COUNT)
    RETENTION = Field("retention_policies", values.retention)
    DELETED = Field("deleted", values.flag)
    ENCRYPTION_REQUIRED = Field("encryption_required", values.flag)
    DELAYED_DELIVERY = Field("delayed_delivery_policies", values.delayed_delivery)
    INACTIVITY = Field("inactive_topic_policies", values.inactivity)
    SUBSCRIPTION_AUTH_MODE = Field("subscription_auth_mode", values.text)
    PRODUCERS_MAX = Field("max_producers_per_topic", _COUNT)
    CONSUMERS_MAX = Field("max_consumers_per_topic", _COUNT)
    SUBSCRIPTION_CONSUMERS_MAX = Field("max_consumers_per_subscription", _COUNT)
    CONSUMER_UNACKED_MAX = Field("max_unacked_messages_per_consumer", _COUNT)
    SUBSCRIPTION_UNACKED_MAX = Field("max_unacked_messages_per_subscription", _COUNT)
    SUBSCRIPTIONS_MAX = Field("max_subscriptions_per_topic", _COUNT)
    TOPICS_MAX = Field("max_topics_per_namespace", _COUNT)
    COMPACTION_THRESHOLD = Field("compaction_threshold", values.whole(0, INT64_MAX))
    OFFLOAD_THRESHOLD = Field("offload_threshold", _BYTES)
    OFFLOAD_THRESHOLD_TIME = Field("offload_threshold_in_seconds", _BYTES)
    OFFLOAD_DELETION_LAG = Field("offload_deletion_lag_ms", _BYTES)
    OFFLOAD = Field("offload_policies", values.members)
    OLD_SCHEMA_COMPATIBILITY = Field("schema_auto_update_compatibility_strategy", values.text)
    SCHEMA_COMPATIBILITY = Field("schema_compatibility_strategy", values.one_of(values.SchemaCompatibility))
    SCHEMA_AUTO_UPDATE = Field("is_allow_auto_update_schema", values.flag)
    SCHEMA_VALIDATION_ENFORCED = Field("schema_validation_enforced", values.flag)
    SUBSCRIPTION_TYPES = Field("subscription_types_enabled", values.texts)
    PROPERTIES = Field("properties", values.map_of(values.text))
    RESOURCE_GROUP = Field("resource_group_name", values.text)
    MIGRATED = Field("migrated", values.flag)
    PAUSE_UNTIL_ACKS_PERSIST = Field("dispatcherPauseOnAckStatePersistentEnabled", values.flag)
    ENTRY_FILTERS = Field("entryFilters", values.entry_filters)


class OfNamespaceHere:
    """The record of a namespace that holds in this cluster alone, /admin/local-policies/{tenant}/{namespace}."""

    BOOKIE_AFFINITY = Field("bookieAffinityGroup", values.bookie_affinity)


class OfTopic:
    """What one topic has instead: the members of upstream's TopicPolicies."""

    BACKLOG_QUOTAS = Field("backLogQuotaMap", values.backlog_quotas)
    SUBSCRIPTION_TYPES = Field("subscriptionTypesEnabled", values.texts)
    REPLICATION_CLUSTERS = Field("replicationClusters", values.texts)
    SHADOW_TOPICS = Field("shadowTopics", values.texts)
    IS_GLOBAL = Field("isGlobal", values.flag)
    PERSISTENCE = Field("persistence", values.persistence)
    RETENTION = Field("retentionPolicies", values.retention)
    DEDUPLICATION = Field("deduplicationEnabled", values.flag)
    DEDUPLICATION_SNAPSHOT_INTERVAL = Field("deduplicationSnapshotIntervalSeconds", _COUNT)
    MESSAGE_TTL = Field("messageTTLInSeconds", _COUNT)
    PRODUCERS_MAX = Field("maxProducerPerTopic", _COUNT)
    CONSUMERS_MAX = Field("maxConsumerPerTopic", _COUNT)
    SUBSCRIPTION_CONSUMERS_MAX = Field("maxConsumersPerSubscription", _COUNT)
    CONSUMER_UNACKED_MAX = Field("maxUnackedMessagesOnConsumer", _COUNT)
    SUBSCRIPTION_UNACKED_MAX = Field("maxUnackedMessagesOnSubscription", _COUNT)
    SUBSCRIPTIONS_MAX = Field("maxSubscriptionsPerTopic", _COUNT)
    MESSAGE_BYTES_MAX = Field("maxMessageSize", _COUNT)
    DELAYED_TICK = Field("delayedDeliveryTickTimeMillis", values.whole(0, INT64_MAX))
    DELAYED_ACTIVE = Field("delayedDeliveryEnabled", values.flag)
    DELAYED_DELAY_MAX = Field("delayedDeliveryMaxDelayInMillis", values.whole(0, INT64_MAX))
    PAUSE_UNTIL_ACKS_PERSIST = Field("dispatcherPauseOnAckStatePersistentEnabled", values.flag)
    OFFLOAD = Field("offloadPolicies", values.members)
    INACTIVITY = Field("inactiveTopicPolicies", values.inactivity)
    DISPATCH_RATE = Field("dispatchRate", values.dispatch_rate)
    SUBSCRIPTION_DISPATCH_RATE = Field("subscriptionDispatchRate", values.dispatch_rate)
    REPLICATOR_DISPATCH_RATE = Field("replicatorDispatchRate", values.dispatch_rate)
    COMPACTION_THRESHOLD = Field("compactionThreshold", values.whole(0, INT64_MAX))
    PUBLISH_RATE = Field("publishRate", values.publish_rate)
    SUBSCRIBE_RATE = Field("subscribeRate", values.subscribe_rate)
    SCHEMA_COMPATIBILITY = Field("schemaCompatibilityStrategy", values.one_of(values.SchemaCompatibility))
    SCHEMA_VALIDATION_ENFORCED = Field("schemaValidationEnforced", values.flag)
    ENTRY_FILTERS = Field("entryFilters", values.entry_filters)
    SUBSCRIPTION_CREATION = Field("autoSubscriptionCreationOverride", values.subscription_creation)
    SUBSCRIPTION_RATES = Field("subscriptionPolicies", values.map_of(values.subscription_rate))


def _table(owner: type) -> dict[str, Field[Any]]:
    return {field.name: field for field in vars(owner).values() if isinstance(field, Field)}


NAMESPACE_FIELDS: Final = _table(OfNamespace)
TOPIC_FIELDS: Final = _table(OfTopic)


def check_namespace(record: Mapping[str, Any]) -> None:
    """BadSetting when a policy of a namespace's record cannot be used."""
    _check(NAMESPACE_FIELDS, record)
    check_quota_fits((OfNamespace.BACKLOG_QUOTAS.of(record) or {}), OfNamespace.RETENTION.of(record))


def check_topic(record: Mapping[str, Any]) -> None:
    """BadSetting when a policy of a topic's record cannot be used."""
    _check(TOPIC_FIELDS, record)
    check_quota_fits((OfTopic.BACKLOG_QUOTAS.of(record) or {}), OfTopic.RETENTION.of(record))


def check_quota_fits(quotas: Mapping[QuotaType, BacklogQuota], retention: Retention | None) -> None:
    """What is not consumed may not be allowed to grow beyond what is kept once it is."""
    quota = quotas.get(QuotaType.SIZE)
    if quota is None or retention is None or retention.minutes <= 0 or retention.megabytes <= 0:
        return
    if quota.limit_bytes >= retention.megabytes << 20 or quota.limit_s >= retention.minutes * 60:
        raise BadSetting("Retention Quota must exceed configured backlog quota")


def _check(table: Mapping[str, Field[Any]], record: Mapping[str, Any]) -> None:
    for field in table.values():
        field.of(record)
