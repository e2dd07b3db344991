# SPDX-License-Identifier: Apache-2.0
"""The bytes of an entry log: header, records, and the ledgers map at the end (docs/formats/entry_log.md).

Owns encoding and checking. A record knows its own offset and its file's id, so that a misdirected or stale one never
fits. Never reads files; never takes a length for true before the checksum says so.
Decides.
"""

from collections.abc import Iterator, Mapping
from struct import Struct
from typing import Final, NamedTuple

from google_crc32c import value

from magnetar.errors import NewerFormat
from magnetar.wire.crc32c import extend

HEADER_BYTES: Final = 64
VERSION: Final = 1
RECORD_HEADER: Final = Struct(">III")
RECORD_HEADER_BYTES: Final = RECORD_HEADER.size
CHECKSUM: Final = Struct(">I")
RECORD_OVERHEAD_BYTES: Final = RECORD_HEADER_BYTES + CHECKSUM.size
"""Beside the entry."""
ENTRY_MAGIC: Final = 0x4D474552
MAP_MAGIC: Final = 0x4D474D50

_HEADER: Final = Struct(">8sHHQQI")
_MAGIC: Final = b"MAGNETEL"
_LOG_ID: Final = Struct(">Q")
_MAP_ROW: Final = Struct(">qQ")
_IDS: Final = Struct(">qq")
_ENTRY_MAGIC_BYTES: Final = ENTRY_MAGIC.to_bytes(4, "big")
_ENTRY_BYTES_MIN: Final = 16

RECORD_HEAD_BYTES: Final = RECORD_HEADER_BYTES + _IDS.size
"""With which a record says whose it is."""


class LogHeader(NamedTuple):
    log_id: int
    # Where the ledgers map is and how many bytes its rows take; 0 and 0 in a log that was never finished.
    map_offset: int
    map_bytes: int


class LoggedEntry(NamedTuple):
    ledger_id: int
    entry_id: int
    offset: int
    entry: bytes


class BadRange(NamedTuple):
    """Bytes from start that belong to no whole record."""

    start: int


def log_name(log_id: int) -> str:
    return f"{log_id:x}.log"


def log_id_of(name: str) -> int | None:
    stem, dot, suffix = name.partition(".")
    if not dot or suffix != "log":
        return None
    try:
        log_id = int(stem, 16)
    except ValueError:
        return None
    return log_id if log_name(log_id) == name else None


def encode_header(header: LogHeader) -> bytes:
    fields = _HEADER.pack(_MAGIC, VERSION, 0, header.log_id, header.map_offset, header.map_bytes)
    return (fields + CHECKSUM.pack(value(fields))).ljust(HEADER_BYTES, b"\0")


def decode_header(data: bytes, where: str = "an entry log") -> LogHeader | None:
    """None when the bytes are not a whole header; NewerFormat when a later version wrote them."""
    if len(data) < HEADER_BYTES:
        return None
    fields = data[: _HEADER.size]
    magic, version, _flags, log_id, map_offset, map_bytes = _HEADER.unpack(fields)
    if magic != _MAGIC or CHECKSUM.unpack_from(data, _HEADER.size)[0] != value(fields):
        return None
    if version > VERSION:
        raise NewerFormat.of(where, version, VERSION)
    return LogHeader(log_id, map_offset, map_bytes)


def checksum_seed(log_id: int) -> int:
    seed: int = value(_LOG_ID.pack(log_id))
    return seed


def encode_record(seed: int, offset: int, entry: bytes) -> tuple[bytes, bytes]:
    """The two buffers of a record: header with entry, and checksum."""
    head = RECORD_HEADER.pack(ENTRY_MAGIC, offset, len(entry)) + entry
    return head, CHECKSUM.pack(extend(seed, head))


def record_buffers(seed: int, offset: int, entry: bytes) -> tuple[bytes, bytes, bytes]:
    """The same without copying the entry."""
    head = RECORD_HEADER.pack(ENTRY_MAGIC, offset, len(entry))
    return head, entry, CHECKSUM.pack(extend(extend(seed, head), entry))


def decode_record(seed: int, offset: int, record: bytes) -> bytes | None:
    """The entry in exactly these bytes of a file, or None when they are not what was written there."""
    end = len(record) - CHECKSUM.size
    if end < RECORD_HEADER_BYTES:
        return None
    magic, own_offset, length = RECORD_HEADER.unpack_from(record)
    if magic != ENTRY_MAGIC or own_offset != offset or length != end - RECORD_HEADER_BYTES:
        return None
    if CHECKSUM.unpack_from(record, end)[0] != extend(seed, record[:end]):
        return None
    return record[RECORD_HEADER_BYTES:end]


