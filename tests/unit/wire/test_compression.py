# SPDX-License-Identifier: Apache-2.0
"""Compression: reads what Apache Pulsar's Java client writes, and no bomb goes off."""

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from magnetar.errors import BadPayload
from magnetar.wire.compression import compress, decompress
from magnetar.wire.proto.pulsar_api_pb2 import LZ4, NONE, SNAPPY, ZLIB, ZSTD, CompressionType

LIMIT = 1 << 20
REAL = [LZ4, ZLIB, ZSTD, SNAPPY]
KINDS = st.sampled_from([NONE, *REAL])

# 200 bytes "abcdefgabc…", as the codecs of Apache Pulsar 4.0.8 write them; then the empty payload.
TEXT = (b"abcdefg" * 29)[:200]
GOLDEN = {
    LZ4: ("7f616263646566670700a9506761626364", "00"),
    ZLIB: ("789c4a4c4a4e494d4b4f1cea14000000ffff", ""),
    ZSTD: ("28b52ffd24c8750000386162636465666701003e51c5086142fb1a", "28b52ffd240001000099e9d851"),
    SNAPPY: ("c8011861626364656667fe0700fe0700ee07000507", "00"),
}


@pytest.mark.feature("F-PROD-39")
@pytest.mark.parametrize("kind", REAL, ids=CompressionType.Name)
def test_what_java_wrote_is_read(kind: CompressionType.ValueType) -> None:
    full, empty = GOLDEN[kind]
    assert decompress(kind, bytes.fromhex(full), len(TEXT), LIMIT) == TEXT
    assert decompress(kind, memoryview(bytes.fromhex(full)), len(TEXT), LIMIT) == TEXT
    assert decompress(kind, bytes.fromhex(empty), 0, LIMIT) == b""


@pytest.mark.feature("F-PROD-39")
@given(KINDS, st.binary(max_size=300))
def test_what_was_compressed_comes_back(kind: CompressionType.ValueType, data: bytes) -> None:
    assert decompress(kind, compress(kind, data), len(data), LIMIT) == data
    assert decompress(kind, compress(kind, memoryview(data)), len(data), LIMIT) == data


@given(KINDS, st.binary(max_size=60), st.integers(-3, 80))
def test_a_declared_size_that_lies_is_refused(kind: CompressionType.ValueType, data: bytes, size: int) -> None:
    if size != len(data):
        with pytest.raises(BadPayload):
            decompress(kind, compress(kind, data), size, LIMIT)


@settings(max_examples=300)
@given(KINDS, st.binary(max_size=60), st.integers(0, 80))
def test_any_bytes_are_data_or_a_bad_payload(kind: CompressionType.ValueType, data: bytes, size: int) -> None:
    try:
        result = decompress(kind, data, size, LIMIT)
    except BadPayload:
        return
    assert len(result) == size


@pytest.mark.parametrize("kind", REAL, ids=CompressionType.Name)
def test_a_bomb_gives_no_more_than_was_declared(kind: CompressionType.ValueType) -> None:
    bomb = compress(kind, bytes(4 << 20))
    with pytest.raises(BadPayload):
        decompress(kind, bomb, 1024, LIMIT)
    with pytest.raises(BadPayload, match="over the limit"):
        decompress(kind, bomb, 4 << 20, LIMIT)


def test_a_stream_that_does_not_say_its_size_is_bounded_too() -> None:
    writer = zstandard.ZstdCompressor().compressobj()
    data = writer.compress(bytes(4 << 20)) + writer.flush()
    with pytest.raises(BadPayload):
        decompress(ZSTD, data, 1024, LIMIT)
    assert decompress(ZSTD, data, 4 << 20, 4 << 20) == bytes(4 << 20)


def test_a_size_inside_the_data_is_not_believed() -> None:
    with pytest.raises(BadPayload, match="Snappy holds 4294967295 bytes"):
        decompress(SNAPPY, b"\xff\xff\xff\xff\x0f" + bytes(10), 10, LIMIT)
    huge = bytes.fromhex("28b52ffd e0 ffffffffffffff00") + bytes(8)
    with pytest.raises(BadPayload, match="ZSTD holds"):
        decompress(ZSTD, huge, 10, LIMIT)


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(BadPayload, match="type 9 is unknown"):
        compress(9, b"")  # type: ignore[arg-type]
    with pytest.raises(BadPayload, match="type 9 is unknown"):
        decompress(9, b"", 0, LIMIT)  # type: ignore[arg-type]
