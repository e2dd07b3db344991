# SPDX-License-Identifier: Apache-2.0
"""The body of SEND and MESSAGE: checksum, metadata, payload. Also what is stored, so the same bytes travel all the way.

    2 magic 0x0e01 | 4 CRC32C of all that follows | 4 metadata size | MessageMetadata | payload

Old clients leave magic and checksum out. In front a broker may have put its own metadata (`wire/broker_entry.py`).
Every function takes the offset where the message starts, so that a stored entry is never copied to be looked at.

There are no peeks at single fields: parsing a usual MessageMetadata whole (0.6 µs) is cheaper than any by hand.
Decides.
"""

from struct import Struct
from typing import Final, TypeAlias

from google.protobuf.message import DecodeError

from magnetar.errors import BadFrame, ChecksumMismatch
from magnetar.wire.crc32c import extend
from magnetar.wire.proto.pulsar_api_pb2 import MessageMetadata
from magnetar.wire.required import missing
from magnetar.wire.text_fields import unreadable

Buffer: TypeAlias = bytes | memoryview

CHECKSUM_MAGIC: Final = 0x0E01
CHECKSUM_BYTES: Final = 6
SIZE_BYTES: Final = 4

_FRONT: Final = Struct(">HII")
_MAGIC: Final = CHECKSUM_MAGIC.to_bytes(2, "big")


def has_checksum(body: Buffer, start: int = 0) -> bool:
    return body[start : start + 2] == _MAGIC


def is_intact(body: Buffer, start: int = 0) -> bool:
    """Whether the checksum matches; a message without one is taken as it is."""
    if body[start : start + 2] != _MAGIC:
        return True
    covered = start + CHECKSUM_BYTES
    expected = int.from_bytes(body[start + 2 : covered], "big")
    return covered <= len(body) and extend(0, memoryview(body)[covered:]) == expected


def check_intact(body: Buffer, start: int = 0) -> None:
    """What a broker makes sure of before it stores a message, without parsing it.

    Raises ChecksumMismatch, or BadFrame where the sizes are impossible, so that no consumer ever meets them.
    """
    covered = start + CHECKSUM_BYTES
    if len(body) >= start + _FRONT.size:
        magic, expected, size = _FRONT.unpack_from(body, start)
        if magic == CHECKSUM_MAGIC:
            if extend(0, memoryview(body)[covered:]) != expected:
                raise ChecksumMismatch(
                    f"The checksum of a message of {len(body) - start} bytes does not match; send it again."
                )
            if size <= len(body) - start - _FRONT.size:
                return
    metadata_span(body, start)  # no checksum, or too short for one: the sizes must at least be possible


def metadata_span(body: Buffer, start: int = 0) -> tuple[int, int]:
    """Where the metadata begins and ends; the payload is the rest. Raises BadFrame for impossible sizes."""
    begin = start + SIZE_BYTES
    if body[start : start + 2] == _MAGIC:
        begin += CHECKSUM_BYTES
    if begin > len(body):
        raise BadFrame(f"A message of {len(body) - start} bytes ends before its metadata size.")
    size = int.from_bytes(body[begin - SIZE_BYTES : begin], "big")
    if size > len(body) - begin:
        raise BadFrame(f"A metadata size of {size} does not fit into a message of {len(body) - start} bytes.")
    return begin, begin + size


def split(body: Buffer, start: int = 0) -> tuple[MessageMetadata, memoryview]:
    """Metadata and payload. Raises BadFrame where there is no such thing."""
    begin, until = metadata_span(body, start)
    return parse_metadata(body[begin:until]), memoryview(body)[until:]


def read_metadata(body: Buffer, start: int = 0) -> MessageMetadata:
    begin, until = metadata_span(body, start)
    return parse_metadata(body[begin:until])


def parse_metadata(data: Buffer) -> MessageMetadata:
    """Raises BadFrame if these bytes are no MessageMetadata, or lack one of its required fields."""
    try:
        metadata = MessageMetadata.FromString(data if type(data) is bytes else bytes(data))
    except DecodeError as error:
        raise BadFrame(f"A message's metadata of {len(data)} bytes cannot be parsed.") from error
    lacking = missing(metadata)
    if lacking:
        raise BadFrame(f"A message's metadata lacks {lacking}.")
    for text in (metadata.producer_name, metadata.partition_key, metadata.uuid):
        if type(text) is not str:  # protobuf's Python parser gives text that is no UTF-8 as bytes
            raise BadFrame(f"A message's metadata has bytes that are no UTF-8 in {unreadable(metadata)}.")
    return metadata


def join(metadata: bytes, payload: Buffer) -> tuple[bytes, Buffer]:
    """The body of a SEND in two parts, the second of which is the payload itself, untouched."""
    front = len(metadata).to_bytes(SIZE_BYTES, "big") + metadata
    checksum = extend(extend(0, front), payload)
    return b"".join((_MAGIC, checksum.to_bytes(4, "big"), front)), payload


def messages_in(metadata: MessageMetadata) -> int:
    """How many messages an entry holds: 1 unless it is a batch. Raises BadFrame for a batch of none or fewer."""
    count = metadata.num_messages_in_batch
    if count < 1:
        raise BadFrame(f"A batch of {count} messages is impossible.")
    return count


def is_batch(metadata: MessageMetadata) -> bool:
    """Whether the payload is a batch; one of a single message is one too."""
    return metadata.HasField("num_messages_in_batch")
