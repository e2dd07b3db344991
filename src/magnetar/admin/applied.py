# SPDX-License-Identifier: Apache-2.0
"""What holds for a topic, policy by policy, in the JSON that `?applied=true` answers.

Decides.
"""

from collections.abc import Callable
from typing import Any, Final

from magnetar.broker.policies.effective import TopicPolicies
from magnetar.broker.policies.values import BacklogQuota, DispatchRate, QuotaType


def dispatch_rate(rate: DispatchRate) -> dict[str, Any]:
    return {
        "dispatchThrottlingRateInMsg": rate.messages,
        "dispatchThrottlingRateInByte": rate.bytes,
        "relativeToPublishRate": rate.relative_to_publish,
        "ratePeriodInSecond": rate.period_s,
    }


def quota(value: BacklogQuota) -> dict[str, Any]:
    return {
        "limit": value.limit_bytes,
        "limitSize": value.limit_bytes,
        "limitTime": value.limit_s,
        "policy": str(value.action),
    }


def quotas(policies: TopicPolicies) -> dict[str, Any]:
    return {str(kind): quota(policies.quota(kind)) for kind in QuotaType}


APPLIED: Final[dict[str, Callable[[TopicPolicies], Any]]] = {
    "deduplicationEnabled": lambda p: p.deduplication_enabled,
    "messageTTL": lambda p: p.message_ttl_s,
    "retention": lambda p: {
        "retentionTimeInMinutes": p.retention.minutes,
        "retentionSizeInMB": p.retention.megabytes,
    },
    "persistence": lambda p: {
        "bookkeeperEnsemble": p.persistence.ensemble,
        "bookkeeperWriteQuorum": p.persistence.write_quorum,
        "bookkeeperAckQuorum": p.persistence.ack_quorum,
        "managedLedgerMaxMarkDeleteRate": p.persistence.mark_delete_rate,
    },
    "maxProducers": lambda p: p.producers_max,
    "maxConsumers": lambda p: p.consumers_max,
    "maxUnackedMessagesOnConsumer": lambda p: p.consumer_unacked_max,
    "maxUnackedMessagesOnSubscription": lambda p: p.subscription_unacked_max,
    "compactionThreshold": lambda p: p.compaction_threshold_bytes,
    "inactiveTopicPolicies": lambda p: {
        "inactiveTopicDeleteMode": str(p.inactivity.mode),
        "maxInactiveDurationSeconds": p.inactivity.duration_s,
        "deleteWhileInactive": p.inactivity.delete,
    },
    "delayedDelivery": lambda p: {
        "tickTime": p.delayed_delivery.tick_ms,
        "active": p.delayed_delivery.active,
        "maxDeliveryDelayInMillis": p.delayed_delivery.delay_ms_max,
    },
    "dispatchRate": lambda p: dispatch_rate(p.dispatch_rate),
    "subscriptionDispatchRate": lambda p: dispatch_rate(p.subscription_dispatch_rate),
    "replicatorDispatchRate": lambda p: dispatch_rate(p.replicator_dispatch_rate),
    "subscribeRate": lambda p: {
        "subscribeThrottlingRatePerConsumer": p.subscribe_rate.subscribes,
        "ratePeriodInSecond": p.subscribe_rate.period_s,
    },
    "replication": lambda p: list(p.replication_clusters),
    "schemaCompatibilityStrategy": lambda p: str(p.schema_compatibility),
    "schemaValidationEnforced": lambda p: p.schema_validation_enforced,
    "autoSubscriptionCreation": lambda p: {"allowAutoSubscriptionCreation": p.subscription_creation},
    "entryFilters": lambda p: {"entryFilterNames": ",".join(p.entry_filters)},
    "dispatcherPauseOnAckStatePersistent": lambda p: p.pause_until_acks_persist,
}
