# SPDX-License-Identifier: Apache-2.0
"""The saved state of a cursor: entries of its cursor ledger, and its record in the metadata store.

Both are Pulsar's messages (PositionInfo, ManagedCursorInfo); docs/formats/cursor.md describes them. A state too large
for one entry is split: earlier entries hold parts of the holes and say which part they are (field 1001), the last one
says how many came before it (field 1000). Pulsar reads the last entry alone: a right position with some of the holes.
Decides.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet

from magnetar.errors import DamagedRecord
from magnetar.ids import Position
from magnetar.managed_ledger.acked_entries import AckedEntries
from magnetar.managed_ledger.bitmap_words import bitmap_of_words, words_of_bitmap
from magnetar.managed_ledger.cursor_state import bits_of, words_of
from magnetar.managed_ledger.ledger_list import LedgerList
from magnetar.wire.proto.ml_formats_pb2 import BatchedEntryDeletionIndexInfo, MessageRange, PositionInfo
from magnetar.wire.varint import encode as encode_varint

PARTS_FIELD: Final = 1000
PART_FIELD: Final = 1001
# What a MessageRange and a non-zero or zero word take at most.
_RANGE_BYTES: Final = 44
_WORD_BYTES: Final = 10


class CursorSnapshot(NamedTuple):
    """Everything that a cursor keeps over a restart."""

    mark_delete: Position
    acked: AckedEntries
    batches: Mapping[Position, int]
    properties: Mapping[str, int]


class SavedEntry(NamedTuple):
    """One entry of a cursor ledger: its content, and where it stands in a split state."""

    info: PositionInfo
    # Entries before this one that belong to the same state; of a part: how many came before it.
    before: int
    is_last: bool


# --- writing ----------------------------------------------------------------------------------------


def encode_entries(snapshot: CursorSnapshot, *, entry_bytes_max: int) -> list[bytes]:
    """The state as entries of a cursor ledger, to be appended in this order; most often just one."""
    parts = list(_parts(snapshot, entry_bytes_max))
    last = parts[-1]
    for name in sorted(snapshot.properties):
        last.properties.add(name=name, value=snapshot.properties[name])
    entries = [part.SerializeToString() + _field(PART_FIELD, index) for index, part in enumerate(parts[:-1])]
    end = last.SerializeToString()
    entries.append(end + _field(PARTS_FIELD, len(parts) - 1) if len(parts) > 1 else end)
    return entries


def _parts(snapshot: CursorSnapshot, bytes_max: int) -> Iterator[PositionInfo]:
    part = _new_part(snapshot)
    room = bytes_max
    for item, cost in _items(snapshot, bytes_max):
        if cost > room and room < bytes_max:
            yield part
            part = _new_part(snapshot)
            room = bytes_max
        room -= cost
        if isinstance(item, BatchedEntryDeletionIndexInfo):
            part.batchedEntryDeletionIndexInfo.append(item)
        elif isinstance(item, MessageRange):
            part.individualDeletedMessages.append(item)
        else:
            ledger_id, words = item
            part.individualDeletedMessageRanges.add(key=ledger_id, values=words)
    yield part


def _new_part(snapshot: CursorSnapshot) -> PositionInfo:
    return PositionInfo(ledgerId=snapshot.mark_delete.ledger_id, entryId=snapshot.mark_delete.entry_id)


def _items(snapshot: CursorSnapshot, bytes_max: int) -> Iterator[tuple[Any, int]]:
    for position, bits in snapshot.batches.items():
        yield _batch(position, bits), 2 * _RANGE_BYTES + bits.bit_length() // 64 * _WORD_BYTES
    if _words_are_smaller(snapshot.acked):
        yield from _word_items(snapshot.acked, bytes_max)
    else:
        for message_range in ranges_of(snapshot.acked):
            yield message_range, _RANGE_BYTES


def _words_are_smaller(acked: AckedEntries) -> bool:
    """Plain words or ranges: Pulsar reads one of them, so one is chosen for the whole state."""
    words_bytes = 0
    for ledger_id in acked.ledgers():
        bitmap = acked.bitmap(ledger_id)
        assert bitmap is not None
        words_bytes += bitmap.max() // 64 + 1 + _WORD_BYTES * min(len(bitmap), bitmap.max() // 64 + 1)
    return words_bytes <= _RANGE_BYTES * acked.run_count()


def _word_items(acked: AckedEntries, bytes_max: int) -> Iterator[tuple[Any, int]]:
    for ledger_id in acked.ledgers():
        bitmap = acked.bitmap(ledger_id)
        assert bitmap is not None
        words = words_of_bitmap(bitmap)
        per_item = max(1, bytes_max // _WORD_BYTES // 2)
        for start in range(0, len(words), per_item):
            share = words[start : start + per_item]
            if not any(share):
                continue
            # A share begins at the ledger's first word, for readers that know no shares; zeros cost a byte each.
            yield (ledger_id, [0] * start + share.tolist()), start + len(share) * _WORD_BYTES + 2 * _WORD_BYTES


def ranges_of(acked: AckedEntries) -> Iterator[MessageRange]:
    """Pulsar's ranges: the lower end is not part of them, the upper one is."""
    for run in acked.runs():
        message_range = MessageRange()
        message_range.lowerEndpoint.ledgerId, message_range.lowerEndpoint.entryId = run.ledger_id, run.first - 1
        message_range.upperEndpoint.ledgerId, message_range.upperEndpoint.entryId = run.ledger_id, run.last
        yield message_range


