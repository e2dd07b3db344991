# SPDX-License-Identifier: Apache-2.0
"""Clients of every protocol version: each does what its version has, and is sent no command that it does not know.

From version 12 on, which is what Apache Pulsar 2.0 and newer speak, that is everything. Of older ones, publishing, and
what the broker says unasked about consumers and topics; not what it does not do for them: messages come with their
checksum (unknown before 6), CLOSE_PRODUCER and CLOSE_CONSUMER (before 5) and PING (before 1) are sent to everybody.
"""

from typing import Any, Final

import httpx
import pytest

from magnetar.wire import commands, frame, message
from magnetar.wire.commands import Since
from magnetar.wire.proto import pulsar_api_pb2 as pb
from tests.conformance.raw import RawClient, Type
from tests.conformance.raw_client import body
from tests.processes import StandaloneProcess

# From which version on a client knows what a broker says; what is not here, every client does.
KNOWN_SINCE: Final = {
    "PING": Since.KEEP_ALIVE,
    "PONG": Since.KEEP_ALIVE,
    "CLOSE_PRODUCER": Since.CLOSE_FROM_BROKER,
    "CLOSE_CONSUMER": Since.CLOSE_FROM_BROKER,
    "PARTITIONED_METADATA_RESPONSE": Since.BINARY_LOOKUP,
    "LOOKUP_RESPONSE": Since.BINARY_LOOKUP,
    "CONSUMER_STATS_RESPONSE": Since.CONSUMER_STATS,
    "REACHED_END_OF_TOPIC": Since.END_OF_TOPIC,
    "GET_LAST_MESSAGE_ID_RESPONSE": Since.LAST_MESSAGE_ID,
    "ACTIVE_CONSUMER_CHANGE": Since.ACTIVE_CONSUMER_CHANGE,
    "GET_TOPICS_OF_NAMESPACE_RESPONSE": Since.TOPICS_OF_NAMESPACE,
    "GET_SCHEMA_RESPONSE": Since.TOPICS_OF_NAMESPACE,
    "AUTH_CHALLENGE": Since.AUTH_CHALLENGE,
    "GET_OR_CREATE_SCHEMA_RESPONSE": Since.GET_OR_CREATE_SCHEMA,
    "ACK_RESPONSE": Since.ACK_RESPONSE,
    "TC_CLIENT_CONNECT_RESPONSE": Since.TRANSACTION_COORDINATOR_CONNECT,
    "TOPIC_MIGRATED": Since.TOPIC_MIGRATED,
}
KNOWN_TO_ALL: Final = {"CONNECTED", "SEND_RECEIPT", "SEND_ERROR", "MESSAGE", "SUCCESS", "ERROR", "PRODUCER_SUCCESS"}
FIRST: Final = 12
Subscribe = pb.CommandSubscribe


class OldClient(RawClient):
    """Fails as soon as it is sent what its version does not have."""

    def __init__(self, port: int, version: int) -> None:
        self.version = version
        super().__init__(port, protocol_version=version)

    def receive(self) -> tuple[pb.BaseCommand, bytes]:
        command, rest = super().receive()
        name = Type.Type.Name(command.type)
        assert name in KNOWN_TO_ALL or KNOWN_SINCE[name] <= self.version, f"{name} is newer than {self.version}"
        if command.HasField("connected"):
            assert command.connected.protocol_version == self.version
        return command, rest

    def ask(self, kind: "pb.BaseCommand.Type.ValueType", question: Any, answer: str) -> Any:
        question.request_id = self.next_request()
        self.send(kind, question)
        found = self.expect(answer)
        assert found.request_id == question.request_id
        return found

    def publish(self, payload: bytes, sequence_id: int, **fields: Any) -> None:
        data = body(sequence_id=sequence_id, payload=payload, **fields)
        if self.version < Since.CHECKSUMS:
            data = data[message.CHECKSUM_BYTES :]
        send = pb.CommandSend(producer_id=1, sequence_id=sequence_id)
        self.send_bytes(frame.join(commands.wrap(Type.SEND, send).SerializeToString(), data))
        assert self.expect("send_receipt").sequence_id == sequence_id

    def take(self, sent: bytes) -> pb.MessageIdData:
        came, data = self.expect_message()
        assert bytes(message.split(data)[1]) == sent
        found: pb.MessageIdData = came.message_id
        return found


def admin(standalone: StandaloneProcess, verb: str, topic: str, what: str) -> None:
    path = f"{standalone.web_url}/admin/v2/{topic.replace('://', '/')}/{what}"
    httpx.request(verb, path, timeout=30).raise_for_status()


def look_up(client: OldClient, topic: str) -> None:
    found = client.ask(
        Type.PARTITIONED_METADATA, pb.CommandPartitionedTopicMetadata(topic=topic), "partitionMetadataResponse"
    )
    assert found.partitions == 0
    found = client.ask(Type.LOOKUP, pb.CommandLookupTopic(topic=topic), "lookupTopicResponse")
    assert found.response == pb.CommandLookupTopicResponse.Connect


