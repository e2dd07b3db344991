# SPDX-License-Identifier: Apache-2.0
"""An entry of a compacted ledger, as upstream writes it: where the message was, and its bytes.

    4 id size | MessageIdData | 4 size | the entry as it is stored in the topic

Decides.
"""

from google.protobuf.message import DecodeError

from magnetar.errors import DamagedRecord
from magnetar.ids import Position
from magnetar.managed_ledger.entry import Entry
from magnetar.wire.proto.pulsar_api_pb2 import MessageIdData

_SIZE_BYTES = 4


def encode_entry(position: Position, body: bytes | memoryview) -> bytes:
    place = MessageIdData(ledgerId=position.ledger_id, entryId=position.entry_id).SerializeToString()
    sizes = len(place).to_bytes(_SIZE_BYTES, "big"), len(body).to_bytes(_SIZE_BYTES, "big")
    return b"".join((sizes[0], place, sizes[1], body))


def decode_entry(data: memoryview) -> Entry:
    """The entry at its old place. DamagedRecord when the bytes are none."""
    place, start = _place(data)
    size = int.from_bytes(data[start : start + _SIZE_BYTES], "big")
    body = data[start + _SIZE_BYTES : start + _SIZE_BYTES + size]
    if len(body) != size:
        raise DamagedRecord(f"an entry of a compacted ledger has {len(body)} of {size} bytes")
    return Entry(place.ledgerId, place.entryId, body)


def position_of(data: memoryview) -> Position:
    place, _ = _place(data)
    return Position(place.ledgerId, place.entryId)


def _place(data: memoryview) -> tuple[MessageIdData, int]:
    end = _SIZE_BYTES + int.from_bytes(data[:_SIZE_BYTES], "big")
    try:
        place = MessageIdData.FromString(bytes(data[_SIZE_BYTES:end]))
    except DecodeError as error:
        raise DamagedRecord(f"an entry of a compacted ledger has no message id: {error}") from error
    if end > len(data) or not place.IsInitialized():
        raise DamagedRecord(f"an entry of {len(data)} bytes of a compacted ledger ends before its message id does")
    return place, end
