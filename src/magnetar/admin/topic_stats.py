# SPDX-License-Identifier: Apache-2.0
"""Statistics of topics in Pulsar's JSON: publishers, subscriptions, consumers, storage, and sums over partitions.

`msgBacklog` counts entries, as Pulsar's does. What Magnetar does not do (offloading) is 0.
Rates are those of the last whole interval; nothing is measured per message.
Decides.
"""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from magnetar.admin.metric_tables import DELAYED_BYTES
from magnetar.admin.rates import Rates
from magnetar.broker.consumer import Consumer
from magnetar.broker.dispatch.key_shared import KeySharedDispatcher
from magnetar.broker.dispatch.single_active import SingleActiveDispatcher
from magnetar.broker.non_persistent_subscription import NonPersistentSubscription
from magnetar.broker.producer import Producer
from magnetar.broker.replication.replicated import is_replicated
from magnetar.broker.served import ServedTopic
from magnetar.broker.session.session import Session
from magnetar.broker.subscription import Subscription
from magnetar.broker.topic import Topic

_ACCESS: Final = {
    "SHARED": "Shared",
    "EXCLUSIVE": "Exclusive",
    "WAIT_FOR_EXCLUSIVE": "WaitForExclusive",
    "EXCLUSIVE_WITH_FENCING": "ExclusiveWithFencing",
}
_NOT_DONE_BY_TOPIC: Final = {
    "systemTopicBytesInCounter": 0,
    "bytesOutInternalCounter": 0,
    "offloadedStorageSize": 0,
    "lastOffloadLedgerId": 0,
    "lastOffloadSuccessTimeStamp": 0,
    "lastOffloadFailureTimeStamp": 0,
    "ongoingTxnCount": 0,
    "abortedTxnCount": 0,
    "committedTxnCount": 0,
}
_SUMMED: Final = (
    "publishRateLimitedTimes",
    "msgRateIn",
    "msgThroughputIn",
    "msgRateOut",
    "msgThroughputOut",
    "bytesInCounter",
    "msgInCounter",
    "bytesOutCounter",
    "msgOutCounter",
    "storageSize",
    "backlogSize",
    "msgBacklog",
    "msgBacklogNoDelayed",
    "msgDelayed",
    "msgInReplay",
    "unackedMessages",
    "messageAckRate",
    "msgRateRedeliver",
    "msgRateExpired",
    "totalMsgExpired",
    "nonContiguousDeletedMessagesRanges",
    "delayedMessageIndexSizeInBytes",
    "backlogMessages",
)


_SUMMED_OF_SUBSCRIPTIONS: Final = (
    "msgRateOut",
    "msgThroughputOut",
    "bytesOutCounter",
    "msgOutCounter",
    "nonContiguousDeletedMessagesRanges",
    "nonContiguousDeletedMessagesRangesSerializedSize",
    "delayedMessageIndexSizeInBytes",
)
# Kept with a cursor's position: the subscription is to be the same in other clusters.
# What one hole of a saved cursor takes on disk, about.
_RANGE_BYTES: Final = 32
# By what the name of a limit of dispatch starts with.
_LEVELS: Final = {
    "dispatch rate of subscription": "Subscription",
    "dispatch rate of topic": "Topic",
    "dispatch rate of": "Broker",
}


class StatsAsked(NamedTuple):
    with_publishers: bool = True
    with_consumers: bool = True


