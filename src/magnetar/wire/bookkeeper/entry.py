# SPDX-License-Identifier: Apache-2.0
"""The packed entry: what a ledger writer sends, a bookie stores and a reader checks. Byte for byte BookKeeper's.

    8 ledger id | 8 entry id | 8 last add confirmed | 8 length | digest | body

All numbers are big-endian and signed. Length is the ledger's, in body bytes, this entry included. The digest covers the
four numbers and the body. Entry and reader never change these bytes: one buffer lives in cache, journal and wire.
Decides.
"""

import hmac
from collections.abc import Sequence
from struct import Struct
from typing import Final, NamedTuple, cast

from magnetar.errors import DigestMismatch
from magnetar.wire import runs
from magnetar.wire.bookkeeper.digest import DIGEST_BYTES, Buffer, DigestType, digest_of, master_key
from magnetar.wire.crc32c import extend

METADATA_BYTES: Final = 32
LAST_CONFIRMED_BYTES: Final = 16

_METADATA: Final = Struct(">qqqq")
_METADATA_CRC32C: Final = Struct(">qqqqI")
_LAST_CONFIRMED: Final = Struct(">qq")
_LONG: Final = Struct(">q")


class EntryHeader(NamedTuple):
    ledger_id: int
    entry_id: int
    last_add_confirmed: int
    length: int


def read_header(entry: Buffer) -> EntryHeader:
    """The four numbers, unchecked; too few bytes raise DigestMismatch."""
    if len(entry) < METADATA_BYTES:
        raise DigestMismatch(f"A packed entry has at least {METADATA_BYTES} bytes; this one has {len(entry)}.")
    return EntryHeader._make(_METADATA.unpack_from(entry))


def ledger_id_of(entry: Buffer) -> int:
    number: int = _LONG.unpack_from(entry)[0]
    return number


def entry_id_of(entry: Buffer) -> int:
    number: int = _LONG.unpack_from(entry, 8)[0]
    return number


def last_add_confirmed_of(entry: Buffer) -> int:
    number: int = _LONG.unpack_from(entry, 16)[0]
    return number


def length_of(entry: Buffer) -> int:
    number: int = _LONG.unpack_from(entry, 24)[0]
    return number


def pack_crc32c(ledger_id: int, entry_id: int, last_add_confirmed: int, length: int, parts: Sequence[Buffer]) -> bytes:
    """One buffer with the body made of parts, under a CRC32C. Parts that are not `bytes` cost a copy more."""
    if len(parts) == 2:
        front, message = parts
        if type(front) is bytes is type(message):
            return runs.pack_entry(ledger_id, entry_id, last_add_confirmed, length, front, message)
    metadata = _METADATA.pack(ledger_id, entry_id, last_add_confirmed, length)
    checksum = extend(0, metadata)
    for part in parts:
        checksum = extend(checksum, part)
    return b"".join((metadata, checksum.to_bytes(4, "big"), *parts))


