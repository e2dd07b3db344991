# SPDX-License-Identifier: Apache-2.0
"""Hostile and broken publishers over raw sockets: the error that the protocol has, closed where it must be, and no
other client disturbed.
"""

from collections.abc import Callable, Generator
from pathlib import Path
from struct import pack

import pulsar
import pytest

from magnetar.wire import commands, frame
from magnetar.wire.proto import pulsar_api_pb2 as pb
from tests.conformance.raw_client import RawClient, Type, body
from tests.processes import StandaloneProcess

QUIET = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
TOPIC = "persistent://public/default/bad-input"


@pytest.fixture(scope="module")
def standalone(tmp_path_factory: pytest.TempPathFactory) -> Generator[StandaloneProcess, None, None]:
    directory: Path = tmp_path_factory.mktemp("bad-input")
    with StandaloneProcess(directory, environment={"maxMessageSize": "65536"}) as process:
        yield process


@pytest.fixture(scope="module")
def bystander(standalone: StandaloneProcess) -> Generator[Callable[[], None], None, None]:
    """A well-behaved client on its own connection; calling it proves that it is still served."""
    client = pulsar.Client(standalone.service_url, logger=QUIET)
    producer = client.create_producer("bystander")
    consumer = client.subscribe("bystander", "s")

    def is_served() -> None:
        producer.send(b"still here")
        consumer.acknowledge(consumer.receive(timeout_millis=10_000))

    yield is_served
    client.close()


def frame_of(total: int, command_size: int, rest: bytes = b"") -> bytes:
    return pack(">II", total & 0xFFFFFFFF, command_size & 0xFFFFFFFF) + rest


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(frame_of(0, 0), id="an empty frame"),
        pytest.param(frame_of(3, 0), id="a frame shorter than its own size field"),
        pytest.param(frame_of(10, 20, b"x" * 6), id="a command larger than its frame"),
        pytest.param(frame_of(10, -1, b"x" * 6), id="a negative command size"),
        pytest.param(frame_of(-1, 4), id="a negative frame"),
        pytest.param(frame_of(2**31 - 1, 4), id="two gigabytes announced"),
        pytest.param(frame_of(65_536 + 20_000, 4), id="a frame above the announced limit"),
        pytest.param(frame.join(b"\xff" * 20), id="no protobuf"),
        pytest.param(frame.join(b""), id="a command without a type"),
        pytest.param(frame.join(b"\x08\x7f"), id="a type that does not exist"),
        pytest.param(frame.join(b"\x08\x05"), id="a PRODUCER without its field"),
        pytest.param(frame.join(b"\x08\x05\x2a\x00"), id="a PRODUCER without required fields"),
        pytest.param(commands.success(1), id="an answer that only brokers give"),
        pytest.param(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", id="another protocol"),
    ],
)
@pytest.mark.parametrize("is_connected", [False, True], ids=["before CONNECT", "after CONNECT"])
def test_what_is_no_command_closes_the_connection(
    standalone: StandaloneProcess, bystander: Callable[[], None], data: bytes, is_connected: bool
) -> None:
    with RawClient(standalone.port, connect=is_connected) as client:
        client.say_bytes(data)
        assert client.is_closed_by_broker()
    bystander()


def test_commands_before_connect_close_the_connection(
    standalone: StandaloneProcess, bystander: Callable[[], None]
) -> None:
    for kind, inside in (
        (Type.PRODUCER, pb.CommandProducer(topic=TOPIC, producer_id=1, request_id=1)),
        (Type.LOOKUP, pb.CommandLookupTopic(topic=TOPIC, request_id=1)),
        (Type.PING, pb.CommandPing()),
    ):
        with RawClient(standalone.port, connect=False) as client:
            client.say(kind, inside)
            assert client.is_closed_by_broker()
    with RawClient(standalone.port, connect=False) as client:
        client.send()
        assert client.is_closed_by_broker()
    bystander()


