# SPDX-License-Identifier: Apache-2.0
"""The log's record: Pulsar's bytes, compressed or not, our intents, and what must survive a rewrite."""

import struct
import zlib

import cramjam
import lz4.block
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from magnetar.errors import DamagedRecord
from magnetar.ids import Position
from magnetar.managed_ledger.ledger_list import LedgerSpan
from magnetar.managed_ledger.ledger_record import LedgerRecord
from magnetar.wire.proto.ml_formats_pb2 import LZ4, SNAPPY, ZLIB, ZSTD, ManagedLedgerInfo, ManagedLedgerInfoMetadata


def pulsar_record() -> ManagedLedgerInfo:
    info = ManagedLedgerInfo()
    first = info.ledgerInfo.add(ledgerId=3, entries=10, size=1000, timestamp=77)
    first.properties.add(key="offset", value="5")
    first.offloadContext.complete = True
    info.ledgerInfo.add(ledgerId=5, timestamp=0)
    info.properties.add(key="colour", value="red")
    return info


def test_a_record_of_pulsar_is_read() -> None:
    record = LedgerRecord(pulsar_record().SerializeToString())
    assert [(s.ledger_id, s.entries, s.size_bytes, s.closed_ms) for s in record.spans()] == [
        (3, 10, 1000, 77),
        (5, 0, 0, 0),
    ]
    assert record.properties == {"colour": "red"}
    assert record.offloaded(3)
    assert not record.offloaded(5)
    assert record.terminated is None
    assert LedgerRecord(b"").spans() == []


@pytest.mark.parametrize(
    ("kind", "compress"),
    [
        (ZLIB, zlib.compress),
        (LZ4, lambda data: lz4.block.compress(data, store_size=False)),
        (ZSTD, lambda data: zstandard.ZstdCompressor().compress(data)),
        (SNAPPY, lambda data: bytes(cramjam.snappy.compress_raw(data))),
    ],
)
def test_a_compressed_record_is_read(kind: int, compress: object) -> None:
    plain = pulsar_record().SerializeToString()
    head = ManagedLedgerInfoMetadata(compressionType=kind, uncompressedSize=len(plain)).SerializeToString()  # type: ignore[arg-type]
    data = struct.pack(">HI", 0x4778, len(head)) + head + compress(plain)  # type: ignore[operator]
    assert LedgerRecord(data).encode() == LedgerRecord(plain).encode()
    lying = ManagedLedgerInfoMetadata(compressionType=kind, uncompressedSize=len(plain) - 1).SerializeToString()  # type: ignore[arg-type]
    with pytest.raises(DamagedRecord):
        LedgerRecord(struct.pack(">HI", 0x4778, len(lying)) + lying + compress(plain))  # type: ignore[operator]


def test_the_example_of_the_format_page() -> None:
    spans = [LedgerSpan(3, entries=10, size_bytes=1000, closed_ms=77), LedgerSpan(5)]
    record = LedgerRecord().with_list(spans, deleting=[2], properties={"colour": "red"})
    golden = (
        "0a 09 08 03 10 0a 18 e8 07 20 4d 0a 04 08 05 20 00 1a 0d 0a 06 63 6f 6c 6f 75 72 12 03 72 65 64 "
        "1a 16 0a 11 6d 61 67 6e 65 74 61 72 2e 64 65 6c 65 74 69 6e 67 12 01 32"
    )
    assert record.encode() == bytes.fromhex(golden)


def test_garbage_is_named() -> None:
    cut_off = b"\x47\x78\x00\x00\x00\x02\x08\x00"
    not_zstd = b"\x47\x78\x00\x00\x00\x04\x08\x03\x10\x05xxxxx"
    for data in (b"\x0a\xff", b"\x0a\x00", cut_off, not_zstd):
        with pytest.raises(DamagedRecord):
            LedgerRecord(data)


def test_fields_that_we_do_not_know_survive_a_rewrite() -> None:
    """F202: both of the record and of a ledger in it; newer brokers may have written them."""
    inner, outer = b"\x9a\x06\x03abc", b"\xa2\x06\x03xyz"
    ledger = pulsar_record().ledgerInfo[0].SerializeToString() + inner
    data = b"\x0a" + bytes([len(ledger)]) + ledger + outer
    record = LedgerRecord(data)
    following = record.with_list([*record.spans(), LedgerSpan(9)], deleting=[1], properties={"a": "b"})
    written = following.with_reserved(12).encode()
    assert inner in written
    assert outer in written
    again = LedgerRecord(written)
    assert again.ledger_properties(3) == {"offset": "5"}
    assert again.offloaded(3)


