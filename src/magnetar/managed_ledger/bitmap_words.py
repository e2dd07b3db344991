# SPDX-License-Identifier: Apache-2.0
"""Compressed bitmaps ⇄ the plain 64-bit words that Pulsar stores, a container at a time.

Both directions go through the portable serialised form of roaring bitmaps: a dense container (65,536 values, more than
4,096 of them set) is 8,192 bytes of plain bits there, so it is copied, not walked.
Decides.
"""

from array import array
from collections.abc import Iterable
from struct import Struct
from typing import Final

from pyroaring import BitMap

_COOKIE: Final = 12346
_COOKIE_WITH_RUNS: Final = 12347
_CONTAINER_BYTES: Final = 8192
_ARRAY_VALUES_MAX: Final = 4096
_OFFSETS_FROM: Final = 4
_U32: Final = Struct("<I")
_U16: Final = Struct("<H")
_WORD: Final = 2**64 - 1


def words_of_bitmap(bitmap: BitMap) -> "array[int]":
    """The bits as signed 64-bit words, lowest first, without trailing zero words."""
    if not len(bitmap):
        return array("q")
    data = memoryview(bitmap.serialize())
    bits = bytearray((bitmap.max() // 64 + 1) * 8)
    cookie = _U32.unpack_from(data)[0]
    with_runs = cookie & 0xFFFF == _COOKIE_WITH_RUNS
    count = (cookie >> 16) + 1 if with_runs else _U32.unpack_from(data, 4)[0]
    at = 4 if with_runs else 8
    run_flags = bytes(data[at : at + (count + 7) // 8]) if with_runs else b""
    at += len(run_flags)
    heads = array("H", data[at : at + 4 * count].tobytes())
    at += 4 * count
    if not with_runs or count >= _OFFSETS_FROM:
        at += 4 * count
    for index in range(count):
        base, values = heads[2 * index] * _CONTAINER_BYTES, heads[2 * index + 1] + 1
        if run_flags and run_flags[index // 8] >> (index % 8) & 1:
            runs = _U16.unpack_from(data, at)[0]
            at += 2
            _set_runs(bits, base, array("H", data[at : at + 4 * runs].tobytes()))
            at += 4 * runs
        elif values > _ARRAY_VALUES_MAX:
            end = min(len(bits), base + _CONTAINER_BYTES)
            bits[base:end] = data[at : at + end - base]
            at += _CONTAINER_BYTES
        else:
            for value in array("H", data[at : at + 2 * values].tobytes()):
                bits[base + (value >> 3)] |= 1 << (value & 7)
            at += 2 * values
    return array("q", bytes(bits))


def bitmap_of_words(words: Iterable[int]) -> BitMap:
    """The bitmap of 64-bit words, signed or not."""
    try:
        bits = array("q", words).tobytes()
    except OverflowError:
        bits = array("Q", (word & _WORD for word in words)).tobytes()
    heads = array("H")
    bodies: list[bytes] = []
    for key in range((len(bits) + _CONTAINER_BYTES - 1) // _CONTAINER_BYTES):
        chunk = bits[key * _CONTAINER_BYTES : (key + 1) * _CONTAINER_BYTES]
        values = int.from_bytes(chunk, "little").bit_count()
        if not values:
            continue
        heads.extend((key, values - 1))
        dense = values > _ARRAY_VALUES_MAX
        bodies.append(chunk.ljust(_CONTAINER_BYTES, b"\0") if dense else _values(chunk).tobytes())
    if not bodies:
        return BitMap()
    offsets = array("I")
    at = 8 + 8 * len(bodies)
    for body in bodies:
        offsets.append(at)
        at += len(body)
    head = _U32.pack(_COOKIE) + _U32.pack(len(bodies))
    return BitMap.deserialize(b"".join((head, heads.tobytes(), offsets.tobytes(), *bodies)))


def _set_runs(bits: bytearray, base: int, runs: "array[int]") -> None:
    for index in range(0, len(runs), 2):
        first, last = runs[index], runs[index] + runs[index + 1]
        first_byte, last_byte = base + (first >> 3), base + (last >> 3)
        head, tail = 0xFF << (first & 7) & 0xFF, 0xFF >> (7 - (last & 7))
        if first_byte == last_byte:
            bits[first_byte] |= head & tail
            continue
        bits[first_byte] |= head
        bits[first_byte + 1 : last_byte] = b"\xff" * (last_byte - first_byte - 1)
        bits[last_byte] |= tail


def _values(chunk: bytes) -> "array[int]":
    values = array("H")
    for index, byte in enumerate(chunk):
        while byte:
            low = byte & -byte
            values.append(index * 8 + low.bit_length() - 1)
            byte ^= low
    return values
