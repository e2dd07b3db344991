# SPDX-License-Identifier: Apache-2.0
"""What compaction must know of the messages in a stored entry, and the entry without those that are superseded.

A batch keeps its count: a message that is left out stays as an empty one that is marked `compacted_out`, so indexes and
acknowledgements mean what they meant before. What cannot be looked into (an encrypted batch, damage) is kept whole.
Decides.
"""

from collections.abc import Collection
from typing import NamedTuple

from magnetar.errors import BadFrame, BadPayload, Refused
from magnetar.managed_ledger.entry import Entry
from magnetar.wire import batch, broker_entry, compression, message
from magnetar.wire.batch import BatchedMessage
from magnetar.wire.proto.pulsar_api_pb2 import CompressionType, MessageMetadata, SingleMessageMetadata

# A batch that claims to be larger than this when it is decompressed is kept whole.
_BATCH_BYTES_MAX = 128 * 1024 * 1024


class MessageFacts(NamedTuple):
    """One message; the index is its place in a batch, or -1. An empty one deletes its key."""

    batch_index: int
    key: str | None
    is_empty: bool
    # When it happened, as its producer said (ms); 0 where it did not.
    event_time_ms: int = 0


class EntryMessages(NamedTuple):
    messages: tuple[MessageFacts, ...]
    # Of a part of a chunked message: its uuid, and whether this is the last part.
    chunk: tuple[str, bool] | None = None
    # Kept as it is, whatever it holds.
    is_opaque: bool = False
    # Written by brokers for brokers; not kept.
    is_marker: bool = False


def messages_of(entry: Entry) -> EntryMessages:
    try:
        metadata, payload = message.split(entry.body, broker_entry.message_start(entry.body))
        if metadata.HasField("marker_type"):
            return EntryMessages((), is_marker=True)
        if message.is_batch(metadata):
            if metadata.encryption_keys:
                return EntryMessages((), is_opaque=True)
            parts = _split(metadata, payload)
            return EntryMessages(tuple(_single(index, part) for index, part in enumerate(parts)))
    except (BadFrame, BadPayload, Refused):
        return EntryMessages((), is_opaque=True)
    chunks = metadata.num_chunks_from_msg
    chunk = (metadata.uuid, metadata.chunk_id == chunks - 1) if chunks > 1 else None
    key = metadata.partition_key if metadata.HasField("partition_key") else None
    facts = MessageFacts(-1, key, _is_empty(metadata, payload), metadata.event_time)
    return EntryMessages((facts,), chunk)


def left_in_batch(entry: Entry) -> int:
    """Which messages of a compacted batch are there, as bits; 0 for an entry that was kept whole or is no batch."""
    try:
        metadata, payload = message.split(entry.body, broker_entry.message_start(entry.body))
        if not message.is_batch(metadata) or metadata.encryption_keys:
            return 0
        parts = _split(metadata, payload)
    except (BadFrame, BadPayload, Refused):
        return 0
    left = sum(1 << index for index, part in enumerate(parts) if not part.metadata.compacted_out)
    return 0 if left.bit_count() == len(parts) else left


def without(entry: Entry, kept: Collection[int]) -> bytes:
    """A batch in which only the messages at these indexes are left."""
    start = broker_entry.message_start(entry.body)
    metadata, payload = message.split(entry.body, start)
    parts = [
        part if index in kept else BatchedMessage(SingleMessageMetadata(payload_size=0, compacted_out=True), b"")
        for index, part in enumerate(_split(metadata, payload))
    ]
    joined = batch.join(parts)
    metadata.uncompressed_size = len(joined)
    data = compression.compress(metadata.compression, joined)
    return bytes(entry.body[:start]) + b"".join(message.join(metadata.SerializeToString(), data))


def _split(metadata: MessageMetadata, payload: memoryview) -> list[BatchedMessage]:
    data: bytes | memoryview = payload
    if metadata.compression != CompressionType.NONE:
        data = compression.decompress(metadata.compression, payload, metadata.uncompressed_size, _BATCH_BYTES_MAX)
    return batch.split(data, message.messages_in(metadata))


def _single(index: int, part: BatchedMessage) -> MessageFacts:
    single = part.metadata
    key = single.partition_key if single.HasField("partition_key") else None
    is_empty = single.null_value or single.compacted_out or not len(part.payload)
    return MessageFacts(index, key, is_empty, single.event_time)


def _is_empty(metadata: MessageMetadata, payload: memoryview) -> bool:
    """Also where nothing was compressed or encrypted into something."""
    if metadata.null_value or not len(payload):
        return True
    return metadata.compression != CompressionType.NONE and metadata.uncompressed_size == 0
