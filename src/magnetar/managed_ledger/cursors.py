# SPDX-License-Identifier: Apache-2.0
"""The cursors of one managed ledger, and what they ask of it together: what to keep in memory, what to keep at all.

Decides.
"""

from typing import Final

from magnetar.ids import LATEST, Position
from magnetar.managed_ledger.cursor import Cursor
from magnetar.managed_ledger.parts import LogParts

# Who was close to the end may fall behind so many times as far and still count: a burst of messages must not throw
# away what its reader comes for a moment later.
PATIENCE: Final = 32
# After a look at all cursors that found none close to the end, one group of entries for so many of them goes by before
# the next look: what ten thousand cursors that nobody reads with cost a group is bounded.
LOOKED_AT_PER_GROUP: Final = 64


class Cursors:
    __slots__ = ("_groups_to_look", "_log", "_looked_at", "_near_end", "durable", "non_durable")

    def __init__(self, log: LogParts) -> None:
        self._log = log
        # The cursor that was last found close to the end: most often it still is, and the others need no look.
        self._near_end: Cursor | None = None
        # How many cursors the last look in vain was at, and how many groups go by before the next.
        self._looked_at = -1
        self._groups_to_look = 0
        self.durable: dict[str, Cursor] = {}
        self.non_durable: dict[Cursor, None] = {}

    def all(self) -> list[Cursor]:
        return [*self.durable.values(), *self.non_durable]

    def is_tail_wanted(self) -> bool:
        """True when a cursor reads close enough to the end to find new entries still in memory, or did a moment ago.

        Asked once for each group of entries. One of very many cursors that comes close is seen some groups later.
        """
        lag_max = self._log.settings.cache_lag_entries_max
        near = self._near_end
        if near is not None and not near.is_closed and near.state.unread_entries <= PATIENCE * lag_max:
            return True
        count = len(self.durable) + len(self.non_durable)
        if self._groups_to_look and count == self._looked_at:
            self._groups_to_look -= 1
            return False
        for cursor in self.all():
            if not cursor.is_closed and cursor.state.unread_entries <= lag_max:
                self._near_end = cursor
                self._groups_to_look = 0
                return True
        self._near_end = None
        self._looked_at, self._groups_to_look = count, count // LOOKED_AT_PER_GROUP
        return False

    def needed_from(self) -> Position:
        """The first position that a cursor not far from the end has still to read; LATEST when there is none."""
        lag_max = PATIENCE * self._log.settings.cache_lag_entries_max
        near = [cursor for cursor in self.all() if cursor.state.unread_entries <= lag_max]
        if self._log.settings.cache_keeps_unacked:
            return min((cursor.state.first_unacked for cursor in near), default=LATEST)
        return min((cursor.read_position for cursor in near), default=LATEST)

    def slowest_saved(self) -> Position | None:
        """The mark-delete that every durable cursor has passed for good; None without durable cursors."""
        return min((cursor.saved_mark_delete for cursor in self.durable.values()), default=None)

    def slowest(self) -> Cursor | None:
        """The durable cursor that holds back the most."""
        return min(self.durable.values(), key=lambda cursor: (cursor.mark_delete, cursor.name), default=None)
