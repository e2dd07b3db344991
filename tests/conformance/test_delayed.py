# SPDX-License-Identifier: Apache-2.0
"""Delayed messages as the official client sends and gets them: in time, in order of time, and after kill -9."""

import time
from datetime import timedelta
from pathlib import Path

import pulsar
import pytest

from tests.conformance.exchanges import QUIET
from tests.processes import StandaloneProcess

SHARED, KEY_SHARED = pulsar.ConsumerType.Shared, pulsar.ConsumerType.KeyShared
TICK_S = 1.0


@pytest.mark.feature("F-DLY-01", "F-DLY-03", "F-DLY-05")
@pytest.mark.parametrize("consumer_type", [SHARED, KEY_SHARED])
def test_messages_arrive_in_the_order_of_their_times_and_never_early(
    client: pulsar.Client, topic: str, consumer_type: pulsar.ConsumerType
) -> None:
    consumer = client.subscribe(topic, "s", consumer_type=consumer_type)
    producer = client.create_producer(topic)
    now_s = time.time()
    producer.send(b"3", deliver_after=timedelta(seconds=2.0), partition_key="a")
    producer.send(b"2", deliver_at=int((now_s + 1.0) * 1000), partition_key="b")
    producer.send(b"1", partition_key="c")
    arrivals = []
    for _ in range(3):
        message = consumer.receive(10_000)
        arrivals.append((message.data(), time.time() - now_s))
        consumer.acknowledge(message)
    assert [data for data, _ in arrivals] == [b"1", b"2", b"3"]
    for (_, arrived_s), due_s in zip(arrivals, (0.0, 1.0, 2.0), strict=True):
        assert arrived_s > due_s - 0.005, "not before its time"


@pytest.mark.feature("F-DLY-04", "D-34")
@pytest.mark.parametrize("ordered", [pulsar.ConsumerType.Exclusive, pulsar.ConsumerType.Failover])
def test_an_ordered_subscription_gets_delayed_messages_at_once(
    client: pulsar.Client, topic: str, ordered: pulsar.ConsumerType
) -> None:
    consumer = client.subscribe(topic, "s", consumer_type=ordered)
    producer = client.create_producer(topic)
    producer.send(b"later", deliver_after=timedelta(hours=1))
    assert consumer.receive(10_000).data() == b"later"


def test_a_message_that_is_due_already_comes_at_once(client: pulsar.Client, topic: str) -> None:
    consumer = client.subscribe(topic, "s", consumer_type=SHARED)
    client.create_producer(topic).send(b"past", deliver_at=1)
    assert consumer.receive(10_000).data() == b"past"


def test_two_subscriptions_delay_each_for_itself(client: pulsar.Client, topic: str) -> None:
    first = client.subscribe(topic, "one", consumer_type=SHARED)
    second = client.subscribe(topic, "two", consumer_type=SHARED)
    client.create_producer(topic).send(b"m", deliver_after=timedelta(seconds=0.5))
    assert first.receive(10_000).data() == b"m"
    assert second.receive(10_000).data() == b"m"


@pytest.mark.feature("F-DLY-06")
def test_delayed_messages_survive_kill_9(tmp_path: Path, topic: str) -> None:
    with StandaloneProcess(tmp_path) as process:
        client = pulsar.Client(process.service_url, logger=QUIET)
        consumer = client.subscribe(topic, "s", consumer_type=SHARED)
        producer = client.create_producer(topic, batching_enabled=False)
        due_ms = int(time.time() * 1000) + 4_000
        for number in range(200):
            producer.send_async(b"m-%d" % number, None, deliver_at=due_ms + (number % 7) * 10)
        producer.flush()
        with pytest.raises(pulsar.Timeout):
            consumer.receive(100)
        process.kill()
        process.start()
        got: set[bytes] = set()
        while len(got) < 200:
            message = consumer.receive(20_000)
            assert time.time() * 1000 > due_ms - 5
            got.add(message.data())
            consumer.acknowledge(message)
        client.close()


@pytest.mark.feature("F-DLY-07", "B-16")
def test_stored_buckets_are_found_by_the_next_process(tmp_path: Path, topic: str) -> None:
    few = {
        "PULSAR_PREFIX_delayedDeliveryMinIndexCountPerBucket": "50",
        "PULSAR_PREFIX_delayedDeliveryMaxIndexesPerBucketSnapshotSegment": "20",
    }
    with StandaloneProcess(tmp_path, environment=few) as process:
        client = pulsar.Client(process.service_url, logger=QUIET)

        def publish_and_restart(producer: pulsar.Producer, rounds: int, due_ms: int) -> None:
            for round_number in range(rounds):
                # Each start writes a new ledger, so the entries before it are those of whole ledgers.
                for number in range(100):
                    text = b"m-%d-%d" % (round_number, number)
                    producer.send_async(text, None, deliver_at=due_ms + (number * 37 % 100) * 10)
                producer.flush()
                process.kill() if round_number else process.stop()
                process.start()
            producer.send(b"last", deliver_at=due_ms)

        began = time.time()
        publish_and_restart(client.create_producer(topic + "-rehearsal", batching_enabled=False), 1, 1)
        # Nothing may be due before the last start; how long that takes is the machine's affair.
        due_ms = int((time.time() + 4 * (time.time() - began) + 1) * 1000)
        consumer = client.subscribe(topic, "s", consumer_type=SHARED)
        publish_and_restart(client.create_producer(topic, batching_enabled=False), 3, due_ms)
        got: dict[bytes, int] = {}
        while len(got) < 301:
            message = consumer.receive(max(0, due_ms - int(time.time() * 1000)) + 30_000)
            assert time.time() * 1000 > due_ms - 5
            got[message.data()] = got.get(message.data(), 0) + 1
            consumer.acknowledge(message)
        assert set(got.values()) == {1}, "nothing came twice"
        stored = [path for path in process.data_directory.rglob("*") if path.is_file()]
        assert any(b"#pulsar.internal.delayed.bucket_" in path.read_bytes() for path in stored)
        client.close()
