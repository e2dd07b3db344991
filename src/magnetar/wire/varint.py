# SPDX-License-Identifier: Apache-2.0
"""Protobuf's variable-length integers, for the few places that write or read them by hand.

Negative numbers are those of protobuf's int32 and int64: ten bytes, two's complement.
Decides.
"""

from typing import Final

from magnetar.errors import BadCommand

UINT64_MAX: Final = 2**64 - 1
VARINT_BYTES_MAX: Final = 10

LAST: Final = tuple(bytes((low,)) for low in range(128))
"""The final byte of a number, by its seven bits."""
MORE: Final = tuple(bytes((low | 128,)) for low in range(128))
"""Any byte before the final one, by its seven bits."""


def encode(number: int) -> bytes:
    """The bytes of a number of up to 64 bits; a negative one takes ten."""
    if 0 <= number < 0x80:
        return LAST[number]
    if 0 <= number < 0x4000:
        return MORE[number & 127] + LAST[number >> 7]
    if number < 0:
        return encode(number & UINT64_MAX)
    front = MORE[number & 127] + MORE[number >> 7 & 127]
    number >>= 14
    return front + (LAST[number] if number < 0x80 else encode(number))


def decode(data: bytes, position: int) -> tuple[int, int]:
    """The unsigned number that begins at position, and where it ends. Raises BadCommand where there is none."""
    number = shift = 0
    for byte in data[position : position + VARINT_BYTES_MAX]:
        position += 1
        number |= (byte & 127) << shift
        if byte < 128:
            return number & UINT64_MAX, position
        shift += 7
    raise BadCommand(f"A variable-length number does not end within {VARINT_BYTES_MAX} bytes.")


def signed(number: int) -> int:
    """The int64 (or sign-extended int32) that an unsigned number on the wire stands for."""
    return number - 2**64 if number >= 2**63 else number
