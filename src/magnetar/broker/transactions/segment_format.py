# SPDX-License-Identifier: Apache-2.0
"""Bytes of a segment of aborted transactions (docs/formats/transactions.md).

Decides.
"""

import struct
from collections.abc import Iterable
from typing import Final

from magnetar.broker.transactions.txn_id import TxnId
from magnetar.errors import DamagedRecord
from magnetar.ids import Position

_HEAD: Final = struct.Struct(">4sHHI")
_ABORTED: Final = struct.Struct(">QQQQ")
_MAGIC: Final = b"MTXS"
_VERSION: Final = 1

ABORTED_BYTES: Final = _ABORTED.size


def encode_segment(aborted: Iterable[tuple[TxnId, Position]]) -> bytes:
    packed = [_ABORTED.pack(*txn_id, *position) for txn_id, position in aborted]
    return _HEAD.pack(_MAGIC, _VERSION, 0, len(packed)) + b"".join(packed)


def decode_segment(data: bytes) -> list[tuple[TxnId, Position]]:
    """DamagedRecord when it is no whole segment."""
    if len(data) < _HEAD.size:
        raise DamagedRecord(f"A segment of aborted transactions has only {len(data)} bytes")
    magic, version, _, count = _HEAD.unpack_from(data)
    if magic != _MAGIC or version != _VERSION:
        raise DamagedRecord(f"A segment of aborted transactions begins with {data[:8].hex()}")
    if len(data) != _HEAD.size + count * ABORTED_BYTES:
        raise DamagedRecord(f"A segment of {count} aborted transactions has {len(data)} bytes")
    return [
        (TxnId(most, least), Position(ledger_id, entry_id))
        for most, least, ledger_id, entry_id in _ABORTED.iter_unpack(data[_HEAD.size :])
    ]
