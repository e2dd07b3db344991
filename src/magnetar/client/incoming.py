# SPDX-License-Identifier: Apache-2.0
"""From the body of a MESSAGE to messages: checksum, metadata, decryption, decompression, the messages of a batch.

Raises an error that says which of these failed; the consumer answers with the protocol's word for it. Chunks are put
together before they are decompressed, which is why reading is in two steps.
Decides.
"""

from collections.abc import Sequence
from typing import TypeAlias

from magnetar.client.message import BatchAcks, DeliveredEntry, Message
from magnetar.errors import BadPayload, ChecksumMismatch, CryptoFailed, MagnetarError
from magnetar.ids import MessageId, Position
from magnetar.wire import batch, broker_entry, message
from magnetar.wire.compression import decompress
from magnetar.wire.proto import pulsar_api_pb2 as pb

Payload: TypeAlias = bytes | memoryview

ValidationError = pb.CommandAck.ValidationError


def position_of(message_id: pb.MessageIdData) -> Position:
    """Clients and brokers write -1 as the largest unsigned number."""
    ledger_id, entry_id = message_id.ledgerId, message_id.entryId
    return Position(
        ledger_id - 2**64 if ledger_id >= 2**63 else ledger_id, entry_id - 2**64 if entry_id >= 2**63 else entry_id
    )


def open_entry(topic: str, command: pb.CommandMessage, body: bytes) -> tuple[DeliveredEntry, Payload]:
    """Metadata and payload as it was sent. Raises ChecksumMismatch and BadFrame."""
    start = broker_entry.message_start(body)
    message.check_intact(body, start)
    metadata, payload = message.split(body, start)
    entry = DeliveredEntry(
        topic, command.message_id.partition, position_of(command.message_id), metadata, command.redelivery_count
    )
    if start:
        entry.broker_metadata = broker_entry.read(body)
    return entry, payload


def decompressed(metadata: pb.MessageMetadata, payload: Payload, bytes_max: int) -> Payload:
    """Raises BadPayload."""
    if metadata.compression == pb.NONE:
        return payload
    return decompress(metadata.compression, payload, metadata.uncompressed_size, bytes_max)


def messages_of(entry: DeliveredEntry, payload: Payload, ack_set: Sequence[int]) -> list[Message[object]]:
    """The messages of an entry that are still to be consumed. Raises BadPayload where the batch lies."""
    metadata = entry.metadata
    if not message.is_batch(metadata):
        return [Message(entry, payload)]
    count = message.messages_in(metadata)
    split = batch.split(payload, count)
    entry.acks = BatchAcks(count, list(ack_set))
    compacted_out = {index for index, one in enumerate(split) if one.metadata.compacted_out}
    for index in compacted_out:
        entry.acks.ack(index)
    return [
        Message(entry, one.payload, one.metadata, index)
        for index, one in batch.select(split, ack_set)
        if index not in compacted_out
    ]


def is_before_start(position: Position, batch_index: int, start: MessageId | None, *, inclusive: bool) -> bool:
    """Whether a message is to be left out because reading begins after it: brokers send the whole entry of the start.

    Only that entry is looked at. What lies before it comes only if somebody moved the subscription back.
    """
    if start is None or position != start.position:
        return False
    if batch_index < 0 or start.batch_index < 0:
        return not inclusive
    return batch_index < start.batch_index if inclusive else batch_index <= start.batch_index


def validation_error_of(error: MagnetarError) -> "ValidationError.ValueType":
    """What ACK calls the reason for which a message was thrown away."""
    if isinstance(error, ChecksumMismatch):
        return pb.CommandAck.ChecksumMismatch
    if isinstance(error, CryptoFailed):
        return pb.CommandAck.DecryptionError
    if isinstance(error, BadPayload):
        return pb.CommandAck.DecompressionError
    return pb.CommandAck.BatchDeSerializeError
