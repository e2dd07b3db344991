# SPDX-License-Identifier: Apache-2.0
"""The bytes of a journal file: header, records, and what a broken place in them means (docs/formats/journal.md).

Owns encoding, checking and finding the next whole record behind a broken one. Never reads files, and never decides what
becomes of the records behind a broken place: it says where it is and how far later records prove that a sync reached.
Decides.
"""

from collections.abc import Iterator
from enum import IntEnum
from struct import Struct
from typing import Final, NamedTuple

from google_crc32c import value

from magnetar.errors import NewerFormat
from magnetar.wire.crc32c import extend

FILE_HEADER_BYTES: Final = 32
FILE_VERSION: Final = 1
RECORD_MAGIC: Final = 0x4D474A52
RECORD_HEADER: Final = Struct(">IIQBI")
RECORD_HEADER_BYTES: Final = RECORD_HEADER.size
CHECKSUM: Final = Struct(">I")
RECORD_OVERHEAD_BYTES: Final = RECORD_HEADER_BYTES + CHECKSUM.size

_FILE_MAGIC: Final = b"MAGNETJL"
_FILE_HEADER: Final = Struct(">8sHHQQ")
_FLAG_SESSION_START: Final = 1
_FILE_ID: Final = Struct(">Q")
_MAGIC_BYTES: Final = RECORD_MAGIC.to_bytes(4, "big")


class RecordKind(IntEnum):
    ENTRY = 1
    """A packed entry; its ledger and entry id are its first sixteen bytes."""
    LEDGER = 2
    """A ledger's master key, before its first entry here."""
    FENCED = 3
    LAST_CONFIRMED = 4
    """An explicit last add confirmed."""
    SEAL = 5
    """Nothing but the synced position that every record carries: written when the journal comes to rest."""


class FileHeader(NamedTuple):
    file_id: int
    # The journal position of the file's first byte; positions rise over all files of a journal's life.
    first_position: int
    # True in the first file after a start: all that came before is in entry logs and index, and durable there.
    session_start: bool


class JournalRecord(NamedTuple):
    kind: int
    position: int
    # Everything before this position was durable when the record was written.
    synced: int
    payload: bytes

    @property
    def size(self) -> int:
        """Bytes in the file."""
        return RECORD_OVERHEAD_BYTES + len(self.payload)


class Break(NamedTuple):
    """From this offset on the file holds no whole record, or none until the next one told."""

    offset: int


def file_name(file_id: int) -> str:
    return f"{file_id:x}.txn"


def file_id_of(name: str) -> int | None:
    stem, dot, suffix = name.partition(".")
    if not dot or suffix != "txn":
        return None
    try:
        file_id = int(stem, 16)
    except ValueError:
        return None
    return file_id if file_name(file_id) == name else None


def encode_file_header(header: FileHeader) -> bytes:
    flags = _FLAG_SESSION_START if header.session_start else 0
    fields = _FILE_HEADER.pack(_FILE_MAGIC, FILE_VERSION, flags, header.file_id, header.first_position)
    return fields + CHECKSUM.pack(value(fields))


def decode_file_header(data: bytes, where: str = "a journal") -> FileHeader | None:
    """None when the bytes are not a whole header; NewerFormat when a later version wrote them."""
    if len(data) < FILE_HEADER_BYTES:
        return None
    fields = data[: _FILE_HEADER.size]
    magic, version, flags, file_id, first_position = _FILE_HEADER.unpack(fields)
    (checksum,) = CHECKSUM.unpack_from(data, _FILE_HEADER.size)
    if magic != _FILE_MAGIC or checksum != value(fields):
        return None
    if version > FILE_VERSION:
        raise NewerFormat.of(where, version, FILE_VERSION)
    return FileHeader(file_id, first_position, bool(flags & _FLAG_SESSION_START))


def checksum_seed(file_id: int) -> int:
    """Where every record's checksum starts, so that a record of another file never fits."""
    seed: int = value(_FILE_ID.pack(file_id))
    return seed


def encode_record(seed: int, offset: int, synced: int, kind: int, payload: bytes) -> bytes:
    """The plain form of what Journal.append_entry does in line."""
    head = RECORD_HEADER.pack(RECORD_MAGIC, offset, synced, kind, len(payload)) + payload
    return head + CHECKSUM.pack(extend(seed, head))


class JournalScan:
    """Cuts one file's bytes, fed in pieces of any size, into records and breaks.

    Invariant: memory is bounded by the piece fed plus one record of the largest size, whatever the lengths claim.
    """

    __slots__ = ("_broken", "_data", "_first_position", "_payload_bytes_max", "_seed", "_start", "offset")

    def __init__(self, header: FileHeader, *, offset: int, payload_bytes_max: int) -> None:
        self._seed = checksum_seed(header.file_id)
        self._first_position = header.first_position
        self._payload_bytes_max = payload_bytes_max
        self._data = b""
        self._start = 0
        self._broken = False
        # The offset in the file of the next byte not yet told of.
        self.offset = offset

    def feed(self, data: bytes) -> Iterator[JournalRecord | Break]:
        self._data = self._data[self._start :] + data
        self._start = 0
        return self._cut(final=False)

    def end(self) -> Iterator[JournalRecord | Break]:
        """The file has no more bytes: what is left over is broken."""
        return self._cut(final=True)

    def _cut(self, *, final: bool) -> Iterator[JournalRecord | Break]:
        while True:
            record = self._record_at_start()
            if record is None and not final:
                return
            if record is not None and record is not _BAD:
                self._broken = False
                self._skip(RECORD_OVERHEAD_BYTES + len(record.payload))
                yield record
                continue
            left = len(self._data) - self._start
            if left == 0:
                return
            if not self._broken:
                self._broken = True
                yield Break(self.offset)
            if not self._skip_to_magic(final=final):
                return

    def _record_at_start(self) -> JournalRecord | None:
        """The record here, _BAD, or None when its end has not been fed yet."""
        data, start = self._data, self._start
        left = len(data) - start
        if left < RECORD_HEADER_BYTES:
            return None
        magic, offset, synced, kind, length = RECORD_HEADER.unpack_from(data, start)
        if magic != RECORD_MAGIC or offset != self.offset & 0xFFFFFFFF or length > self._payload_bytes_max:
            return _BAD
        end = start + RECORD_HEADER_BYTES + length
        if left < RECORD_OVERHEAD_BYTES + length:
            return None
        if CHECKSUM.unpack_from(data, end)[0] != extend(self._seed, data[start:end]):
            return _BAD
        payload = data[start + RECORD_HEADER_BYTES : end]
        return JournalRecord(kind, self._first_position + self.offset, synced, payload)

    def _skip_to_magic(self, *, final: bool) -> bool:
        """Go on to where a record could start; False when nothing fed so far looks like one."""
        found = self._data.find(_MAGIC_BYTES, self._start + 1)
        if found >= 0:
            self._skip(found - self._start)
            return True
        keep = 0 if final else len(_MAGIC_BYTES) - 1
        self._skip(max(0, len(self._data) - self._start - keep))
        return False

    def _skip(self, count: int) -> None:
        self._start += count
        self.offset += count


_BAD: Final = JournalRecord(0, 0, 0, b"")
