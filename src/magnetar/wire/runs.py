# SPDX-License-Identifier: Apache-2.0
"""The loops over many messages at once that publishing and reading spend their time in: cutting, checking, packing.

The functions here are the plain ones; at the end the compiled twins take their names, where there are any.
Decides.
"""

from collections.abc import Sequence
from struct import Struct
from typing import Final, TypeAlias

from magnetar.errors import MagnetarError
from magnetar.wire import compiled
from magnetar.wire.crc32c import extend
from magnetar.wire.hot import decode_send
from magnetar.wire.message import check_intact, has_checksum

Frame: TypeAlias = tuple[bytes, bytes]
"""Command and body; the body is empty where there is none."""
Send: TypeAlias = tuple[int, int, int, bytes]
"""One entry as it came: sequence id, highest sequence id (0: the same), messages, bytes."""

_FRAME: Final = Struct(">II")
_METADATA: Final = Struct(">qqqq")


def cut_frames(chunk: bytes, start: int, size_max: int, frames: list[Frame]) -> int:
    """Add every whole frame from start on; returns where the first one is that is not whole, or not possible."""
    size = len(chunk)
    while size - start >= _FRAME.size:
        total, command_size = _FRAME.unpack_from(chunk, start)
        until = start + 4 + total
        if total > size_max or command_size > total - 4 or until > size:
            break
        body = start + _FRAME.size + command_size
        frames.append((chunk[start + _FRAME.size : body], chunk[body:until]))
        start = until
    return start


def read_sends(frames: list[Frame], start: int, run: list[Send]) -> tuple[int, int]:
    """Add the SENDs of messages and batches, of one producer and with a checksum that fits, that begin at start.

    Returns where they end, and the producer's id. None at all means that the first must be looked at closely.
    """
    producer_id = 0
    for at in range(start, len(frames)):
        command, body = frames[at]
        fields = decode_send(command) if body else None
        if fields is None or (at > start and fields[0] != producer_id):
            return at, producer_id
        producer_id = fields[0]
        if not _is_checked(body):
            return at, producer_id
        _, sequence_id, messages, highest = fields
        # One that is below the first is no range; the official broker ignores it too.
        run.append((sequence_id, highest if highest >= sequence_id else 0, messages, body))
    return max(start, len(frames)), producer_id


def _is_checked(body: bytes) -> bool:
    """Whether there is a checksum, and it and the sizes are right."""
    try:
        check_intact(body)
    except MagnetarError:
        return False
    return has_checksum(body)


def pack_entries(
    ledger_id: int, first: int, last_add_confirmed: int, length: int, entries: list[tuple[bytes, bytes]]
) -> tuple[list[bytes], int]:
    """Packed entries with a CRC32C, from this id on, in a ledger of this length; and its length after them."""
    packed = []
    for entry_id, (front, message) in enumerate(entries, first):
        length += len(front) + len(message)
        packed.append(pack_entry(ledger_id, entry_id, last_add_confirmed, length, front, message))
    return packed, length


def pack_entry(
    ledger_id: int, entry_id: int, last_add_confirmed: int, length: int, front: bytes, message: bytes
) -> bytes:
    """One of them; the length is the ledger's with this entry."""
    metadata = _METADATA.pack(ledger_id, entry_id, last_add_confirmed, length)
    checksum = extend(extend(0, metadata + front), message)
    return b"".join((metadata, checksum.to_bytes(4, "big"), front, message))


def are_plain(entries: Sequence[Sequence[object]]) -> bool:
    """Whether `pack_entries` takes these: each two buffers, both `bytes`, in a tuple."""
    return all(
        type(parts) is tuple and len(parts) == 2 and type(parts[0]) is bytes is type(parts[1]) for parts in entries
    )


def count_intact(ledger_id: int, first: int, entries: list[bytes]) -> int:
    """How many of these packed entries with a CRC32C are those from this id on, up to the first that is not."""
    for count, entry in enumerate(entries):
        if len(entry) < _METADATA.size + 4 or _METADATA.unpack_from(entry)[:2] != (ledger_id, first + count):
            return count
        checksum = int.from_bytes(entry[_METADATA.size : _METADATA.size + 4], "big")
        if extend(extend(0, entry[: _METADATA.size]), entry[_METADATA.size + 4 :]) != checksum:
            return count
    return len(entries)


PLAIN: Final = (cut_frames, read_sends, pack_entries, count_intact, pack_entry, are_plain)

if (_twins := compiled.load()) is not None:
    cut_frames = _twins.cut_frames
    read_sends = _twins.read_sends
    pack_entries = _twins.pack_entries
    count_intact = _twins.count_intact
    pack_entry = _twins.pack_entry
    are_plain = _twins.are_plain
