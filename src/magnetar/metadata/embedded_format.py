# SPDX-License-Identifier: Apache-2.0
"""Bytes of the embedded store's logs and snapshots, as written down in docs/formats/embedded_metadata.md.

A file is a header and records. A record's checksum covers where it lies (file and offset), so a stale, misplaced or
torn one is recognised; each record also says how far the store was durable when it was made, which tells a torn end
from rot.
Decides.
"""

import struct
from collections.abc import Iterable, Iterator
from enum import IntEnum
from typing import Final, NamedTuple

import google_crc32c

from magnetar.errors import Damaged, NewerFormat
from magnetar.metadata.tree import Counted, Effect, Held, Removed, SessionClosed, SessionOpened, Written

VERSION: Final = 1
MAGIC: Final = b"\x9dMgR"
SNAPSHOT_CHUNK_BYTES: Final = 256 * 1024

_HEADER: Final = struct.Struct(">BBHQQQ")
_CHECKSUM: Final = struct.Struct(">I")
HEADER_BYTES: Final = _HEADER.size + _CHECKSUM.size
_RECORD: Final = struct.Struct(">4sIIQQ")
RECORD_BYTES: Final = _RECORD.size
# What the checksum covers beside the body: generation, store, offset, then the record's own numbers.
_COVERED: Final = struct.Struct(">QQQIQQ")

_WRITTEN: Final = struct.Struct(">BQQQQHI")
_REMOVED: Final = struct.Struct(">BH")
_COUNTED: Final = struct.Struct(">BQH")
_SESSION_OPENED: Final = struct.Struct(">BQQ")
_SESSION_CLOSED: Final = struct.Struct(">BQ")
_SNAPSHOT_END: Final = struct.Struct(">BQQ")
_CLOSED: Final = struct.Struct(">B")


class FileKind(IntEnum):
    LOG = 1
    SNAPSHOT = 2


class _EffectKind(IntEnum):
    WRITTEN = 1
    REMOVED = 2
    COUNTED = 3
    SESSION_OPENED = 4
    SESSION_CLOSED = 5
    SNAPSHOT_END = 6
    CLOSED = 7


class FileHeader(NamedTuple):
    """Which file of which store this is. Sequence: of a log's first record, or of a snapshot's last change."""

    kind: FileKind
    generation: int
    store_id: int
    sequence: int


class SnapshotEnd(NamedTuple):
    """The last record of a snapshot: it is whole, with so many effects."""

    effects: int
    next_session: int


class Closed(NamedTuple):
    """The last record of a log whose store was closed in order."""


Item = Effect | SnapshotEnd | Closed


class LogRecord(NamedTuple):
    """One transaction. `synced_sequence` was durable when this record was made; `until` is the offset after it."""

    sequence: int
    synced_sequence: int
    body: bytes
    until: int


def encode_header(header: FileHeader) -> bytes:
    packed = _HEADER.pack(VERSION, header.kind, 0, header.generation, header.store_id, header.sequence)
    return packed + _CHECKSUM.pack(google_crc32c.value(packed))


def decode_header(data: bytes, path: str) -> FileHeader | None:
    """The header at the beginning of data; None when its bytes were never completely written."""
    if data and data[0] > VERSION:
        raise NewerFormat.of(path, data[0], VERSION)
    if len(data) < HEADER_BYTES:
        return None
    packed = data[: _HEADER.size]
    if _CHECKSUM.unpack_from(data, _HEADER.size)[0] != google_crc32c.value(packed):
        return None
    _, kind, _, generation, store_id, sequence = _HEADER.unpack(packed)
    return FileHeader(FileKind(kind), generation, store_id, sequence)


def encode_record(header: FileHeader, offset: int, sequence: int, synced_sequence: int, body: bytes) -> bytes:
    covered = _COVERED.pack(header.generation, header.store_id, offset, len(body), sequence, synced_sequence)
    checksum = google_crc32c.extend(google_crc32c.value(covered), body)
    return _RECORD.pack(MAGIC, len(body), checksum, sequence, synced_sequence) + body


