# SPDX-License-Identifier: Apache-2.0
"""Every command that a client can say, said wrongly: fields missing, too large, contradictory or unknown, for producers
and consumers that are not there, out of order, twice. Generated from the protocol's own description, so that a new
command is asked, too. The broker answers with an error or closes; it never breaks, and nobody else is disturbed.
"""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pulsar
import pytest
from google.protobuf.descriptor import FieldDescriptor as Field
from google.protobuf.message import Message

from magnetar.wire import commands, frame
from magnetar.wire.commands import Sender
from magnetar.wire.proto import pulsar_api_pb2 as pb
from tests.conformance.raw_client import RawClient, Type
from tests.processes import StandaloneProcess

QUIET = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
TOPIC = "persistent://public/default/bad-commands"
# A field of a number that no command has: brokers must pass it over.
UNKNOWN = b"\xfa\xff\x7f\x03new"


@pytest.fixture(scope="module")
def standalone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneProcess]:
    directory: Path = tmp_path_factory.mktemp("bad-commands")
    with StandaloneProcess(directory, environment={"maxMessageSize": "65536"}) as process:
        yield process


@pytest.fixture(scope="module")
def bystander(standalone: StandaloneProcess) -> Iterator[Callable[[], None]]:
    client = pulsar.Client(standalone.service_url, logger=QUIET)
    producer = client.create_producer("bystander")
    consumer = client.subscribe("bystander", "s")

    def is_served() -> None:
        producer.send(b"still here")
        consumer.acknowledge(consumer.receive(timeout_millis=20_000))
        assert " crashed" not in standalone.log_tail(), standalone.log_tail()

    yield is_served
    client.close()


def said_by_clients() -> list[str]:
    """The names of all commands but those that only brokers say, and CONNECT, which has tests of its own."""
    names = []
    for name, number in sorted(pb.BaseCommand.Type.items()):
        wrapped = pb.BaseCommand(type=number)
        try:
            commands.parse(_filled(wrapped, name).SerializeToString(), Sender.CLIENT)
        except Exception:
            continue
        if name not in ("CONNECT", "SEND"):
            names.append(name)
    return names


def _filled(wrapped: pb.BaseCommand, name: str, **numbers: int) -> pb.BaseCommand:
    """The command with its required fields only, about things that are not there."""
    field = _field_of(name)
    if field is not None:
        inside = getattr(wrapped, field.name)
        inside.SetInParent()
        _fill(inside, numbers.get("number", 4711), "persistent://public/default/nowhere")
    return wrapped


def _field_of(name: str) -> Any:
    row = commands.COMMANDS.get(pb.BaseCommand.Type.Value(name))
    return None if row is None else pb.BaseCommand.DESCRIPTOR.fields_by_name[row.field]


def _fill(message: Message, number: int, text: str) -> None:
    for field in message.DESCRIPTOR.fields:
        if not field.is_required:
            continue
        if field.cpp_type == Field.CPPTYPE_MESSAGE:
            getattr(message, field.name).SetInParent()
            _fill(getattr(message, field.name), number, text)
        elif field.cpp_type == Field.CPPTYPE_STRING:
            setattr(message, field.name, text if field.type == Field.TYPE_STRING else text.encode())
        elif field.cpp_type == Field.CPPTYPE_ENUM:
            assert field.enum_type is not None
            setattr(message, field.name, field.enum_type.values[0].number)
        elif field.cpp_type == Field.CPPTYPE_BOOL:
            setattr(message, field.name, True)
        else:
            setattr(message, field.name, number & 0x7FFFFFFF if "32" in _kind(field) else number)


def _kind(field: Any) -> str:
    return "32" if field.cpp_type in (Field.CPPTYPE_INT32, Field.CPPTYPE_UINT32) else "64"


