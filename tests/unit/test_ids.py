# SPDX-License-Identifier: Apache-2.0
"""Message ids: equal to the generated protocol message and to the official client's bytes, for any value."""

import pulsar
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from magnetar import ids
from magnetar.errors import BadMessageId
from magnetar.ids import EARLIEST_MESSAGE, LATEST_MESSAGE, MessageId, Position
from magnetar.wire.proto import pulsar_api_pb2

LEDGER = st.integers(-1, 2**63 - 1) | st.integers(-1, 300)
SMALL = st.integers(-1, 2**31 - 1) | st.integers(-1, 200)
SIZE = st.integers(0, 2**31 - 1)
SIMPLE_IDS = st.builds(MessageId, LEDGER, LEDGER, SMALL, SMALL, SIZE)
IDS = st.builds(MessageId, LEDGER, LEDGER, SMALL, SMALL, SIZE, st.none() | SIMPLE_IDS)


def generated(message_id: MessageId) -> pulsar_api_pb2.MessageIdData:
    data = pulsar_api_pb2.MessageIdData(ledgerId=message_id.ledger_id % 2**64, entryId=message_id.entry_id % 2**64)
    if message_id.partition != -1:
        data.partition = message_id.partition
    if message_id.batch_index != -1:
        data.batch_index = message_id.batch_index
    if message_id.batch_size:
        data.batch_size = message_id.batch_size
    if message_id.first_chunk is not None:
        data.first_chunk_message_id.CopyFrom(generated(message_id.first_chunk))
    return data


def fields(message_id: MessageId | None) -> object:
    if message_id is None:
        return None
    return (*message_id._key(), message_id.batch_size, fields(message_id.first_chunk))


def signed(value: int) -> int:
    return value if value < 2**63 else value - 2**64


def fields_of_generated(data: pulsar_api_pb2.MessageIdData) -> object:
    chunk = fields_of_generated(data.first_chunk_message_id) if data.HasField("first_chunk_message_id") else None
    place = (signed(data.ledgerId), signed(data.entryId), data.partition, data.batch_index)
    return (*place, data.batch_size, chunk)


@pytest.mark.feature("F-TOP-12")
@settings(max_examples=300, deadline=None)
@given(IDS)
def test_bytes_equal_those_of_the_generated_message(message_id: MessageId) -> None:
    encoded = message_id.encode()
    assert encoded == generated(message_id).SerializeToString()
    assert fields(MessageId.decode(encoded)) == fields(message_id)


@pytest.mark.feature("F-TOP-12")
@settings(max_examples=200, deadline=None)
@given(LEDGER, LEDGER, SMALL, SMALL)
def test_bytes_equal_those_of_the_official_client(ledger: int, entry: int, partition: int, batch_index: int) -> None:
    official = pulsar.MessageId(partition, ledger, entry, batch_index)
    assert MessageId(ledger, entry, partition, batch_index).encode() == official.serialize()
    back = pulsar.MessageId.deserialize(MessageId(ledger, entry, partition, batch_index, 9).encode())
    assert (back.ledger_id(), back.entry_id(), back.partition(), back.batch_index()) == (
        ledger,
        entry,
        partition,
        batch_index,
    )


def test_the_ends_are_the_official_ends() -> None:
    assert EARLIEST_MESSAGE.encode() == pulsar.MessageId.earliest.serialize()
    assert LATEST_MESSAGE.encode() == pulsar.MessageId.latest.serialize()
    assert EARLIEST_MESSAGE < MessageId(0, 0) < LATEST_MESSAGE
    assert EARLIEST_MESSAGE.position == ids.EARLIEST
    assert LATEST_MESSAGE.position == ids.LATEST


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=60) | IDS.map(MessageId.encode).flatmap(lambda data: st.permutations(list(data)).map(bytes)))
def test_any_bytes_are_an_id_or_a_refusal_and_the_generated_decoder_agrees(data: bytes) -> None:
    try:
        message_id = MessageId.decode(data)
    except BadMessageId:
        return
    message = pulsar_api_pb2.MessageIdData()
    try:
        message.ParseFromString(data)
    except Exception:
        # The generated decoder is stricter about numbers that do not fit; it never reads another value.
        return
    assert fields(message_id) == fields_of_generated(message)


