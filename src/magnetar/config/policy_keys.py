# SPDX-License-Identifier: Apache-2.0
"""Pulsar's keys about what holds where neither a topic nor its namespace has a policy.

Decides.
"""

from typing import Final

from magnetar.config.key import COUNT, POSITIVE_MILLISECONDS, Key, rows
from magnetar.config.values import Flag, OneOf, TextList, Whole

_LIMIT: Final = Whole(0, 2**31 - 1)
_QUOTA: Final = Whole(-1, 2**63 - 1)
_RATE: Final = Whole(0, 2**63 - 1)
_MINUTES_S: Final = Whole(1, 10**6, factor=60)
_ACTIONS: Final = ("producer_request_hold", "producer_exception", "consumer_backlog_eviction")
_STRATEGIES: Final = (
    "ALWAYS_INCOMPATIBLE",
    "ALWAYS_COMPATIBLE",
    "BACKWARD",
    "FORWARD",
    "FULL",
    "BACKWARD_TRANSITIVE",
    "FORWARD_TRANSITIVE",
    "FULL_TRANSITIVE",
)

POLICY_KEYS: Final[tuple[Key, ...]] = rows(
    "broker",
    ("ttlDurationDefaultInSeconds", "message_ttl_s", _LIMIT, "Unconsumed messages expire after this; 0: never."),
    (
        "messageExpiryCheckIntervalInMinutes",
        "message_expiry_check_interval_s",
        _MINUTES_S,
        "How often expired messages are looked for.",
    ),
    (
        "subscriptionExpirationTimeMinutes",
        "subscription_expiration_minutes",
        _LIMIT,
        "A subscription that no one used for this long is deleted; 0: never.",
    ),
    (
        "subscriptionExpiryCheckIntervalInMinutes",
        "subscription_expiry_check_interval_s",
        _MINUTES_S,
        "How often such subscriptions are looked for.",
    ),
    ("backlogQuotaCheckEnabled", "backlog_quota_check_enabled", Flag(), "Backlog quotas are enforced."),
    ("backlogQuotaCheckIntervalInSeconds", "backlog_quota_check_interval_s", COUNT, "How often they are looked at."),
    (
        "backlogQuotaDefaultLimitGB",
        "backlog_quota_bytes",
        Whole(-1, 2**30, factor=2**30),
        "As backlogQuotaDefaultLimitBytes, in GiB.",
    ),
    ("backlogQuotaDefaultLimitBytes", "backlog_quota_bytes", _QUOTA, "How large a backlog may grow; -1: any size."),
    ("backlogQuotaDefaultLimitSecond", "backlog_quota_s", _QUOTA, "How old a backlog may grow; -1: any age."),
    (
        "backlogQuotaDefaultRetentionPolicy",
        "backlog_quota_action",
        OneOf(tuple((word, word) for word in _ACTIONS)),
        "What happens when a backlog is larger or older.",
    ),
    (
        "brokerServiceCompactionThresholdInBytes",
        "compaction_threshold_bytes",
        _RATE,
        "A topic is compacted when so much came since the last time; 0: never by itself.",
    ),
    (
        "brokerServiceCompactionMonitorIntervalInSeconds",
        "compaction_check_interval_s",
        COUNT,
        "How often that is asked.",
    ),
    (
        "topicCompactionRetainNullKey",
        "compaction_keeps_unkeyed",
        Flag(),
        "Compaction keeps messages that have no key.",
    ),
    (
        "compactionServiceFactoryClassName",
        "compaction_order",
        OneOf(
            (
                ("org.apache.pulsar.compaction.PulsarCompactionServiceFactory", "publish"),
                ("org.apache.pulsar.compaction.EventTimeCompactionServiceFactory", "event_time"),
            )
        ),
        "Which message of a key compaction keeps: the one published last, or the one of the latest event time.",
    ),
    ("maxConsumersPerTopic", "consumers_per_topic_max", _LIMIT, "Consumers on one topic; 0: any number."),
    (
        "maxConsumersPerSubscription",
        "consumers_per_subscription_max",
        _LIMIT,
        "Consumers on one subscription; 0: any number.",
    ),
    (
        "subscribeThrottlingRatePerConsumer",
        "subscribes_per_consumer",
        _LIMIT,
        "How often a consumer may subscribe per period; 0: any number.",
    ),
    ("subscribeRatePeriodPerConsumerInSecond", "subscribe_rate_period_s", COUNT, "That period."),
    (
        "dispatchThrottlingRatePerTopicInMsg",
        "topic_dispatch_messages_per_s",
        _RATE,
        "Messages per second that go out of a topic; 0: any number.",
    ),
    (
        "dispatchThrottlingRatePerTopicInByte",
        "topic_dispatch_bytes_per_s",
        _RATE,
        "Bytes per second that go out of a topic; 0: any number.",
    ),
    (
        "dispatchThrottlingRateRelativeToPublishRate",
        "dispatch_relative_to_publish",
        Flag(),
        "The rates of topics and subscriptions come on top of what the topic takes in.",
    ),
    (
        "dispatchThrottlingRatePerSubscriptionInMsg",
        "subscription_dispatch_messages_per_s",
        _RATE,
        "Messages per second that go out of a subscription; 0: any number.",
    ),
    (
        "dispatchThrottlingRatePerSubscriptionInByte",
        "subscription_dispatch_bytes_per_s",
        _RATE,
        "Bytes per second that go out of a subscription; 0: any number.",
    ),
    (
        "dispatchThrottlingRatePerReplicatorInMsg",
        "replicator_dispatch_messages_per_s",
        _RATE,
        "Messages per second that go to another cluster; 0: any number.",
    ),
    (
        "dispatchThrottlingRatePerReplicatorInByte",
        "replicator_dispatch_bytes_per_s",
        _RATE,
        "Bytes per second that go to another cluster; 0: any number.",
    ),
    ("delayedDeliveryTickTimeMillis", "delayed_delivery_tick_ms", POSITIVE_MILLISECONDS, "How finely delays are kept."),
    (
        "delayedDeliveryMaxDelayInMillis",
        "delayed_delivery_delay_max_ms",
        _RATE,
        "How far ahead a delivery time may lie; 0: any time.",
    ),
    (
        "dispatcherPauseOnAckStatePersistentEnabled",
        "pause_until_acks_persist",
        Flag(),
        "A subscription whose acknowledgements cannot all be saved gets no more.",
    ),
    ("subscriptionTypesEnabled", "subscription_types", TextList(), "Types of subscriptions that are served."),
    ("encryptionRequireOnProducer", "encryption_required", Flag(), "Only producers that encrypt are let in."),
    (
        "schemaCompatibilityStrategy",
        "schema_compatibility",
        OneOf(tuple((word, word) for word in _STRATEGIES)),
        "Which new schemas a topic takes.",
    ),
    ("isAllowAutoUpdateSchemaEnabled", "schema_auto_update", Flag(), "Producers may bring new schemas."),
    (
        "isSchemaValidationEnforced",
        "schema_validation_enforced",
        Flag(),
        "A topic with a schema takes no producer without one.",
    ),
    (
        "broker.entry_filter_classes",
        "entry_filter_classes",
        TextList(),
        "Entry filters of this broker, each NAME=package.module:Class, installed beside it; policies choose by name.",
    ),
    ("entryFilterNames", "entry_filter_names", TextList(), "Entry filters that hold where no policy chooses others."),
    (
        "allowOverrideEntryFilters",
        "entry_filters_overridable",
        Flag(),
        "Policies of namespaces and topics may choose entry filters; without it only entryFilterNames hold.",
    ),
)
