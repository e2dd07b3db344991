# SPDX-License-Identifier: Apache-2.0
"""Journal records: any split gives the same records, any cut or flip is noticed, nothing is believed early."""

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from magnetar.bookie.journal_format import (
    FILE_HEADER_BYTES,
    RECORD_HEADER,
    RECORD_MAGIC,
    Break,
    FileHeader,
    JournalRecord,
    JournalScan,
    RecordKind,
    checksum_seed,
    decode_file_header,
    encode_file_header,
    encode_record,
    file_id_of,
    file_name,
)

HEADER = FileHeader(7, 1000, session_start=True)
PAYLOAD_MAX = 4096

payloads = st.lists(st.binary(max_size=200), max_size=12)


def written(bodies: Sequence[bytes], *, header: FileHeader = HEADER, synced: int = 1000) -> bytes:
    """The records of a file, without its header."""
    data = b""
    for body in bodies:
        offset = FILE_HEADER_BYTES + len(data)
        data += encode_record(checksum_seed(header.file_id), offset, synced, RecordKind.ENTRY, body)
    return data


def scanned(
    data: bytes, *, header: FileHeader = HEADER, piece: int = 1 << 20, offset: int = FILE_HEADER_BYTES
) -> list[JournalRecord | Break]:
    scan = JournalScan(header, offset=offset, payload_bytes_max=PAYLOAD_MAX)
    found: list[JournalRecord | Break] = []
    for start in range(0, len(data), piece):
        found += scan.feed(data[start : start + piece])
    found += scan.end()
    return found


def bodies_of(found: Sequence[JournalRecord | Break]) -> list[bytes]:
    return [item.payload for item in found if isinstance(item, JournalRecord)]


@given(st.integers(0, 2**63), st.integers(0, 2**63), st.booleans())
def test_a_file_header_comes_back(file_id: int, position: int, session_start: bool) -> None:
    header = FileHeader(file_id, position, session_start)
    data = encode_file_header(header)
    assert len(data) == FILE_HEADER_BYTES
    assert decode_file_header(data + b"rest") == header


def test_a_file_header_with_any_bit_flipped_is_none() -> None:
    data = encode_file_header(HEADER)
    for position in range(len(data) * 8):
        broken = bytearray(data)
        broken[position // 8] ^= 1 << position % 8
        assert decode_file_header(bytes(broken)) is None
    assert decode_file_header(data[:-1]) is None


def test_the_format_is_frozen() -> None:
    """Golden bytes: a change here is a new version, and old files must still be read."""
    assert encode_file_header(HEADER).hex() == ("4d41474e45544a4c00010001000000000000000700000000000003e85a1b4df2")
    record = encode_record(checksum_seed(7), 32, 1000, RecordKind.ENTRY, b"payload")
    assert record.hex() == "4d474a520000002000000000000003e80100000007" + b"payload".hex() + "79e82340"


@given(payloads, st.integers(1, 64))
@settings(max_examples=60)
def test_any_split_gives_the_same_records(bodies: list[bytes], piece: int) -> None:
    data = written(bodies)
    found = scanned(data, piece=piece)
    assert bodies_of(found) == bodies
    assert not any(isinstance(item, Break) for item in found)


def test_positions_and_sizes_follow_each_other() -> None:
    position = HEADER.first_position + FILE_HEADER_BYTES
    for record in scanned(written([b"a", b"", b"ccc"])):
        assert isinstance(record, JournalRecord)
        assert record.position == position
        position += record.size


@pytest.mark.feature("F-BKS-17")
def test_a_record_cut_at_any_byte_is_absent_and_those_before_it_are_whole() -> None:
    whole = written([b"one", b"two", b"three"])
    last = len(written([b"one", b"two"]))
    for end in range(last, len(whole)):
        assert bodies_of(scanned(whole[:end])) == [b"one", b"two"]


@given(st.integers(0, 10_000))
@settings(max_examples=100)
def test_a_flipped_bit_costs_its_record_only(position: int) -> None:
    bodies = [bytes([65 + n]) * (10 + 13 * n) for n in range(8)]
    data = bytearray(written(bodies))
    position %= len(data) * 8
    data[position // 8] ^= 1 << position % 8
    starts = [len(written(bodies[:n])) for n in range(9)]
    broken = next(n for n in range(8) if position // 8 < starts[n + 1])
    found = scanned(bytes(data))
    assert bodies_of(found) == bodies[:broken] + bodies[broken + 1 :]
    assert [item.offset for item in found if isinstance(item, Break)] == [FILE_HEADER_BYTES + starts[broken]]


def test_records_of_another_file_or_another_place_do_not_fit() -> None:
    """A re-used or pre-allocated file may hold old records beyond its tail."""
    old = written([b"old one", b"old two"], header=FileHeader(6, 0, session_start=False))
    assert bodies_of(scanned(written([b"new"]) + old)) == [b"new"]
    moved = written([b"here"])
    assert bodies_of(scanned(b"\0" * 5 + moved)) == []


@pytest.mark.parametrize("length", [2**31 - 1, 2**32 - 1, PAYLOAD_MAX + 1])
def test_an_absurd_length_is_broken_at_once(length: int) -> None:
    head = RECORD_HEADER.pack(RECORD_MAGIC, FILE_HEADER_BYTES, 0, RecordKind.ENTRY, length)
    scan = JournalScan(HEADER, offset=FILE_HEADER_BYTES, payload_bytes_max=PAYLOAD_MAX)
    assert list(scan.feed(head + b"x" * 100)) == [Break(FILE_HEADER_BYTES)]


def test_zeros_and_the_padding_of_other_formats_end_the_records() -> None:
    for tail in (b"\0" * 5000, (-448299468 & 0xFFFFFFFF).to_bytes(4, "big") * 100):
        found = scanned(written([b"a"]) + tail)
        assert bodies_of(found) == [b"a"]
        assert isinstance(found[-1], Break)


@given(st.binary(max_size=600), st.integers(1, 50))
@settings(max_examples=80)
def test_garbage_never_gives_a_record(data: bytes, piece: int) -> None:
    assert bodies_of(scanned(data, piece=piece)) == []


def test_only_our_names_are_journals() -> None:
    assert file_id_of(file_name(0xAB)) == 0xAB
    for name in ("ab.log", "AB.txn", "0ab.txn", "x.txn", "lastMark", "ab.txn.tmp", ".txn"):
        assert file_id_of(name) is None
