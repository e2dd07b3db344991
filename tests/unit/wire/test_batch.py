# SPDX-License-Identifier: Apache-2.0
"""Batches: what goes in comes out; counts and sizes that lie are named."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from magnetar.errors import BadPayload
from magnetar.wire import batch
from magnetar.wire.batch import BatchedMessage
from magnetar.wire.proto.pulsar_api_pb2 import SingleMessageMetadata

MESSAGES = st.lists(
    st.builds(
        lambda key, payload: BatchedMessage(SingleMessageMetadata(partition_key=key, payload_size=0), payload),
        st.none() | st.text(max_size=5),
        st.binary(max_size=30),
    ),
    min_size=1,
    max_size=8,
)


def bits(ack_set: list[int]) -> list[bool]:
    return [bool(word & 2**64 - 1 & 1 << bit) for word in ack_set for bit in range(64)]


@pytest.mark.feature("F-PROD-18")
@given(MESSAGES, st.binary(max_size=5))
def test_what_was_joined_comes_apart(messages: list[BatchedMessage], trailing: bytes) -> None:
    payload = batch.join(messages)
    got = batch.split(payload + trailing, len(messages))
    assert [(each.metadata, bytes(each.payload)) for each in got] == messages
    assert all(each.metadata.payload_size == len(each.payload) for each in got)


@given(MESSAGES)
def test_a_batch_cut_short_anywhere_is_noticed(messages: list[BatchedMessage]) -> None:
    payload = batch.join(messages)
    for size in range(len(payload)):
        with pytest.raises(BadPayload):
            batch.split(payload[:size], len(messages))


@pytest.mark.parametrize("count", [0, -1, 3, 2**31 - 1])
def test_a_count_that_lies_is_named(count: int) -> None:
    payload = batch.join([BatchedMessage(SingleMessageMetadata(), b"a"), BatchedMessage(SingleMessageMetadata(), b"b")])
    with pytest.raises(BadPayload, match=f"batch of {count}"):
        batch.split(payload, count)


@pytest.mark.parametrize("size", [-1, 2, 2**31 - 1])
def test_a_payload_size_that_lies_is_named(size: int) -> None:
    encoded = SingleMessageMetadata(payload_size=size).SerializeToString()
    with pytest.raises(BadPayload, match=f"claims {size} bytes, 1 are there"):
        batch.split(len(encoded).to_bytes(4, "big") + encoded + b"x", 1)


def test_a_message_without_a_payload_size_is_named() -> None:
    with pytest.raises(BadPayload, match="lacks payload_size"):
        batch.split(b"\x00\x00\x00\x02\x20\x01", 1)
    with pytest.raises(BadPayload, match="cannot be parsed"):
        batch.split(b"\x00\x00\x00\x02\xff\xff", 1)


@settings(max_examples=300)
@given(st.binary(max_size=60), st.integers(-2, 12))
def test_any_bytes_are_a_batch_or_a_bad_payload(payload: bytes, count: int) -> None:
    try:
        messages = batch.split(payload, count)
    except BadPayload:
        return
    assert len(messages) == count


@pytest.mark.feature("F-CONS-15")
@given(st.integers(1, 200), st.lists(st.integers(-(2**63), 2**63 - 1), max_size=4))
def test_an_ack_set_leaves_what_its_bits_say(count: int, ack_set: list[int]) -> None:
    messages = [BatchedMessage(SingleMessageMetadata(payload_size=0), b"")] * count
    wanted = bits(ack_set) + [False] * count if ack_set else [True] * count
    assert [index for index, _ in batch.select(messages, ack_set)] == [i for i in range(count) if wanted[i]]
