# SPDX-License-Identifier: Apache-2.0
"""Batches: several messages in one payload, each behind its own small metadata.

    for each message: 4 metadata size | SingleMessageMetadata | payload

Bytes after the last announced message are ignored, as every client does.
Decides.
"""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple, TypeAlias

from google.protobuf.message import DecodeError

from magnetar.errors import BadPayload
from magnetar.wire.proto.pulsar_api_pb2 import SingleMessageMetadata
from magnetar.wire.required import missing

Buffer: TypeAlias = bytes | memoryview

SIZE_BYTES: Final = 4
MESSAGE_BYTES_MIN: Final = 6
"""The smallest message of a batch: a size, and metadata with nothing but a payload size of 0."""


class BatchedMessage(NamedTuple):
    metadata: SingleMessageMetadata
    payload: Buffer


def split(payload: Buffer, count: int) -> list[BatchedMessage]:
    """The messages of a batch (already decompressed); payloads are views. Raises BadPayload where sizes lie."""
    view = memoryview(payload)
    if not 1 <= count <= len(view) // MESSAGE_BYTES_MIN:
        raise BadPayload(f"A batch of {count} messages does not fit into {len(view)} bytes.")
    messages: list[BatchedMessage] = []
    position = 0
    for index in range(count):
        begin = position + SIZE_BYTES
        until = begin + int.from_bytes(view[position:begin], "big")
        if begin > len(view) or until > len(view):
            raise BadPayload(
                f"Message {index} of a batch of {count} has metadata beyond the {len(view)} bytes there are."
            )
        metadata = _parse(bytes(view[begin:until]), index)
        size = metadata.payload_size
        if not 0 <= size <= len(view) - until:
            raise BadPayload(
                f"Message {index} of a batch of {count} claims {size} bytes, {len(view) - until} are there."
            )
        position = until + size
        messages.append(BatchedMessage(metadata, view[until:position]))
    return messages


def join(messages: Iterable[BatchedMessage]) -> bytes:
    """The payload of a batch, before compression. Each payload_size is taken from the payload itself."""
    parts: list[Buffer] = []
    for metadata, payload in messages:
        metadata.payload_size = len(payload)
        encoded = metadata.SerializeToString()
        parts += (len(encoded).to_bytes(SIZE_BYTES, "big"), encoded, payload)
    return b"".join(parts)


def select(messages: Sequence[BatchedMessage], ack_set: Sequence[int]) -> list[tuple[int, BatchedMessage]]:
    """The messages, with their batch index, that an ack set leaves over; an empty one leaves all.

    A set bit is a message that is still to be consumed; words are 64 bits, as signed numbers, lowest first.
    """
    if not ack_set:
        return list(enumerate(messages))
    return [
        (index, message)
        for index, message in enumerate(messages)
        if index >> 6 < len(ack_set) and ack_set[index >> 6] >> (index & 63) & 1
    ]


def _parse(data: bytes, index: int) -> SingleMessageMetadata:
    try:
        metadata = SingleMessageMetadata.FromString(data)
    except DecodeError as error:
        raise BadPayload(f"The metadata of message {index} of a batch cannot be parsed.") from error
    lacking = missing(metadata)
    if lacking:
        raise BadPayload(f"The metadata of message {index} of a batch lacks {lacking}.")
    return metadata
