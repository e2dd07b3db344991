# SPDX-License-Identifier: Apache-2.0
"""A bucket of delayed entries as Pulsar stores it: one ledger, named by a property of the cursor.

Entry 0 is a SnapshotMetadata: for each segment its first and last time, and by ledger a bitmap of its entries. Entry n
is the n-th SnapshotSegment: times and positions, in the order of time. The property is
`#pulsar.internal.delayed.bucket_<first ledger>_<last ledger>`, its value the id of the bucket's ledger.
Decides.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from google.protobuf.message import DecodeError
from pyroaring import BitMap

from magnetar.errors import DamagedRecord
from magnetar.wire.proto.delayed_index_metadata_pb2 import SnapshotMetadata
from magnetar.wire.proto.delayed_index_segment_pb2 import SnapshotSegment

# Properties of a cursor that are a broker's, not a user's.
INTERNAL_PREFIX: Final = "#pulsar.internal."
PROPERTY_PREFIX: Final = f"{INTERNAL_PREFIX}delayed.bucket_"

DueItem = tuple[int, int, int]
"""When it is due (ms), ledger id, entry id."""


class SegmentFacts(NamedTuple):
    """What the first entry says of one segment."""

    first_ms: int
    last_ms: int
    # By ledger: which of its entries are in the segment.
    entries: Mapping[int, BitMap]


def property_of(first_ledger: int, last_ledger: int) -> str:
    return f"{PROPERTY_PREFIX}{first_ledger}_{last_ledger}"


def ledgers_of(name: str) -> tuple[int, int]:
    """The first and the last ledger that a bucket's property names; -1 where it does not."""
    first, _, last = name.removeprefix(PROPERTY_PREFIX).partition("_")
    return (int(first), int(last)) if first.isdecimal() and last.isdecimal() else (-1, -1)


def buckets_in(properties: Mapping[str, str]) -> dict[str, int]:
    """The buckets that a cursor's properties name: property to ledger id. What is no number is left out."""
    return {
        name: int(value) for name, value in properties.items() if name.startswith(PROPERTY_PREFIX) and value.isdigit()
    }


def encode_segment(items: Sequence[DueItem]) -> tuple[bytes, SegmentFacts]:
    """One segment of items in the order of time, and what the first entry says of it."""
    segment = SnapshotSegment()
    by_ledger: dict[int, BitMap] = {}
    for due_ms, ledger_id, entry_id in items:
        segment.indexes.add(timestamp=due_ms, ledger_id=ledger_id, entry_id=entry_id)
        bitmap = by_ledger.get(ledger_id)
        if bitmap is None:
            bitmap = by_ledger[ledger_id] = BitMap()
        bitmap.add(entry_id)
    return segment.SerializeToString(), SegmentFacts(items[0][0], items[-1][0], by_ledger)


def encode_metadata(segments: Iterable[SegmentFacts]) -> bytes:
    metadata = SnapshotMetadata()
    for first_ms, last_ms, entries in segments:
        facts = metadata.metadata_list.add(min_schedule_timestamp=first_ms, max_schedule_timestamp=last_ms)
        for ledger_id, bitmap in sorted(entries.items()):
            facts.delayed_index_bit_map.add(key=ledger_id, value=bitmap.serialize())
    return metadata.SerializeToString()


def decode_metadata(entry: bytes) -> list[SegmentFacts]:
    """Raises DamagedRecord."""
    try:
        metadata = SnapshotMetadata.FromString(entry)
        return [
            SegmentFacts(
                facts.min_schedule_timestamp,
                facts.max_schedule_timestamp,
                {pair.key: BitMap.deserialize(pair.value) for pair in facts.delayed_index_bit_map},
            )
            for facts in metadata.metadata_list
        ]
    except (DecodeError, ValueError, IndexError) as error:
        raise DamagedRecord(f"The head of a bucket of delayed messages cannot be read: {error}") from error


def decode_segment(entry: bytes) -> Iterable[DueItem]:
    """Raises DamagedRecord."""
    try:
        segment = SnapshotSegment.FromString(entry)
    except DecodeError as error:
        raise DamagedRecord(f"A segment of delayed messages cannot be read: {error}") from error
    return [(index.timestamp, index.ledger_id, index.entry_id) for index in segment.indexes]
