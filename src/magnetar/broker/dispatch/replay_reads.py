# SPDX-License-Identifier: Apache-2.0
"""Reading chosen positions with few reads: neighbours come together, small gaps are read and dropped.

Carries.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from magnetar.ids import Position
from magnetar.managed_ledger.entry import Entry
from magnetar.managed_ledger.managed_ledger import ManagedLedger

# Reading so many entries that nobody asked for is cheaper than another read.
GAP_ENTRIES_MAX: Final = 4


def runs_of(positions: Sequence[Position]) -> Iterator[tuple[Position, int]]:
    """Sorted positions as stretches of one ledger each: where it starts, and how many entries it spans."""
    first = last = positions[0]
    for position in positions[1:]:
        if position[0] != last[0] or position[1] - last[1] > GAP_ENTRIES_MAX + 1:
            yield first, last[1] - first[1] + 1
            first = position
        last = position
    yield first, last[1] - first[1] + 1


def read_cached(ledger: ManagedLedger, positions: Sequence[Position], bytes_max: int) -> list[Entry] | None:
    """The entries at these positions if all are in memory, else None; those that are not stored are left out."""
    wanted = set(positions)
    entries: list[Entry] = []
    for first, span in runs_of(positions):
        at, end = first, first[1] + span
        while at[1] < end and bytes_max > 0:
            found = ledger.read_cached(at, end - at[1], bytes_max)
            if found is None:
                return None
            found = [entry for entry in found if entry.ledger_id == first[0] and entry.entry_id < end]
            if not found:
                break
            entries += [entry for entry in found if entry.position in wanted]
            bytes_max -= sum(len(entry.body) for entry in found)
            at = Position(first[0], found[-1].entry_id + 1)
    return entries


async def read(ledger: ManagedLedger, positions: Sequence[Position], bytes_max: int) -> list[Entry]:
    """The entries at these positions, in order: all that are stored, or the first that make about bytes_max."""
    wanted = set(positions)
    entries: list[Entry] = []
    for first, span in runs_of(positions):
        at, end = first, first[1] + span
        while at[1] < end and (bytes_max > 0 or not entries):
            found = await ledger.read(at, entries_max=end - at[1], bytes_max=max(1, bytes_max))
            found = [entry for entry in found if entry.ledger_id == first[0] and entry.entry_id < end]
            if not found:
                break
            entries += [entry for entry in found if entry.position in wanted]
            bytes_max -= sum(len(entry.body) for entry in found)
            at = Position(first[0], found[-1].entry_id + 1)
    return entries
