# SPDX-License-Identifier: Apache-2.0
"""How many messages a cursor has acknowledged, kept up to date with every ack: a backlog in messages without counting.

Messages of a log are numbered without gaps; `acked` is how many numbers are acknowledged, so the backlog is the number
of messages minus that. Told of every change by CursorState, asks for the size of an entry (its messages) and for its
number (that of its last message), which may not be known any more: then `acked` is None until somebody counts again.

It is saved with the cursor's position, with a mark that fits that position only: another broker that moves the cursor
without knowing of it makes it unknown, not wrong.
Decides.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from magnetar.ids import Position

ACKED_PROPERTY: Final = "magnetar.messages.acked"
FITS_PROPERTY: Final = "magnetar.messages.fits"
# Entries beyond a cumulative ack that are looked at one by one; beyond this somebody has to count again.
HOLES_MAX: Final = 10_000

Lookup = Callable[[Position], int | None]


class MessageTally:
    __slots__ = ("_number_of", "_size_of", "acked")

    def __init__(self, size_of: Lookup, number_of: Lookup, acked: int | None) -> None:
        self._size_of = size_of
        self._number_of = number_of
        self.acked = acked

    def on_acked(self, position: Position, left_before: int | None, left_after: int) -> None:
        """An entry had so many messages unacknowledged (None: all of them), and has so many now."""
        if self.acked is None:
            return
        before = self._size_of(position) if left_before is None else left_before
        self.acked = None if before is None else self.acked + before - left_after

    def on_all_acked(self, ledger_id: int, entry_ids: Iterable[int]) -> None:
        """Whole entries of a ledger are acknowledged, none of which was in part."""
        size_of = self._size_of
        for entry_id in entry_ids:
            if self.acked is None:
                return
            size = size_of(Position(ledger_id, entry_id))
            self.acked = None if size is None else self.acked + size

    def on_moved(self, through: Position, holes: Iterable[Position] | None, batches: Mapping[Position, int]) -> None:
        """Everything up to a position is acknowledged, and beyond it these entries and parts of batches.

        `holes` is None when there are too many to look at.
        """
        number = self._number_of(through)
        if number is None or holes is None:
            self.acked = None
            return
        acked = number + 1
        for position in holes:
            size = self._size_of(position)
            if size is None:
                self.acked = None
                return
            acked += size
        for position, bits in batches.items():
            size = self._size_of(position)
            if size is None:
                self.acked = None
                return
            acked += size - bits.bit_count()
        self.acked = acked

    def forget(self) -> None:
        """The cursor was moved in a way that says nothing of messages."""
        self.acked = None

    def saved(self, fits: int) -> dict[str, int]:
        """What is saved with a position, to be found again by `restored`."""
        return {} if self.acked is None else {ACKED_PROPERTY: self.acked, FITS_PROPERTY: fits}


def restored(properties: dict[str, int], fits: int) -> int | None:
    """Take what was saved out of a cursor's properties; None when there is nothing or it is of another position."""
    acked, mark = properties.pop(ACKED_PROPERTY, None), properties.pop(FITS_PROPERTY, None)
    return acked if mark == fits else None
