# SPDX-License-Identifier: Apache-2.0
"""What a broker puts in front of a stored message, if it is configured to: when it came, and its number in the topic.

    2 magic 0x0e02 | 4 size | BrokerEntryMetadata

Clients that did not announce the feature get the message without it.
Decides.
"""

from typing import Final, TypeAlias

from google.protobuf.message import DecodeError

from magnetar.errors import BadFrame
from magnetar.wire.proto.pulsar_api_pb2 import BrokerEntryMetadata
from magnetar.wire.varint import LAST, MORE
from magnetar.wire.varint import encode as varint

Buffer: TypeAlias = bytes | memoryview

MAGIC: Final = b"\x0e\x02"
HEADER_BYTES: Final = 6


def encode(broker_timestamp_ms: int | None, index: int | None) -> bytes:
    """The prefix of an entry; what is None is left out."""
    metadata = b""
    if broker_timestamp_ms is not None:
        metadata = b"\x08" + varint(broker_timestamp_ms)
    if index is not None:
        metadata += b"\x10" + varint(index)
    return MAGIC + len(metadata).to_bytes(4, "big") + metadata


class BrokerEntryEncoder:
    """The same for one topic's entries in turn: what did not change since the last entry is not encoded again."""

    __slots__ = ("_fronts", "_high", "_high_part", "_timestamp_ms", "_timestamp_part")

    def __init__(self) -> None:
        self._timestamp_ms = -1
        self._timestamp_part = b""
        # Magic, size and timestamp, by how many bytes the index takes.
        self._fronts: dict[int, bytes] = {}
        self._high = -1
        self._high_part = b""

    def encode(self, broker_timestamp_ms: int, index: int) -> bytes:
        if broker_timestamp_ms != self._timestamp_ms:
            self._timestamp_ms = broker_timestamp_ms
            self._timestamp_part = b"\x08" + varint(broker_timestamp_ms) + b"\x10"
            self._fronts.clear()
        high = index >> 7
        if high != self._high:
            self._high = high
            self._high_part = varint(high) if high else b""
        encoded = MORE[index & 127] + self._high_part if high else LAST[index]
        front = self._fronts.get(len(encoded))
        if front is None:
            size = len(self._timestamp_part) + len(encoded)
            front = MAGIC + size.to_bytes(4, "big") + self._timestamp_part
            self._fronts[len(encoded)] = front
        return front + encoded


def message_start(entry: Buffer) -> int:
    """Where the message begins in a stored entry: 0 if there is no broker entry metadata. Raises BadFrame."""
    if entry[:2] != MAGIC:
        return 0
    start = HEADER_BYTES + int.from_bytes(entry[2:HEADER_BYTES], "big")
    if len(entry) < HEADER_BYTES or start > len(entry):
        raise BadFrame(f"Broker entry metadata that ends at byte {start} does not fit into {len(entry)} bytes.")
    return start


def read(entry: Buffer) -> BrokerEntryMetadata | None:
    """The metadata in front of a stored entry, if there is any. Raises BadFrame."""
    start = message_start(entry)
    if start == 0:
        return None
    try:
        return BrokerEntryMetadata.FromString(bytes(entry[HEADER_BYTES:start]))
    except DecodeError as error:
        raise BadFrame(f"Broker entry metadata of {start - HEADER_BYTES} bytes cannot be parsed.") from error
