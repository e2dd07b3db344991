# SPDX-License-Identifier: Apache-2.0
"""Hashes of message keys, as every Pulsar client and broker computes them: the same key finds the same place.

Both give a number from 0 to 2³¹ - 1.
Decides.
"""

from typing import Final

_POSITIVE: Final = 0x7FFF_FFFF
_WORD: Final = 0xFFFF_FFFF
_C1: Final = 0xCC9E_2D51
_C2: Final = 0x1B87_3593


def murmur3_32(key: bytes) -> int:
    """MurmurHash3, 32 bits, seed 0, without the sign."""
    length = len(key)
    blocks = length & ~3
    state = 0
    for position in range(0, blocks, 4):
        block = int.from_bytes(key[position : position + 4], "little") * _C1 & _WORD
        block = (block << 15 | block >> 17) * _C2 & _WORD
        state ^= block
        state = ((state << 13 | state >> 19) & _WORD) * 5 + 0xE654_6B64 & _WORD
    if blocks < length:
        block = int.from_bytes(key[blocks:], "little") * _C1 & _WORD
        state ^= (block << 15 | block >> 17) * _C2 & _WORD
    state ^= length
    state = (state ^ state >> 16) * 0x85EB_CA6B & _WORD
    state = (state ^ state >> 13) * 0xC2B2_AE35 & _WORD
    return (state ^ state >> 16) & _POSITIVE


def java_string_hash(key: str) -> int:
    """Java's String.hashCode over UTF-16 units, without the sign."""
    units = key.encode("utf-16-be", "surrogatepass")
    state = 0
    for position in range(0, len(units), 2):
        state = state * 31 + (units[position] << 8 | units[position + 1]) & _WORD
    return state & _POSITIVE
