# SPDX-License-Identifier: Apache-2.0
"""What the subscriptions of a topic read while they are woken one after another: those that stand at the same place get
the same entries, which are looked at once.

Owned by a topic. Holds nothing between two wake-ups, so that it keeps nothing in memory.
Decides.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from magnetar.broker.consumer import DeliveryRun
from magnetar.ids import Position
from magnetar.managed_ledger.entry import Entry

Read = Callable[[Position, int, int], list[Entry] | None]


class SharedReads:
    __slots__ = ("_entries", "_held", "_runs", "is_open")

    def __init__(self) -> None:
        self.is_open = False
        self._entries: dict[tuple[Position, int, int], list[Entry]] = {}
        # Which lists of entries are held here, by their ids: an id is nobody else's as long as its list lives.
        self._held: dict[int, None] = {}
        self._runs: dict[tuple[int, bool], DeliveryRun | None] = {}

    @contextmanager
    def opened(self) -> Iterator[None]:
        """While subscriptions are woken one after another."""
        self.is_open = True
        try:
            yield
        finally:
            self.is_open = False
            self._entries.clear()
            self._held.clear()
            self._runs.clear()

    def read(self, read: Read, position: Position, entries_max: int, bytes_max: int) -> list[Entry] | None:
        """As `read` does; only what it found in memory is shared."""
        if not self.is_open:
            return read(position, entries_max, bytes_max)
        asked = (position, entries_max, bytes_max)
        entries = self._entries.get(asked)
        if entries is None:
            entries = read(position, entries_max, bytes_max)
            if entries:
                self._entries[asked] = entries
                self._held[id(entries)] = None
        return entries

    def run(
        self, entries: Sequence[Entry], keyed: bool, make: Callable[[Sequence[Entry], bool], DeliveryRun | None]
    ) -> DeliveryRun | None:
        """As `make` does, once for the same entries."""
        if id(entries) not in self._held:
            return make(entries, keyed)
        asked = (id(entries), keyed)
        if asked not in self._runs:
            self._runs[asked] = make(entries, keyed)
        return self._runs[asked]
