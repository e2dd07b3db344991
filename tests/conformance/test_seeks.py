# SPDX-License-Identifier: Apache-2.0
"""Where reading starts, and where it goes on after a seek: subscriptions and readers of official clients."""

import time

import pulsar
import pytest

from magnetar.wire.proto import pulsar_api_pb2 as pb
from tests.conformance.exchanges import EXCLUSIVE, SHARED, WAIT_MS, nothing_comes, publish, take
from tests.conformance.raw import RawClient, Type
from tests.processes import StandaloneProcess


@pytest.mark.feature("F-CONS-27")
def test_a_new_subscription_starts_at_the_end_or_at_the_beginning(client: pulsar.Client, topic: str) -> None:
    sent = publish(client, topic, 3)
    latest = client.subscribe(topic, "latest")
    earliest = client.subscribe(topic, "earliest", initial_position=pulsar.InitialPosition.Earliest)
    assert take(earliest, 3) == sent
    nothing_comes(latest, 200)


@pytest.mark.feature("F-CONS-28", "F-CUR-08", "F-CUR-14")
@pytest.mark.parametrize("inclusive", [False, True])
@pytest.mark.parametrize("batched", [False, True])
@pytest.mark.parametrize("consumer_type", [EXCLUSIVE, SHARED])
def test_seek_by_id(
    client: pulsar.Client, topic: str, inclusive: bool, batched: bool, consumer_type: pulsar.ConsumerType
) -> None:
    consumer = client.subscribe(topic, "s", consumer_type=consumer_type, start_message_id_inclusive=inclusive)
    sent = publish(client, topic, 50, batched=batched)
    messages = [consumer.receive(WAIT_MS) for _ in sent]
    for message in messages[::2]:
        consumer.acknowledge(message)
    consumer.seek(pulsar.MessageId.earliest)
    assert take(consumer, 50) == sent
    consumer.seek(messages[33].message_id())
    assert take(consumer, 1) == [sent[33 if inclusive else 34]]
    consumer.seek(pulsar.MessageId.latest)
    if not inclusive:
        nothing_comes(consumer, 200)


@pytest.mark.feature("F-CONS-28", "F-CUR-09", "F-RDR-03")
def test_seek_by_time_starts_with_the_first_message_of_that_time(client: pulsar.Client, topic: str) -> None:
    consumer = client.subscribe(topic, "s", consumer_type=SHARED)
    producer = client.create_producer(topic, batching_enabled=False)
    times: list[int] = []
    while len(times) < 20:
        producer.send(b"m-%d" % len(times))
        times.append(consumer.receive(WAIT_MS).publish_timestamp())
        while time.time() * 1000 < times[-1] + 2:
            time.sleep(0.001)
    for wanted in (0, 7, 19):
        consumer.seek(times[wanted])
        assert consumer.receive(WAIT_MS).data() == b"m-%d" % wanted
    consumer.seek(times[7] + 1)
    assert consumer.receive(WAIT_MS).data() == b"m-8"
    consumer.seek(times[19] + 1)
    nothing_comes(consumer, 200)


@pytest.mark.feature("F-RDR-01", "F-RDR-02", "F-CUR-16")
@pytest.mark.parametrize("batched", [False, True])
def test_readers_start_where_they_are_told(client: pulsar.Client, topic: str, batched: bool) -> None:
    sent = publish(client, topic, 20, batched=batched)
    first = client.create_reader(topic, pulsar.MessageId.earliest)
    messages = []
    while first.has_message_available():
        messages.append(first.read_next(WAIT_MS))
    assert [message.data() for message in messages] == sent
    after = client.create_reader(topic, messages[9].message_id())
    assert after.read_next(WAIT_MS).data() == sent[10]
    at = client.create_reader(topic, messages[9].message_id(), start_message_id_inclusive=True)
    assert at.read_next(WAIT_MS).data() == sent[9]
    latest = client.create_reader(topic, pulsar.MessageId.latest)
    assert not latest.has_message_available()
    at.seek(messages[3].message_id())
    assert at.read_next(WAIT_MS).data() == sent[3]
    after.seek(pulsar.MessageId.earliest)
    assert after.read_next(WAIT_MS).data() == sent[0]
    resumed = client.create_reader(topic, pulsar.MessageId.deserialize(messages[4].message_id().serialize()))
    assert resumed.read_next(WAIT_MS).data() == sent[5]


def test_a_reader_may_start_some_time_ago(standalone: StandaloneProcess, client: pulsar.Client, topic: str) -> None:
    publish(client, topic, 3)
    with RawClient(standalone.port) as raw:
        start = pb.MessageIdData(ledgerId=2**63 - 1, entryId=2**63 - 1)
        raw.subscribe(topic, "r", durable=False, start_message_id=start, start_message_rollback_duration_sec=3600)
        raw.flow(9)
        assert [raw.expect_message()[0].message_id.entryId for _ in range(3)] == [0, 1, 2]


def test_seek_without_a_place_ends_the_connection_and_nobody_elses(
    standalone: StandaloneProcess, client: pulsar.Client, topic: str
) -> None:
    with RawClient(standalone.port) as raw, RawClient(standalone.port) as other:
        raw.subscribe(topic, "s")
        raw.send(Type.SEEK, pb.CommandSeek(consumer_id=1, request_id=3))
        with pytest.raises(ConnectionError):
            raw.receive()
        other.subscribe(topic, "s")
        other.quiet()