def _wrong_forms(name: str) -> Iterator[tuple[str, bytes]]:
    number = pb.BaseCommand.Type.Value(name)
    whole = _filled(pb.BaseCommand(type=number), name)
    yield "about what is not there", whole.SerializeToString()
    yield "with an unknown field", whole.SerializeToString() + UNKNOWN
    yield (
        "with another command inside",
        whole.SerializeToString() + pb.BaseCommand(type=number, ping=pb.CommandPing()).SerializePartialToString(),
    )
    field = _field_of(name)
    yield "without its field", pb.BaseCommand(type=number).SerializeToString()
    if field is None:
        return
    yield "twice in one", whole.SerializeToString() * 2
    for most in (0, 2**63 - 1):
        yield f"with numbers of {most}", _filled(pb.BaseCommand(type=number), name, number=most).SerializeToString()
    inside = getattr(whole, field.name)
    for part in inside.DESCRIPTOR.fields:
        if part.is_required:
            missing = pb.BaseCommand()
            missing.CopyFrom(whole)
            getattr(missing, field.name).ClearField(part.name)
            yield f"without {part.name}", missing.SerializePartialToString()
        elif part.cpp_type in (Field.CPPTYPE_INT32, Field.CPPTYPE_INT64) and not part.is_repeated:
            negative = pb.BaseCommand()
            negative.CopyFrom(whole)
            setattr(getattr(negative, field.name), part.name, -1)
            yield f"with {part.name} below zero", negative.SerializeToString()
        elif part.type == Field.TYPE_STRING and not part.is_repeated:
            for text in ("", "x" * 60_000, "persistent://a/b/\x00", "é\U0001f600/..", "-partition-99999999999"):
                odd = pb.BaseCommand()
                odd.CopyFrom(whole)
                setattr(getattr(odd, field.name), part.name, text)
                yield f"with {part.name} of {text[:12]!r}", odd.SerializeToString()


def test_the_table_has_the_commands_of_the_protocol() -> None:
    names = said_by_clients()
    for expected in ("PRODUCER", "SUBSCRIBE", "ACK", "FLOW", "SEEK", "UNSUBSCRIBE", "LOOKUP", "GET_SCHEMA"):
        assert expected in names
    assert len(names) >= 20, names


@pytest.mark.parametrize("name", said_by_clients())
def test_a_command_said_wrongly_breaks_nothing(
    standalone: StandaloneProcess, bystander: Callable[[], None], name: str
) -> None:
    client: RawClient | None = None
    for what, command in _wrong_forms(name):
        for _ in range(2):
            if client is None:
                client = RawClient(standalone.port)
            try:
                client.say_bytes(frame.join(command))
                if client.is_closed_by_broker():
                    client.close()
                    client = None
            except (BrokenPipeError, ConnectionResetError):
                if client is not None:
                    client.close()
                client = None
            except OSError as error:
                raise AssertionError(f"{name} {what}: neither answered nor closed") from error
    if client is not None:
        client.close()
    bystander()


def _subscribe(client: RawClient, consumer_id: int, kind: int, **fields: Any) -> pb.BaseCommand:
    request_id = client.request_id()
    subscribe = pb.CommandSubscribe(
        topic=TOPIC,
        subscription=f"s{consumer_id}",
        subType=kind,  # type: ignore[arg-type]
        consumer_id=consumer_id,
        request_id=request_id,
        **fields,
    )
    client.say(Type.SUBSCRIBE, subscribe)
    while (answer := client.next()) is not None:
        if answer.type != Type.ACTIVE_CONSUMER_CHANGE:
            return answer
    raise AssertionError("closed instead of an answer to SUBSCRIBE")


@pytest.mark.parametrize("kind", [0, 1, 2, 3], ids=["Exclusive", "Shared", "Failover", "Key_Shared"])
def test_a_consumer_that_says_nonsense_hurts_only_itself(
    standalone: StandaloneProcess, bystander: Callable[[], None], kind: int
) -> None:
    """Acks of what was never sent, permits without end, seeks to nowhere, things after the close."""
    consumer_id = 10 + kind
    with RawClient(standalone.port) as client:
        assert _subscribe(client, consumer_id, kind).type == Type.SUCCESS
        assert _subscribe(client, consumer_id, kind).type == Type.SUCCESS, "twice is the same consumer"
    for command, inside in _nonsense(consumer_id):
        with RawClient(standalone.port) as client:
            _subscribe(client, consumer_id, kind)
            for _ in range(2):
                with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                    client.say(command, inside)
            client.is_closed_by_broker()
    bystander()


