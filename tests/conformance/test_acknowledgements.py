# SPDX-License-Identifier: Apache-2.0
"""Acknowledgements of official clients: one by one, cumulative, of parts of batches; refusals and time-outs."""

import pulsar
import pytest

from magnetar.wire.proto import pulsar_api_pb2 as pb
from tests.conformance.exchanges import EXCLUSIVE, SHARED, WAIT_MS, nothing_comes, publish, take
from tests.conformance.raw import RawClient, Type
from tests.processes import StandaloneProcess


@pytest.mark.feature("F-CONS-11", "F-CUR-02", "F-CUR-03")
def test_what_is_acknowledged_alone_does_not_come_back(client: pulsar.Client, topic: str) -> None:
    consumer = client.subscribe(topic, "s")
    sent = publish(client, topic, 3)
    messages = [consumer.receive(WAIT_MS) for _ in sent]
    consumer.acknowledge(messages[1])
    consumer.close()
    again = client.subscribe(topic, "s")
    assert take(again, 2) == [sent[0], sent[2]]
    again.close()
    nothing_comes(client.subscribe(topic, "s"))


@pytest.mark.feature("F-CONS-12")
def test_a_cumulative_ack_covers_all_before_it(client: pulsar.Client, topic: str) -> None:
    consumer = client.subscribe(topic, "s")
    sent = publish(client, topic, 10)
    messages = [consumer.receive(WAIT_MS) for _ in sent]
    consumer.acknowledge_cumulative(messages[6])
    consumer.close()
    assert take(client.subscribe(topic, "s"), 3) == sent[7:]


def test_nacks_on_an_exclusive_subscription_come_back_in_order(client: pulsar.Client, topic: str) -> None:
    consumer = client.subscribe(topic, "s", negative_ack_redelivery_delay_ms=200)
    sent = publish(client, topic, 10)
    for _ in sent:
        consumer.negative_acknowledge(consumer.receive(WAIT_MS))
    assert take(consumer, 10) == sent
    nothing_comes(consumer)


@pytest.mark.feature("F-CONS-16", "F-CONS-19")
def test_each_nack_raises_the_redelivery_count(client: pulsar.Client, topic: str) -> None:
    consumer = client.subscribe(topic, "s", consumer_type=SHARED, negative_ack_redelivery_delay_ms=100)
    publish(client, topic, 1)
    counts = []
    for _ in range(4):
        message = consumer.receive(WAIT_MS)
        counts.append(message.redelivery_count())
        consumer.negative_acknowledge(message)
    assert counts == [0, 1, 2, 3]
    consumer.acknowledge(consumer.receive(WAIT_MS))
    nothing_comes(consumer)


@pytest.mark.feature("F-CONS-17")
def test_messages_that_time_out_come_again(client: pulsar.Client, topic: str) -> None:
    consumer = client.subscribe(topic, "s", consumer_type=SHARED, unacked_messages_timeout_ms=10_000)
    publish(client, topic, 1)
    assert consumer.receive(WAIT_MS).redelivery_count() == 0
    again = consumer.receive(20_000)
    assert again.redelivery_count() >= 1
    consumer.acknowledge(again)


@pytest.mark.feature("F-CONS-24", "F-CONS-25")
def test_a_message_that_fails_too_often_goes_to_the_dead_letter_topic(client: pulsar.Client, topic: str) -> None:
    letters = client.subscribe(f"{topic}-s-DLQ", "letters")
    policy = pulsar.ConsumerDeadLetterPolicy(2)
    consumer = client.subscribe(
        topic, "s", consumer_type=SHARED, negative_ack_redelivery_delay_ms=100, dead_letter_policy=policy
    )
    publish(client, topic, 1)
    for _ in range(3):
        consumer.negative_acknowledge(consumer.receive(WAIT_MS))
    assert letters.receive(WAIT_MS).data() == b"m-0"
    nothing_comes(consumer)


