# SPDX-License-Identifier: Apache-2.0
"""Statistics of a topic's way to and from other clusters, in the words of Apache Pulsar.

Decides.
"""

from typing import Any

from magnetar.admin.rates import Rates
from magnetar.admin.topic_stats import client_stats, iso_time
from magnetar.broker.producer import REPLICATOR_PREFIX, Producer
from magnetar.broker.replication.replicator import Replicator
from magnetar.broker.served import ServedTopic
from magnetar.broker.topic import Topic


def origin_of(producer: Producer) -> str:
    """The cluster whose messages a replicator brings."""
    return producer.name.removeprefix(REPLICATOR_PREFIX).partition("-->")[0]


def replication_stats(topic: ServedTopic, rates: Rates, now_ms: int) -> dict[str, dict[str, Any]]:
    """By cluster: what goes there, and what comes from there."""
    found: dict[str, dict[str, Any]] = {}
    if isinstance(topic, Topic) and topic.replication is not None:
        for cluster, replicator in topic.replication.replicators.items():
            found[cluster] = {**_nothing_in(), **_out(replicator, rates, now_ms)}
    for producer in topic.producers.values():
        if producer.is_replicator:
            found.setdefault(origin_of(producer), {**_nothing_in(), **_nothing_out()}).update(_in(producer, rates))
    return found


def _out(replicator: Replicator, rates: Rates, now_ms: int) -> dict[str, Any]:
    rate = rates.of(replicator)
    producer = replicator.producer if replicator.is_connected else None
    shown: dict[str, Any] = {
        "msgRateOut": rate.messages_per_s,
        "msgThroughputOut": rate.bytes_per_s,
        "msgOutCount": replicator.messages_out,
        "bytesOutCount": replicator.bytes_out,
        "msgRateExpired": rate.expired_per_s,
        "msgExpiredCount": replicator.entries_expired,
        "replicationBacklog": replicator.backlog_entries,
        "connected": replicator.is_connected,
        "replicationDelayInSeconds": int(replicator.delay_s(now_ms)),
    }
    if producer is not None:
        shown["outboundConnection"] = producer.broker
        shown["outboundConnectedSince"] = iso_time(producer.connected_ms)
    elif replicator.trouble:
        shown["trouble"] = replicator.trouble
    return shown


def _in(producer: Producer, rates: Rates) -> dict[str, Any]:
    rate, client = rates.of(producer), client_stats(producer.link, producer.connected_ms)
    return {
        "msgRateIn": rate.messages_per_s,
        "msgThroughputIn": rate.bytes_per_s,
        "msgInCount": producer.messages_in,
        "bytesInCount": producer.bytes_in,
        "inboundConnection": client["address"],
        "inboundConnectedSince": client["connectedSince"],
    }


def _nothing_in() -> dict[str, Any]:
    return {"msgRateIn": 0.0, "msgThroughputIn": 0.0, "msgInCount": 0, "bytesInCount": 0}


def _nothing_out() -> dict[str, Any]:
    return {
        "msgRateOut": 0.0,
        "msgThroughputOut": 0.0,
        "msgOutCount": 0,
        "bytesOutCount": 0,
        "msgRateExpired": 0.0,
        "msgExpiredCount": 0,
        "replicationBacklog": 0,
        "connected": False,
        "replicationDelayInSeconds": 0,
    }
