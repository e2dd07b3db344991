# SPDX-License-Identifier: Apache-2.0
"""Message bodies: checksum, metadata and payload, and no lie about a size that is not named."""

import pytest
from google_crc32c import value as crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from magnetar.errors import BadFrame, ChecksumMismatch
from magnetar.wire import frame, hot, message
from magnetar.wire.proto.pulsar_api_pb2 import MessageMetadata

METADATA = MessageMetadata(producer_name="p", sequence_id=3, publish_time=1_700_000_000_000, partition_key="k")


def body_of(payload: bytes, metadata: MessageMetadata = METADATA) -> bytes:
    return b"".join(message.join(metadata.SerializeToString(), payload))


def test_the_layout_is_the_documented_one() -> None:
    encoded = METADATA.SerializeToString()
    covered = len(encoded).to_bytes(4, "big") + encoded + b"payload"
    assert body_of(b"payload") == b"\x0e\x01" + crc32c(covered).to_bytes(4, "big") + covered
    front, payload = message.join(encoded, memoryview(b"payload"))
    assert front + payload == body_of(b"payload")


def test_the_example_of_the_format_page() -> None:
    metadata = MessageMetadata(producer_name="p", sequence_id=7, publish_time=1_700_000_000_000)
    data = frame.join(hot.encode_send(1, 7, 1), body_of(b"hello", metadata))
    assert data.hex() == ("000000270000000808063204080110070e015dbb2b140000000c0a017010071880d095ffbc3168656c6c6f")


@given(st.binary(max_size=100), st.binary(max_size=30), st.booleans())
def test_what_was_joined_comes_apart(payload: bytes, prefix: bytes, as_view: bool) -> None:
    stored = prefix + body_of(payload)
    buffer = memoryview(stored) if as_view else stored
    assert message.has_checksum(buffer, len(prefix))
    assert message.is_intact(buffer, len(prefix))
    metadata, rest = message.split(buffer, len(prefix))
    assert (metadata, bytes(rest)) == (METADATA, payload)
    assert message.read_metadata(buffer, len(prefix)) == METADATA


def test_a_message_of_an_old_client_has_no_checksum() -> None:
    body = body_of(b"payload")[6:]
    assert not message.has_checksum(body)
    assert message.is_intact(body)
    metadata, payload = message.split(body)
    assert (metadata, bytes(payload)) == (METADATA, b"payload")


@pytest.mark.feature("F-PROD-25")
@settings(max_examples=200)
@given(st.binary(max_size=60), st.data())
def test_any_flipped_bit_is_noticed(payload: bytes, data: st.DataObject) -> None:
    body = bytearray(body_of(payload))
    bit = data.draw(st.integers(16, len(body) * 8 - 1))
    body[bit // 8] ^= 1 << bit % 8
    with pytest.raises(ChecksumMismatch):
        message.check_intact(bytes(body))


@settings(max_examples=300)
@given(st.binary(max_size=40) | st.binary(max_size=40).map(lambda rest: b"\x0e\x01" + rest), st.integers(0, 10))
def test_any_bytes_come_apart_or_are_a_bad_frame(body: bytes, start: int) -> None:
    try:
        begin, until = message.metadata_span(body, start)
    except BadFrame:
        return
    assert start < begin <= until <= len(body)
    with pytest.raises(BadFrame):
        message.metadata_span(body[: until - 1], start)


@pytest.mark.parametrize("with_checksum", [True, False])
def test_a_body_cut_short_anywhere_is_noticed(with_checksum: bool) -> None:
    body = body_of(b"payload")[0 if with_checksum else 6 :]
    message.check_intact(body)
    for size in range(len(body) - len(b"payload")):
        with pytest.raises(BadFrame):
            message.split(body[:size])
        with pytest.raises((BadFrame, ChecksumMismatch)):
            message.check_intact(body[:size])
        with pytest.raises((BadFrame, ChecksumMismatch)):
            message.check_intact(memoryview(b"prefix" + body[:size]), 6)


def test_a_size_that_lies_is_noticed_even_under_a_right_checksum() -> None:
    covered = (100).to_bytes(4, "big") + bytes(99)
    body = b"\x0e\x01" + crc32c(covered).to_bytes(4, "big") + covered
    assert message.is_intact(body)
    with pytest.raises(BadFrame, match="metadata size of 100"):
        message.check_intact(body)


def test_metadata_without_required_fields_is_a_bad_frame() -> None:
    with pytest.raises(BadFrame, match="lacks sequence_id, publish_time"):
        message.parse_metadata(MessageMetadata(producer_name="p").SerializePartialToString())
    with pytest.raises(BadFrame):
        message.parse_metadata(memoryview(b"\xff\xff"))


def test_a_batch_is_told_by_the_presence_of_its_count() -> None:
    assert not message.is_batch(METADATA)
    assert message.messages_in(METADATA) == 1
    batch = MessageMetadata(num_messages_in_batch=1)
    assert message.is_batch(batch)
    assert message.messages_in(batch) == 1


@pytest.mark.parametrize("count", [0, -1, -(2**31)])
def test_a_batch_of_none_is_a_bad_frame(count: int) -> None:
    with pytest.raises(BadFrame, match="impossible"):
        message.messages_in(MessageMetadata(num_messages_in_batch=count))
