# SPDX-License-Identifier: Apache-2.0
"""Key_Shared with official clients: every key has one consumer, in order, whoever is slow."""

from collections import defaultdict

import pulsar
import pytest

from magnetar.wire.proto import pulsar_api_pb2 as pb
from tests.conformance.exchanges import KEY_SHARED, WAIT_MS, publish
from tests.conformance.raw import RawClient
from tests.processes import StandaloneProcess


@pytest.mark.feature("F-SUB-13", "F-SUB-15")
def test_every_key_has_one_consumer_and_keeps_its_order(client: pulsar.Client, topic: str) -> None:
    consumers = [client.subscribe(topic, "s", consumer_type=KEY_SHARED) for _ in range(3)]
    publish(client, topic, 600, keys=30)
    owners: dict[str, set[int]] = defaultdict(set)
    order: dict[str, list[int]] = defaultdict(list)
    received = 0
    while received < 600:
        for index, consumer in enumerate(consumers):
            try:
                message = consumer.receive(50)
            except pulsar.Timeout:
                continue
            received += 1
            owners[message.partition_key()].add(index)
            order[message.partition_key()].append(int(message.data()[2:]))
            consumer.acknowledge(message)
    assert all(len(holders) == 1 for holders in owners.values())
    assert all(numbers == sorted(numbers) for numbers in order.values())
    assert len({index for holders in owners.values() for index in holders}) == 3


@pytest.mark.feature("F-PRB-07", "F-SUB-18")
def test_keys_that_a_slow_consumer_does_not_hold_flow_past_it(client: pulsar.Client, topic: str) -> None:
    slow = client.subscribe(topic, "s", consumer_type=KEY_SHARED)
    publish(client, topic, 20, keys=20)
    held = [slow.receive(WAIT_MS) for _ in range(20)]
    newcomer = client.subscribe(topic, "s", consumer_type=KEY_SHARED)
    producer = client.create_producer(topic, batching_enabled=False)
    for number in range(200):
        producer.send_async(b"n-%d" % number, None, partition_key=f"other-{number}")
    producer.flush()
    fresh = newcomer.receive(WAIT_MS)
    assert fresh.data().startswith(b"n-"), "keys that nobody holds go to the newcomer at once"
    newcomer.acknowledge(fresh)
    before = [newcomer.receive(WAIT_MS) for _ in range(20)]
    for number in range(20):
        producer.send(b"o-%d" % number, partition_key=f"k{number}")
    for message in held:
        slow.acknowledge(message)
    for message in before:
        newcomer.acknowledge(message)
    moved: set[bytes] = set()
    while len(moved) < 1:
        message = newcomer.receive(WAIT_MS)
        newcomer.acknowledge(message)
        if message.data().startswith(b"o-"):
            moved.add(message.data())
    assert moved, "once the old holder has acknowledged, its moved keys go on"


@pytest.mark.feature("F-SUB-17")
def test_sticky_consumers_get_their_own_ranges(client: pulsar.Client, topic: str) -> None:
    def sticky(start: int, end: int) -> pulsar.Consumer:
        policy = pulsar.ConsumerKeySharedPolicy(
            key_shared_mode=pulsar.KeySharedMode.Sticky, sticky_ranges=[(start, end)]
        )
        return client.subscribe(topic, "s", consumer_type=KEY_SHARED, key_shared_policy=policy)

    low, high = sticky(0, 30_000), sticky(30_001, 65_535)
    sent = publish(client, topic, 100, keys=100)
    got: list[bytes] = []
    for consumer in (low, high):
        while True:
            try:
                message = consumer.receive(500)
            except pulsar.Timeout:
                break
            got.append(message.data())
            consumer.acknowledge(message)
    assert sorted(got) == sorted(sent)


@pytest.mark.feature("F-SUB-17")
def test_sticky_ranges_that_overlap_are_refused(standalone: StandaloneProcess, topic: str) -> None:
    def meta(start: int, end: int) -> pb.KeySharedMeta:
        return pb.KeySharedMeta(keySharedMode=pb.STICKY, hashRanges=[pb.IntRange(start=start, end=end)])

    with RawClient(standalone.port) as raw:
        key_shared = pb.CommandSubscribe.Key_Shared
        raw.subscribe(topic, "s", 1, subType=key_shared, keySharedMeta=meta(0, 99))
        refusal = raw.subscribe(topic, "s", 2, subType=key_shared, keySharedMeta=meta(99, 120))
        assert refusal.error == pb.ConsumerAssignError
        raw.quiet()


@pytest.mark.feature("F-SUB-14")
def test_a_nacked_key_stays_with_its_consumer(client: pulsar.Client, topic: str) -> None:
    consumers = [
        client.subscribe(topic, "s", consumer_type=KEY_SHARED, negative_ack_redelivery_delay_ms=50) for _ in range(2)
    ]
    publish(client, topic, 1, keys=1)
    holders: list[int] = []
    while len(holders) < 5:
        for index, consumer in enumerate(consumers):
            try:
                message = consumer.receive(50)
            except pulsar.Timeout:
                continue
            holders.append(index)
            consumer.negative_acknowledge(message)
    assert len(set(holders)) == 1
