# SPDX-License-Identifier: Apache-2.0
"""Where those who read on find the next entry: behind the one that was read last, if it lies there.

Owns a bounded number of such places, the oldest go first. A hint only: the record itself says whether it is the entry
that was asked for, and the index knows in any case.
Decides.
"""

from typing import Final

from magnetar.bookie.ledger_index import Place

# More readers than this at once ask the index.
_TRAILS_MAX: Final = 1_000


class ReadTrails:
    """Invariant: at most _TRAILS_MAX places, each of the entry under whose ids it is kept; `_counts` counts them."""

    __slots__ = ("_counts", "_places")

    def __init__(self) -> None:
        self._places: dict[tuple[int, int], Place] = {}
        # By ledger: most of those that go have none.
        self._counts: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._places)

    def note(self, ledger_id: int, place: Place) -> None:
        """The entry of this place may lie there, and be about as large."""
        ids = ledger_id, place.entry_id
        if ids not in self._places:
            self._counts[ledger_id] = self._counts.get(ledger_id, 0) + 1
        self._places[ids] = place
        if len(self._places) > _TRAILS_MAX:
            self.take(*next(iter(self._places)))

    def take(self, ledger_id: int, entry_id: int) -> Place | None:
        """Where to look for an entry; whoever finds it there notes where it goes on."""
        place = self._places.pop((ledger_id, entry_id), None)
        if place is not None:
            left = self._counts[ledger_id] - 1
            if left:
                self._counts[ledger_id] = left
            else:
                del self._counts[ledger_id]
        return place

    def drop_ledger(self, ledger_id: int) -> None:
        if self._counts.pop(ledger_id, None) is not None:
            for ids in [ids for ids in self._places if ids[0] == ledger_id]:
                del self._places[ids]
