# SPDX-License-Identifier: Apache-2.0
"""The metrics of topics, subscriptions, consumers, producers and replicators: Pulsar's names, and their sources.

A row adds up over topics unless it says that the largest counts. What has no source here (entry filters of Pulsar's
plug-in kind, offloading) has no row.
Decides.
"""

from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeAlias

from magnetar.admin.ages import Ages
from magnetar.admin.rates import Rates
from magnetar.broker.answers import WRITE_LATENCY_BOUNDS_MS
from magnetar.broker.consumer import Consumer
from magnetar.broker.producer import Producer
from magnetar.broker.served import ServedSubscription, ServedTopic
from magnetar.broker.subscription import Subscription
from magnetar.broker.topic import Topic

# What one delayed message takes in memory, about.
DELAYED_BYTES: Final = 120

Number: TypeAlias = int | float


class Looks(NamedTuple):
    """What was looked at beside the counters themselves."""

    rates: Rates
    ages: Ages
    now_ms: int


class Row(NamedTuple):
    name: str
    kind: str
    value: Callable[[Any, Looks], Number]
    # Over several topics: the sum, or the largest.
    is_largest: bool = False


def _stored(topic: ServedTopic) -> Topic | None:
    return topic if isinstance(topic, Topic) else None


def consumers_of(topic: ServedTopic) -> int:
    return sum(len(subscription.consumers) for subscription in topic.subscriptions.values())


def backlog_of(topic: ServedTopic) -> int:
    return sum(subscription.cursor.backlog_entries() for subscription in topic.subscriptions.values())


def unacked_of(subscription: ServedSubscription) -> int:
    return sum(consumer.unacked for consumer in subscription.consumers)


def oldest_age_s(subscription: ServedSubscription, looks: Looks) -> float:
    if not isinstance(subscription, Subscription):
        return 0.0
    published_ms = looks.ages.published_ms(subscription)
    return max(0, looks.now_ms - published_ms) / 1000 if published_ms else 0.0


def bytes_out(subscription: ServedSubscription) -> int:
    return subscription.pump.bytes_out if isinstance(subscription, Subscription) else subscription.bytes_out


def _topic_age_s(topic: ServedTopic, looks: Looks) -> float:
    return max((oldest_age_s(each, looks) for each in topic.subscriptions.values()), default=0.0)


def _rate_out(topic: ServedTopic, looks: Looks) -> float:
    return sum(looks.rates.of(each).messages_per_s for each in topic.subscriptions.values())


def _throughput_out(topic: ServedTopic, looks: Looks) -> float:
    return sum(looks.rates.of(each).bytes_per_s for each in topic.subscriptions.values())


def _acks(topic: ServedTopic, looks: Looks) -> float:
    return sum(looks.rates.of(each).acked_per_s for each in topic.subscriptions.values())


def _size(topic: ServedTopic, looks: Looks) -> int:
    return topic.managed_ledger.size_bytes if isinstance(topic, Topic) else 0


def _replicated_size(topic: ServedTopic, looks: Looks) -> int:
    if not isinstance(topic, Topic):
        return 0
    return topic.managed_ledger.size_bytes * max(1, topic.managed_ledger.settings.write_quorum)


def _backlog_bytes(topic: ServedTopic, looks: Looks) -> int:
    if not isinstance(topic, Topic):
        return 0
    marks = [each.cursor.mark_delete for each in topic.subscriptions.values() if each.cursor.backlog_entries()]
    return topic.managed_ledger.bytes_after(min(marks)) if marks else 0


def _delayed_bytes(topic: ServedTopic, looks: Looks) -> int:
    if not isinstance(topic, Topic):
        return 0
    return DELAYED_BYTES * sum(len(each.pump.delayed) for each in topic.subscriptions.values())


def _quota(topic: ServedTopic, looks: Looks) -> int:
    stored = _stored(topic)
    return stored.policies.size_quota.limit_bytes if stored is not None and stored.policies is not None else -1


def _quota_s(topic: ServedTopic, looks: Looks) -> int:
    stored = _stored(topic)
    return stored.policies.size_quota.limit_s if stored is not None and stored.policies is not None else -1


def _latency(bucket: int) -> Callable[[ServedTopic, Looks], int]:
    def value(topic: ServedTopic, looks: Looks) -> int:
        latency = topic.answers.latency if isinstance(topic, Topic) else None
        return 0 if latency is None else latency.counts[bucket]

    return value


def _latency_sum(topic: ServedTopic, looks: Looks) -> Number:
    latency = topic.answers.latency if isinstance(topic, Topic) else None
    return 0 if latency is None else latency.sum


def _latency_count(topic: ServedTopic, looks: Looks) -> int:
    latency = topic.answers.latency if isinstance(topic, Topic) else None
    return 0 if latency is None else latency.count


_WRITE: Final = "pulsar_storage_write_latency_"
_BUCKETS: Final = (*(f"le_{str(bound).replace('.', '_')}" for bound in WRITE_LATENCY_BOUNDS_MS), "overflow")

