# SPDX-License-Identifier: Apache-2.0
"""Payload compression as Pulsar's clients do it: LZ4 and Snappy as bare blocks, ZLIB and ZSTD as streams.

Nothing is decompressed beyond the size that the metadata declares, nor is more memory taken: the declared size is
checked against the caller's limit first, and where a format carries a size of its own, that one before it is believed.
Decides.
"""

import zlib
from typing import Final, TypeAlias

import cramjam
import lz4.block
import zstandard

from magnetar.errors import BadPayload
from magnetar.wire.proto.pulsar_api_pb2 import LZ4, NONE, SNAPPY, ZLIB, ZSTD, CompressionType

Buffer: TypeAlias = bytes | memoryview

ZSTD_LEVEL: Final = 3
ZSTD_WINDOW_BYTES_MAX: Final = 1 << 27
"""Zstandard's own default limit for decoders; a frame that asks for more is refused."""


def compress(kind: CompressionType.ValueType, data: Buffer) -> bytes:
    if kind == NONE:
        return bytes(data)
    if kind == LZ4:
        return bytes(lz4.block.compress(data, store_size=False))
    if kind == ZLIB:
        return zlib.compress(data)
    if kind == ZSTD:
        return zstandard.ZstdCompressor(level=ZSTD_LEVEL).compress(data)
    if kind == SNAPPY:
        return bytes(cramjam.snappy.compress_raw(data))
    raise BadPayload(f"Compression type {kind} is unknown.")


def decompress(kind: CompressionType.ValueType, data: Buffer, size: int, bytes_max: int) -> bytes:
    """Exactly size bytes, or BadPayload."""
    if not 0 <= size <= bytes_max:
        raise BadPayload(f"A payload that says it has {size} bytes uncompressed is over the limit of {bytes_max}.")
    try:
        result = _decompress(kind, data, size)
    except (lz4.block.LZ4BlockError, zlib.error, zstandard.ZstdError, cramjam.DecompressionError) as error:
        raise BadPayload(f"{_name(kind)} cannot decompress a payload of {len(data)} bytes: {error}") from error
    if len(result) != size:
        raise BadPayload(f"{_name(kind)} gave {len(result)} bytes where {size} were declared.")
    return result


def _decompress(kind: CompressionType.ValueType, data: Buffer, size: int) -> bytes:
    if kind == NONE:
        return bytes(data)
    if kind == LZ4:
        if size == 0:  # the library refuses to give nothing
            return _no_bytes(data)
        return bytes(lz4.block.decompress(data, uncompressed_size=size))
    if kind == ZLIB:
        # Java's client ends the stream with a flush and no final block, so an unfinished stream is complete here.
        return zlib.decompressobj().decompress(data, size + 1)
    if kind == ZSTD:
        return _decompress_zstd(data, size)
    if kind == SNAPPY:
        declared = cramjam.snappy.decompress_raw_len(data)
        if declared != size:
            raise BadPayload(f"Snappy holds {declared} bytes where {size} were declared.")
        return bytes(cramjam.snappy.decompress_raw(data))
    raise BadPayload(f"Compression type {kind} is unknown.")


def _no_bytes(block: Buffer) -> bytes:
    if block not in (b"", b"\x00"):
        raise BadPayload("LZ4 holds data where 0 bytes were declared.")
    return b""


def _decompress_zstd(data: Buffer, size: int) -> bytes:
    declared = zstandard.frame_content_size(data)
    if declared not in (size, -1):
        raise BadPayload(f"ZSTD holds {declared} bytes where {size} were declared.")
    decompressor = zstandard.ZstdDecompressor(max_window_size=ZSTD_WINDOW_BYTES_MAX)
    return decompressor.decompress(data, max_output_size=max(size, 1))  # a limit of 0 would mean none


def _name(kind: int) -> str:
    return CompressionType.Name(kind) if kind in CompressionType.values() else f"Compression type {kind}"  # type: ignore[arg-type]
