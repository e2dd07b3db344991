# SPDX-License-Identifier: Apache-2.0
"""Broker entry metadata: written as protobuf would, found and skipped, never believed when it lies."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.errors import BadFrame
from magnetar.wire import broker_entry, message
from magnetar.wire.proto.pulsar_api_pb2 import BrokerEntryMetadata, MessageMetadata

METADATA = MessageMetadata(producer_name="p", sequence_id=3, publish_time=1_700_000_000_000)
MESSAGE = b"".join(message.join(METADATA.SerializeToString(), b"payload"))
OPTIONAL_UINT64 = st.none() | st.integers(0, 2**64 - 1)


@pytest.mark.feature("F-ML-15")
@given(OPTIONAL_UINT64, OPTIONAL_UINT64)
def test_broker_entry_metadata_is_that_of_protobuf(timestamp: int | None, index: int | None) -> None:
    expected = BrokerEntryMetadata(broker_timestamp=timestamp, index=index)
    prefix = broker_entry.encode(timestamp, index)
    encoded = expected.SerializeToString()
    assert prefix == b"\x0e\x02" + len(encoded).to_bytes(4, "big") + encoded
    stored = prefix + MESSAGE
    for buffer in (stored, memoryview(stored)):
        assert broker_entry.read(buffer) == expected
        assert broker_entry.message_start(buffer) == len(prefix)
        assert bytes(message.split(buffer, broker_entry.message_start(buffer))[1]) == b"payload"


def test_an_entry_without_broker_metadata_starts_with_its_message() -> None:
    assert broker_entry.message_start(MESSAGE) == 0
    assert broker_entry.read(MESSAGE) is None


@given(st.binary(max_size=20))
def test_broker_metadata_that_lies_is_a_bad_frame(rest: bytes) -> None:
    entry = b"\x0e\x02" + rest
    if len(rest) < 4 or int.from_bytes(rest[:4], "big") > len(rest) - 4:
        with pytest.raises(BadFrame):
            broker_entry.read(entry)
    else:
        assert 6 <= broker_entry.message_start(entry) <= len(entry)


def test_broker_metadata_that_cannot_be_parsed_is_a_bad_frame() -> None:
    with pytest.raises(BadFrame, match="cannot be parsed"):
        broker_entry.read(b"\x0e\x02\x00\x00\x00\x02\xff\xff")


@given(st.integers(0, 2**45), st.integers(0, 2**63 - 1))
def test_what_is_put_in_front_of_every_entry_is_the_same_bytes(timestamp_ms: int, index: int) -> None:
    for front in (*broker_entry.PLAIN, broker_entry.entry_front):
        assert front(timestamp_ms, index) == broker_entry.encode(timestamp_ms, index)
