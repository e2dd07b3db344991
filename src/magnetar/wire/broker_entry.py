# SPDX-License-Identifier: Apache-2.0
"""What a broker puts in front of a stored message, if it is configured to: when it came, and its number in the topic.

    2 magic 0x0e02 | 4 size | BrokerEntryMetadata

Clients that did not announce the feature get the message without it.
Decides.
"""

from functools import lru_cache
from typing import Final, TypeAlias

from google.protobuf.message import DecodeError

from magnetar.errors import BadFrame
from magnetar.wire import compiled
from magnetar.wire.proto.pulsar_api_pb2 import BrokerEntryMetadata
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


def entry_front(broker_timestamp_ms: int, index: int) -> bytes:
    """The same with both, for every entry that is stored."""
    encoded = varint(index)
    return _timed_front(broker_timestamp_ms, len(encoded)) + encoded


@lru_cache(maxsize=8)
def _timed_front(broker_timestamp_ms: int, index_bytes: int) -> bytes:
    """All before the index: the same for what comes in one millisecond."""
    timestamp = b"\x08" + varint(broker_timestamp_ms) + b"\x10"
    return MAGIC + (len(timestamp) + index_bytes).to_bytes(4, "big") + timestamp


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


PLAIN: Final = (entry_front,)

if (_twins := compiled.load()) is not None:
    entry_front = _twins.entry_front
