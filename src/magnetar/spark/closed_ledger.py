# SPDX-License-Identifier: Apache-2.0
"""A ledger that gets no more entries, as plans name it.

Decides.
"""

from typing import NamedTuple

from magnetar.ids import Position


class ClosedLedger(NamedTuple):
    """Picklable, so that it travels to a task."""

    ledger_id: int
    entries: int

    @property
    def last(self) -> Position:
        return Position(self.ledger_id, self.entries - 1)
