# SPDX-License-Identifier: Apache-2.0
"""Commands: every type of the protocol has a row, garbage is a named error, every request can be refused."""

import pytest
from google.protobuf.message import Message
from hypothesis import given, settings
from hypothesis import strategies as st

from magnetar.errors import BadCommand
from magnetar.wire import commands, varint
from magnetar.wire.commands import COMMANDS, BaseCommand, Sender, Since, Type
from magnetar.wire.frame import FrameCutter
from magnetar.wire.proto import pulsar_api_pb2 as api

IDS = {
    "request_id": 11,
    "consumer_id": 12,
    "producer_id": 13,
    "sequence_id": 14,
    "txnid_least_bits": 15,
    "txnid_most_bits": 16,
    "session_id": 17,
    "watch_id": 18,
}
REQUESTS = [kind for kind, row in COMMANDS.items() if row.refused_by is not None]


def example(kind: int) -> BaseCommand:
    """A command of this type with every required field, and every id, filled in."""
    command = BaseCommand(type=kind)  # type: ignore[arg-type]
    fill(commands.body_of(command))
    return command


def fill(message: Message) -> None:
    message.SetInParent()
    for field in message.DESCRIPTOR.fields:
        if field.is_required or field.name in IDS:
            if field.message_type is not None:
                fill(getattr(message, field.name))
            elif field.enum_type is not None:
                setattr(message, field.name, field.enum_type.values[0].number)
            elif field.cpp_type == field.CPPTYPE_STRING:
                setattr(message, field.name, b"x" if field.type == field.TYPE_BYTES else "x")
            else:
                setattr(message, field.name, IDS.get(field.name, 1))


def unframed(data: bytes | None) -> bytes:
    assert data is not None
    ((command, body),) = FrameCutter().feed(data)
    assert body == b""
    return command


def test_every_type_has_a_row_that_names_its_field() -> None:
    assert set(COMMANDS) == set(Type.values())
    for kind, row in COMMANDS.items():
        assert BaseCommand.DESCRIPTOR.fields_by_name[row.field].number == kind


@pytest.mark.parametrize("kind", COMMANDS, ids=lambda kind: Type.Name(kind))
def test_every_command_survives_its_own_frame(kind: int) -> None:
    command = example(kind)
    row = COMMANDS[kind]
    data = unframed(commands.encode(command.type, commands.body_of(command)))
    assert commands.parse(data, Sender.BOTH) == command
    assert commands.parse(data, row.sender) == command
    if row.sender is not Sender.BOTH:
        with pytest.raises(BadCommand, match=f"{Type.Name(command.type)} is not a command"):
            commands.parse(data, Sender(3 - row.sender))


@pytest.mark.parametrize("kind", COMMANDS, ids=lambda kind: Type.Name(kind))
def test_a_type_without_its_field_is_refused(kind: int) -> None:
    with pytest.raises(BadCommand, match="does not carry its field"):
        commands.parse(BaseCommand(type=kind).SerializeToString(), Sender.BOTH)  # type: ignore[arg-type]


def test_what_is_missing_is_named_however_deep() -> None:
    ack = BaseCommand(type=Type.ACK)
    ack.ack.consumer_id = 1
    ack.ack.message_id.add(ledgerId=5)
    with pytest.raises(BadCommand, match=r"The command ACK lacks ack_type, message_id\.entryId"):
        commands.parse(ack.SerializePartialToString(), Sender.CLIENT)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x08\x45\x9a\x04\x00",  # type 69 does not exist
        b"\x08\xff\xff\xff\xff\x0f",
        b"\x08\x45\x12\x03\x0a\x01x",  # the same, with a whole CONNECT in it
        b"\x08\x02\x12\x00",  # a CONNECT without its required client version
        b"\x0b" * 10_000,  # groups within groups
        b"\xff" * 40,
    ],
)
def test_garbage_is_a_bad_command(data: bytes) -> None:
    with pytest.raises(BadCommand):
        commands.parse(data, Sender.BOTH)


LATER = b"\xf2\xff\x03\x05later"


@pytest.mark.parametrize("kind", COMMANDS, ids=lambda kind: Type.Name(kind))
def test_fields_of_a_newer_peer_are_passed_over(kind: int) -> None:
    """F202: in the envelope and in the command itself."""
    command = example(kind)
    body = type(commands.body_of(command)).FromString(commands.body_of(command).SerializeToString() + LATER)
    data = commands.encode_parts(command.type, [body.SerializeToString()])
    parsed = commands.parse(unframed(b"".join(data)) + LATER, Sender.BOTH)
    assert commands.body_of(parsed).SerializeToString() == body.SerializeToString()
    parsed.DiscardUnknownFields()
    assert parsed == command