def _nonsense(consumer_id: int) -> Iterator[tuple["Type.ValueType", Message]]:
    for permits in (0, 2**31, 2**32 - 1):
        yield Type.FLOW, pb.CommandFlow(consumer_id=consumer_id, messagePermits=permits)
    yield Type.FLOW, pb.CommandFlow(consumer_id=999, messagePermits=1)
    for ledger_id, entry_id in ((2**64 - 1, 2**64 - 1), (0, 0), (2**63 - 1, 2**63 - 1), (7, 2**40)):
        for ack_type in (pb.CommandAck.Individual, pb.CommandAck.Cumulative):
            ack = pb.CommandAck(consumer_id=consumer_id, ack_type=ack_type)
            ack.message_id.add(ledgerId=ledger_id, entryId=entry_id, ack_set=[-1, 0, 2**62])
            yield Type.ACK, ack
        again = pb.CommandRedeliverUnacknowledgedMessages(consumer_id=consumer_id)
        again.message_ids.add(ledgerId=ledger_id, entryId=entry_id)
        yield Type.REDELIVER_UNACKNOWLEDGED_MESSAGES, again
        seek = pb.CommandSeek(consumer_id=consumer_id, request_id=5)
        seek.message_id.ledgerId, seek.message_id.entryId = ledger_id, entry_id
        yield Type.SEEK, seek
    for ack_type in (pb.CommandAck.Individual, pb.CommandAck.Cumulative):
        yield Type.ACK, pb.CommandAck(consumer_id=consumer_id, ack_type=ack_type)
        yield Type.ACK, pb.CommandAck(consumer_id=999, ack_type=ack_type)
    yield Type.SEEK, pb.CommandSeek(consumer_id=consumer_id, request_id=5)
    yield Type.SEEK, pb.CommandSeek(consumer_id=consumer_id, request_id=5, message_publish_time=2**64 - 1)
    yield Type.CLOSE_CONSUMER, pb.CommandCloseConsumer(consumer_id=consumer_id, request_id=6)
    yield Type.UNSUBSCRIBE, pb.CommandUnsubscribe(consumer_id=consumer_id, request_id=7)


def _about_a_consumer(client: RawClient, topic: str, consumer_id: int) -> dict[str, Callable[[], tuple[Any, Message]]]:
    """Everything that is said of a consumer, with a request id of its own where there is one."""
    place = pb.MessageIdData(ledgerId=2**63 - 1, entryId=0)

    def subscribe() -> tuple[Any, Message]:
        fields = {
            "topic": topic,
            "subscription": "s",
            "subType": pb.CommandSubscribe.Shared,
            "consumer_id": consumer_id,
        }
        return Type.SUBSCRIBE, pb.CommandSubscribe(request_id=client.request_id(), **fields)  # type: ignore[arg-type]

    def numbered(kind: Any, message: type[Any], **fields: Any) -> Callable[[], tuple[Any, Message]]:
        return lambda: (kind, message(consumer_id=consumer_id, request_id=client.request_id(), **fields))

    return {
        "SUBSCRIBE": subscribe,
        "FLOW": lambda: (Type.FLOW, pb.CommandFlow(consumer_id=consumer_id, messagePermits=5)),
        "ACK": numbered(Type.ACK, pb.CommandAck, ack_type=pb.CommandAck.Individual, message_id=[place]),
        "REDELIVER": lambda: (
            Type.REDELIVER_UNACKNOWLEDGED_MESSAGES,
            pb.CommandRedeliverUnacknowledgedMessages(consumer_id=consumer_id),
        ),
        "SEEK": numbered(Type.SEEK, pb.CommandSeek, message_id=place),
        "GET_LAST_MESSAGE_ID": numbered(Type.GET_LAST_MESSAGE_ID, pb.CommandGetLastMessageId),
        "CONSUMER_STATS": numbered(Type.CONSUMER_STATS, pb.CommandConsumerStats),
        "UNSUBSCRIBE": numbered(Type.UNSUBSCRIBE, pb.CommandUnsubscribe),
        "CLOSE_CONSUMER": numbered(Type.CLOSE_CONSUMER, pb.CommandCloseConsumer),
    }


