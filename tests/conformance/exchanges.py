# SPDX-License-Identifier: Apache-2.0
"""Messages from an official producer to an official consumer: what most conformance tests begin and end with."""

from typing import Final

import pulsar
import pytest

QUIET: Final = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
SHARED, KEY_SHARED = pulsar.ConsumerType.Shared, pulsar.ConsumerType.KeyShared
EXCLUSIVE, FAILOVER = pulsar.ConsumerType.Exclusive, pulsar.ConsumerType.Failover
WAIT_MS: Final = 10_000


def publish(client: pulsar.Client, topic: str, count: int, *, keys: int = 0, batched: bool = False) -> list[bytes]:
    producer = client.create_producer(topic, batching_enabled=batched, batching_max_publish_delay_ms=100)
    sent = [b"m-%d" % number for number in range(count)]
    for number, data in enumerate(sent):
        extra = {"partition_key": f"k{number % keys}"} if keys else {}
        producer.send_async(data, None, **extra)
    producer.flush()
    producer.close()
    return sent


def take(consumer: pulsar.Consumer, count: int, *, ack: bool = True) -> list[bytes]:
    taken = []
    for _ in range(count):
        message = consumer.receive(WAIT_MS)
        taken.append(message.data())
        if ack:
            consumer.acknowledge(message)
    return taken


def nothing_comes(consumer: pulsar.Consumer, within_ms: int = 300) -> None:
    with pytest.raises(pulsar.Timeout):
        consumer.receive(within_ms)
