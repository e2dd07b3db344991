# SPDX-License-Identifier: Apache-2.0
"""Pulsar's keys about replication to other clusters.

Decides.
"""

from typing import Final

from magnetar.config.key import COUNT, POSITIVE_MILLISECONDS, Key, rows
from magnetar.config.values import Flag, OneOf

REPLICATION_KEYS: Final[tuple[Key, ...]] = rows(
    "broker",
    (
        "replicationProducerQueueSize",
        "replication_queue_entries",
        COUNT,
        "Entries of one topic that are on their way to one other cluster.",
    ),
    (
        "replicationStartAt",
        "replication_start_at",
        OneOf((("latest", "latest"), ("earliest", "earliest"))),
        "Where a topic begins that is replicated to one more cluster.",
    ),
    (
        "createTopicToRemoteClusterForReplication",
        "remote_topics_created",
        Flag(),
        "A topic with partitions that another cluster lacks is made there.",
    ),
    (
        "replicationPolicyCheckDurationSeconds",
        "replication_check_interval_s",
        COUNT,
        "How often topics are compared with their policies, should a change have been missed.",
    ),
    (
        "enableReplicatedSubscriptions",
        "replicated_subscriptions_enabled",
        Flag(),
        "Clusters tell one another how far replicated subscriptions are.",
    ),
    (
        "replicatedSubscriptionsSnapshotFrequencyMillis",
        "replicated_snapshot_interval_ms",
        POSITIVE_MILLISECONDS,
        "How often that is told, if messages came.",
    ),
    (
        "replicatedSubscriptionsSnapshotTimeoutSeconds",
        "replicated_snapshot_timeout_s",
        COUNT,
        "How long other clusters are waited for before they are asked anew.",
    ),
    (
        "replicatedSubscriptionsSnapshotMaxCachedPerSubscription",
        "replicated_snapshots_max",
        COUNT,
        "Snapshots of one topic that are kept for subscriptions that are behind.",
    ),
)