TOPIC_ROWS: Final = (
    Row("pulsar_subscriptions_count", "gauge", lambda topic, _: len(topic.subscriptions)),
    Row("pulsar_producers_count", "gauge", lambda topic, _: len(topic.producers)),
    Row("pulsar_consumers_count", "gauge", lambda topic, _: consumers_of(topic)),
    Row("pulsar_rate_in", "gauge", lambda topic, looks: looks.rates.of(topic).messages_per_s),
    Row("pulsar_rate_out", "gauge", _rate_out),
    Row("pulsar_throughput_in", "gauge", lambda topic, looks: looks.rates.of(topic).bytes_per_s),
    Row("pulsar_throughput_out", "gauge", _throughput_out),
    Row("pulsar_consumer_msg_ack_rate", "gauge", _acks),
    Row("pulsar_in_messages_total", "counter", lambda topic, _: topic.messages_in),
    Row("pulsar_in_bytes_total", "counter", lambda topic, _: topic.bytes_in),
    Row(
        "pulsar_average_msg_size",
        "gauge",
        lambda topic, _: topic.bytes_in / topic.messages_in if topic.messages_in else 0.0,
        is_largest=True,
    ),
    Row("pulsar_storage_size", "gauge", _replicated_size),
    Row("pulsar_storage_logical_size", "gauge", _size),
    Row("pulsar_storage_backlog_size", "gauge", _backlog_bytes),
    Row("pulsar_storage_write_rate", "gauge", lambda topic, looks: looks.rates.of(topic).messages_per_s),
    Row("pulsar_storage_read_rate", "gauge", _rate_out),
    Row("pulsar_delayed_message_index_size_bytes", "gauge", _delayed_bytes),
    Row("pulsar_storage_backlog_quota_limit", "gauge", _quota, is_largest=True),
    Row("pulsar_storage_backlog_quota_limit_time", "gauge", _quota_s, is_largest=True),
    Row("pulsar_storage_backlog_age_seconds", "gauge", _topic_age_s, is_largest=True),
    Row("pulsar_msg_backlog", "gauge", lambda topic, _: backlog_of(topic)),
    Row(
        "pulsar_publish_rate_limit_times",
        "counter",
        lambda topic, _: topic.publish_rates.times_limited if isinstance(topic, Topic) else 0,
    ),
    *(Row(f"{_WRITE}{name}", "counter", _latency(bucket)) for bucket, name in enumerate(_BUCKETS)),
    Row(f"{_WRITE}sum", "counter", _latency_sum),
    Row(f"{_WRITE}count", "counter", _latency_count),
)


def _of_stored(value: Callable[[Subscription, Looks], Number]) -> Callable[[ServedSubscription, Looks], Number]:
    return lambda each, looks: value(each, looks) if isinstance(each, Subscription) else 0


def _latest(name: str) -> Callable[[ServedSubscription, Looks], int]:
    return lambda each, _: max((getattr(consumer, name) for consumer in each.consumers), default=0)


def _throttled(by_messages: bool) -> Callable[[Subscription, Looks], int]:
    return lambda each, _: sum(times for (_, messages), times in each.pump.throttled.items() if messages is by_messages)


def _is_blocked(subscription: Subscription, looks: Looks) -> int:
    return int(subscription.dispatcher is not None and subscription.dispatcher.is_blocked)


def _no_delayed(subscription: Subscription, looks: Looks) -> int:
    return max(0, subscription.cursor.backlog_entries() - len(subscription.pump.delayed))