def topic_stats(
    topic: ServedTopic,
    rates: Rates,
    owner: str,
    publishers: list[dict[str, Any]],
    subscriptions: "ShownSubscriptions",
    replication: dict[str, dict[str, Any]],
) -> dict[str, Any]:
    """Of the topic itself; what was found out of its publishers, subscriptions and other clusters becomes part."""
    sums = subscriptions.sums
    rate = rates.of(topic)
    stored = topic if isinstance(topic, Topic) else None
    return {
        "msgRateIn": rate.messages_per_s,
        "msgThroughputIn": rate.bytes_per_s,
        "msgRateOut": sums["msgRateOut"],
        "msgThroughputOut": sums["msgThroughputOut"],
        "bytesInCounter": topic.bytes_in,
        "msgInCounter": topic.messages_in,
        "bytesOutCounter": sums["bytesOutCounter"],
        "msgOutCounter": sums["msgOutCounter"],
        "averageMsgSize": topic.bytes_in / topic.messages_in if topic.messages_in else 0.0,
        "msgChunkPublished": any(each.chunks_in for each in topic.producers.values()),
        "storageSize": stored.managed_ledger.size_bytes if stored else 0,
        "backlogSize": _backlog_bytes(stored),
        **_NOT_DONE_BY_TOPIC,
        "publishRateLimitedTimes": stored.publish_rates.times_limited if stored else 0,
        "oldestBacklogMessageAgeSeconds": -1,
        "earliestMsgPublishTimeInBacklogs": 0,
        "publishers": publishers,
        "waitingPublishers": len(stored.registered.access.waiting) if stored else 0,
        "subscriptions": subscriptions.by_name,
        "replication": replication,
        "deduplicationStatus": "Enabled" if stored and stored.is_deduplicated else "Disabled",
        "nonContiguousDeletedMessagesRanges": sums["nonContiguousDeletedMessagesRanges"],
        "nonContiguousDeletedMessagesRangesSerializedSize": sums["nonContiguousDeletedMessagesRangesSerializedSize"],
        "delayedMessageIndexSizeInBytes": sums["delayedMessageIndexSizeInBytes"],
        "compaction": _compaction(stored),
        "ownerBroker": owner,
    }


def publisher_stats(producer: Producer, rates: Rates) -> dict[str, Any]:
    rate = rates.of(producer)
    return {
        "accessMode": _ACCESS[producer.access_mode.name],
        "msgRateIn": rate.messages_per_s,
        "msgThroughputIn": rate.bytes_per_s,
        "averageMsgSize": producer.bytes_in / producer.messages_in if producer.messages_in else 0.0,
        "chunkedMessageRate": rate.chunks_per_s,
        "producerId": producer.producer_id,
        "supportsPartialProducer": False,
        "producerName": producer.name,
        **client_stats(producer.link, producer.connected_ms),
        "metadata": producer.metadata,
    }


def subscription_stats(
    subscription: Subscription | NonPersistentSubscription, rates: Rates, consumers_shown: list[dict[str, Any]]
) -> dict[str, Any]:
    rate = rates.of(subscription)
    stored = subscription if isinstance(subscription, Subscription) else None
    consumers = list(subscription.consumers)
    backlog = subscription.cursor.backlog_entries()
    delayed = len(stored.pump.delayed) if stored else 0
    replicated = bool(stored and is_replicated(stored.cursor))
    return {
        "msgRateOut": rate.messages_per_s,
        "msgThroughputOut": rate.bytes_per_s,
        "bytesOutCounter": stored.pump.bytes_out if stored else sum(each.bytes_out for each in consumers),
        "msgOutCounter": subscription.messages_out,
        "msgRateRedeliver": rate.redelivered_per_s,
        "messageAckRate": rate.acked_per_s,
        "chunkedMessageRate": rate.chunks_per_s,
        "msgBacklog": backlog,
        "backlogSize": stored.managed_ledger.bytes_after(stored.cursor.mark_delete) if stored and backlog else 0,
        "earliestMsgPublishTimeInBacklog": 0,
        "msgBacklogNoDelayed": max(0, backlog - delayed),
        "blockedSubscriptionOnUnackedMsgs": bool(stored and stored.dispatcher and stored.dispatcher.is_blocked),
        "msgDelayed": delayed,
        "msgInReplay": stored.dispatcher.waiting if stored and stored.dispatcher else 0,
        "unackedMessages": sum(consumer.unacked for consumer in consumers),
        "type": subscription.type.label if subscription.type else "None",
        "msgRateExpired": rate.expired_per_s,
        "totalMsgExpired": stored.entries_expired if stored else 0,
        "msgDropRate": rate.dropped_per_s,
        "lastExpireTimestamp": stored.expired_ms if stored else 0,
        "lastConsumedFlowTimestamp": stored.flow_ms if stored else _latest(consumers, "flow_ms"),
        "lastConsumedTimestamp": _latest(consumers, "consumed_ms"),
        "lastAckedTimestamp": _latest(consumers, "acked_ms"),
        "lastMarkDeleteAdvancedTimestamp": stored.mark_moved_ms if stored else 0,
        "consumers": consumers_shown,
        **_active(subscription),
        "isDurable": bool(stored and stored.cursor.is_durable),
        "isReplicated": replicated,
        "allowOutOfOrderDelivery": subscription.key_sharing.allow_out_of_order,
        "consumersAfterMarkDeletePosition": {},
        "nonContiguousDeletedMessagesRanges": stored.cursor.state.acked.run_count() if stored else 0,
        "nonContiguousDeletedMessagesRangesSerializedSize": _saved_bytes(stored),
        "delayedMessageIndexSizeInBytes": delayed * DELAYED_BYTES,
        "subscriptionProperties": stored.properties if stored else {},
        **_filtered(stored),
        **_throttled(stored),
        "durable": bool(stored and stored.cursor.is_durable),
        "replicated": replicated,
    }


