# SPDX-License-Identifier: Apache-2.0
"""Every kind of policy is read from upstream's JSON; what cannot be used is refused by name."""

import pytest

from magnetar.broker.policies import values
from magnetar.broker.policies.fields import NAMESPACE_FIELDS, TOPIC_FIELDS, check_namespace, check_topic
from magnetar.errors import BadSetting

READ = [
    (values.retention, {"retentionTimeInMinutes": 60, "retentionSizeInMB": -1}, values.Retention(60, -1)),
    (
        values.backlog_quota,
        {"limit": 5, "limitSize": 10, "limitTime": 3, "policy": "consumer_backlog_eviction"},
        values.BacklogQuota(10, 3, values.QuotaAction.EVICT),
    ),
    (values.backlog_quota, {"limit": 5, "policy": "producer_exception"}, (5, -1, values.QuotaAction.REFUSE)),
    (
        values.dispatch_rate,
        {"dispatchThrottlingRateInMsg": 7, "dispatchThrottlingRateInByte": 8, "ratePeriodInSecond": 2},
        values.DispatchRate(7, 8, 2, False),
    ),
    (values.publish_rate, {"publishThrottlingRateInMsg": 7}, values.PublishRate(7, -1)),
    (values.subscribe_rate, {"subscribeThrottlingRatePerConsumer": 1, "ratePeriodInSecond": 5}, (1, 5)),
    (
        values.persistence,
        {
            "bookkeeperEnsemble": 3,
            "bookkeeperWriteQuorum": 3,
            "bookkeeperAckQuorum": 2,
            "managedLedgerMaxMarkDeleteRate": 0.5,
        },
        values.Persistence(3, 3, 2, 0.5),
    ),
    (
        values.inactivity,
        {
            "inactiveTopicDeleteMode": "delete_when_subscriptions_caught_up",
            "maxInactiveDurationSeconds": 9,
            "deleteWhileInactive": True,
        },
        values.Inactivity(True, values.InactivityMode.CAUGHT_UP, 9),
    ),
    (values.delayed_delivery, {"tickTime": 5, "active": True, "maxDeliveryDelayInMillis": 7}, (True, 5, 7)),
    (
        values.topic_creation,
        {"allowAutoTopicCreation": True, "topicType": "partitioned", "defaultNumPartitions": 4},
        values.TopicCreation(True, 4),
    ),
    (values.subscription_creation, {"allowAutoSubscriptionCreation": True}, True),
    (values.entry_filters, {"entryFilterNames": "one, two,"}, ("one", "two")),
]

REFUSED = [
    (values.retention, {"retentionTimeInMinutes": 60}, "both"),
    (values.retention, {"retentionTimeInMinutes": "60", "retentionSizeInMB": 1}, "retentionTimeInMinutes"),
    (values.retention, {"retentionTimeInMinutes": True, "retentionSizeInMB": 1}, "retentionTimeInMinutes"),
    (values.retention, {"retentionTimeInMinutes": -2, "retentionSizeInMB": 1}, "between -1"),
    (values.retention, [], "object"),
    (values.backlog_quota, {"policy": "hold"}, "producer_request_hold"),
    (values.backlog_quotas, {"disk": {}}, "destination_storage"),
    (values.persistence, {"bookkeeperEnsemble": 1, "bookkeeperWriteQuorum": 2, "bookkeeperAckQuorum": 1}, "hold"),
    (values.topic_creation, {"allowAutoTopicCreation": True, "topicType": "partitioned"}, "at least 1"),
    (values.topic_creation, {"allowAutoTopicCreation": True, "topicType": "round"}, "round"),
    (values.dispatch_rate, {"ratePeriodInSecond": 0}, "ratePeriodInSecond"),
    (values.texts, ["a", 1], "list of texts"),
    (values.flag, 1, "true or false"),
]


@pytest.mark.feature("F-TOP-05")
@pytest.mark.parametrize(("read", "json", "value"), READ)
def test_a_value_is_read(read, json, value):  # type: ignore[no-untyped-def]
    assert read(json) == value


