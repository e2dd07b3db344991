# SPDX-License-Identifier: Apache-2.0
"""The bytes of Pulsar's two managed-ledger records: plain protobuf, or compressed behind a small header.

    0x4778 | 4 header length | header (compression type, uncompressed size) | compressed record

Every form is read; which is written, record_packing decides. docs/formats/managed_ledger.md describes both.
Decides.
"""

import importlib
import zlib
from collections.abc import Callable
from struct import Struct
from struct import error as StructError
from typing import Any, Final, TypeVar

from google.protobuf.message import DecodeError, Message

from magnetar.errors import DamagedRecord
from magnetar.wire.proto.ml_formats_pb2 import (
    LZ4,
    NONE,
    SNAPPY,
    ZLIB,
    ZSTD,
    CompressionType,
    ManagedCursorInfo,
    ManagedLedgerInfo,
    ManagedLedgerInfoMetadata,
)
from magnetar.wire.text_fields import unreadable

_MAGIC: Final = 0x4778
_HEAD: Final = Struct(">HI")
UNCOMPRESSED_BYTES_MAX: Final = 64 * 1024 * 1024

AnyMessage = TypeVar("AnyMessage", bound=Message)


def decode_ledger_record(data: bytes) -> ManagedLedgerInfo:
    """DamagedRecord when the bytes are not what a broker writes."""
    return _decode(data, ManagedLedgerInfo())


def decode_cursor_record(data: bytes) -> ManagedCursorInfo:
    """DamagedRecord when the bytes are not what a broker writes."""
    return _decode(data, ManagedCursorInfo())


def compressed(data: bytes, compression: str) -> bytes:
    """A plain record behind the header that says how it is compressed."""
    kind = CompressionType.Value(compression)
    header = ManagedLedgerInfoMetadata(compressionType=kind, uncompressedSize=len(data)).SerializeToString()
    return _HEAD.pack(_MAGIC, len(header)) + header + _compress(kind, data)


def _decode(data: bytes, message: AnyMessage) -> AnyMessage:
    try:
        message.ParseFromString(_plain(data))
        _require_whole(message)
        if wrong := unreadable(message):
            raise ValueError(f"it has bytes that are no UTF-8 in {wrong}")
    except (DecodeError, StructError, zlib.error, ValueError) as error:
        name = message.DESCRIPTOR.name
        raise DamagedRecord(f"A {name} of {len(data)} bytes in the metadata store cannot be read: {error}") from error
    return message


def _plain(data: bytes) -> bytes:
    if len(data) < _HEAD.size or data[0] << 8 | data[1] != _MAGIC:
        return data
    _, length = _HEAD.unpack_from(data)
    # Both records' headers have the same two fields.
    header = ManagedLedgerInfoMetadata.FromString(data[_HEAD.size : _HEAD.size + length])
    _require_whole(header)
    size = header.uncompressedSize
    if not 0 <= size <= UNCOMPRESSED_BYTES_MAX:
        raise ValueError(f"an uncompressed size of {size} bytes is impossible")
    plain = _decompress(header.compressionType, data[_HEAD.size + length :], size)
    if len(plain) != size:
        raise ValueError(f"{len(plain)} bytes came out of the compression instead of {size}")
    return plain


def _compress(compression: int, data: bytes) -> bytes:
    if compression == ZLIB:
        return zlib.compress(data)
    if compression == LZ4:
        return bytes(_library("lz4.block").compress(data, store_size=False))
    if compression == ZSTD:
        return bytes(_library("zstandard").ZstdCompressor().compress(data))
    assert compression == SNAPPY, compression
    return bytes(_library("cramjam").snappy.compress_raw(data))


def _decompress(compression: int, data: bytes, size: int) -> bytes:
    """The libraries are loaded when a record needs them."""
    if compression == NONE:
        return data
    if compression == ZLIB:
        return zlib.decompressobj().decompress(data, size + 1)
    if compression == LZ4:
        lz4 = _library("lz4.block")
        return _bytes(lambda: lz4.decompress(data, uncompressed_size=size), lz4.LZ4BlockError)
    if compression == ZSTD:
        zstandard = _library("zstandard")
        decompressor = zstandard.ZstdDecompressor()
        return _bytes(
            lambda: decompressor.decompress(data, max_output_size=size + 1),
            zstandard.ZstdError,
            lambda: zstandard.frame_content_size(data) in (size, -1),
        )
    if compression == SNAPPY:
        cramjam = _library("cramjam")
        return _bytes(
            lambda: cramjam.snappy.decompress_raw(data),
            cramjam.DecompressionError,
            lambda: cramjam.snappy.decompress_raw_len(data) == size,
        )
    raise ValueError(f"compression type {compression} is unknown")


def _library(name: str) -> Any:
    return importlib.import_module(name)


def _bytes(
    decompress: Callable[[], Any], failure: type[Exception], is_as_large: Callable[[], bool] = lambda: True
) -> bytes:
    """Some formats say how large they are, and the libraries allocate that, whatever limit they are given."""
    try:
        if not is_as_large():
            raise ValueError("its own size is another than the one in front of it")
        return bytes(decompress())
    except failure as error:
        raise ValueError(str(error)) from error


def _require_whole(message: Message) -> None:
    """The library takes a message without its required fields: an empty list of ledgers instead of a cut-off one."""
    if not message.IsInitialized():
        raise ValueError("required fields are missing")