_SUBSCRIPTION: Final = "pulsar_subscription_"
SUBSCRIPTION_ROWS: Final = (
    Row(f"{_SUBSCRIPTION}back_log", "gauge", lambda each, _: each.cursor.backlog_entries()),
    Row(f"{_SUBSCRIPTION}back_log_no_delayed", "gauge", _of_stored(_no_delayed)),
    Row(f"{_SUBSCRIPTION}delayed", "gauge", _of_stored(lambda each, _: len(each.pump.delayed))),
    Row(
        f"{_SUBSCRIPTION}in_replay",
        "gauge",
        _of_stored(lambda each, _: each.dispatcher.waiting if each.dispatcher is not None else 0),
    ),
    Row(f"{_SUBSCRIPTION}msg_rate_out", "gauge", lambda each, looks: looks.rates.of(each).messages_per_s),
    Row(f"{_SUBSCRIPTION}msg_throughput_out", "gauge", lambda each, looks: looks.rates.of(each).bytes_per_s),
    Row(f"{_SUBSCRIPTION}msg_rate_redeliver", "gauge", lambda each, looks: looks.rates.of(each).redelivered_per_s),
    Row(f"{_SUBSCRIPTION}msg_ack_rate", "gauge", lambda each, looks: looks.rates.of(each).acked_per_s),
    Row(f"{_SUBSCRIPTION}msg_rate_expired", "gauge", lambda each, looks: looks.rates.of(each).expired_per_s),
    Row(f"{_SUBSCRIPTION}msg_drop_rate", "gauge", lambda each, looks: looks.rates.of(each).dropped_per_s),
    Row(f"{_SUBSCRIPTION}total_msg_expired", "counter", _of_stored(lambda each, _: each.entries_expired)),
    Row(f"{_SUBSCRIPTION}unacked_messages", "gauge", lambda each, _: unacked_of(each)),
    Row(f"{_SUBSCRIPTION}blocked_on_unacked_messages", "gauge", _of_stored(_is_blocked)),
    Row(f"{_SUBSCRIPTION}consumers_count", "gauge", lambda each, _: len(each.consumers)),
    Row(f"{_SUBSCRIPTION}last_expire_timestamp", "gauge", _of_stored(lambda each, _: each.expired_ms)),
    Row(f"{_SUBSCRIPTION}last_acked_timestamp", "gauge", _latest("acked_ms")),
    Row(f"{_SUBSCRIPTION}last_consumed_timestamp", "gauge", _latest("consumed_ms")),
    Row(f"{_SUBSCRIPTION}last_consumed_flow_timestamp", "gauge", _of_stored(lambda each, _: each.flow_ms)),
    Row(
        f"{_SUBSCRIPTION}last_mark_delete_advanced_timestamp",
        "gauge",
        _of_stored(lambda each, _: each.mark_moved_ms),
    ),
    Row(f"{_SUBSCRIPTION}filter_accepted_msg_count", "counter", _of_stored(lambda each, _: each.pump.sieve.accepted)),
    Row(f"{_SUBSCRIPTION}filter_rejected_msg_count", "counter", _of_stored(lambda each, _: each.pump.sieve.rejected)),
    Row(
        f"{_SUBSCRIPTION}filter_rescheduled_msg_count",
        "counter",
        _of_stored(lambda each, _: each.pump.sieve.rescheduled),
    ),
    Row(
        f"{_SUBSCRIPTION}filter_processed_msg_count",
        "counter",
        _of_stored(lambda each, _: each.pump.sieve.accepted + each.pump.sieve.rejected + each.pump.sieve.rescheduled),
    ),
    Row(
        f"{_SUBSCRIPTION}delayed_message_index_size_bytes",
        "gauge",
        _of_stored(lambda each, _: DELAYED_BYTES * len(each.pump.delayed)),
    ),
    Row(f"{_SUBSCRIPTION}dispatch_throttled_msg_events", "counter", _of_stored(_throttled(True))),
    Row(f"{_SUBSCRIPTION}dispatch_throttled_bytes_events", "counter", _of_stored(_throttled(False))),
    Row("pulsar_out_messages_total", "counter", lambda each, _: each.messages_out),
    Row("pulsar_out_bytes_total", "counter", lambda each, _: bytes_out(each)),
    Row("magnetar_subscription_oldest_unacked_age_seconds", "gauge", oldest_age_s, is_largest=True),
)

_CONSUMER: Final = "pulsar_consumer_"
CONSUMER_ROWS: Final = (
    Row(f"{_CONSUMER}msg_rate_out", "gauge", lambda each, looks: looks.rates.of(each).messages_per_s),
    Row(f"{_CONSUMER}msg_throughput_out", "gauge", lambda each, looks: looks.rates.of(each).bytes_per_s),
    Row(f"{_CONSUMER}msg_rate_redeliver", "gauge", lambda each, looks: looks.rates.of(each).redelivered_per_s),
    Row(f"{_CONSUMER}unacked_messages", "gauge", lambda each, _: each.unacked),
    Row(f"{_CONSUMER}available_permits", "gauge", lambda each, _: each.permits),
    Row(
        f"{_CONSUMER}blocked_on_unacked_messages",
        "gauge",
        lambda each, _: int(each.is_blocked_by_unacked()),
    ),
)
PRODUCER_ROWS: Final = (
    Row("pulsar_producer_msg_rate_in", "gauge", lambda each, looks: looks.rates.of(each).messages_per_s),
    Row("pulsar_producer_msg_throughput_in", "gauge", lambda each, looks: looks.rates.of(each).bytes_per_s),
    Row(
        "pulsar_producer_msg_average_Size",
        "gauge",
        lambda each, _: each.bytes_in / each.messages_in if each.messages_in else 0.0,
    ),
)

_REPLICATION: Final = "pulsar_replication_"
REPLICATOR_ROWS: Final = (
    Row(f"{_REPLICATION}rate_out", "gauge", lambda each, looks: looks.rates.of(each).messages_per_s),
    Row(f"{_REPLICATION}throughput_out", "gauge", lambda each, looks: looks.rates.of(each).bytes_per_s),
    Row(f"{_REPLICATION}rate_expired", "gauge", lambda each, looks: looks.rates.of(each).expired_per_s),
    Row(f"{_REPLICATION}backlog", "gauge", lambda each, _: each.backlog_entries),
    Row(f"{_REPLICATION}connected_count", "gauge", lambda each, _: int(each.is_connected)),
    Row(f"{_REPLICATION}delay_in_seconds", "gauge", lambda each, looks: each.delay_s(looks.now_ms)),
)

Counting: TypeAlias = ServedTopic | ServedSubscription | Consumer | Producer