def decode_record(header: FileHeader, data: bytes, start: int, offset: int) -> LogRecord | None:
    """The record at data[start:], which lies at `offset` in its file; None when those bytes are not one."""
    if len(data) - start < RECORD_BYTES:
        return None
    magic, length, checksum, sequence, synced_sequence = _RECORD.unpack_from(data, start)
    if magic != MAGIC or length > len(data) - start - RECORD_BYTES:
        return None
    body = data[start + RECORD_BYTES : start + RECORD_BYTES + length]
    covered = _COVERED.pack(header.generation, header.store_id, offset, length, sequence, synced_sequence)
    if google_crc32c.extend(google_crc32c.value(covered), body) != checksum:
        return None
    return LogRecord(sequence, synced_sequence, body, offset + RECORD_BYTES + length)


def record_length(data: bytes) -> int | None:
    """How many bytes the record has that begins with these; None when no record begins so."""
    if len(data) < RECORD_BYTES or data[:4] != MAGIC:
        return None
    return RECORD_BYTES + int(_RECORD.unpack_from(data)[1])


def records_after(header: FileHeader, data: bytes, start: int) -> Iterator[LogRecord]:
    """Every valid record in a log file from start on, however much damage lies between."""
    while (start := data.find(MAGIC, start)) >= 0:
        record = decode_record(header, data, start, start)
        if record is None:
            start += 1
        else:
            yield record
            start = record.until


def encode_items(items: Iterable[Item]) -> bytes:
    return b"".join([part for item in items for part in _encode_item(item)])


def _encode_item(item: Item) -> tuple[bytes, ...]:
    match item:
        case Written(path, held):
            name = path.encode()
            fixed = _WRITTEN.pack(
                _EffectKind.WRITTEN,
                held.version,
                held.owner,
                held.created_ms,
                held.modified_ms,
                len(name),
                len(held.value),
            )
            return fixed, name, held.value
        case Removed(path):
            name = path.encode()
            return _REMOVED.pack(_EffectKind.REMOVED, len(name)), name
        case Counted(path, number):
            name = path.encode()
            return _COUNTED.pack(_EffectKind.COUNTED, number, len(name)), name
        case SessionOpened(session, timeout_ms):
            return (_SESSION_OPENED.pack(_EffectKind.SESSION_OPENED, session, timeout_ms),)
        case SessionClosed(session):
            return (_SESSION_CLOSED.pack(_EffectKind.SESSION_CLOSED, session),)
        case SnapshotEnd(effects, next_session):
            return (_SNAPSHOT_END.pack(_EffectKind.SNAPSHOT_END, effects, next_session),)
        case Closed():
            return (_CLOSED.pack(_EffectKind.CLOSED),)


def decode_items(body: bytes, place: str) -> list[Item]:
    """The items of a record whose checksum was right. Damaged, with the place, when they make no sense all the same."""
    items: list[Item] = []
    at = 0
    try:
        while at < len(body):
            item, at = _decode_item(body, at)
            items.append(item)
    except (struct.error, ValueError) as error:
        raise Damaged(f"{place}: the record's checksum is right, its content is not: {error}") from error
    if at != len(body):
        raise Damaged(f"{place}: the record's checksum is right, but its last item is cut off")
    return items


def _decode_item(body: bytes, at: int) -> tuple[Item, int]:
    match body[at]:
        case _EffectKind.WRITTEN:
            _, version, owner, created_ms, modified_ms, name, length = _WRITTEN.unpack_from(body, at)
            at += _WRITTEN.size
            path = body[at : at + name].decode()
            at += name
            return Written(path, Held(body[at : at + length], version, owner, created_ms, modified_ms)), at + length
        case _EffectKind.REMOVED:
            _, name = _REMOVED.unpack_from(body, at)
            at += _REMOVED.size
            return Removed(body[at : at + name].decode()), at + name
        case _EffectKind.COUNTED:
            _, number, name = _COUNTED.unpack_from(body, at)
            at += _COUNTED.size
            return Counted(body[at : at + name].decode(), number), at + name
        case _EffectKind.SESSION_OPENED:
            _, session, timeout_ms = _SESSION_OPENED.unpack_from(body, at)
            return SessionOpened(session, timeout_ms), at + _SESSION_OPENED.size
        case _EffectKind.SESSION_CLOSED:
            _, session = _SESSION_CLOSED.unpack_from(body, at)
            return SessionClosed(session), at + _SESSION_CLOSED.size
        case _EffectKind.SNAPSHOT_END:
            _, effects, next_session = _SNAPSHOT_END.unpack_from(body, at)
            return SnapshotEnd(effects, next_session), at + _SNAPSHOT_END.size
        case _EffectKind.CLOSED:
            return Closed(), at + _CLOSED.size
        case unknown:
            raise ValueError(f"unknown kind {unknown}")
