# SPDX-License-Identifier: Apache-2.0
"""Which messages go to another cluster, and what they say there."""

import pytest

from magnetar.broker.replication.passage import departing, goes_to, is_expired
from magnetar.wire import message
from magnetar.wire.proto.pulsar_api_pb2 import MessageMetadata
from magnetar.wire.proto.pulsar_markers_pb2 import (
    REPLICATED_SUBSCRIPTION_UPDATE,
    TXN_ABORT,
    TXN_COMMIT,
)


def _metadata(**more: object) -> MessageMetadata:
    return MessageMetadata(producer_name="p", sequence_id=5, publish_time=1_000, **more)  # type: ignore[arg-type]


@pytest.mark.feature("F-GEO-05", "F-GEO-07")
@pytest.mark.parametrize(
    ("metadata", "goes"),
    [
        (_metadata(), True),
        (_metadata(replicated_from="north"), False),
        (_metadata(replicate_to=["west", "north"]), True),
        (_metadata(replicate_to=["north"]), False),
        (_metadata(replicate_to=["__local__"]), False),
        (_metadata(marker_type=TXN_COMMIT), False),
        (_metadata(marker_type=TXN_ABORT), False),
        (_metadata(marker_type=REPLICATED_SUBSCRIPTION_UPDATE), True),
    ],
)
def test_what_goes(metadata: MessageMetadata, goes: bool) -> None:
    assert goes_to(metadata, "west") is goes


@pytest.mark.feature("F-GEO-07", "F-GEO-08")
def test_a_message_keeps_what_its_sender_gave_it_and_says_where_it_is_from() -> None:
    metadata = _metadata(
        highest_sequence_id=9, partition_key="k", schema_version=b"\0" * 8, txnid_most_bits=1, txnid_least_bits=2
    )
    body = b"".join(departing(metadata, memoryview(b"payload"), "east", b"\1" * 8))
    message.check_intact(body)
    there, payload = message.split(body)
    assert bytes(payload) == b"payload"
    assert there == _metadata(
        highest_sequence_id=9, partition_key="k", schema_version=b"\1" * 8, replicated_from="east"
    )
    assert metadata.HasField("txnid_most_bits"), "what is stored here does not change"


@pytest.mark.feature("F-GEO-01")
def test_what_is_too_old_stays() -> None:
    assert not is_expired(_metadata(), 0, 10**9)
    assert not is_expired(_metadata(), 10, 11_000)
    assert is_expired(_metadata(), 10, 11_001)
