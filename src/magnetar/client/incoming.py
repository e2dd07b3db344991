# SPDX-License-Identifier: Apache-2.0
"""From the body of a MESSAGE to messages: checksum, metadata, decryption, decompression, the messages of a batch.

Raises an error that says which of these failed; the consumer answers with the protocol's word for it. Chunks are put
together before they are decompressed, which is why reading is in two steps.
Decides.
"""

import re
from collections.abc import Sequence
from struct import Struct
from struct import error as StructError
from typing import Final, TypeAlias

from magnetar.client.message import BatchAcks, DeliveredEntry, Message, Source
from magnetar.errors import BadPayload, ChecksumMismatch, CryptoFailed, MagnetarError
from magnetar.ids import MessageId, Position
from magnetar.wire import batch, broker_entry, message
from magnetar.wire.compression import decompress
from magnetar.wire.crc32c import extend
from magnetar.wire.proto import pulsar_api_pb2 as pb

Payload: TypeAlias = bytes | memoryview

ValidationError = pb.CommandAck.ValidationError

CHECKSUM_BYTES: Final = message.CHECKSUM_BYTES
CHECKSUM_MAGIC: Final = message.CHECKSUM_MAGIC
BROKER_ENTRY_MAGIC: Final = int.from_bytes(broker_entry.MAGIC, "big")
_FRONT: Final = Struct(">HII")
# A sequence id, and a time between 1970 and 2109 as milliseconds.
_NUMBER_AND_TIME: Final = re.compile(rb"\x10[\x80-\xff]{0,9}[\x00-\x7f]\x18[\x80-\xff]{5}[\x01-\x7f]", re.DOTALL)


def position_of(message_id: pb.MessageIdData) -> Position:
    """Clients and brokers write -1 as the largest unsigned number."""
    ledger_id, entry_id = message_id.ledgerId, message_id.entryId
    return Position(
        ledger_id - 2**64 if ledger_id >= 2**63 else ledger_id, entry_id - 2**64 if entry_id >= 2**63 else entry_id
    )


def plain_payload(body: bytes) -> int:
    """Where the payload begins in a message that has nothing but what every message has: producer name, sequence id
    and publish time. -1 for any other, and for what is damaged: `open_entry` then says what it is.

    Most messages that do not come in batches are of this kind, and need no parsing to be handed out.
    """
    try:
        checksum: int
        size: int
        magic, checksum, size = _FRONT.unpack_from(body)
        covered = CHECKSUM_BYTES
        if magic == BROKER_ENTRY_MAGIC:
            covered += CHECKSUM_BYTES + checksum
            magic, checksum, size = _FRONT.unpack_from(body, covered - CHECKSUM_BYTES)
        begin = covered + 4
        name_bytes = body[begin + 1]
        if magic != CHECKSUM_MAGIC or body[begin] != 0x0A or name_bytes > 127:
            return -1
        rest = _NUMBER_AND_TIME.match(body, begin + 2 + name_bytes)
        if rest is None or rest.end() != begin + size or extend(0, body[covered:]) != checksum:
            return -1
        return begin + size
    except (IndexError, StructError):
        return -1


def open_entry(source: Source, command: pb.CommandMessage, body: bytes) -> tuple[DeliveredEntry, int]:
    """The entry, and where its payload begins. Raises ChecksumMismatch and BadFrame."""
    start = broker_entry.message_start(body)
    message.check_intact(body, start)
    begin, until = message.metadata_span(body, start)
    metadata = message.parse_metadata(body[begin:until])
    position = position_of(command.message_id)
    return DeliveredEntry(source, position, body, metadata, command.redelivery_count), until


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
    data = payload if type(payload) is bytes else bytes(payload)
    spans = batch.spans(data, count)
    entry.acks = acks = BatchAcks(count, ack_set)
    if not ack_set and not any(span[3] for span in spans):
        return [Message(entry, data, start, end, index, single) for index, (single, start, end, _) in enumerate(spans)]
    left = acks.left
    for index, (_, _, _, is_out) in enumerate(spans):
        if is_out:
            acks.ack(index)
    return [
        Message(entry, data, start, end, index, single)
        for index, (single, start, end, is_out) in enumerate(spans)
        if left >> index & 1 and not is_out
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
