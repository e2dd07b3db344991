# SPDX-License-Identifier: Apache-2.0
"""The embedded store's bytes, held still by golden examples, and what the reader says to nonsense."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from magnetar.errors import Damaged, NotSupported
from magnetar.metadata.embedded_format import (
    HEADER_BYTES,
    Closed,
    FileHeader,
    FileKind,
    Item,
    SnapshotEnd,
    decode_header,
    decode_items,
    decode_record,
    encode_header,
    encode_items,
    encode_record,
    record_length,
    records_after,
)
from magnetar.metadata.tree import Counted, Held, Removed, SessionClosed, SessionOpened, Written

HEADER = FileHeader(FileKind.LOG, 3, 1_700_000_000_000, 41)
ITEMS: list[Item] = [
    SessionOpened(7, 30_000),
    Written("/a", Held(b"value", 2, 7, 1_700_000_000_001, 1_700_000_000_002)),
    Counted("/a", 5),
    Removed("/b"),
    SessionClosed(7),
    SnapshotEnd(9, 8),
    Closed(),
]
GOLDEN_HEADER = "0101000000000000000000030000018bcfe5680000000000000000291344484c"
GOLDEN_ITEMS = (
    "0400000000000000070000000000007530"
    "01000000000000000200000000000000070000018bcfe568010000018bcfe568020002000000052f6176616c7565"
    "03000000000000000500022f61"
    "0200022f62"
    "050000000000000007"
    "0600000000000000090000000000000008"
    "07"
)
GOLDEN_RECORD_HEAD = "9d4d67520000005ae8db63f200000000000000290000000000000028"


def test_the_bytes_of_version_one_do_not_change() -> None:
    assert encode_header(HEADER).hex() == GOLDEN_HEADER
    assert encode_items(ITEMS).hex() == GOLDEN_ITEMS
    record = encode_record(HEADER, 32, 41, 40, encode_items(ITEMS[:5]))
    assert record.hex() == GOLDEN_RECORD_HEAD + encode_items(ITEMS[:5]).hex()
    assert decode_header(bytes.fromhex(GOLDEN_HEADER), "f") == HEADER
    assert decode_items(bytes.fromhex(GOLDEN_ITEMS), "f") == ITEMS
    found = decode_record(HEADER, record, 0, 32)
    assert found is not None
    assert (found.sequence, found.synced_sequence, found.until) == (41, 40, 32 + len(record))
    assert record_length(record) == len(record)


def test_a_record_counts_only_where_it_was_written() -> None:
    record = encode_record(HEADER, 32, 41, 40, b"body")
    assert decode_record(HEADER, record, 0, 33) is None
    assert decode_record(HEADER._replace(generation=4), record, 0, 32) is None
    assert decode_record(HEADER._replace(store_id=1), record, 0, 32) is None
    for cut in range(len(record)):
        assert decode_record(HEADER, record[:cut], 0, 32) is None


def test_valid_records_are_found_behind_damage() -> None:
    offset = HEADER_BYTES
    data = bytearray(encode_header(HEADER))
    for sequence in range(41, 45):
        record = encode_record(HEADER, offset, sequence, sequence - 1, b"x" * sequence)
        data += record
        offset += len(record)
    data[HEADER_BYTES + 40] ^= 1
    assert [record.sequence for record in records_after(HEADER, bytes(data), HEADER_BYTES)] == [42, 43, 44]


def test_headers_that_are_torn_or_from_the_future() -> None:
    encoded = encode_header(HEADER)
    for cut in range(HEADER_BYTES):
        assert decode_header(encoded[:cut], "f") is None
    assert decode_header(bytes(HEADER_BYTES), "f") is None
    with pytest.raises(NotSupported, match=r"f has format version 2.*up to 1"):
        decode_header(b"\x02", "f")


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=80))
def test_nonsense_under_a_right_checksum_is_damage_with_its_place(body: bytes) -> None:
    try:
        items = decode_items(body, "log-7 at offset 99")
    except Damaged as error:
        assert "log-7 at offset 99" in str(error)  # noqa: PT017 - both outcomes are right
    else:
        assert encode_items(items) == body