@pytest.mark.feature("F-CONS-15", "F-CUR-06")
@pytest.mark.parametrize("consumer_type", [EXCLUSIVE, SHARED])
def test_of_a_batch_only_the_unacknowledged_indexes_come_back(
    client: pulsar.Client, topic: str, consumer_type: pulsar.ConsumerType
) -> None:
    def subscribe() -> pulsar.Consumer:
        return client.subscribe(topic, "s", consumer_type=consumer_type, batch_index_ack_enabled=True)

    consumer = subscribe()
    sent = publish(client, topic, 5, batched=True)
    for number, message in enumerate([consumer.receive(WAIT_MS) for _ in sent]):
        if number in (1, 3):
            consumer.acknowledge(message)
    consumer.close()
    assert take(subscribe(), 3) == [sent[0], sent[2], sent[4]]


@pytest.mark.feature("F-CONS-14")
def test_without_index_acks_a_batch_comes_back_whole(client: pulsar.Client, topic: str) -> None:
    consumer = client.subscribe(topic, "s", consumer_type=SHARED)
    sent = publish(client, topic, 5, batched=True)
    take(consumer, 4)
    consumer.close()
    consumer = client.subscribe(topic, "s", consumer_type=SHARED)
    assert take(consumer, 5) == sent
    consumer.close()
    nothing_comes(client.subscribe(topic, "s", consumer_type=SHARED))


@pytest.mark.feature("B-11")
def test_a_redelivery_of_everything_starts_a_new_epoch(
    standalone: StandaloneProcess, client: pulsar.Client, topic: str
) -> None:
    with RawClient(standalone.port) as raw:
        raw.subscribe(topic, "s", consumer_epoch=0)
        raw.flow(4)
        publish(client, topic, 2)
        assert [raw.expect_message()[0].consumer_epoch for _ in range(2)] == [0, 0]
        again = pb.CommandRedeliverUnacknowledgedMessages(consumer_id=1, consumer_epoch=1)
        raw.send(Type.REDELIVER_UNACKNOWLEDGED_MESSAGES, again)
        came = [raw.expect_message()[0] for _ in range(2)]
        assert [(message.message_id.entryId, message.consumer_epoch) for message in came] == [(0, 1), (1, 1)]


@pytest.mark.feature("B-11")
def test_an_ack_with_a_request_id_is_answered(standalone: StandaloneProcess, client: pulsar.Client, topic: str) -> None:
    with RawClient(standalone.port) as raw:
        raw.subscribe(topic, "s")
        raw.flow(1)
        publish(client, topic, 1)
        message_id = raw.expect_message()[0].message_id
        ack = pb.CommandAck(consumer_id=1, ack_type=pb.CommandAck.Individual, message_id=[message_id], request_id=5)
        raw.send(Type.ACK, ack)
        assert raw.expect("ackResponse").request_id == 5
        ack.message_id[0].entryId = 99
        raw.send(Type.ACK, ack)
        assert raw.expect("ackResponse").error == pb.NotAllowedError
        ack.consumer_id = 77
        raw.send(Type.ACK, ack)
        assert raw.expect("ackResponse").error == pb.ConsumerNotFound


@pytest.mark.feature("F-SUB-11")
def test_a_cumulative_ack_on_a_shared_subscription_is_refused(
    standalone: StandaloneProcess, client: pulsar.Client, topic: str
) -> None:
    with RawClient(standalone.port) as raw:
        raw.subscribe(topic, "s", subType=pb.CommandSubscribe.Shared)
        raw.flow(1)
        publish(client, topic, 1)
        message_id = raw.expect_message()[0].message_id
        ack = pb.CommandAck(consumer_id=1, ack_type=pb.CommandAck.Cumulative, message_id=[message_id], request_id=5)
        raw.send(Type.ACK, ack)
        assert raw.expect("ackResponse").error == pb.NotAllowedError
