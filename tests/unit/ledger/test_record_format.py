# SPDX-License-Identifier: Apache-2.0
"""Ledger records in BookKeeper's metadata: round trips, older forms, fields from the future."""

import pytest

from magnetar.errors import DamagedRecord, UnsupportedVersion
from magnetar.ledger.record import LedgerRecord
from magnetar.ledger.record_format import decode_record, encode_record
from magnetar.wire import varint
from magnetar.wire.bookkeeper import ledger_metadata
from magnetar.wire.bookkeeper.digest import DigestType
from tests.unit.ledger.test_catalog import new_record


def states() -> list[LedgerRecord]:
    fresh = new_record(7, token=99)
    changed = fresh.with_ensemble(10, ("b2:3181", "b3:3181"))
    return [fresh, changed, changed.in_recovery(), changed.closed(20, 2_000), fresh.closed(-1, 0)]


@pytest.mark.parametrize("record", states())
def test_a_record_comes_back(record: LedgerRecord) -> None:
    assert decode_record(7, encode_record(record)) == record


@pytest.mark.parametrize("form", [ledger_metadata.TEXT_LINES, ledger_metadata.TEXT_PROTOBUF])
@pytest.mark.parametrize("record", states())
def test_an_older_form_is_kept(record: LedgerRecord, form: int) -> None:
    stored = ledger_metadata.encode(ledger_metadata.decode(encode_record(record)), form)
    read = decode_record(7, stored)
    assert read.form == form
    assert (read.state, read.last_entry, read.segments) == (record.state, record.last_entry, record.segments)
    again = encode_record(read)
    assert ledger_metadata.version_of(again) == form
    assert decode_record(7, again) == read


def test_fields_from_the_future_survive_a_rewrite() -> None:
    """F202."""
    message = ledger_metadata.decode(encode_record(new_record(7)))
    unknown = varint.encode(100 << 3 | 2) + varint.encode(5) + b"later"
    data = message.SerializeToString() + unknown
    stored = b"BookieMetadataFormatVersion\t3\n" + varint.encode(len(data)) + data
    rewritten = encode_record(decode_record(7, stored).in_recovery())
    assert unknown in rewritten


def test_an_oldest_record_has_crc32() -> None:
    lines = b"BookieMetadataFormatVersion\t1\n2\n3\n0\n0\tb1:3181\tb2:3181\tb3:3181\n"
    record = decode_record(1, lines)
    assert record.digest is DigestType.CRC32
    assert record.quorum == (3, 2, 2)


@pytest.mark.parametrize(
    "lines",
    [
        b"2\n1\n0\n0\tb1:3181\n",  # a write quorum above the ensemble
        b"1\n2\n0\n0\tb1:3181\tb1:3181\n",  # one bookie twice
        b"1\n1\n0\n5\tb1:3181\n",  # does not begin at entry 0
        b"1\n1\n0\n",  # no segment
    ],
)
def test_impossible_records_are_damaged(lines: bytes) -> None:
    with pytest.raises(DamagedRecord):
        decode_record(1, b"BookieMetadataFormatVersion\t1\n" + lines)


def test_a_later_form_is_refused() -> None:
    with pytest.raises(UnsupportedVersion):
        decode_record(1, b"BookieMetadataFormatVersion\t4\nxyz")