class EntryPacker:
    """Packs and unpacks the entries of one ledger."""

    __slots__ = ("_digest", "_is_crc32c", "_ledger_id", "digest_bytes", "header_bytes", "master_key")

    def __init__(self, ledger_id: int, digest_type: DigestType, password: bytes) -> None:
        self._ledger_id = ledger_id
        self._is_crc32c = digest_type is DigestType.CRC32C
        self._digest = digest_of(digest_type, password)
        self.digest_bytes: Final = DIGEST_BYTES[digest_type]
        self.header_bytes: Final = METADATA_BYTES + self.digest_bytes
        self.master_key: Final = master_key(password)

    def pack(self, entry_id: int, last_add_confirmed: int, length: int, parts: Sequence[Buffer]) -> bytes:
        """One buffer with the body made of parts."""
        if self._is_crc32c:
            return pack_crc32c(self._ledger_id, entry_id, last_add_confirmed, length, parts)
        metadata = _METADATA.pack(self._ledger_id, entry_id, last_add_confirmed, length)
        return b"".join((metadata, self._digest((metadata, *parts)), *parts))

    def pack_run(
        self, first: int, last_add_confirmed: int, length: int, entries: Sequence[Sequence[Buffer]]
    ) -> tuple[list[bytes], int]:
        """Consecutive entries, from this id on, in a ledger that had this length before them; and the length after."""
        if self._is_crc32c and runs.are_plain(entries):
            plain = cast("list[tuple[bytes, bytes]]", entries)
            return runs.pack_entries(self._ledger_id, first, last_add_confirmed, length, plain)
        packed: list[bytes] = []
        for entry_id, parts in enumerate(entries, first):
            for part in parts:
                length += len(part)
            packed.append(self.pack(entry_id, last_add_confirmed, length, parts))
        return packed, length

    def unpack(self, entry: Buffer, entry_id: int | None) -> memoryview:
        """The body, once the digest, the ledger and (unless None) the entry are what they must be.

        Raises DigestMismatch; the text says which of them was wrong.
        """
        if self._is_crc32c and type(entry) is bytes and len(entry) >= _METADATA_CRC32C.size:
            ledger_id, found, _, _, checksum = _METADATA_CRC32C.unpack_from(entry)
            if (
                extend(extend(0, entry[:METADATA_BYTES]), memoryview(entry)[_METADATA_CRC32C.size :]) == checksum
                and ledger_id == self._ledger_id
                and (entry_id is None or entry_id == found)
            ):
                return memoryview(entry)[_METADATA_CRC32C.size :]
        return self._unpack_any(entry, entry_id)

    def count_intact(self, entries: list[bytes], first: int) -> int:
        """How many of these are the entries from this id on, up to the first that is not."""
        if self._is_crc32c:
            return runs.count_intact(self._ledger_id, first, entries)
        for count, entry in enumerate(entries):
            try:
                self._unpack_any(entry, first + count)
            except DigestMismatch:
                return count
        return len(entries)

    def _unpack_any(self, entry: Buffer, entry_id: int | None) -> memoryview:
        view = memoryview(entry)
        body = view[self.header_bytes :]
        header = read_header(entry)
        self._check(view[:METADATA_BYTES], view[METADATA_BYTES : self.header_bytes], body, header.ledger_id)
        if entry_id is not None and header.entry_id != entry_id:
            raise DigestMismatch(f"Ledger {self._ledger_id}: asked for entry {entry_id}, got {header.entry_id}.")
        return body

    def pack_last_confirmed(self, last_add_confirmed: int) -> bytes:
        """The body of an explicit last add confirmed: ledger id, the number, digest of both."""
        metadata = _LAST_CONFIRMED.pack(self._ledger_id, last_add_confirmed)
        return metadata + self._digest((metadata,))

    def unpack_last_confirmed(self, body: Buffer) -> int:
        """The number in an explicit last add confirmed; raises DigestMismatch."""
        if len(body) < LAST_CONFIRMED_BYTES:
            raise DigestMismatch(f"A last add confirmed has at least {LAST_CONFIRMED_BYTES} bytes, not {len(body)}.")
        view = memoryview(body)
        ledger_id, last_add_confirmed = _LAST_CONFIRMED.unpack_from(body)
        digest = view[LAST_CONFIRMED_BYTES : LAST_CONFIRMED_BYTES + self.digest_bytes]
        self._check(view[:LAST_CONFIRMED_BYTES], digest, b"", ledger_id)
        return int(last_add_confirmed)

    def _check(self, metadata: Buffer, digest: memoryview, body: Buffer, ledger_id: int) -> None:
        if not hmac.compare_digest(self._digest((metadata, body)), digest):
            raise DigestMismatch(f"Ledger {self._ledger_id}: the digest does not match the bytes.")
        if ledger_id != self._ledger_id:
            raise DigestMismatch(f"Asked for ledger {self._ledger_id}, got {ledger_id}.")
