# SPDX-License-Identifier: Apache-2.0
"""Frames: the same for any split of the bytes; sizes that lie are a named fault, before memory is taken."""

import tracemalloc
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from magnetar.errors import BadFrame
from magnetar.wire import frame
from magnetar.wire.frame import FrameCutter

FRAMES = st.lists(st.tuples(st.binary(max_size=20), st.binary(max_size=40)), max_size=6)


def cut(cutter: FrameCutter, chunks: list[bytes]) -> list[tuple[bytes, bytes]]:
    return [each for chunk in chunks for each in cutter.feed(chunk)]


def chunks_of(stream: bytes, cuts: list[int]) -> list[bytes]:
    edges = [0, *sorted(at % (len(stream) + 1) for at in cuts), len(stream)]
    return [stream[start:until] for start, until in pairwise(edges)]


def naive_cut(stream: bytes, bytes_max: int) -> tuple[list[tuple[bytes, bytes]], bool]:
    """The stupid twin: all bytes at hand, one frame after the other; and whether it met impossible sizes."""
    frames: list[tuple[bytes, bytes]] = []
    while len(stream) >= 4:
        total = int.from_bytes(stream[:4], "big")
        if total + 4 > bytes_max or total < 4:
            return frames, True
        if len(stream) < 8:
            break
        command_size = int.from_bytes(stream[4:8], "big")
        if command_size > total - 4:
            return frames, True
        if len(stream) < total + 4:
            break
        frames.append((stream[8 : 8 + command_size], stream[8 + command_size : 4 + total]))
        stream = stream[4 + total :]
    return frames, False


@settings(max_examples=150)
@given(FRAMES, st.lists(st.integers(0, 2**16), max_size=12))
def test_any_split_gives_the_same_frames(frames: list[tuple[bytes, bytes]], cuts: list[int]) -> None:
    stream = b"".join(frame.join(command, body) for command, body in frames)
    cutter = FrameCutter()
    assert cut(cutter, chunks_of(stream, cuts)) == frames
    assert cutter.fault is None


def test_a_stream_split_at_every_byte_gives_the_same_frames() -> None:
    frames = [(b"command", b"body"), (b"", b""), (b"c", b""), (b"xyz", bytes(300))]
    stream = b"".join(frame.join(command, body) for command, body in frames)
    for at in range(len(stream) + 1):
        assert cut(FrameCutter(), [stream[:at], stream[at:]]) == frames
    assert cut(FrameCutter(), [bytes([byte]) for byte in stream]) == frames


@settings(max_examples=300)
@given(
    st.lists(
        st.one_of(
            st.binary(max_size=30),
            st.builds(
                lambda total, size, rest: total.to_bytes(4, "big") + size.to_bytes(4, "big") + rest,
                st.integers(0, 40) | st.integers(0, 2**32 - 1),
                st.integers(0, 40) | st.integers(0, 2**32 - 1),
                st.binary(max_size=40),
            ),
            st.builds(frame.join, st.binary(max_size=8), st.binary(max_size=20)),
        ),
        max_size=4,
    ),
    st.lists(st.integers(0, 2**16), max_size=8),
)
def test_any_bytes_give_what_the_stupid_twin_gives(parts: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(parts)
    expected, is_bad = naive_cut(stream, 64)
    cutter = FrameCutter(64)
    assert cut(cutter, chunks_of(stream, cuts)) == expected
    assert (cutter.fault is not None) == is_bad


@pytest.mark.parametrize(
    ("sizes", "text"),
    [
        ("00000000", "size of 0 is below the 4"),
        ("00000003", "size of 3 is below the 4"),
        ("00000000 00000000", "size of 0 is below the 4"),
        ("00000008 00000005", "command of 5 bytes does not fit"),
        ("00000008 ffffffff", "command of 4294967295 bytes does not fit"),
        ("7fffffff", "over the limit"),
        ("ffffffff ffffffff", "over the limit"),
        ("00502801", "over the limit of 5253120"),
    ],
)
def test_sizes_that_lie_are_named(sizes: str, text: str) -> None:
    good = frame.join(b"good")
    for chunks in ([good + bytes.fromhex(sizes)], [good, *(bytes([byte]) for byte in bytes.fromhex(sizes))]):
        cutter = FrameCutter()
        assert cut(cutter, chunks) == [(b"good", b"")]
        assert isinstance(cutter.fault, BadFrame)
        assert text in str(cutter.fault)
        assert cutter.feed(good) == []


def test_the_largest_frame_passes_and_one_byte_more_does_not() -> None:
    limit = frame.frame_bytes_max(1000)
    largest = frame.join(b"c", bytes(limit - 9))
    assert len(largest) == limit
    assert FrameCutter(limit).feed(largest) == [(b"c", bytes(limit - 9))]
    assert FrameCutter(limit - 1).feed(largest) == []


def test_a_new_limit_holds_from_the_next_frame_on() -> None:
    cutter = FrameCutter(frame.frame_bytes_max(0))
    cutter.widen(frame.frame_bytes_max(100))
    big = frame.join(b"c", bytes(frame.FRAME_PADDING_BYTES + 50))
    assert len(cutter.feed(big)) == 1


def test_an_announced_size_takes_no_memory_before_its_bytes_come() -> None:
    cutters = [FrameCutter() for _ in range(50)]
    announced = (5 * 1024 * 1024).to_bytes(4, "big") + b"\x00\x00\x00\x01"
    tracemalloc.start()
    for cutter in cutters:
        assert cutter.feed(announced) == []
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert taken < 64 * 1024


def test_a_frame_that_drips_in_takes_no_more_than_its_own_size() -> None:
    data = frame.join(b"c", bytes(100_000))
    cutter = FrameCutter()
    tracemalloc.start()
    for byte in data[:-1]:
        cutter.feed(bytes([byte]))
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert taken < 3 * len(data)
    assert cutter.feed(data[-1:]) == [(b"c", bytes(100_000))]


def test_a_header_and_a_body_make_the_same_frame_as_one_join() -> None:
    assert (
        frame.header(b"command", 4) + b"body" == frame.join(b"command", b"body") == frame.join(b"command", b"bo", b"dy")
    )
