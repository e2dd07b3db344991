# SPDX-License-Identifier: Apache-2.0
"""Saved cursor states: what comes back, what Pulsar makes of it, what of Pulsar's we read."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyroaring import BitMap

from magnetar.errors import DamagedRecord
from magnetar.ids import Position
from magnetar.managed_ledger.acked_entries import AckedEntries
from magnetar.managed_ledger.cursor_format import CursorSnapshot, decode_entry, encode_entries, snapshot_of
from magnetar.managed_ledger.cursor_record import CursorRecord
from magnetar.managed_ledger.ledger_list import LedgerList, LedgerSpan
from magnetar.wire.proto.ml_formats_pb2 import ManagedCursorInfo, MessageRange, PositionInfo

MIB = 1024 * 1024


def log_of(*entries: int) -> LedgerList:
    return LedgerList(LedgerSpan(10 + i, entries=count) for i, count in enumerate(entries))


def acked_of(ledgers: dict[int, BitMap]) -> AckedEntries:
    acked = AckedEntries()
    for ledger_id, bitmap in ledgers.items():
        acked.adopt(ledger_id, bitmap)
    return acked


def content(snapshot: CursorSnapshot) -> tuple[object, ...]:
    holes = {ledger_id: set(snapshot.acked.bitmap(ledger_id) or ()) for ledger_id in snapshot.acked.ledgers()}
    return snapshot.mark_delete, holes, dict(snapshot.batches), dict(snapshot.properties)


snapshots = st.builds(
    CursorSnapshot,
    st.builds(Position, st.integers(0, 100), st.integers(-1, 1000)),
    st.dictionaries(
        st.integers(10, 15), st.sets(st.integers(0, 3000), min_size=1, max_size=60).map(BitMap), max_size=4
    ).map(acked_of),
    st.dictionaries(st.builds(Position, st.integers(10, 15), st.integers(0, 3000)), st.integers(1, 2**130), max_size=5),
    st.dictionaries(st.text(min_size=1, max_size=5), st.integers(-(2**63), 2**63 - 1), max_size=3),
)


@pytest.mark.feature("F-CUR-05", "F-CUR-06", "F-CUR-07")
@settings(max_examples=150, deadline=None)
@given(snapshots, st.sampled_from([200, 1000, MIB]))
def test_a_state_comes_back_whole_however_it_was_split(snapshot: CursorSnapshot, entry_bytes_max: int) -> None:
    entries = encode_entries(snapshot, entry_bytes_max=entry_bytes_max)
    saved = [decode_entry(entry) for entry in entries]
    assert [entry.is_last for entry in saved] == [False] * (len(saved) - 1) + [True]
    assert saved[-1].before == len(saved) - 1
    assert [entry.before for entry in saved[:-1]] == list(range(len(saved) - 1))
    assert content(snapshot_of(saved, log_of(1))) == content(snapshot)


@settings(max_examples=100, deadline=None)
@given(snapshots, st.sampled_from([200, MIB]))
def test_every_entry_alone_is_a_true_state_for_a_reader_that_knows_no_parts(
    snapshot: CursorSnapshot, entry_bytes_max: int
) -> None:
    """Pulsar reads the last entry: the position must be right, and no hole may be there that is not acked."""
    for entry in encode_entries(snapshot, entry_bytes_max=entry_bytes_max):
        info = PositionInfo.FromString(entry)
        assert (info.ledgerId, info.entryId) == snapshot.mark_delete
        for ledger in info.individualDeletedMessageRanges:
            for index, word in enumerate(ledger.values):
                bits = word & (2**64 - 1)
                while bits:
                    low = bits & -bits
                    assert snapshot.acked.contains(ledger.key, 64 * index + low.bit_length() - 1)
                    bits ^= low


@pytest.mark.feature("F-CUR-07", "B-25")
def test_a_million_holes_take_a_few_entries_and_come_back() -> None:
    acked = acked_of({10 + i: BitMap(range(0, 200_000, 2)) for i in range(10)})
    snapshot = CursorSnapshot(Position(9, 5), acked, {}, {})
    assert acked.count == 1_000_000
    whole = encode_entries(snapshot, entry_bytes_max=4 * MIB)
    assert len(whole) == 1
    assert len(whole[0]) < 400_000
    split = encode_entries(snapshot, entry_bytes_max=64 * 1024)
    assert len(split) > 4
    assert max(map(len, split)) <= 80 * 1024
    for entries in (whole, split):
        back = snapshot_of([decode_entry(entry) for entry in entries], log_of(1))
        assert back.acked.count == 1_000_000
        assert back.acked.bitmap(15) == acked.bitmap(15)


def test_few_holes_far_out_are_written_as_ranges() -> None:
    acked = acked_of({10: BitMap([5_000_000, 5_000_001, 9_000_000])})
    (entry,) = encode_entries(CursorSnapshot(Position(10, 3), acked, {}, {}), entry_bytes_max=MIB)
    assert len(entry) < 200
    ranges = PositionInfo.FromString(entry).individualDeletedMessages
    assert [(r.lowerEndpoint.entryId, r.upperEndpoint.entryId) for r in ranges] == [
        (4_999_999, 5_000_001),
        (8_999_999, 9_000_000),
    ]


def test_ranges_over_several_ledgers_cover_all_between() -> None:
    info = PositionInfo(ledgerId=10, entryId=0)
    span = info.individualDeletedMessages.add()
    span.lowerEndpoint.ledgerId, span.lowerEndpoint.entryId = 10, 2
    span.upperEndpoint.ledgerId, span.upperEndpoint.entryId = 12, 1
    back = snapshot_of([decode_entry(info.SerializeToString())], log_of(5, 3, 9))
    assert {ledger_id: list(back.acked.bitmap(ledger_id) or ()) for ledger_id in back.acked.ledgers()} == {
        10: [3, 4],
        11: [0, 1, 2],
        12: [0, 1],
    }


def test_the_example_of_the_format_page() -> None:
    acked = acked_of({5: BitMap([2, 3, 7])})
    snapshot = CursorSnapshot(Position(5, 0), acked, {Position(5, 4): 0b1010}, {"seq": 41})
    golden = "08 05 10 00 22 07 0a 03 73 65 71 10 29 2a 08 0a 04 08 05 10 04 10 0a 32 05 08 05 10 8c 01"
    assert encode_entries(snapshot, entry_bytes_max=MIB) == [bytes.fromhex(golden)]


def test_garbage_is_named() -> None:
    with pytest.raises(DamagedRecord):
        decode_entry(b"\xff\xff\xff")
    with pytest.raises(DamagedRecord):
        decode_entry(b"")
    with pytest.raises(DamagedRecord):
        CursorRecord.decode(b"\x08")
    with pytest.raises(DamagedRecord):
        CursorRecord.decode(b"")


@pytest.mark.feature("F-CUR-11")
@settings(max_examples=100, deadline=None)
@given(snapshots)
def test_a_record_with_the_state_gives_it_back(snapshot: CursorSnapshot) -> None:
    record = CursorRecord.new(Position(1, -1), {"team": "blue"}, 5).with_state(snapshot, [7, 3], 9)
    back = CursorRecord.decode(record.encode())
    assert back.ledger_id == -1
    assert back.deleting == [3, 7]
    assert back.user_properties == {"team": "blue"}
    assert back.last_active_ms == 9
    assert content(back.snapshot(log_of(1))) == content(snapshot)


def test_fields_that_we_do_not_know_survive_a_rewrite() -> None:
    """F202."""
    info = ManagedCursorInfo(cursorsLedgerId=4, markDeleteLedgerId=3, markDeleteEntryId=2)
    unknown = b"\x9a\x06\x03abc"
    record = CursorRecord.decode(info.SerializeToString() + unknown)
    for following in (
        record.taken_over(),
        record.moved_to(5, Position(3, 3), {"a": 1}, [4]),
        record.with_user_properties({"b": "2"}),
    ):
        assert unknown in following.encode()


def test_hidden_properties_are_not_shown() -> None:
    record = CursorRecord.new(Position(1, -1), {"mine": "x"}, 5).with_reserved(8, [2])
    back = CursorRecord.decode(record.encode())
    assert back.reserved == 8
    assert back.deleting == [2]
    assert back.user_properties == {"mine": "x"}
    assert back.taken_over().deleting == [2, 8]
    assert back.as_deleted([2]).is_deleted


def test_pulsars_range_ends_are_open_below_and_closed_above() -> None:
    """A golden value: entries 4 and 5 of ledger 12 as Apache Pulsar writes them."""
    message_range = MessageRange.FromString(bytes.fromhex("0a04080c1003120408" + "0c1005"))
    info = PositionInfo(ledgerId=12, entryId=1)
    info.individualDeletedMessages.append(message_range)
    back = snapshot_of([decode_entry(info.SerializeToString())], log_of(1))
    assert list(back.acked.bitmap(12) or ()) == [4, 5]
