# SPDX-License-Identifier: Apache-2.0
"""Pulsar's keys about topics and those who publish to them: numbers, deduplication, inactivity, rates.

Decides.
"""

from typing import Final

from magnetar.config.key import COUNT, MEGABYTES, POSITIVE_MILLISECONDS, Key, rows
from magnetar.config.values import Flag, OneOf, Whole

_LIMIT: Final = Whole(0, 2**31 - 1)
_RATE: Final = Whole(0, 2**63 - 1)

PUBLISH_KEYS: Final[tuple[Key, ...]] = rows(
    "broker",
    (
        "connectionLivenessCheckTimeoutMillis",
        "liveness_check_timeout_ms",
        POSITIVE_MILLISECONDS,
        "A client that has a producer's name must answer in this time before a newcomer gets the name.",
    ),
    ("maxTenants", "tenants_max", _LIMIT, "Tenants that may be made over HTTP; 0: any number."),
    ("maxNamespacesPerTenant", "namespaces_per_tenant_max", _LIMIT, "Namespaces of one tenant; 0: any number."),
    ("maxTopicsPerNamespace", "topics_per_namespace_max", _LIMIT, "Topics of a namespace, partitions counted; 0: any."),
    ("maxNumPartitionsPerPartitionedTopic", "partitions_per_topic_max", _LIMIT, "Partitions of a topic; 0: 100,000."),
    ("maxProducersPerTopic", "producers_per_topic_max", _LIMIT, "Producers on one topic; 0: any number."),
    (
        "maxSameAddressProducersPerTopic",
        "producers_per_topic_and_address_max",
        _LIMIT,
        "Producers on one topic from one address; 0: any number.",
    ),
    (
        "maxSameAddressConsumersPerTopic",
        "consumers_per_topic_and_address_max",
        _LIMIT,
        "Consumers on one topic from one address; 0: any number.",
    ),
    ("maxSubscriptionsPerTopic", "subscriptions_per_topic_max", _LIMIT, "Subscriptions of a topic; 0: any number."),
    (
        "subscriptionPatternMaxLength",
        "topic_pattern_characters_max",
        COUNT,
        "Longest pattern that the broker evaluates; clients evaluate longer ones themselves.",
    ),
    (
        "maxTopicListInFlightHeapMemSizeMB",
        "list_bytes_max",
        MEGABYTES,
        "Memory for lists of topics that are made and sent at one time.",
    ),
    (
        "maxTopicListInFlightHeapMemSizePermitsAcquireTimeoutMillis",
        "list_wait_ms",
        POSITIVE_MILLISECONDS,
        "How long a list of topics waits for room in that memory.",
    ),
    (
        "maxTopicListInFlightHeapMemSizePermitsAcquireQueueSize",
        "list_waiting_max",
        COUNT,
        "Lists of topics that wait for room in that memory.",
    ),
    ("brokerDeduplicationEnabled", "deduplication_enabled", Flag(), "Messages that are stored already are not stored."),
    (
        "brokerDeduplicationEntriesInterval",
        "deduplication_entries_interval",
        COUNT,
        "Entries after which the producers' sequence ids are saved.",
    ),
    (
        "brokerDeduplicationSnapshotIntervalSeconds",
        "deduplication_snapshot_interval_s",
        COUNT,
        "Time after which they are saved, if anything came.",
    ),
    (
        "brokerDeduplicationMaxNumberOfProducers",
        "deduplication_producers_max",
        COUNT,
        "Producer names of a topic that are remembered; those not seen for longest are forgotten first.",
    ),
    (
        "brokerDeduplicationProducerInactivityTimeoutMinutes",
        "deduplication_producer_inactivity_minutes",
        COUNT,
        "A producer name that was not seen for this long is forgotten.",
    ),
    ("brokerDeleteInactiveTopicsEnabled", "delete_inactive_topics", Flag(), "Topics that no one uses are deleted."),
    (
        "brokerDeleteInactiveTopicsMode",
        "delete_inactive_topics_mode",
        OneOf(
            (
                ("delete_when_no_subscriptions", "delete_when_no_subscriptions"),
                ("delete_when_subscriptions_caught_up", "delete_when_subscriptions_caught_up"),
            )
        ),
        "What makes a topic without producers inactive.",
    ),
    (
        "brokerDeleteInactiveTopicsFrequencySeconds",
        "inactive_topic_check_interval_s",
        COUNT,
        "How often that is asked.",
    ),
    (
        "brokerDeleteInactiveTopicsMaxInactiveDurationSeconds",
        "inactive_topic_duration_max_s",
        _LIMIT,
        "How long a topic may be inactive; 0: as long as the interval of asking.",
    ),
    (
        "maxPublishRatePerTopicInMessages",
        "topic_publish_messages_per_s",
        _RATE,
        "Messages per second that a topic takes; its producers' connections wait. 0: any number.",
    ),
    (
        "maxPublishRatePerTopicInBytes",
        "topic_publish_bytes_per_s",
        _RATE,
        "Bytes per second that a topic takes; 0: any.",
    ),
    (
        "brokerPublisherThrottlingMaxMessageRate",
        "broker_publish_messages_per_s",
        _RATE,
        "Messages per second that the broker takes; 0: any number.",
    ),
    (
        "brokerPublisherThrottlingMaxByteRate",
        "broker_publish_bytes_per_s",
        _RATE,
        "Bytes per second that the broker takes; 0: any number.",
    ),
    (
        "dispatchThrottlingRateInMsg",
        "broker_dispatch_messages_per_s",
        _RATE,
        "Messages per second that the broker sends to consumers; 0: any number.",
    ),
    (
        "dispatchThrottlingRateInByte",
        "broker_dispatch_bytes_per_s",
        _RATE,
        "Bytes per second that the broker sends to consumers; 0: any number.",
    ),
)