def test_connecting_twice_closes_the_connection(standalone: StandaloneProcess) -> None:
    with RawClient(standalone.port) as client:
        client.say(Type.CONNECT, pb.CommandConnect(client_version="raw", protocol_version=21))
        assert client.is_closed_by_broker()


@pytest.mark.feature("F-ML-13")
def test_the_largest_message_is_announced_and_taken_and_one_more_byte_is_refused(
    standalone: StandaloneProcess,
) -> None:
    with RawClient(standalone.port, connect=False) as client:
        assert client.connect().max_message_size == 65_536
        client.open_producer(TOPIC)
        client.send(sequence_id=0, data=body(payload=b"x" * 65_536))
        assert client.expect(Type.SEND_RECEIPT).send_receipt.sequence_id == 0
        client.send(sequence_id=1, data=body(payload=b"x" * 65_537))
        error = client.expect(Type.SEND_ERROR).send_error
        assert (error.sequence_id, error.error) == (1, pb.NotAllowedError)
        client.send(sequence_id=2)
        assert client.expect(Type.SEND_RECEIPT).send_receipt.sequence_id == 2


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("", pb.InvalidTopicName),
        ("kafka://public/default/t", pb.InvalidTopicName),
        ("persistent://public/default/a/b/c", pb.InvalidTopicName),
        ("persistent://public/default/\x00", pb.InvalidTopicName),
        ("persistent://public/default/" + "x" * 5_000, pb.InvalidTopicName),
        ("persistent://public/nowhere/t", pb.TopicNotFound),
        ("persistent://nobody/default/t", pb.TopicNotFound),
        ("persistent://pulsar/system/__transaction_log_0", pb.AuthorizationError),
        ("persistent://public/default/t-s__transaction_pending_ack", pb.AuthorizationError),
    ],
)
def test_producers_of_impossible_topics_are_refused(standalone: StandaloneProcess, name: str, code: int) -> None:
    with RawClient(standalone.port) as client:
        answer = client.open_producer(name)
        assert (answer.type, answer.error.error) == (Type.ERROR, code)
        assert client.open_producer(TOPIC).type == Type.PRODUCER_SUCCESS, "the connection is still good"


def test_the_same_producer_twice_is_the_same_producer(standalone: StandaloneProcess) -> None:
    with RawClient(standalone.port) as client:
        first = client.open_producer(TOPIC)
        again = client.open_producer("persistent://public/default/other", producer_name="someone else")
        assert again.type == Type.PRODUCER_SUCCESS
        assert again.producer_success.producer_name == first.producer_success.producer_name


@pytest.mark.feature("F-PROD-43")
def test_a_name_that_is_taken_is_refused_on_this_and_other_connections(standalone: StandaloneProcess) -> None:
    with RawClient(standalone.port) as client, RawClient(standalone.port) as other:
        assert client.open_producer(TOPIC, 1, producer_name="taken").type == Type.PRODUCER_SUCCESS
        answer = client.open_producer(TOPIC, 2, producer_name="taken")
        assert answer.error.error == pb.ProducerBusy
        request_id = other.request_id()
        other.say(
            Type.PRODUCER,
            pb.CommandProducer(topic=TOPIC, producer_id=1, request_id=request_id, producer_name="taken"),
        )
        # The first client is asked whether it is there; answering is enough.
        client.answer_ping()
        assert other.answer_to(request_id).error.error == pb.ProducerBusy
        client.close_producer(1)
        assert other.open_producer(TOPIC, 1, producer_name="taken").type == Type.PRODUCER_SUCCESS


def test_sends_for_producers_that_are_not_open_close_the_connection(
    standalone: StandaloneProcess, bystander: Callable[[], None]
) -> None:
    with RawClient(standalone.port) as client:
        client.send(producer_id=77)
        assert client.is_closed_by_broker()
    with RawClient(standalone.port) as owner, RawClient(standalone.port) as thief:
        owner.open_producer(TOPIC, 5)
        thief.send(producer_id=5)
        assert thief.is_closed_by_broker(), "ids belong to their connection"
        owner.send(producer_id=5)
        owner.expect(Type.SEND_RECEIPT)
    with RawClient(standalone.port) as client:
        client.open_producer(TOPIC)
        assert client.close_producer().type == Type.SUCCESS
        client.send()
        assert client.is_closed_by_broker()
    bystander()


