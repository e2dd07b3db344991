# SPDX-License-Identifier: Apache-2.0
"""Which path is which policy: its member of the record, what it takes, what it shows when it is not set.

One row per policy, for namespaces and for topics; the handlers are the same for all. A rate of a namespace is kept by
the name of the cluster, as Apache Pulsar keeps it.
Decides.
"""

from typing import Any, Final, NamedTuple

_DISPATCH: Final = {
    "dispatchThrottlingRateInMsg": -1,
    "dispatchThrottlingRateInByte": -1,
    "relativeToPublishRate": False,
    "ratePeriodInSecond": 1,
}
_PUBLISH: Final = {"publishThrottlingRateInMsg": -1, "publishThrottlingRateInByte": -1}
_SUBSCRIBE: Final = {"subscribeThrottlingRatePerConsumer": -1, "ratePeriodInSecond": 30}
_DELAYED: Final = {"tickTime": 1000, "active": True, "maxDeliveryDelayInMillis": 0}


class PolicyRow(NamedTuple):
    member: str
    # The verb that sets it; POST nearly everywhere.
    verb: str = "POST"
    is_removable: bool = True
    # What GET answers when it is not set: None is an empty answer.
    unset: Any = None
    # The status of an empty answer.
    unset_status: int = 200
    # Members that a value has even when it was set without them.
    filled: dict[str, Any] | None = None
    by_cluster: bool = False
    # The status of a refusal: Pulsar's differs.
    refusal: int = 412
    # What is set by a request without a body.
    without_body: Any = None


NAMESPACE_POLICIES: Final[dict[str, PolicyRow]] = {
    "messageTTL": PolicyRow("message_ttl_in_seconds"),
    "subscriptionExpirationTime": PolicyRow("subscription_expiration_time_minutes"),
    "deduplication": PolicyRow("deduplicationEnabled"),
    "deduplicationSnapshotInterval": PolicyRow("deduplicationSnapshotIntervalSeconds", is_removable=False),
    "autoTopicCreation": PolicyRow("autoTopicCreationOverride"),
    "autoSubscriptionCreation": PolicyRow("autoSubscriptionCreationOverride"),
    "publishRate": PolicyRow("publishMaxMessageRate", filled=_PUBLISH, by_cluster=True),
    "dispatchRate": PolicyRow("topicDispatchRate", filled=_DISPATCH, by_cluster=True),
    "subscriptionDispatchRate": PolicyRow("subscriptionDispatchRate", filled=_DISPATCH, by_cluster=True),
    "replicatorDispatchRate": PolicyRow("replicatorDispatchRate", filled=_DISPATCH, by_cluster=True),
    "subscribeRate": PolicyRow("clusterSubscribeRate", filled=_SUBSCRIBE, by_cluster=True),
    "retention": PolicyRow("retention_policies", refusal=400),
    "persistence": PolicyRow("persistence", refusal=400),
    "subscriptionAuthMode": PolicyRow("subscription_auth_mode", is_removable=False, unset="None"),
    "encryptionRequired": PolicyRow("encryption_required", is_removable=False, unset=False),
    "delayedDelivery": PolicyRow("delayed_delivery_policies", filled=_DELAYED),
    "inactiveTopicPolicies": PolicyRow("inactive_topic_policies"),
    "maxProducersPerTopic": PolicyRow("max_producers_per_topic"),
    "maxConsumersPerTopic": PolicyRow("max_consumers_per_topic"),
    "maxConsumersPerSubscription": PolicyRow("max_consumers_per_subscription"),
    "maxUnackedMessagesPerConsumer": PolicyRow("max_unacked_messages_per_consumer"),
    "maxUnackedMessagesPerSubscription": PolicyRow("max_unacked_messages_per_subscription"),
    "maxSubscriptionsPerTopic": PolicyRow("max_subscriptions_per_topic"),
    "maxTopicsPerNamespace": PolicyRow("max_topics_per_namespace", unset=0),
    "compactionThreshold": PolicyRow("compaction_threshold", verb="PUT"),
    "offloadThreshold": PolicyRow("offload_threshold", verb="PUT", is_removable=False, unset=-1),
    "offloadThresholdInSeconds": PolicyRow("offload_threshold_in_seconds", verb="PUT", is_removable=False, unset=-1),
    "offloadDeletionLagMs": PolicyRow("offload_deletion_lag_ms", verb="PUT"),
    "offloadPolicies": PolicyRow("offload_policies", is_removable=False),
    "schemaAutoUpdateCompatibilityStrategy": PolicyRow(
        "schema_auto_update_compatibility_strategy", verb="PUT", is_removable=False, unset_status=204
    ),
    "schemaCompatibilityStrategy": PolicyRow(
        "schema_compatibility_strategy", verb="PUT", is_removable=False, unset="UNDEFINED", refusal=400
    ),
    "isAllowAutoUpdateSchema": PolicyRow("is_allow_auto_update_schema", is_removable=False, unset=True),
    "schemaValidationEnforced": PolicyRow("schema_validation_enforced", is_removable=False, unset=False),
    "subscriptionTypesEnabled": PolicyRow("subscription_types_enabled", unset=[]),
    "entryFilters": PolicyRow("entryFilters", refusal=400),
    "dispatcherPauseOnAckStatePersistent": PolicyRow(
        "dispatcherPauseOnAckStatePersistentEnabled", unset=False, without_body=True
    ),
}

