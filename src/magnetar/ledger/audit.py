# SPDX-License-Identifier: Apache-2.0
"""Which copies of a ledger are missing: what its record and the answers of its bookies say.

A fragment is what one segment holds; a member of its ensemble is the unit that is lost and replaced. Asks nobody:
`auditor.py` and `replicator.py` do.
Decides.
"""

from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

from magnetar.ledger.placement import affinity_of
from magnetar.ledger.quorum import Quorum
from magnetar.ledger.record import LedgerRecord
from magnetar.ledger.segments import last_entry_of


class Fragment(NamedTuple):
    """One segment of a ledger with the entries that it holds now; last < first: none."""

    first_entry: int
    last_entry: int
    ensemble: tuple[str, ...]
    # The last fragment of a ledger that is not closed: its end is not known, and may still move.
    is_growing: bool


def fragments_of(record: LedgerRecord) -> list[Fragment]:
    found = []
    for index, segment in enumerate(record.segments):
        is_last = index == len(record.segments) - 1
        growing = is_last and not record.is_closed
        end = segment.first_entry - 1 if growing else last_entry_of(record.segments, index, _end(record))
        found.append(Fragment(segment.first_entry, end, segment.ensemble, growing))
    return found


def lost_bookies(record: LedgerRecord, available: Collection[str]) -> list[str]:
    """Bookies that hold a part of the ledger and are not there."""
    return [bookie for bookie in record.bookies() if bookie not in available]


def lost_members(fragment: Fragment, lost: Collection[str]) -> list[int]:
    return [member for member, bookie in enumerate(fragment.ensemble) if bookie in lost]


def entries_of(fragment: Fragment, quorum: Quorum, member: int) -> list[int]:
    """The entries that a member of a fragment must hold."""
    return [e for e in range(fragment.first_entry, fragment.last_entry + 1) if quorum.holds(member, e)]


def probes(fragment: Fragment, quorum: Quorum, member: int, percentage: int) -> list[int]:
    """The entries by which a check judges a member: its first and last, and a share of those between, evenly spread."""
    held = entries_of(fragment, quorum, member)
    if len(held) <= 2:
        return held
    more = len(held) * percentage // 100
    step = (len(held) - 1) / (more + 1)
    chosen = {0, len(held) - 1, *(round(i * step) for i in range(1, more + 1))}
    return [held[i] for i in sorted(chosen)]


def misplaced(record: LedgerRecord, rack_of: Callable[[str], str], racks_min: int) -> list[int]:
    """First entries of the fragments in which some write set spans fewer racks than it should."""
    found = []
    for segment in record.segments:
        needed = min(racks_min, record.quorum.write_quorum)
        if any(
            len({rack_of(segment.ensemble[member]) for member in record.quorum.write_set(start)}) < needed
            for start in range(record.quorum.ensemble_size)
        ):
            found.append(segment.first_entry)
    return found


def outside_groups(record: LedgerRecord, group_of: Callable[[str], str]) -> list[int]:
    """First entries of the fragments with a bookie outside the groups that the ledger must keep to."""
    affinity = affinity_of(record.custom or {})
    if not affinity.primary:
        return []
    allowed = (*affinity.primary, *affinity.secondary)
    return [
        segment.first_entry
        for segment in record.segments
        if any(group_of(bookie) not in allowed for bookie in segment.ensemble)
    ]


def _end(record: LedgerRecord) -> int:
    """The last entry of a closed ledger; of an open one the last before its growing fragment."""
    return record.last_entry if record.is_closed else record.last_segment.first_entry - 1


def oldest_first(marks: Sequence[tuple[int, int]]) -> list[int]:
    """Ledger ids in the order in which they were marked."""
    return [ledger_id for _, ledger_id in sorted((marked_ms, ledger_id) for ledger_id, marked_ms in marks)]