def entry_bytes_at(head: bytes, offset: int, ledger_id: int, entry_id: int) -> int | None:
    """How large the entry says to be whose record begins with this head, or None where another or none begins.

    Nothing of it has been checked against the record's sum.
    """
    if len(head) < RECORD_HEAD_BYTES:
        return None
    magic, own_offset, length = RECORD_HEADER.unpack_from(head)
    if magic != ENTRY_MAGIC or own_offset != offset or length < _IDS.size:
        return None
    return int(length) if _IDS.unpack_from(head, RECORD_HEADER_BYTES) == (ledger_id, entry_id) else None


def ids_of(entry: bytes) -> tuple[int, int]:
    ledger_id, entry_id = _IDS.unpack_from(entry)
    return ledger_id, entry_id


def encode_map(seed: int, offset: int, bytes_by_ledger: Mapping[int, int]) -> bytes:
    rows = b"".join(_MAP_ROW.pack(ledger_id, bytes_by_ledger[ledger_id]) for ledger_id in sorted(bytes_by_ledger))
    head = RECORD_HEADER.pack(MAP_MAGIC, offset, len(rows)) + rows
    return head + CHECKSUM.pack(extend(seed, head))


def decode_map(seed: int, offset: int, data: bytes) -> dict[int, int] | None:
    end = len(data) - CHECKSUM.size
    if end < RECORD_HEADER_BYTES:
        return None
    magic, own_offset, length = RECORD_HEADER.unpack_from(data)
    if magic != MAP_MAGIC or own_offset != offset or length != end - RECORD_HEADER_BYTES or length % _MAP_ROW.size:
        return None
    if CHECKSUM.unpack_from(data, end)[0] != extend(seed, data[:end]):
        return None
    return dict(_MAP_ROW.iter_unpack(data[RECORD_HEADER_BYTES:end]))


class EntryLogScan:
    """Cuts a log's bytes, fed in pieces, into entries; skips what is broken and says where.

    Invariant: memory is bounded by the piece fed plus one record of the largest size.
    """

    __slots__ = ("_broken", "_data", "_entry_bytes_max", "_seed", "_start", "offset")

    def __init__(self, log_id: int, *, entry_bytes_max: int) -> None:
        self._seed = checksum_seed(log_id)
        self._entry_bytes_max = entry_bytes_max
        self._data = b""
        self._start = 0
        self._broken = False
        self.offset = HEADER_BYTES

    def feed(self, data: bytes) -> Iterator[LoggedEntry | BadRange]:
        self._data = self._data[self._start :] + data
        self._start = 0
        return self._cut(final=False)

    def end(self) -> Iterator[LoggedEntry | BadRange]:
        return self._cut(final=True)

    def _cut(self, *, final: bool) -> Iterator[LoggedEntry | BadRange]:
        while True:
            length = self._length_at_start()
            if length is None and not final:
                return
            record = None if not length else self._data[self._start : self._start + length]
            entry = None if record is None else decode_record(self._seed, self.offset, record)
            if entry is not None and len(entry) >= _ENTRY_BYTES_MIN:
                self._broken = False
                ledger_id, entry_id = ids_of(entry)
                yield LoggedEntry(ledger_id, entry_id, self.offset, entry)
                self._skip(RECORD_OVERHEAD_BYTES + len(entry))
                continue
            if self._start >= len(self._data):
                return
            if not self._broken:
                self._broken = True
                yield BadRange(self.offset)
            if not self._skip_to_magic(final=final):
                return

    def _length_at_start(self) -> int | None:
        """Bytes of the record that seems to start here, 0 when none does, None when more must be fed to know."""
        left = len(self._data) - self._start
        if left < RECORD_HEADER_BYTES:
            return None
        magic, offset, length = RECORD_HEADER.unpack_from(self._data, self._start)
        if magic != ENTRY_MAGIC or offset != self.offset or length > self._entry_bytes_max:
            return 0
        return None if left < RECORD_OVERHEAD_BYTES + length else RECORD_OVERHEAD_BYTES + length

    def _skip_to_magic(self, *, final: bool) -> bool:
        found = self._data.find(_ENTRY_MAGIC_BYTES, self._start + 1)
        if found >= 0:
            self._skip(found - self._start)
            return True
        keep = 0 if final else len(_ENTRY_MAGIC_BYTES) - 1
        self._skip(max(0, len(self._data) - self._start - keep))
        return False

    def _skip(self, count: int) -> None:
        self._start += count
        self.offset += count
