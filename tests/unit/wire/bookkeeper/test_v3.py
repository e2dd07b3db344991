# SPDX-License-Identifier: Apache-2.0
"""Version 3: Apache BookKeeper's bytes, an answer for every operation, a named error for everything else."""

import pytest
from google.protobuf.message import Message
from hypothesis import given, settings
from hypothesis import strategies as st

from magnetar.errors import BadCommand
from magnetar.wire.bookkeeper import v3
from magnetar.wire.bookkeeper.packet import PacketCutter
from magnetar.wire.proto import bookkeeper_pb2 as bk

SERVED = [operation for operation, fields in v3.OPERATIONS.items() if fields.request is not None]
UNSERVED = [operation for operation, fields in v3.OPERATIONS.items() if fields.request is None]


def packet_of(data: bytes) -> bytes:
    (packet,) = PacketCutter().feed(data)
    return packet


def example(operation: int) -> bk.Request:
    """A request with every required field."""
    request = v3.request(operation, 42)  # type: ignore[arg-type]
    field = v3.OPERATIONS[operation].request
    if field is not None:
        message: Message = getattr(request, field)
        message.SetInParent()
        for inner in message.DESCRIPTOR.fields:
            if inner.is_required:
                value = {inner.TYPE_BYTES: b"x", inner.TYPE_STRING: "x"}.get(inner.type, 7)
                setattr(message, inner.name, value)
    return request


@pytest.mark.feature("F-BKC-27")
def test_bytes_are_those_of_apache_bookkeeper() -> None:
    request = v3.request(bk.READ_ENTRY, 42)
    request.readRequest.ledgerId = 77
    request.readRequest.entryId = 5
    request.readRequest.flag = bk.ReadRequest.FENCE_LEDGER
    request.readRequest.masterKey = bytes(range(1, 21))
    data = v3.encode(request)
    assert data.hex() == ("000000280a0608031001182aa2061d084d10051a140102030405060708090a0b0c0d0e0f1011121314a00601")
    assert v3.decode_request(packet_of(data)) == request
    answer = v3.encode(v3.answer(request, bk.ENOENTRY))
    assert answer.hex() == "000000150a0608031001182a109303a20607089303104d1805"
    assert v3.decode_response(packet_of(answer)).readResponse.status == bk.ENOENTRY


def test_every_operation_has_a_row() -> None:
    assert set(v3.OPERATIONS) == set(bk.OperationType.values())
    named = {name for fields in v3.OPERATIONS.values() for name in fields if name is not None}
    envelopes = {field.name for kind in (bk.Request, bk.Response) for field in kind.DESCRIPTOR.fields}
    assert envelopes - named == {"header", "status", "requestContext"}


@pytest.mark.parametrize("operation", SERVED, ids=bk.OperationType.Name)
def test_every_operation_travels_and_can_be_answered(operation: bk.OperationType.ValueType) -> None:
    request = example(operation)
    assert v3.decode_request(packet_of(v3.encode(request))) == request
    for answer in (v3.answer(request, bk.EIO), v3.refusal(request.header, bk.EIO)):
        response = v3.decode_response(packet_of(v3.encode(answer)))
        assert (response.status, response.header.txnId, response.header.operation) == (bk.EIO, 42, operation)


@pytest.mark.parametrize("operation", SERVED, ids=bk.OperationType.Name)
def test_an_operation_without_its_message_is_refused(operation: bk.OperationType.ValueType) -> None:
    packet = packet_of(v3.encode(v3.request(operation, 42)))
    with pytest.raises(BadCommand, match="does not carry its field"):
        v3.decode_request(packet)
    header = v3.read_header(packet)
    assert header is not None
    assert header.txnId == 42


@pytest.mark.parametrize("operation", UNSERVED, ids=bk.OperationType.Name)
def test_operations_without_a_meaning_are_refused(operation: bk.OperationType.ValueType) -> None:
    with pytest.raises(BadCommand, match="not an operation of version 3"):
        v3.decode_request(v3.request(operation, 1).SerializeToString())
    assert v3.answer(v3.request(operation, 1), bk.EBADREQ).status == bk.EBADREQ


@settings(max_examples=300)
@given(
    st.binary(max_size=40)
    | st.tuples(st.sampled_from(SERVED), st.integers(0, 60), st.integers(0, 255)).map(
        lambda drawn: (
            lambda data: data[: drawn[1] % len(data)] + bytes([drawn[2]]) + data[drawn[1] % len(data) + 1 :]
        )(example(drawn[0]).SerializeToString())
    )
)
def test_any_bytes_are_a_packet_or_a_bad_command(packet: bytes) -> None:
    for decode in (v3.decode_request, v3.decode_response):
        try:
            decode(packet)
        except BadCommand as error:
            assert str(error)  # noqa: PT017 - either outcome is right; a nameless one is not
    header = v3.read_header(packet)
    assert header is None or v3.refusal(header, bk.EBADREQ).IsInitialized()


def test_an_operation_from_the_future_is_named_and_not_taken_for_another() -> None:
    packet = bytes.fromhex("0a06 0803 1063 182a")  # operation 99
    with pytest.raises(BadCommand, match=r"header\.operation"):
        v3.decode_request(packet)
    assert v3.read_header(packet) is None