def _active(subscription: Subscription | NonPersistentSubscription) -> dict[str, str]:
    """Of an Exclusive or Failover subscription that has one."""
    dispatcher = subscription.dispatcher
    active = dispatcher.active if isinstance(dispatcher, SingleActiveDispatcher) else None
    return {} if active is None else {"activeConsumerName": active.name}


def consumer_stats(consumer: Consumer, rates: Rates) -> dict[str, Any]:
    rate = rates.of(consumer)
    return {
        "msgRateOut": rate.messages_per_s,
        "msgThroughputOut": rate.bytes_per_s,
        "bytesOutCounter": consumer.bytes_out,
        "msgOutCounter": consumer.messages_out,
        "msgRateRedeliver": rate.redelivered_per_s,
        "messageAckRate": rate.acked_per_s,
        "chunkedMessageRate": rate.chunks_per_s,
        "consumerName": consumer.name,
        "availablePermits": consumer.permits,
        "unackedMessages": consumer.unacked,
        "avgMessagesPerEntry": round(consumer.messages_out / consumer.entries_out) if consumer.entries_out else 0,
        "blockedConsumerOnUnackedMsgs": consumer.is_blocked_by_unacked(),
        "drainingHashesCount": 0,
        "drainingHashesClearedTotal": 0,
        "drainingHashesUnackedMessages": 0,
        **client_stats(consumer.link, consumer.connected_ms),
        "lastAckedTimestamp": consumer.acked_ms,
        "lastConsumedTimestamp": consumer.consumed_ms,
        "lastConsumedFlowTimestamp": consumer.flow_ms,
        "metadata": consumer.metadata,
        "lastAckedTime": iso_time(consumer.acked_ms),
        "lastConsumedTime": iso_time(consumer.consumed_ms),
    }


class ShownSubscriptions:
    """The statistics of a topic's subscriptions, and what they have together."""

    def __init__(self) -> None:
        self.by_name: dict[str, dict[str, Any]] = {}
        self.sums: dict[str, Any] = dict.fromkeys(_SUMMED_OF_SUBSCRIPTIONS, 0)

    def add(self, name: str, shown: dict[str, Any]) -> None:
        self.by_name[name] = shown
        for each in _SUMMED_OF_SUBSCRIPTIONS:
            self.sums[each] += shown[each]


class KeyRanges:
    """Which keys each consumer of a Key_Shared subscription has; nothing for other types."""

    def __init__(self, subscription: Subscription | NonPersistentSubscription) -> None:
        dispatcher = subscription.dispatcher
        self._dispatcher = dispatcher if isinstance(dispatcher, KeySharedDispatcher) else None
        self._ranges: dict[Consumer, Any] = {}
        self._draining: dict[Consumer, list[Any]] = {}
        if self._dispatcher is not None:
            self._ranges = dict(self._dispatcher.ranges.ranges())
            for each in self._dispatcher.draining():
                self._draining.setdefault(each.holder, []).append(each)

    def of(self, consumer: Consumer) -> dict[str, Any]:
        if self._dispatcher is None:
            return {}
        held = self._draining.get(consumer, [])
        return {
            "keyHashRanges": [f"[{first}, {last}]" for first, last in self._ranges.get(consumer, ())],
            "drainingHashesCount": len(held),
            "drainingHashesClearedTotal": self._dispatcher.drained(consumer),
            "drainingHashesUnackedMessages": sum(each.messages_unacked for each in held),
            "drainingHashes": [
                {"hash": each.slot, "unackMsgs": each.messages_unacked, "blockedAttempts": each.blocked}
                for each in held
            ],
        }