def _answered(client: RawClient) -> list[int] | None:
    """The request ids of what the broker says before it answers a PING; None when it closes instead."""
    client.say(Type.PING, pb.CommandPing())
    found: list[int] = []
    while (command := client.next()) is not None:
        if command.type == Type.PONG:
            return found
        inside: Any = commands.body_of(command)
        if "request_id" in inside.DESCRIPTOR.fields_by_name and inside.request_id != commands.REQUEST_ID_NONE:
            found.append(inside.request_id)
    return None


@pytest.mark.parametrize("first", sorted(_about_a_consumer(None, "", 0)))  # type: ignore[arg-type]
def test_commands_in_any_order_are_answered_once_each(
    standalone: StandaloneProcess, bystander: Callable[[], None], eventually: Callable[..., Any], first: str
) -> None:
    """Any two, behind a SUBSCRIBE that is not answered yet and said again behind them, all in one write."""
    with RawClient(standalone.port) as client:
        for consumer_id, second in enumerate(sorted(_about_a_consumer(client, "", 0))):
            words = _about_a_consumer(client, f"persistent://public/default/order-{first}-{second}", consumer_id)
            said = [words[name]() for name in ("SUBSCRIBE", first, second, "SUBSCRIBE", "CLOSE_CONSUMER")]
            client.say_bytes(b"".join(commands.encode(kind, inside) for kind, inside in said))
            asked = sorted(inside.request_id for _, inside in said if hasattr(inside, "request_id"))
            answers: list[int] = []

            def are_answered(answers: list[int] = answers, asked: list[int] = asked) -> bool:
                came = _answered(client)
                assert came is not None, "the connection was closed for an order of commands"
                answers += came
                return len(answers) >= len(asked)

            eventually(are_answered)
            assert sorted(answers) == asked, (first, second)
    bystander()


def test_ids_of_others_reach_nobody(standalone: StandaloneProcess, bystander: Callable[[], None]) -> None:
    """Ids of producers and consumers belong to their connection, message ids to their topic."""
    with RawClient(standalone.port) as owner, RawClient(standalone.port) as stranger:
        topics = [f"persistent://public/default/foreign-{number}" for number in range(2)]
        places: list[pb.MessageIdData] = []
        for number, topic in enumerate(topics):
            words = _about_a_consumer(owner, topic, number)
            owner.say(*words["SUBSCRIBE"]())
            owner.expect(Type.SUCCESS)
            assert owner.open_producer(topic, number).type == Type.PRODUCER_SUCCESS
            owner.send(number)
            places.append(owner.expect(Type.SEND_RECEIPT).send_receipt.message_id)
        # The stranger has no consumer of these ids: nothing of what it says about them may reach their owner.
        for number, topic in enumerate(topics):
            for name, word in _about_a_consumer(stranger, topic, number).items():
                if name != "SUBSCRIBE":
                    stranger.say(*word())
            ack = pb.CommandAck(consumer_id=number, ack_type=pb.CommandAck.Individual, message_id=[places[number]])
            stranger.say(Type.ACK, ack)
            stranger.say(Type.CLOSE_PRODUCER, pb.CommandCloseProducer(producer_id=number, request_id=9))
        assert not stranger.is_closed_by_broker()
        # Nor may an ack with the place of a message in another topic, said by the owner itself.
        for number in range(2):
            ack = pb.CommandAck(consumer_id=number, ack_type=pb.CommandAck.Individual, message_id=[places[1 - number]])
            owner.say(Type.ACK, ack)
        for number in range(2):
            owner.say(Type.FLOW, pb.CommandFlow(consumer_id=number, messagePermits=5))
            delivered = owner.expect(Type.MESSAGE).message
            assert delivered.consumer_id == number
            assert delivered.message_id.ledgerId == places[number].ledgerId
            owner.send(number, 1)
            came = {Type.Name(each.type) for each in (owner.next(), owner.next()) if each is not None}
            assert came == {"SEND_RECEIPT", "MESSAGE"}
    bystander()