@given(IDS)
@settings(max_examples=100, deadline=None)
def test_cut_bytes_are_refused(message_id: MessageId) -> None:
    encoded = message_id.encode()
    shortest = len(MessageId(message_id.ledger_id, message_id.entry_id).encode())
    for length in range(shortest):
        with pytest.raises(BadMessageId):
            MessageId.decode(encoded[:length])


def test_acknowledgement_sets_and_later_fields_are_skipped() -> None:
    data = pulsar_api_pb2.MessageIdData(ledgerId=5, entryId=6, ack_set=[1, -1, 2**40])
    later = b"\x9a\x06\x03abc" + b"\xa1\x06" + bytes(8) + b"\xad\x06" + bytes(4)
    assert MessageId.decode(data.SerializeToString() + later) == MessageId(5, 6)


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"", "lacks its ledger"),
        (b"\x08\x01", "lacks its ledger or its entry"),
        (b"\x08", "middle of a number"),
        (b"\x08" + b"\xff" * 11, "more than ten bytes"),
        (b"\x08\x01\x10\x02\x3a\x7f\x08\x01", "middle of a field"),
        (b"\x08\x01\x10\x02\x3a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "middle of a field"),
        (b"\x08\x01\x10\x02\x00\x01", "impossible field 0"),
        (b"\x08\x01\x10\x02\x0b", "unknown kind 3"),
        (bytes(ids.ENCODED_BYTES_MAX + 1), "too many"),
        (MessageId(1, 2, first_chunk=MessageId(1, 1, first_chunk=MessageId(1, 0))).encode(), "names a first chunk"),
    ],
)
def test_a_refusal_says_what_is_wrong(data: bytes, sentence: str) -> None:
    with pytest.raises(BadMessageId, match=sentence):
        MessageId.decode(data)


@given(st.lists(SIMPLE_IDS, max_size=20))
@settings(max_examples=50, deadline=None)
def test_order_is_that_of_the_four_numbers(message_ids: list[MessageId]) -> None:
    assert [m._key() for m in sorted(message_ids)] == sorted(m._key() for m in message_ids)
    for left in message_ids:
        for right in message_ids:
            assert (left < right, left <= right, left > right, left >= right, left == right) == (
                left._key() < right._key(),
                left._key() <= right._key(),
                left._key() > right._key(),
                left._key() >= right._key(),
                left._key() == right._key(),
            )


@given(SIMPLE_IDS)
@settings(max_examples=100, deadline=None)
def test_text_form_survives(message_id: MessageId) -> None:
    assert MessageId.parse(str(message_id)) == message_id


@pytest.mark.feature("D-25")
def test_text_forms() -> None:
    assert str(MessageId(12, 3, 4, 5)) == "12:3:4:5"
    assert repr(MessageId(12, 3)) == "MessageId(12:3:-1:-1)"
    assert MessageId.parse("12:3") == MessageId(12, 3)
    assert MessageId.parse("12:3:1") == MessageId(12, 3, 1)
    assert MessageId(12, 3).position == Position(12, 3)
    for text in ("", "12", "a:b", "1:2:3:4:5", "1:2:", "-2:0", "1:9223372036854775808", "1:1:2147483648", "1" * 200):
        with pytest.raises(BadMessageId):
            MessageId.parse(text)


def test_size_and_chunk_are_no_part_of_equality() -> None:
    assert MessageId(1, 2, batch_size=9, first_chunk=MessageId(1, 0)) == MessageId(1, 2)
    assert len({MessageId(1, 2, batch_size=9), MessageId(1, 2)}) == 1
    assert MessageId(1, 2) != Position(1, 2)