def test_a_body_belongs_to_send_alone(standalone: StandaloneProcess) -> None:
    with RawClient(standalone.port) as client:
        ping = commands.wrap(Type.PING, pb.CommandPing()).SerializeToString()
        client.say_bytes(frame.join(ping, body()))
        assert client.is_closed_by_broker()


def test_send_without_a_body_closes_the_connection(
    standalone: StandaloneProcess, bystander: Callable[[], None]
) -> None:
    with RawClient(standalone.port) as client:
        client.open_producer(TOPIC)
        send = commands.wrap(Type.SEND, pb.CommandSend(producer_id=1, sequence_id=0))
        client.say_bytes(frame.join(send.SerializeToString()))
        assert client.is_closed_by_broker()
    bystander()


@pytest.mark.feature("F-PROD-25")
def test_a_damaged_message_is_refused_byte_by_byte_and_the_good_one_is_stored_once(
    standalone: StandaloneProcess,
) -> None:
    topic = "persistent://public/default/damaged"
    good = body(payload=b"precious")
    with RawClient(standalone.port) as client:
        client.open_producer(topic)
        for index in range(2, len(good)):
            client.send(sequence_id=index, data=good[:index] + bytes([good[index] ^ 1]) + good[index + 1 :])
            error = client.expect(Type.SEND_ERROR).send_error
            assert (error.sequence_id, error.error) == (index, pb.ChecksumError)
        client.send(sequence_id=7, data=good)
        receipt = client.expect(Type.SEND_RECEIPT).send_receipt
        assert (receipt.sequence_id, receipt.message_id.entryId) == (7, 0), "nothing before it was stored"


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"\x00\x00", id="cut in the size"),
        pytest.param(b"\xff\xff\xff\xff", id="metadata larger than the message"),
        pytest.param(b"\x0e\x01\x00\x00", id="cut in the checksum"),
    ],
)
def test_messages_with_impossible_sizes_are_not_stored(
    standalone: StandaloneProcess, bystander: Callable[[], None], data: bytes
) -> None:
    with RawClient(standalone.port) as client:
        client.open_producer(TOPIC)
        client.send(sequence_id=3, data=data)
        command = client.next()
        assert command is None or command.type == Type.SEND_ERROR, command
    bystander()


@pytest.mark.parametrize("messages", [0, -1, -(2**31)])
def test_impossible_numbers_of_messages_are_refused(standalone: StandaloneProcess, messages: int) -> None:
    with RawClient(standalone.port) as client:
        client.open_producer(TOPIC)
        client.send(sequence_id=3, num_messages=messages)
        assert client.expect(Type.SEND_ERROR).send_error.error == pb.NotAllowedError
        client.send(sequence_id=4)
        assert client.expect(Type.SEND_RECEIPT).send_receipt.sequence_id == 4


@pytest.mark.parametrize("number", [0, -1, 2**31 - 1])
def test_metadata_that_lies_about_its_batch_disturbs_no_consumer(standalone: StandaloneProcess, number: int) -> None:
    topic = f"persistent://public/default/liar-{number}"
    with RawClient(standalone.port) as client:
        client.open_producer(topic)
        client.send(sequence_id=0, data=body(num_messages_in_batch=number))
        client.send(sequence_id=1, data=body(sequence_id=1, payload=b"honest"))
        for _ in range(2):
            client.next()
        subscribe = pb.CommandSubscribe(
            topic=topic,
            subscription="s",
            subType=pb.CommandSubscribe.Exclusive,
            consumer_id=1,
            request_id=1,
            initialPosition=pb.CommandSubscribe.Earliest,
        )
        client.say(Type.SUBSCRIBE, subscribe)
        client.expect(Type.SUCCESS)
        client.say(Type.FLOW, pb.CommandFlow(consumer_id=1, messagePermits=10))
        entries = [client.expect(Type.MESSAGE).message.message_id.entryId]
        client.say(Type.FLOW, pb.CommandFlow(consumer_id=1, messagePermits=2**32 - 1))
        entries.append(client.expect(Type.MESSAGE).message.message_id.entryId)
        assert entries == [0, 1]


