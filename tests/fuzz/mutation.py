# SPDX-License-Identifier: Apache-2.0
"""What hostile bytes look like: good ones with lengths that lie, pieces lost, doubled, swapped, nested, or noise.

The same random stream gives the same bytes. Never longer than `BYTES_MAX`, so that what a decoder may allocate for
them has a limit that can be judged.
Decides.
"""

from collections.abc import Callable, Sequence
from random import Random
from typing import Final

BYTES_MAX: Final = 64 * 1024
# Numbers at the edges of what lengths, counts and ids are stored in.
_EDGES: Final = (
    0,
    1,
    0x7F,
    0x80,
    0xFF,
    0x7FFF,
    0xFFFF,
    0x7FFFFFFF,
    0x80000000,
    0xFFFFFFFF,
    (1 << 63) - 1,
    (1 << 64) - 1,
)
_WIDTHS: Final = (1, 2, 4, 8)
_NESTED: Final = (b"[", b'{"a":', b"\x0a\x7f", b"(", b"<", b"a<", b"a{", b"\x02")


def hostile(good: Sequence[bytes], random: Random) -> bytes:
    """One input made of the good ones."""
    data = bytearray(random.choice(good))
    for _ in range(random.choice((0, 1, 1, 1, 2, 3, 8))):
        random.choice(_CHANGES)(data, good, random)
    return bytes(data[:BYTES_MAX])


def _place(data: bytearray, random: Random) -> int:
    return random.randrange(len(data) + 1)


def _flip(data: bytearray, good: Sequence[bytes], random: Random) -> None:
    if data:
        data[random.randrange(len(data))] ^= 1 << random.randrange(8)


def _cut(data: bytearray, good: Sequence[bytes], random: Random) -> None:
    del data[_place(data, random) :]


def _drop(data: bytearray, good: Sequence[bytes], random: Random) -> None:
    start = _place(data, random)
    del data[start : start + random.choice((1, 2, 4, 16))]


def _edge(data: bytearray, good: Sequence[bytes], random: Random) -> None:
    """A number at the edge of its width, over what is there."""
    width = random.choice(_WIDTHS)
    start = _place(data, random)
    number = random.choice(_EDGES) & ((1 << 8 * width) - 1)
    data[start : start + width] = number.to_bytes(width, random.choice(("big", "little")))


def _long_number(data: bytearray, good: Sequence[bytes], random: Random) -> None:
    """A number of seven bits a byte that is long, endless or negative."""
    start = _place(data, random)
    data[start : start + 1] = b"\xff" * random.randrange(1, 12) + random.choice((b"\x01", b"\x7f", b""))


def _noise(data: bytearray, good: Sequence[bytes], random: Random) -> None:
    start = _place(data, random)
    data[start:start] = random.randbytes(random.choice((1, 3, 8, 64)))


def _again(data: bytearray, good: Sequence[bytes], random: Random) -> None:
    """A piece once more, or very often."""
    start = _place(data, random)
    piece = bytes(data[start : start + random.choice((1, 4, 32))])
    data[start:start] = piece * random.choice((1, 2, 100))


def _splice(data: bytearray, good: Sequence[bytes], random: Random) -> None:
    """The front of one and the end of another."""
    other = random.choice(good)
    data[_place(data, random) :] = other[random.randrange(len(other) + 1) :]


def _nest(data: bytearray, good: Sequence[bytes], random: Random) -> None:
    start = _place(data, random)
    data[start:start] = random.choice(_NESTED) * random.choice((2, 200, 10_000))


_Change = Callable[[bytearray, Sequence[bytes], Random], None]
_CHANGES: Final[tuple[_Change, ...]] = (
    _flip,
    _flip,
    _cut,
    _drop,
    _edge,
    _edge,
    _edge,
    _long_number,
    _noise,
    _again,
    _splice,
    _nest,
)


def smaller(data: bytes, fails: Callable[[bytes], bool]) -> bytes:
    """A shorter input that fails as well: pieces are left out, larger ones first."""
    size = len(data) // 2
    while size:
        start = 0
        while start < len(data):
            without = data[:start] + data[start + size :]
            if fails(without):
                data = without
            else:
                start += size
        size //= 2
    return data
