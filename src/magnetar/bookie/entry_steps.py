# SPDX-License-Identifier: Apache-2.0
"""Lists of packed entries, some short and some long, taken in steps of about one size.

Owns how far they are taken. Never looks into an entry.
Decides.
"""

from collections.abc import Iterable

from magnetar.bookie.records import entries_within


class EntrySteps:
    __slots__ = ("_at", "_some", "_source")

    def __init__(self, lists: Iterable[list[bytes]]) -> None:
        self._source = iter(lists)
        self._some: list[bytes] = []
        self._at = 0

    def has_more(self) -> bool:
        while self._at == len(self._some):
            some = next(self._source, None)
            if some is None:
                return False
            self._some, self._at = some, 0
        return True

    def take(self, bytes_max: int) -> list[bytes]:
        """The next entries, until their records have at least so many bytes together."""
        taken: list[bytes] = []
        while bytes_max > 0 and self.has_more():
            until, size = entries_within(self._some, self._at, bytes_max)
            taken += self._some[self._at : until]
            self._at = until
            bytes_max -= size
        return taken