@pytest.mark.parametrize(("read", "json", "says"), REFUSED)
def test_a_value_that_cannot_be_used_is_refused(read, json, says):  # type: ignore[no-untyped-def]
    with pytest.raises(BadSetting, match=says):
        read(json)


@pytest.mark.feature("F-TOP-05")
def test_every_policy_of_apache_pulsar_4_has_a_field() -> None:
    namespace = (
        "auth_policies replication_clusters allowed_clusters bundles backlog_quota_map clusterDispatchRate"
        " topicDispatchRate subscriptionDispatchRate replicatorDispatchRate clusterSubscribeRate persistence"
        " deduplicationEnabled autoTopicCreationOverride autoSubscriptionCreationOverride publishMaxMessageRate"
        " latency_stats_sample_rate message_ttl_in_seconds subscription_expiration_time_minutes retention_policies"
        " deleted encryption_required delayed_delivery_policies inactive_topic_policies subscription_auth_mode"
        " max_producers_per_topic max_consumers_per_topic max_consumers_per_subscription"
        " max_unacked_messages_per_consumer max_unacked_messages_per_subscription max_subscriptions_per_topic"
        " compaction_threshold offload_threshold offload_threshold_in_seconds offload_deletion_lag_ms"
        " max_topics_per_namespace schema_auto_update_compatibility_strategy schema_compatibility_strategy"
        " is_allow_auto_update_schema schema_validation_enforced offload_policies"
        " deduplicationSnapshotIntervalSeconds subscription_types_enabled properties resource_group_name migrated"
        " dispatcherPauseOnAckStatePersistentEnabled entryFilters"
    )
    topic = (
        "backLogQuotaMap subscriptionTypesEnabled replicationClusters shadowTopics isGlobal persistence"
        " retentionPolicies deduplicationEnabled messageTTLInSeconds maxProducerPerTopic maxConsumerPerTopic"
        " maxConsumersPerSubscription maxUnackedMessagesOnConsumer maxUnackedMessagesOnSubscription"
        " delayedDeliveryTickTimeMillis delayedDeliveryEnabled delayedDeliveryMaxDelayInMillis"
        " dispatcherPauseOnAckStatePersistentEnabled offloadPolicies inactiveTopicPolicies dispatchRate"
        " subscriptionDispatchRate compactionThreshold publishRate subscribeRate"
        " deduplicationSnapshotIntervalSeconds maxMessageSize maxSubscriptionsPerTopic replicatorDispatchRate"
        " schemaCompatibilityStrategy entryFilters autoSubscriptionCreationOverride subscriptionPolicies"
        " schemaValidationEnforced"
    )
    assert sorted(NAMESPACE_FIELDS) == sorted(namespace.split())
    assert sorted(TOPIC_FIELDS) == sorted(topic.split())


def test_retention_must_exceed_the_backlog_quota() -> None:
    quota = {"destination_storage": {"limitSize": 10 << 20, "policy": "producer_exception"}}
    retention = {"retentionTimeInMinutes": 10, "retentionSizeInMB": 10}
    with pytest.raises(BadSetting, match="Retention Quota must exceed"):
        check_namespace({"backlog_quota_map": quota, "retention_policies": retention})
    with pytest.raises(BadSetting, match="Retention Quota must exceed"):
        check_topic({"backLogQuotaMap": quota, "retentionPolicies": retention})
    check_namespace({"backlog_quota_map": quota, "retention_policies": {**retention, "retentionSizeInMB": 11}})
    check_namespace({"backlog_quota_map": quota, "retention_policies": {**retention, "retentionSizeInMB": -1}})


def test_a_refusal_names_the_whole_way_to_the_wrong_member() -> None:
    record = {"topicDispatchRate": {"standalone": {"dispatchThrottlingRateInMsg": "many"}}}
    with pytest.raises(BadSetting, match="topicDispatchRate: standalone: dispatchThrottlingRateInMsg: 'many'"):
        check_namespace(record)
