# SPDX-License-Identifier: Apache-2.0
"""Entry log records: checked in whole, found again behind damage, never believed early."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from magnetar.bookie.entry_log_format import (
    HEADER_BYTES,
    RECORD_HEADER,
    BadRange,
    EntryLogScan,
    LoggedEntry,
    LogHeader,
    checksum_seed,
    decode_header,
    decode_map,
    decode_record,
    encode_header,
    encode_map,
    encode_record,
    log_id_of,
    log_name,
)
from tests.unit.bookie.benches import packed

LOG_ID = 5
SEED = checksum_seed(LOG_ID)


def written(entries: list[bytes]) -> bytes:
    data = b""
    for entry in entries:
        data += b"".join(encode_record(SEED, HEADER_BYTES + len(data), entry))
    return data


def scanned(data: bytes, piece: int = 1 << 20) -> list[LoggedEntry | BadRange]:
    scan = EntryLogScan(LOG_ID, entry_bytes_max=4096)
    found: list[LoggedEntry | BadRange] = []
    for start in range(0, len(data), piece):
        found += scan.feed(data[start : start + piece])
    return found + list(scan.end())


ENTRIES = [
    packed(ledger_id, entry_id, bytes([ledger_id]) * (entry_id * 7)) for ledger_id in (1, 2) for entry_id in range(5)
]


@given(st.integers(1, 200))
@settings(max_examples=40)
def test_any_split_gives_the_same_entries(piece: int) -> None:
    found = scanned(written(ENTRIES), piece)
    assert [item.entry for item in found if isinstance(item, LoggedEntry)] == ENTRIES
    assert [(item.ledger_id, item.entry_id) for item in found if isinstance(item, LoggedEntry)] == [
        (ledger_id, entry_id) for ledger_id in (1, 2) for entry_id in range(5)
    ]


@given(st.integers(0, 100_000))
@settings(max_examples=80)
def test_a_flipped_bit_costs_its_entry_only(position: int) -> None:
    data = bytearray(written(ENTRIES))
    position %= len(data) * 8
    data[position // 8] ^= 1 << position % 8
    starts = [len(written(ENTRIES[:n])) for n in range(len(ENTRIES) + 1)]
    broken = next(n for n in range(len(ENTRIES)) if position // 8 < starts[n + 1])
    found = scanned(bytes(data))
    assert [item.entry for item in found if isinstance(item, LoggedEntry)] == ENTRIES[:broken] + ENTRIES[broken + 1 :]
    assert [item for item in found if isinstance(item, BadRange)] == [BadRange(HEADER_BYTES + starts[broken])]


@pytest.mark.parametrize("length", [2**31, 2**32 - 1, 4097])
def test_an_absurd_length_is_not_believed(length: int) -> None:
    head = RECORD_HEADER.pack(0x4D474552, HEADER_BYTES, length)
    assert scanned(head + bytes(50)) == [BadRange(HEADER_BYTES)]


def test_a_record_fits_its_own_place_only() -> None:
    record = b"".join(encode_record(SEED, 100, b"entry"))
    assert decode_record(SEED, 100, record) == b"entry"
    assert decode_record(SEED, 101, record) is None
    assert decode_record(checksum_seed(6), 100, record) is None
    assert decode_record(SEED, 100, record[:-1]) is None
    assert decode_record(SEED, 100, b"") is None


@given(st.dictionaries(st.integers(0, 2**62), st.integers(0, 2**40), max_size=20))
def test_a_map_comes_back(sizes: dict[int, int]) -> None:
    data = encode_map(SEED, 900, sizes)
    assert decode_map(SEED, 900, data) == sizes
    assert decode_map(SEED, 901, data) is None
    assert decode_map(SEED, 900, data[:-1]) is None
    broken = bytearray(data)
    broken[len(data) // 2] ^= 1
    assert decode_map(SEED, 900, bytes(broken)) is None


def test_a_header_comes_back_or_is_none() -> None:
    header = LogHeader(LOG_ID, 4000, 160)
    data = encode_header(header)
    assert len(data) == HEADER_BYTES
    assert decode_header(data) == header
    assert decode_header(data[:-1]) is None
    for position in range(36 * 8):
        broken = bytearray(data)
        broken[position // 8] ^= 1 << position % 8
        assert decode_header(bytes(broken)) is None


def test_the_format_is_frozen() -> None:
    assert encode_header(LogHeader(5, 4000, 160)).rstrip(b"\0").hex() == (
        "4d41474e4554454c0001000000000000000000050000000000000fa0000000a01eec8769"
    )
    head, checksum = encode_record(SEED, 64, b"entry")
    assert (head + checksum).hex() == "4d4745520000004000000005" + b"entry".hex() + "92417299"


def test_only_our_names_are_logs() -> None:
    assert log_id_of(log_name(0x1F)) == 0x1F
    for name in ("1f.txn", "1F.log", "01.log", "index", "1f.log.tmp"):
        assert log_id_of(name) is None