def test_what_only_shadow_topics_and_transactions_may_send_is_refused(standalone: StandaloneProcess) -> None:
    with RawClient(standalone.port) as client:
        client.open_producer(TOPIC)
        client.send(sequence_id=1, message_id=pb.MessageIdData(ledgerId=1, entryId=1))
        error = client.expect(Type.SEND_ERROR).send_error
        assert (error.error, "shadow" in error.message) == (pb.NotAllowedError, True)
        client.send(sequence_id=2)
        client.expect(Type.SEND_RECEIPT)


def test_closing_what_is_not_open_succeeds(standalone: StandaloneProcess) -> None:
    with RawClient(standalone.port) as client:
        assert client.close_producer(99).type == Type.SUCCESS
        client.open_producer(TOPIC)
        for _ in range(2):
            assert client.close_producer().type == Type.SUCCESS


def test_a_producer_that_is_closed_while_it_opens_is_not_there(standalone: StandaloneProcess) -> None:
    topic = "persistent://public/default/hasty"
    with RawClient(standalone.port) as client:
        for number in range(20):
            client.say(
                Type.PRODUCER,
                pb.CommandProducer(topic=topic, producer_id=number, request_id=number, producer_name=f"p{number}"),
            )
            client.say(Type.CLOSE_PRODUCER, pb.CommandCloseProducer(producer_id=number, request_id=1_000 + number))
        answered: list[int] = []
        while len(answered) < 20:
            command = client.next()
            assert command is not None
            if command.type == Type.SUCCESS:
                answered.append(command.success.request_id)
            else:
                assert command.type == Type.PRODUCER_SUCCESS, command
        with RawClient(standalone.port) as other:
            for number in range(20):
                answer = other.open_producer(topic, number, producer_name=f"p{number}")
                assert answer.type == Type.PRODUCER_SUCCESS, answer


def test_frames_that_come_byte_by_byte_are_frames(standalone: StandaloneProcess) -> None:
    with RawClient(standalone.port) as client:
        client.open_producer(TOPIC)
        command = commands.wrap(Type.SEND, pb.CommandSend(producer_id=1, sequence_id=9)).SerializeToString()
        for byte in frame.join(command, body()):
            client.say_bytes(bytes([byte]))
        assert client.expect(Type.SEND_RECEIPT).send_receipt.sequence_id == 9


def test_lists_with_patterns_made_to_hurt(standalone: StandaloneProcess, bystander: Callable[[], None]) -> None:
    with RawClient(standalone.port) as client:
        for pattern in ("(", "(a*)*b", "(?=x)", "kafka://.*"):
            request_id = client.request_id()
            client.say(
                Type.GET_TOPICS_OF_NAMESPACE,
                pb.CommandGetTopicsOfNamespace(
                    request_id=request_id, namespace="public/default", topics_pattern=pattern
                ),
            )
            answer = client.answer_to(request_id)
            assert answer.type in (Type.ERROR, Type.GET_TOPICS_OF_NAMESPACE_RESPONSE)
        for namespace in ("", "public", "public/default/x/y", "public/\x00"):
            request_id = client.request_id()
            client.say(
                Type.GET_TOPICS_OF_NAMESPACE,
                pb.CommandGetTopicsOfNamespace(request_id=request_id, namespace=namespace),
            )
            assert client.answer_to(request_id).type == Type.ERROR
    bystander()
