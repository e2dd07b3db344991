# SPDX-License-Identifier: Apache-2.0
"""Plain adds of version 2 that came one after another, whatever their ledgers: read and answered many at a time.

A packed entry begins with its ledger and its own id, so the entries alone say what they are, and what is answered. The
functions here are the plain ones; at the end the compiled twins take their names, where there are any.
Decides.
"""

from struct import Struct
from typing import Final, NamedTuple

from magnetar.wire import compiled
from magnetar.wire.bookkeeper import v2

_SIZE: Final = Struct(">I")
_ANSWER_FRONT: Final = Struct(">IIi")
_IDS_BYTES: Final = 16
_ANSWER_BYTES: Final = _ANSWER_FRONT.size - _SIZE.size + _IDS_BYTES
_HEADER: Final = v2.ADD_UPPER << 16


class PlainAdds(NamedTuple):
    """Packed entries under one master key, in the order they came."""

    master_key: bytes
    entries: list[bytes]


def cut_adds(chunk: bytes, start: int, size_max: int, master_key: bytes, entries: list[bytes]) -> tuple[int, bytes]:
    """Add the entries of the whole plain adds that begin at start and have this master key; b"" is any, but one.

    Returns where the first packet is that is none of them, and the key.
    """
    size = len(chunk)
    while size - start >= _SIZE.size:
        (packet_bytes,) = _SIZE.unpack_from(chunk, start)
        begin = start + _SIZE.size
        until = begin + packet_bytes
        if not v2.ADD_BYTES_MIN <= packet_bytes <= size_max or until > size:
            break
        header, key, _, _ = v2.read_add(chunk, begin)
        if header != _HEADER or (master_key and key != master_key):
            break
        master_key = key
        entries.append(chunk[begin + v2.ADD_ENTRY_AT : until])
        start = until
    return start, master_key


def answer_adds(code: int, entries: list[bytes]) -> bytes:
    """One answer for each of these entries, as one buffer."""
    front = _ANSWER_FRONT.pack(_ANSWER_BYTES, _HEADER, code)
    return b"".join([front + entry[:_IDS_BYTES] for entry in entries])


PLAIN: Final = (cut_adds, answer_adds)

if (_twins := compiled.load()) is not None:
    cut_adds = _twins.cut_adds
    answer_adds = _twins.answer_adds