def publish(client: OldClient, topic: str, count: int) -> list[bytes]:
    client.ask(Type.PRODUCER, pb.CommandProducer(topic=topic, producer_id=1), "producer_success")
    sent = [b"m-%d" % number for number in range(count)]
    for number, payload in enumerate(sent):
        client.publish(payload, number)
    return sent


def acknowledge(client: OldClient, message_id: pb.MessageIdData) -> None:
    ack = pb.CommandAck(consumer_id=1, ack_type=pb.CommandAck.Individual, message_id=[message_id])
    if client.version >= Since.ACK_RESPONSE:
        client.ask(Type.ACK, ack, "ackResponse")
    else:
        client.send(Type.ACK, ack)


@pytest.mark.parametrize("version", range(FIRST, commands.PROTOCOL_VERSION + 1))
def test_a_client_of_an_older_version_does_what_it_can_and_hears_nothing_newer(
    standalone: StandaloneProcess, topic: str, version: int
) -> None:
    """F203: publishing, types of subscriptions, redelivery, questions, schemas, coordinators, unloading, the end."""
    with OldClient(standalone.port, version) as client:
        look_up(client, topic)
        sent = publish(client, topic, 3)
        types = [Subscribe.Exclusive, Subscribe.Shared, *[Subscribe.Key_Shared] * (version >= Since.KEY_SHARED)]
        for type_ in types:
            assert client.subscribe(topic, f"s-{type_}", subType=type_, initialPosition=Subscribe.Earliest).request_id
            client.flow(10)
            ids = [client.take(payload) for payload in sent]
            acknowledge(client, ids[0])
            redeliver = pb.CommandRedeliverUnacknowledgedMessages(consumer_id=1)
            client.send(Type.REDELIVER_UNACKNOWLEDGED_MESSAGES, redeliver)
            assert [client.take(payload) for payload in sent[1:]] == ids[1:]
            client.ask(Type.GET_LAST_MESSAGE_ID, pb.CommandGetLastMessageId(consumer_id=1), "getLastMessageIdResponse")
            client.ask(Type.CONSUMER_STATS, pb.CommandConsumerStats(consumer_id=1), "consumerStatsResponse")
            client.ask(Type.UNSUBSCRIBE, pb.CommandUnsubscribe(consumer_id=1), "success")
        names = client.ask(
            Type.GET_TOPICS_OF_NAMESPACE,
            pb.CommandGetTopicsOfNamespace(namespace="public/default"),
            "getTopicsOfNamespaceResponse",
        )
        assert topic in names.topics
        client.ask(Type.GET_SCHEMA, pb.CommandGetSchema(topic=topic), "getSchemaResponse")
        if version >= Since.GET_OR_CREATE_SCHEMA:
            schema = pb.Schema(name="s", schema_data=b"", type=pb.Schema.String)
            question = pb.CommandGetOrCreateSchema(topic=topic, schema=schema)
            client.ask(Type.GET_OR_CREATE_SCHEMA, question, "getOrCreateSchemaResponse")
        if version >= Since.TRANSACTION_COORDINATOR_CONNECT:
            client.ask(
                Type.TC_CLIENT_CONNECT_REQUEST, pb.CommandTcClientConnectRequest(tc_id=0), "tcClientConnectResponse"
            )
        unload_and_end(standalone, client, topic)


def unload_and_end(standalone: StandaloneProcess, client: OldClient, topic: str) -> None:
    """The broker gives the topic up: producer and consumer are closed. Then the topic ends."""
    client.subscribe(topic, "e", subType=Subscribe.Failover)
    assert client.expect("active_consumer_change").is_active
    admin(standalone, "PUT", topic, "unload")
    assert {client.receive()[0].type for _ in range(2)} == {Type.CLOSE_PRODUCER, Type.CLOSE_CONSUMER}
    assert client.subscribe(topic, "e").request_id
    admin(standalone, "POST", topic, "terminate")
    assert client.expect("reachedEndOfTopic").consumer_id == 1


@pytest.mark.parametrize("version", range(FIRST))
def test_what_the_broker_says_unasked_is_left_unsaid_to_who_would_not_understand_it(
    standalone: StandaloneProcess, topic: str, version: int
) -> None:
    """F203: who is active, and that a topic has ended; a client that knows both is told after this one would be."""
    with (
        OldClient(standalone.port, version) as client,
        OldClient(standalone.port, commands.PROTOCOL_VERSION) as witness,
    ):
        publish(client, topic, 3)
        client.ask(Type.CLOSE_PRODUCER, pb.CommandCloseProducer(producer_id=1), "success")
        assert client.subscribe(topic, "f", subType=Subscribe.Failover, consumer_name="a").request_id
        assert witness.subscribe(topic, "g", subType=Subscribe.Failover, consumer_name="b").request_id
        assert witness.expect("active_consumer_change").is_active
        admin(standalone, "POST", topic, "terminate")
        witness.expect("reachedEndOfTopic")
        if version >= Since.END_OF_TOPIC:
            client.expect("reachedEndOfTopic")
        client.ask(Type.UNSUBSCRIBE, pb.CommandUnsubscribe(consumer_id=1), "success")
