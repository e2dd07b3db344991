# SPDX-License-Identifier: Apache-2.0
"""What is made from a ledger's password and its bytes: the master key that bookies compare, and an entry's digest.

The digest is end to end: the ledger writer makes it, every reader checks it, bookies never look at it.
Decides.
"""

import hashlib
import hmac
import zlib
from collections.abc import Callable, Iterable
from enum import IntEnum
from typing import Final, TypeAlias

from magnetar.wire.crc32c import extend

Buffer: TypeAlias = bytes | bytearray | memoryview
Digest: TypeAlias = Callable[[Iterable[Buffer]], bytes]


class DigestType(IntEnum):
    """The numbers of LedgerMetadataFormat.DigestType."""

    CRC32 = 1
    HMAC = 2
    CRC32C = 3
    DUMMY = 4


DIGEST_BYTES: Final = {DigestType.CRC32: 8, DigestType.HMAC: 20, DigestType.CRC32C: 4, DigestType.DUMMY: 0}


def master_key(password: bytes) -> bytes:
    """The 20 bytes that prove to a bookie that the caller knows the ledger's password."""
    return hashlib.sha1(b"ledger" + password, usedforsecurity=False).digest()


def crc32c(chunks: Iterable[Buffer]) -> int:
    """CRC32C of all chunks as one."""
    checksum = 0
    for chunk in chunks:
        checksum = extend(checksum, chunk)
    return checksum


def digest_of(digest_type: DigestType, password: bytes) -> Digest:
    """The function that digests an entry's header and body, given in order, into the bytes between them."""
    if digest_type is DigestType.CRC32C:
        return _crc32c
    if digest_type is DigestType.CRC32:
        return _crc32
    if digest_type is DigestType.HMAC:
        return _keyed(password)
    return _nothing


def _crc32c(chunks: Iterable[Buffer]) -> bytes:
    return crc32c(chunks).to_bytes(4, "big")


def _nothing(chunks: Iterable[Buffer]) -> bytes:
    return b""


def _crc32(chunks: Iterable[Buffer]) -> bytes:
    checksum = 0
    for chunk in chunks:
        checksum = zlib.crc32(chunk, checksum)
    return checksum.to_bytes(8, "big")  # upstream stores it as a long


def _keyed(password: bytes) -> Digest:
    key = hashlib.sha1(b"mac" + password, usedforsecurity=False).digest()
    fresh = hmac.new(key, digestmod="sha1")

    def keyed(chunks: Iterable[Buffer]) -> bytes:
        mac = fresh.copy()
        for chunk in chunks:
            mac.update(chunk)
        return mac.digest()

    return keyed
