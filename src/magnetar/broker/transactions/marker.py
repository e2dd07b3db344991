# SPDX-License-Identifier: Apache-2.0
"""The message that ends a transaction in a topic, as Apache Pulsar writes it: metadata with a marker type, no payload.

Decides.
"""

from typing import Final, NamedTuple

from magnetar.broker.transactions.txn_id import TxnId
from magnetar.errors import BadFrame
from magnetar.managed_ledger.entry import Entry
from magnetar.wire import broker_entry, message
from magnetar.wire.proto.pulsar_api_pb2 import MessageMetadata
from magnetar.wire.proto.pulsar_markers_pb2 import TXN_ABORT, TXN_COMMIT

PRODUCER_NAME: Final = "pulsar.transaction.marker"


class InTransaction(NamedTuple):
    """What an entry is to a transaction: a message of it, or its end."""

    txn_id: TxnId
    # True: it commits here; False: it aborts here; None: a message.
    commit: bool | None


def encode_marker(txn_id: TxnId, now_ms: int, *, commit: bool) -> bytes:
    metadata = MessageMetadata(
        producer_name=PRODUCER_NAME,
        sequence_id=0,
        publish_time=now_ms,
        marker_type=TXN_COMMIT if commit else TXN_ABORT,
        txnid_most_bits=txn_id.most,
        txnid_least_bits=txn_id.least,
    )
    return b"".join(message.join(metadata.SerializeToString(), b""))


def as_marker(entry: Entry) -> Entry:
    """A message of an aborted transaction, for those who count: its place and number, and nothing of what it said."""
    start = broker_entry.message_start(entry.body)
    stored = message.read_metadata(entry.body, start)
    shown = MessageMetadata(
        producer_name=stored.producer_name,
        sequence_id=stored.sequence_id,
        publish_time=stored.publish_time,
        marker_type=TXN_ABORT,
        txnid_most_bits=stored.txnid_most_bits,
        txnid_least_bits=stored.txnid_least_bits,
    )
    if stored.HasField("num_messages_in_batch"):
        shown.num_messages_in_batch = stored.num_messages_in_batch
    front = bytes(entry.body[:start])
    body = b"".join((front, *message.join(shown.SerializeToString(), b"")))
    return Entry(entry.ledger_id, entry.entry_id, memoryview(body))


def read_in_transaction(entry: Entry) -> InTransaction | None:
    """None for what no transaction is in, and for what cannot be read."""
    try:
        metadata = message.read_metadata(entry.body, broker_entry.message_start(entry.body))
    except BadFrame:
        return None
    if not (metadata.HasField("txnid_most_bits") and metadata.HasField("txnid_least_bits")):
        return None
    txn_id = TxnId(metadata.txnid_most_bits, metadata.txnid_least_bits)
    if not metadata.HasField("marker_type"):
        return InTransaction(txn_id, None)
    if metadata.marker_type in (TXN_COMMIT, TXN_ABORT):
        return InTransaction(txn_id, metadata.marker_type == TXN_COMMIT)
    return None
