# SPDX-License-Identifier: Apache-2.0
"""The bytes of docs/formats/transactions.md: the page shows what is stored, and what is stored is read back."""

from pathlib import Path

import pytest

from magnetar.broker.transactions.coordinator_state import CoordinatorState, Status, decode
from magnetar.broker.transactions.marker import encode_marker
from magnetar.broker.transactions.pending_ack_log import record_of
from magnetar.broker.transactions.pending_acks import claim_of
from magnetar.broker.transactions.record_batch import entry_of
from magnetar.broker.transactions.segment_format import encode_segment
from magnetar.broker.transactions.txn_id import TxnId
from magnetar.ids import Position
from magnetar.wire.proto.pending_ack_pb2 import ACK, COMMIT
from magnetar.wire.proto.pulsar_api_pb2 import CommandAck

PAGE = Path(__file__).parents[4] / "docs" / "formats" / "transactions.md"
TXN = TxnId(3, 7)


def shown() -> list[list[bytes]]:
    """The records of the page, block by block."""
    _, _, example = PAGE.read_text().partition("## Example")
    blocks = example.split("```")[1::2]
    return [[bytes.fromhex(line) for line in block.strip().splitlines()] for block in blocks]


@pytest.mark.feature("F-TXN-06")
def test_the_coordinators_log_is_as_the_page_shows() -> None:
    state = CoordinatorState(TXN.most, last_id=TXN.least - 1)
    records = [
        state.new(60_000, 77),
        state.add_partitions(TXN, ["persistent://a/b/t"], 78),
        state.end(TXN, commit=True, now_ms=79),
        state.finish(TXN, 80),
    ]
    assert [record.SerializeToString() for record in records if record is not None] == shown()[0]
    replayed = CoordinatorState(TXN.most)
    for data in shown()[0][:3]:
        replayed.apply(decode(data))
    found = replayed.find(TXN)
    assert (found.status, list(found.partitions), found.due_ms) == (Status.COMMITTING, ["persistent://a/b/t"], 60_077)


@pytest.mark.feature("F-TXN-14")
def test_pending_acknowledgements_are_as_the_page_shows() -> None:
    claimed = record_of(ACK, TXN, CommandAck.Individual, [claim_of(Position(5, 2), (0b110,), 3)])
    assert [claimed.SerializeToString(), record_of(COMMIT, TXN).SerializeToString()] == shown()[1]


def test_the_marker_is_as_the_page_shows() -> None:
    assert encode_marker(TXN, 77, commit=True) == b"".join(shown()[2])


@pytest.mark.feature("B-18")
def test_a_batch_and_a_segment_are_as_the_page_shows() -> None:
    assert entry_of(shown()[0][:2]) == b"".join(shown()[3])
    assert encode_segment([(TXN, Position(5, 2))]) == b"".join(shown()[4])
