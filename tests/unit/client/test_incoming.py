# SPDX-License-Identifier: Apache-2.0
"""Messages that are handed out without being parsed: only those that need no parsing, and never damaged ones."""

from hypothesis import given, settings
from hypothesis import strategies as st

from magnetar.client.incoming import plain_payload
from magnetar.wire import broker_entry, message
from magnetar.wire.proto import pulsar_api_pb2 as pb

NOW_MS = 1_767_225_600_000


def body_of(metadata: pb.MessageMetadata, payload: bytes, index: int | None) -> bytes:
    front = b"" if index is None else broker_entry.encode(NOW_MS, index)
    return front + b"".join(message.join(metadata.SerializeToString(), payload))


@st.composite
def metadatas(draw: st.DrawFn) -> tuple[pb.MessageMetadata, bool]:
    """Metadata, and whether it says nothing but what all say."""
    metadata = pb.MessageMetadata(
        producer_name=draw(st.text(max_size=40)),
        sequence_id=draw(st.one_of(st.integers(0, 200), st.integers(0, 2**63 - 1))),
        publish_time=draw(st.integers(NOW_MS - 10**11, NOW_MS + 10**11)),
    )
    extras = draw(
        st.sets(
            st.sampled_from(["batch", "key", "compression", "encryption", "chunk", "deliver", "null", "txn"]),
            max_size=2,
        )
    )
    if "batch" in extras:
        metadata.num_messages_in_batch = 1
    if "key" in extras:
        metadata.partition_key = "k"
    if "compression" in extras:
        metadata.compression = pb.ZLIB
    if "encryption" in extras:
        metadata.encryption_keys.add(key="k", value=b"v")
    if "chunk" in extras:
        metadata.num_chunks_from_msg = 2
    if "deliver" in extras:
        metadata.deliver_at_time = NOW_MS
    if "null" in extras:
        metadata.null_value = True
    if "txn" in extras:
        metadata.txnid_least_bits = 1
    return metadata, not extras


@settings(max_examples=100, deadline=None)
@given(metadatas(), st.binary(max_size=50), st.one_of(st.none(), st.integers(0, 2**30)))
def test_only_a_message_with_nothing_special_is_plain(
    given_metadata: tuple[pb.MessageMetadata, bool], payload: bytes, index: int | None
) -> None:
    metadata, is_plain = given_metadata
    body = body_of(metadata, payload, index)
    start = plain_payload(body)
    if start >= 0:
        assert is_plain
        assert body[start:] == payload
        assert message.read_metadata(body, broker_entry.message_start(body)) == metadata
    else:
        # A name too long for one byte of length is left to the parser.
        assert not is_plain or len(metadata.producer_name.encode()) > 127


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=30), st.data())
def test_a_damaged_message_is_never_plain(payload: bytes, data: st.DataObject) -> None:
    body = body_of(pb.MessageMetadata(producer_name="p", sequence_id=7, publish_time=NOW_MS), payload, None)
    assert plain_payload(body) > 0
    damaged = bytearray(body)
    place = data.draw(st.integers(0, len(body) - 1))
    damaged[place] ^= data.draw(st.integers(1, 255))
    assert plain_payload(bytes(damaged)) == -1
    for cut in range(len(body)):
        assert plain_payload(body[:cut]) == -1
