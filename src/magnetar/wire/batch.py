# SPDX-License-Identifier: Apache-2.0
"""Batches: several messages in one payload, each behind its own small metadata.

    for each message: 4 metadata size | SingleMessageMetadata | payload

Bytes after the last announced message are ignored, as every client does.
Decides.
"""

import re
from collections.abc import Iterable, Sequence
from struct import Struct
from struct import error as StructError
from typing import Final, NamedTuple, TypeAlias

from google.protobuf.message import DecodeError

from magnetar.errors import BadPayload
from magnetar.wire.proto.pulsar_api_pb2 import SingleMessageMetadata
from magnetar.wire.required import missing

Buffer: TypeAlias = bytes | memoryview

SIZE_BYTES: Final = 4
_SIZE: Final = Struct(">I")
_SEQUENCE_ID: Final = re.compile(rb"\x40[\x80-\xff]{0,9}[\x00-\x7f]", re.DOTALL)
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
        metadata = parse_single(bytes(view[begin:until]), index)
        size = metadata.payload_size
        if not 0 <= size <= len(view) - until:
            raise BadPayload(
                f"Message {index} of a batch of {count} claims {size} bytes, {len(view) - until} are there."
            )
        position = until + size
        messages.append(BatchedMessage(metadata, view[until:position]))
    return messages


def spans(payload: bytes, count: int) -> list[tuple[int, int, int, bool]]:
    """As split, without parsing: where each message's metadata and payload begin, where it ends, and whether it has
    been compacted out. What most messages have for metadata, a size and a sequence id, is read by hand; the rest of
    a metadata is looked at when somebody asks for it."""
    size_bytes = len(payload)
    if not 1 <= count <= size_bytes // MESSAGE_BYTES_MIN:
        raise BadPayload(f"A batch of {count} messages does not fit into {size_bytes} bytes.")
    found: list[tuple[int, int, int, bool]] = []
    append, size_at, is_id = found.append, _SIZE.unpack_from, _SEQUENCE_ID.fullmatch
    begin, is_out = SIZE_BYTES, False
    try:
        for _ in range(count):
            until = begin + size_at(payload, begin - SIZE_BYTES)[0]
            size = payload[begin + 1]
            place = begin + 2
            if size > 127:
                second = payload[place]
                size += (second << 7) - 128
                place = begin + 3 if second < 128 else -1
            # A field behind the sequence id would hold against what stands before it: there is room for none.
            if (
                payload[begin] == 0x18
                and (place == until or (0 < place < until and payload[place] == 0x40))
                and (
                    until - place < 4
                    or (payload[place + 1] > 127 and until - place == 4)
                    or is_id(payload, place, until)
                )
            ):
                end = until + size
            else:
                metadata = parse_single(payload[begin:until], len(found))
                is_out = metadata.compacted_out
                end = until + metadata.payload_size
            if until > size_bytes or not until <= end <= size_bytes:
                break
            append((begin, until, end, is_out))
            is_out = False
            begin = end + SIZE_BYTES
    except (IndexError, StructError):
        pass
    if len(found) < count:
        raise BadPayload(f"Message {len(found)} of a batch of {count} goes beyond the {size_bytes} bytes there are.")
    return found


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


def parse_single(data: bytes, index: int) -> SingleMessageMetadata:
    """The small metadata of one message. Raises BadPayload."""
    try:
        metadata = SingleMessageMetadata.FromString(data)
    except DecodeError as error:
        raise BadPayload(f"The metadata of message {index} of a batch cannot be parsed.") from error
    lacking = missing(metadata)
    if lacking:
        raise BadPayload(f"The metadata of message {index} of a batch lacks {lacking}.")
    if type(metadata.partition_key) is not str:  # protobuf's Python parser gives text that is no UTF-8 as bytes
        raise BadPayload(f"The key of message {index} of a batch is no UTF-8.")
    return metadata
