# SPDX-License-Identifier: Apache-2.0
"""The entry cache of a process: newest entries of all managed ledgers together, bounded by bytes.

Owns the sum and the order of eviction: first what every cursor has read, then the oldest half of the largest tails. The
entries themselves stay in their LedgerTail. Entries that are not confirmed do not count and are never evicted.

Invariant: held_bytes is the sum over all tails; after every change it is within bytes_max, give or take one run.
Decides.
"""

from collections.abc import Callable

from magnetar.ids import Position
from magnetar.managed_ledger.ledger_tail import LedgerTail

NeededFrom = Callable[[], Position]


class EntryCache:
    __slots__ = ("_needed_from", "_target_bytes", "bytes_max", "evicted_bytes", "held_bytes", "hits", "misses")

    def __init__(self, bytes_max: int, eviction_share: float) -> None:
        self.bytes_max = bytes_max
        self._target_bytes = int(bytes_max * eviction_share)
        self.held_bytes = 0
        self.evicted_bytes = 0
        self.hits = 0
        self.misses = 0
        self._needed_from: dict[LedgerTail, NeededFrom] = {}

    # --- changes ------------------------------------------------------------------------------

    def on_confirmed(self, tail: LedgerTail, size_bytes: int, needed_from: NeededFrom) -> None:
        """A tail holds so many bytes more. `needed_from` tells the first position that a cursor will still read."""
        if tail not in self._needed_from:
            self._needed_from[tail] = needed_from
        self.held_bytes += size_bytes
        if self.held_bytes > self.bytes_max:
            self._evict()

    def drop(self, tail: LedgerTail) -> None:
        """No one will read the confirmed entries of a tail from memory."""
        self.on_dropped(tail, tail.drop_confirmed())

    def on_dropped(self, tail: LedgerTail, size_bytes: int) -> None:
        """The owner let entries of a tail go."""
        self.held_bytes -= size_bytes
        if not tail.cached_bytes:
            self._needed_from.pop(tail, None)

    def forget(self, tail: LedgerTail) -> None:
        """The tail goes away with all it holds."""
        if self._needed_from.pop(tail, None) is not None:
            self.held_bytes -= tail.cached_bytes

    # --- private ------------------------------------------------------------------------------

    def _evict(self) -> None:
        for tail, needed_from in list(self._needed_from.items()):
            position = needed_from()
            if position.ledger_id > tail.ledger_id:
                self._drop(tail, tail.confirmed + 1)
            elif position.ledger_id == tail.ledger_id:
                self._drop(tail, position.entry_id)
        while self.held_bytes > self._target_bytes:
            largest = max(self._needed_from, key=lambda tail: (tail.cached_bytes, tail.ledger_id))
            self._drop(largest, largest.base + (largest.confirmed + 2 - largest.base) // 2)

    def _drop(self, tail: LedgerTail, before: int) -> None:
        freed = tail.drop_before(before)
        self.evicted_bytes += freed
        self.on_dropped(tail, freed)

    def check(self) -> None:
        assert self.held_bytes == sum(tail.cached_bytes for tail in self._needed_from)
        for tail in self._needed_from:
            tail.check()
