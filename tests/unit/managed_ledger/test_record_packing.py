# SPDX-License-Identifier: Apache-2.0
"""Which form a record is written in, and that either form is read."""

import pytest

from magnetar.config.managed_ledger import ManagedLedgerSettings
from magnetar.managed_ledger.record_format import compressed, decode_cursor_record, decode_ledger_record
from magnetar.managed_ledger.record_packing import PLAIN, RecordPacking
from magnetar.wire.proto.ml_formats_pb2 import ManagedCursorInfo, ManagedLedgerInfo

KINDS = ("LZ4", "ZLIB", "ZSTD", "SNAPPY")


def ledgers(count: int) -> ManagedLedgerInfo:
    info = ManagedLedgerInfo()
    for number in range(count):
        info.ledgerInfo.add(
            ledgerId=1_000_000 + number, entries=50_000, size=2**31 - number, timestamp=1_700_000_000_000
        )
    return info


@pytest.mark.feature("B-24")
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_written_compressed_is_read_as_it_was(kind: str) -> None:
    settings = ManagedLedgerSettings(
        ledger_record_compression=kind,
        ledger_record_compressed_from_bytes=100,
        cursor_record_compression=kind,
        cursor_record_compressed_from_bytes=100,
    )
    packing = RecordPacking(settings, lambda: 2)
    record = ledgers(1_000)
    plain = record.SerializeToString()
    packed = packing.pack_ledger_record(plain)
    assert len(packed) < len(plain) / 2
    assert decode_ledger_record(packed) == record
    cursor = ManagedCursorInfo(cursorsLedgerId=-1, markDeleteLedgerId=3, markDeleteEntryId=4)
    for number in range(500):
        holes = cursor.individualDeletedMessages.add()
        holes.lowerEndpoint.ledgerId = holes.upperEndpoint.ledgerId = 3
        holes.lowerEndpoint.entryId, holes.upperEndpoint.entryId = number * 2, number * 2 + 1
    packed = packing.pack_cursor_record(cursor.SerializeToString())
    assert len(packed) < cursor.ByteSize()
    assert decode_cursor_record(packed) == cursor


@pytest.mark.parametrize(
    ("settings", "level"),
    [
        (ManagedLedgerSettings(), 2),
        (ManagedLedgerSettings(ledger_record_compression="LZ4"), 1),
        (ManagedLedgerSettings(ledger_record_compression="LZ4", ledger_record_compressed_from_bytes=10**6), 2),
    ],
    ids=["not asked for", "not all members read it", "too small"],
)
def test_otherwise_it_is_written_plain(settings: ManagedLedgerSettings, level: int) -> None:
    plain = ledgers(1_000).SerializeToString()
    assert RecordPacking(settings, lambda: level).pack_ledger_record(plain) == plain
    assert PLAIN.pack_ledger_record(plain) == plain


def test_what_compression_makes_larger_stays_plain() -> None:
    settings = ManagedLedgerSettings(ledger_record_compression="ZLIB", ledger_record_compressed_from_bytes=0)
    plain = ledgers(1).SerializeToString()
    assert len(compressed(plain, "ZLIB")) > len(plain)
    assert RecordPacking(settings, lambda: 2).pack_ledger_record(plain) == plain