class PartitionSums:
    """The statistics of a partitioned topic: numbers added up, subscriptions merged by their names."""

    def __init__(self) -> None:
        self._total: dict[str, Any] = {}
        self._publishers: list[dict[str, Any]] = []
        self._subscriptions: dict[str, dict[str, Any]] = {}
        self._replication: dict[str, dict[str, Any]] = {}

    def add(self, partition: dict[str, Any]) -> None:
        _add(self._total, partition)
        self._publishers += partition["publishers"]
        for name, shown in partition["subscriptions"].items():
            merged = self._subscriptions.get(name)
            if merged is None:
                self._subscriptions[name] = {**shown, "consumers": list(shown["consumers"])}
            else:
                _add(merged, shown)
                merged["consumers"] += shown["consumers"]
        for cluster, shown in partition["replication"].items():
            _add_replication(self._replication.setdefault(cluster, {}), shown)

    def result(self) -> dict[str, Any]:
        total = {**_NOT_DONE_BY_TOPIC, **self._total}
        messages = total.get("msgInCounter")
        total["averageMsgSize"] = total.get("bytesInCounter", 0) / messages if messages else 0.0
        return {
            **total,
            "publishers": self._publishers,
            "subscriptions": self._subscriptions,
            "replication": self._replication,
        }


def _add_replication(total: dict[str, Any], part: dict[str, Any]) -> None:
    """Numbers add up; it is connected if every partition is; the delay is that of the slowest."""
    for name, value in part.items():
        if name == "connected":
            total[name] = total.get(name, True) and value
        elif name == "replicationDelayInSeconds":
            total[name] = max(total.get(name, 0), value)
        elif isinstance(value, int | float):
            total[name] = total.get(name, 0) + value
        else:
            total[name] = value


def _add(total: dict[str, Any], part: dict[str, Any]) -> None:
    for name in _SUMMED:
        if name in part:
            total[name] = total.get(name, 0) + part[name]


def iso_time(moment_ms: int) -> str:
    """As Java writes an instant."""
    return datetime.fromtimestamp(moment_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def client_stats(link: object, connected_ms: int) -> dict[str, str]:
    """Whose connection it is, and since when."""
    session = link if isinstance(link, Session) else None
    return {
        "address": f"/{session.connection.peer}" if session else "",
        "connectedSince": iso_time(connected_ms),
        "clientVersion": session.client_version if session else "",
    }


def _backlog_bytes(topic: Topic | None) -> int:
    """What the slowest subscription has still before it."""
    if topic is None:
        return 0
    marks = [each.cursor.mark_delete for each in topic.subscriptions.values() if each.cursor.backlog_entries()]
    return topic.managed_ledger.bytes_after(min(marks)) if marks else 0


def _saved_bytes(subscription: Subscription | None) -> int:
    """About what the holes take where they are saved: two positions each."""
    return 0 if subscription is None else subscription.cursor.state.acked.run_count() * _RANGE_BYTES


def _latest(consumers: Iterable[Consumer], name: str) -> int:
    return max((getattr(consumer, name) for consumer in consumers), default=0)


def _compaction(topic: Topic | None) -> dict[str, int]:
    compaction = topic.compaction if topic is not None else None
    return {
        "lastCompactionRemovedEventCount": compaction.entries_removed if compaction else 0,
        "lastCompactionSucceedTimestamp": compaction.succeeded_ms if compaction else 0,
        "lastCompactionFailedTimestamp": compaction.failed_ms if compaction else 0,
        "lastCompactionDurationTimeInMills": compaction.duration_ms if compaction else 0,
    }


def _filtered(subscription: Subscription | None) -> dict[str, int]:
    sieve = subscription.pump.sieve if subscription is not None else None
    counts = (sieve.accepted, sieve.rejected, sieve.rescheduled) if sieve is not None else (0, 0, 0)
    return {
        "filterProcessedMsgCount": sum(counts),
        "filterAcceptedMsgCount": counts[0],
        "filterRejectedMsgCount": counts[1],
        "filterRescheduledMsgCount": counts[2],
    }


def _throttled(subscription: Subscription | None) -> dict[str, int]:
    """How often each level's limit let nothing through."""
    counts = dict.fromkeys(
        (f"dispatchThrottled{unit}EventsBy{level}Limit" for level in _LEVELS.values() for unit in ("Msg", "Bytes")), 0
    )
    for (name, by_messages), times in (subscription.pump.throttled if subscription is not None else {}).items():
        for start, level in _LEVELS.items():
            if name.startswith(start):
                counts[f"dispatchThrottled{'Msg' if by_messages else 'Bytes'}EventsBy{level}Limit"] += times
                break
    return counts