def test_an_open_ledger_has_no_numbers_on_record() -> None:
    """Pulsar counts the entries of the last ledger itself, and deletes any other that has none on record."""
    record = LedgerRecord().with_list([LedgerSpan(1, entries=4, size_bytes=9, closed_ms=7), LedgerSpan(2, entries=3)])
    info = ManagedLedgerInfo.FromString(record.encode())
    assert (info.ledgerInfo[0].entries, info.ledgerInfo[0].size, info.ledgerInfo[0].timestamp) == (4, 9, 7)
    assert not info.ledgerInfo[1].HasField("entries")


def test_intents_change_with_the_list_and_stay_hidden() -> None:
    record = LedgerRecord().with_list([LedgerSpan(4)], deleting=[2, 1], properties={"p": "q"}).with_reserved(6)
    back = LedgerRecord(record.encode())
    assert (back.deleting, back.reserved, back.is_deleted, back.properties) == ([1, 2], 6, False, {"p": "q"})
    gone = LedgerRecord(back.with_reserved(None).encode())
    assert (gone.deleting, gone.reserved) == ([1, 2, 6], None)
    assert LedgerRecord(gone.with_list((), is_deleted=True).encode()).is_deleted


def test_where_it_was_terminated() -> None:
    record = LedgerRecord(LedgerRecord().with_list([LedgerSpan(4)], terminated=Position(4, 9)).encode())
    assert record.terminated == Position(4, 9)
    assert record.with_list([LedgerSpan(4)]).terminated == Position(4, 9)


@given(known=st.lists(st.integers(0, 9), unique=True), following=st.lists(st.integers(0, 12), unique=True))
def test_a_ledger_keeps_what_is_known_of_it_wherever_it_comes_to_stand(known: list[int], following: list[int]) -> None:
    """Trimmed in front, lengthened behind, or put together anew: all the same as one by one."""
    stored = ManagedLedgerInfo()
    for ledger_id in known:
        ledger = stored.ledgerInfo.add(ledgerId=ledger_id, entries=ledger_id, size=1, timestamp=5)
        ledger.offloadContext.uidLsb = ledger_id
    before = LedgerRecord(stored.SerializeToString())
    spans = [LedgerSpan(ledger_id, entries=7, size_bytes=70, closed_ms=ledger_id % 3) for ledger_id in following]
    after = before.with_list(spans)
    found = ManagedLedgerInfo.FromString(after.encode()).ledgerInfo
    assert [each.ledgerId for each in found] == following
    for each in found:
        assert each.offloadContext.HasField("uidLsb") == (each.ledgerId in known)
        assert each.timestamp == each.ledgerId % 3
        closed = (7, 70)
        is_open_as_known = (each.ledgerId, 1) if each.ledgerId in known else (0, 0)
        assert (each.entries, each.size) == (closed if each.timestamp else is_open_as_known)
    assert [ledger.ledgerId for ledger in ManagedLedgerInfo.FromString(before.encode()).ledgerInfo] == known
    assert sorted(span.ledger_id for span in after.spans()) == sorted(following)


def test_a_record_that_names_a_ledger_twice_names_it_once_in_the_next() -> None:
    stored = ManagedLedgerInfo()
    for entries in (1, 2):
        stored.ledgerInfo.add(ledgerId=3, entries=entries, size=entries, timestamp=5)
    record = LedgerRecord(stored.SerializeToString())
    following = ManagedLedgerInfo.FromString(record.with_list(record.spans()).encode())
    assert [(each.ledgerId, each.entries) for each in following.ledgerInfo] == [(3, 2)]


def test_the_next_record_leaves_the_one_before_as_it_is() -> None:
    record = LedgerRecord(pulsar_record().SerializeToString())
    before = record.encode()
    for following in (record.with_reserved(99), record.with_properties({"a": "b"})):
        following.deleting.append(5)
        following.properties["c"] = "d"
        following.with_list([LedgerSpan(1, closed_ms=1)]).encode()
    assert record.encode() == before
    assert (record.reserved, record.deleting) == (None, [])