TOPIC_POLICIES: Final[dict[str, PolicyRow]] = {
    "deduplicationEnabled": PolicyRow("deduplicationEnabled"),
    "deduplicationSnapshotInterval": PolicyRow("deduplicationSnapshotIntervalSeconds"),
    "messageTTL": PolicyRow("messageTTLInSeconds"),
    "retention": PolicyRow("retentionPolicies"),
    "persistence": PolicyRow("persistence", refusal=400),
    "maxProducers": PolicyRow("maxProducerPerTopic"),
    "maxConsumers": PolicyRow("maxConsumerPerTopic"),
    "maxConsumersPerSubscription": PolicyRow("maxConsumersPerSubscription", unset_status=204),
    "maxUnackedMessagesOnConsumer": PolicyRow("maxUnackedMessagesOnConsumer"),
    "maxUnackedMessagesOnSubscription": PolicyRow("maxUnackedMessagesOnSubscription"),
    "maxSubscriptionsPerTopic": PolicyRow("maxSubscriptionsPerTopic", unset_status=204),
    "maxMessageSize": PolicyRow("maxMessageSize", unset_status=204),
    "compactionThreshold": PolicyRow("compactionThreshold"),
    "inactiveTopicPolicies": PolicyRow("inactiveTopicPolicies"),
    "dispatchRate": PolicyRow("dispatchRate", filled=_DISPATCH),
    "subscriptionDispatchRate": PolicyRow("subscriptionDispatchRate", filled=_DISPATCH),
    "replicatorDispatchRate": PolicyRow("replicatorDispatchRate", filled=_DISPATCH),
    "publishRate": PolicyRow("publishRate", filled=_PUBLISH, unset_status=204),
    "subscribeRate": PolicyRow("subscribeRate", filled=_SUBSCRIBE),
    "subscriptionTypesEnabled": PolicyRow("subscriptionTypesEnabled", unset_status=204),
    "replication": PolicyRow("replicationClusters"),
    "schemaCompatibilityStrategy": PolicyRow("schemaCompatibilityStrategy", verb="PUT", refusal=400),
    "schemaValidationEnforced": PolicyRow("schemaValidationEnforced", is_removable=False, unset=False),
    "autoSubscriptionCreation": PolicyRow("autoSubscriptionCreationOverride"),
    "offloadPolicies": PolicyRow("offloadPolicies"),
    "entryFilters": PolicyRow("entryFilters", refusal=400),
    "shadowTopics": PolicyRow("shadowTopics", verb="PUT", unset=[]),
    "dispatcherPauseOnAckStatePersistent": PolicyRow(
        "dispatcherPauseOnAckStatePersistentEnabled", unset=False, without_body=True
    ),
}


def filled(row: PolicyRow, value: Any) -> Any:
    """The value with the members that it always has, in Pulsar's order."""
    if row.filled is None or not isinstance(value, dict):
        return value
    return {**row.filled, **value}


def quota_filled(quota: Any) -> Any:
    """A backlog quota with both names of its size: `limit` is what it was called before."""
    if not isinstance(quota, dict):
        return quota
    size = quota.get("limitSize", quota.get("limit", 0))
    # The number that was given counts, under whichever name.
    size = size or quota.get("limit", 0) or 0
    rest = {name: value for name, value in quota.items() if name not in ("limit", "limitSize", "limitTime", "policy")}
    return {
        "limit": size,
        "limitSize": size,
        "limitTime": quota.get("limitTime", 0),
        "policy": quota.get("policy"),
        **rest,
    }