@pytest.mark.parametrize("kind", [Type.ERROR, Type.SEND_ERROR, Type.ACK_RESPONSE, Type.GET_OR_CREATE_SCHEMA_RESPONSE])
def test_an_error_that_only_a_newer_broker_knows_is_an_error(kind: int) -> None:
    """F202: protobuf reads an unknown code as none; then an answer without a reason would be a yes."""
    command = example(kind)
    body = commands.body_of(command)
    [field] = [field for field in body.DESCRIPTOR.fields if field.enum_type is api.ServerError.DESCRIPTOR]
    body.ClearField(field.name)
    code = varint.encode(field.number << 3) + varint.encode(999)
    data = commands.encode_parts(command.type, [body.SerializePartialToString(), code])
    said = commands.body_of(commands.parse(unframed(b"".join(data)), Sender.BROKER))
    assert said.HasField(field.name)
    assert getattr(said, field.name) == api.UnknownError


@settings(max_examples=300)
@given(
    st.binary(max_size=60)
    | st.sampled_from(sorted(COMMANDS))
    .flatmap(
        lambda kind: st.tuples(st.just(example(kind).SerializeToString()), st.integers(0, 100), st.integers(0, 255))
    )
    .map(
        lambda drawn: (
            drawn[0][: drawn[1] % len(drawn[0])] + bytes([drawn[2]]) + drawn[0][drawn[1] % len(drawn[0]) + 1 :]
        )
    )
)
def test_any_bytes_are_a_command_or_a_bad_command(data: bytes) -> None:
    try:
        command = commands.parse(data, Sender.BOTH)
    except BadCommand:
        return
    assert command.HasField(COMMANDS[command.type].field)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", REQUESTS, ids=lambda kind: Type.Name(kind))
def test_every_request_can_be_refused_so_that_its_client_finds_the_caller(kind: int) -> None:
    request = example(kind)
    data = unframed(commands.refusal(request, api.ServiceNotReady, "not now"))
    answer = commands.parse(data, Sender.BROKER)
    assert answer.type == COMMANDS[kind].refused_by
    said = commands.body_of(answer)
    asked = commands.body_of(request)
    reasons = {getattr(said, name) for name in ("error", "error_code") if name in said.DESCRIPTOR.fields_by_name}
    texts = {getattr(said, name) for name in ("message", "error_message") if name in said.DESCRIPTOR.fields_by_name}
    assert reasons == {api.ServiceNotReady}
    assert texts == {"not now"}
    for name in IDS:
        if name in said.DESCRIPTOR.fields_by_name and name in asked.DESCRIPTOR.fields_by_name:
            assert getattr(said, name) == getattr(asked, name)


def test_failed_lookups_say_so_in_their_own_way() -> None:
    lookup = commands.parse(unframed(commands.refusal(example(Type.LOOKUP), api.TopicNotFound, "")), Sender.BROKER)
    assert lookup.lookupTopicResponse.response == api.CommandLookupTopicResponse.Failed
    request = example(Type.PARTITIONED_METADATA)
    partitions = commands.parse(unframed(commands.refusal(request, api.TopicNotFound, "")), Sender.BROKER)
    assert partitions.partitionMetadataResponse.response == api.CommandPartitionedTopicMetadataResponse.Failed


def test_what_expects_no_answer_gets_none() -> None:
    ack = example(Type.ACK)
    ack.ack.ClearField("request_id")
    for request in (ack, example(Type.FLOW), example(Type.PING), example(Type.REDELIVER_UNACKNOWLEDGED_MESSAGES)):
        assert commands.refusal(request, api.UnknownError, "no") is None


def test_a_failed_connect_names_no_request() -> None:
    answer = commands.parse(
        unframed(commands.refusal(example(Type.CONNECT), api.AuthenticationError, "")), Sender.BROKER
    )
    assert answer.error.request_id == commands.REQUEST_ID_NONE


def test_short_answers_are_what_they_say() -> None:
    ok = commands.parse(unframed(commands.success(5)), Sender.BROKER)
    assert ok.success.request_id == 5
    failed = commands.parse(unframed(commands.send_error(1, 2, api.ChecksumError, "again")), Sender.BROKER)
    assert failed.send_error == api.CommandSendError(
        producer_id=1, sequence_id=2, error=api.ChecksumError, message="again"
    )


@pytest.mark.parametrize(("announced", "agreed"), [(-5, 0), (0, 0), (6, 6), (21, 21), (99, 21)])
def test_the_lower_version_holds(announced: int, agreed: int) -> None:
    assert commands.agreed_version(announced) == agreed


def test_versions_are_within_the_protocol() -> None:
    assert int(max(Since)) == max(map(int, api.ProtocolVersion.values())) == commands.PROTOCOL_VERSION
