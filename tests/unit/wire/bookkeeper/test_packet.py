# SPDX-License-Identifier: Apache-2.0
"""Packets: the same for any split of the bytes; sizes that lie are a named fault."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from magnetar.errors import BadFrame
from magnetar.wire.bookkeeper import v2, v3
from magnetar.wire.bookkeeper.packet import PacketCutter, is_protobuf
from magnetar.wire.proto import bookkeeper_pb2 as bk

PACKETS = st.lists(st.binary(min_size=4, max_size=40), max_size=6)


def sized(packet: bytes) -> bytes:
    return len(packet).to_bytes(4, "big") + packet


def naive_cut(stream: bytes, bytes_max: int) -> tuple[list[bytes], bool]:
    """The stupid twin: the packets, and whether it met an impossible size."""
    packets: list[bytes] = []
    while len(stream) >= 4:
        size = int.from_bytes(stream[:4], "big")
        if size < 4 or size + 4 > bytes_max:
            return packets, True
        if len(stream) < size + 4:
            break
        packets.append(stream[4 : 4 + size])
        stream = stream[4 + size :]
    return packets, False


@settings(max_examples=300)
@given(
    st.one_of(
        PACKETS.map(lambda packets: b"".join(map(sized, packets))),
        st.binary(max_size=60),
        st.tuples(PACKETS, st.binary(max_size=12)).map(lambda drawn: b"".join(map(sized, drawn[0])) + drawn[1]),
    ),
    st.lists(st.integers(0, 2**16), max_size=10),
)
def test_any_split_of_any_bytes_gives_what_the_stupid_twin_gives(stream: bytes, cuts: list[int]) -> None:
    expected, is_bad = naive_cut(stream, 64)
    edges = [0, *sorted(at % (len(stream) + 1) for at in cuts), len(stream)]
    cutter = PacketCutter(64)
    assert [each for start, until in pairwise(edges) for each in cutter.feed(stream[start:until])] == expected
    assert (cutter.fault is not None) == is_bad


@pytest.mark.parametrize(
    ("size", "text"), [("00000000", "size of 0"), ("00000003", "size of 3"), ("ffffffff", "limit")]
)
def test_sizes_that_lie_are_named(size: str, text: str) -> None:
    for chunks in ([bytes.fromhex(size)], [bytes([byte]) for byte in bytes.fromhex(size)]):
        cutter = PacketCutter()
        assert [each for chunk in chunks for each in cutter.feed(chunk)] == []
        assert isinstance(cutter.fault, BadFrame)
        assert text in str(cutter.fault)
        assert cutter.feed(sized(b"good")) == []


def test_versions_are_told_apart_by_the_first_byte() -> None:
    request = v3.request(bk.READ_LAC, 1)
    request.readLacRequest.ledgerId = 5
    assert is_protobuf(v3.encode(request)[4:])
    for version in (0, 1, 2):
        header = v2.packet_header(2, 0, version).to_bytes(4, "big")
        assert not is_protobuf(header)
