# SPDX-License-Identifier: Apache-2.0
"""The last mark: whole or none, never back."""

from hypothesis import given
from hypothesis import strategies as st

from magnetar.bookie.last_mark import MARK_BYTES, LastMark, decode_mark, encode_mark, may_follow

numbers = st.integers(0, 2**63)
marks = st.builds(LastMark, numbers, numbers, numbers, numbers)


@given(marks)
def test_a_mark_comes_back(mark: LastMark) -> None:
    data = encode_mark(mark)
    assert len(data) == MARK_BYTES
    assert decode_mark(data) == mark


def test_a_short_long_or_flipped_mark_is_none() -> None:
    data = encode_mark(LastMark(3, 40, 1040, 7))
    for end in range(len(data)):
        assert decode_mark(data[:end]) is None
    assert decode_mark(data + b"\0") is None
    for position in range(len(data) * 8):
        broken = bytearray(data)
        broken[position // 8] ^= 1 << position % 8
        assert decode_mark(bytes(broken)) is None


def test_the_format_is_frozen() -> None:
    assert encode_mark(LastMark(3, 40, 1040, 7)).hex() == (
        "4d41474e45544c4d0000000100000000000000030000000000000028000000000000041000000000000000077f22a207"
    )


def test_a_mark_never_goes_back() -> None:
    first = LastMark(3, 40, 1040, 7)
    assert may_follow(None, first)
    assert may_follow(first, first)
    assert may_follow(first, LastMark(4, 32, 1100, 8))
    assert not may_follow(first, LastMark(3, 39, 1039, 8))
    assert not may_follow(first, LastMark(2, 90, 1050, 8))