def batches_of(batches: Mapping[Position, int]) -> Iterator[BatchedEntryDeletionIndexInfo]:
    for position, bits in batches.items():
        yield _batch(position, bits)


def _batch(position: Position, bits: int) -> BatchedEntryDeletionIndexInfo:
    info = BatchedEntryDeletionIndexInfo()
    info.position.ledgerId, info.position.entryId = position
    info.deleteSet.extend(word - 2**64 if word >> 63 else word for word in words_of(bits))
    return info


def _field(number: int, value: int) -> bytes:
    return encode_varint(number << 3) + encode_varint(value)


# --- reading ----------------------------------------------------------------------------------------


def decode_entry(data: bytes | memoryview) -> SavedEntry:
    """One entry of a cursor ledger; DamagedRecord when it is none."""
    try:
        info = PositionInfo.FromString(bytes(data))
    except DecodeError as error:
        raise DamagedRecord(f"An entry of {len(data)} bytes in a cursor ledger cannot be read: {error}") from error
    if not info.IsInitialized():
        raise DamagedRecord(f"An entry of {len(data)} bytes in a cursor ledger lacks its position")
    unknown = UnknownFieldSet(info)
    extra = {unknown[index].field_number: unknown[index].data for index in range(len(unknown))}
    if PART_FIELD in extra:
        return SavedEntry(info, int(extra[PART_FIELD]), is_last=False)
    return SavedEntry(info, int(extra.get(PARTS_FIELD, 0)), is_last=True)


def snapshot_of(entries: Sequence[SavedEntry], ledgers: LedgerList) -> CursorSnapshot:
    """The state that these entries are, the last one at the end."""
    acked = AckedEntries()
    batches: dict[Position, int] = {}
    for entry in entries:
        restore_ranges(entry.info.individualDeletedMessages, ledgers, acked)
        if not entry.info.individualDeletedMessages:
            for ledger in entry.info.individualDeletedMessageRanges:
                bitmap = bitmap_of_words(ledger.values)
                known = acked.bitmap(ledger.key)
                acked.adopt(ledger.key, bitmap if known is None else known | bitmap)
        batches.update(restored_batches(entry.info.batchedEntryDeletionIndexInfo))
    last = entries[-1].info
    return CursorSnapshot(
        Position(last.ledgerId, last.entryId),
        acked,
        batches,
        {pair.name: pair.value for pair in last.properties},
    )


def restore_ranges(ranges: Iterable[MessageRange], ledgers: LedgerList, acked: AckedEntries) -> None:
    """Older brokers wrote ranges over several ledgers; those cover the whole of every ledger between their ends."""
    for message_range in ranges:
        lower, upper = message_range.lowerEndpoint, message_range.upperEndpoint
        if lower.ledgerId == upper.ledgerId:
            acked.add_run(lower.ledgerId, lower.entryId + 1, upper.entryId)
            continue
        for span in ledgers:
            if lower.ledgerId <= span.ledger_id < upper.ledgerId:
                first = lower.entryId + 1 if span.ledger_id == lower.ledgerId else 0
                acked.add_run(span.ledger_id, first, span.entries - 1)
        acked.add_run(upper.ledgerId, 0, upper.entryId)


def restored_batches(infos: Iterable[BatchedEntryDeletionIndexInfo]) -> dict[Position, int]:
    return {Position(info.position.ledgerId, info.position.entryId): bits_of(info.deleteSet) for info in infos}
