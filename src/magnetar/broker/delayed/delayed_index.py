# SPDX-License-Identifier: Apache-2.0
"""Which entries of a subscription are due when: the earliest first, cheap at a million of them.

New ones go into a small heap; when that is full it becomes a run: three sorted arrays, 20 bytes an entry, read from
the front. Bitmaps by ledger tell whether an entry is known already, so that reading a stretch of the log again adds
nothing.

Invariant: an entry is in the heap or in one run, and then in the bitmaps, or in none of them.
Decides.
"""

import heapq
from array import array
from collections.abc import Iterable
from typing import Final

from pyroaring import BitMap

from magnetar.ids import Position

HEAP_ENTRIES_MAX: Final = 16_384
# A run whose front is consumed gives its memory back in steps of this many entries.
_CUT_ENTRIES: Final = 8_192


class DueRun:
    """Entries in the order of their time; `at` is the first that is left."""

    __slots__ = ("at", "entries", "ledgers", "times")

    def __init__(self, items: Iterable[tuple[int, int, int]]) -> None:
        self.times = array("q")
        self.ledgers = array("q")
        self.entries = array("I")
        self.at = 0
        for due_ms, ledger_id, entry_id in items:
            self.times.append(due_ms)
            self.ledgers.append(ledger_id)
            self.entries.append(entry_id)

    def __len__(self) -> int:
        return len(self.times) - self.at

    @property
    def next_due_ms(self) -> int:
        return self.times[self.at]

    def pop(self) -> Position:
        at = self.at
        position = Position(self.ledgers[at], self.entries[at])
        self.at = at + 1
        if self.at >= _CUT_ENTRIES:
            for column in (self.times, self.ledgers, self.entries):
                del column[: self.at]
            self.at = 0
        return position


class DelayedIndex:
    __slots__ = ("_heap", "_heap_max", "_known", "_run_heads", "_runs", "_runs_made", "count")

    def __init__(self, heap_entries_max: int = HEAP_ENTRIES_MAX) -> None:
        self._heap_max = heap_entries_max
        self._heap: list[tuple[int, int, int]] = []
        self._runs: dict[int, DueRun] = {}
        self._runs_made = 0
        # The next time of each run, smallest first.
        self._run_heads: list[tuple[int, int]] = []
        self._known: dict[int, BitMap] = {}
        self.count = 0

    def __len__(self) -> int:
        return self.count

    def __contains__(self, position: Position) -> bool:
        known = self._known.get(position[0])
        return known is not None and position[1] in known

    @property
    def next_due_ms(self) -> int | None:
        """When the earliest entry is due; None when there is none."""
        heap, heads = self._heap, self._run_heads
        if heap and heads:
            return min(heap[0][0], heads[0][0])
        if heap:
            return heap[0][0]
        return heads[0][0] if heads else None

    def first(self) -> tuple[Position, int] | None:
        """The entry that is due first, and when."""
        due_ms = self.next_due_ms
        if due_ms is None:
            return None
        if self._heap and self._heap[0][0] == due_ms:
            return Position(*self._heap[0][1:]), due_ms
        run = self._runs[self._run_heads[0][1]]
        return Position(run.ledgers[run.at], run.entries[run.at]), due_ms

    def add(self, position: Position, due_ms: int) -> bool:
        """False when it was known before; its time does not change then."""
        ledger_id, entry_id = position
        known = self._known.get(ledger_id)
        if known is None:
            known = self._known[ledger_id] = BitMap()
        elif entry_id in known:
            return False
        known.add(entry_id)
        self.count += 1
        heapq.heappush(self._heap, (due_ms, ledger_id, entry_id))
        if len(self._heap) >= self._heap_max:
            self._make_run()
        return True

    def pop_due(self, now_ms: int, count_max: int) -> list[Position]:
        """The entries that are due, the earliest first; they are not known any more."""
        due: list[Position] = []
        while len(due) < count_max:
            next_due_ms = self.next_due_ms
            if next_due_ms is None or next_due_ms > now_ms:
                break
            due.append(self._pop(next_due_ms))
        return due

    def clear(self) -> None:
        self._heap.clear()
        self._runs.clear()
        self._run_heads.clear()
        self._known.clear()
        self.count = 0

    def check(self) -> None:
        assert self.count == len(self._heap) + sum(map(len, self._runs.values()))
        assert self.count == sum(len(known) for known in self._known.values())
        assert sorted(self._run_heads) == sorted((run.next_due_ms, number) for number, run in self._runs.items())

    def _pop(self, due_ms: int) -> Position:
        if self._heap and self._heap[0][0] == due_ms:
            position = Position(*heapq.heappop(self._heap)[1:])
        else:
            number = self._run_heads[0][1]
            run = self._runs[number]
            position = run.pop()
            if len(run):
                heapq.heapreplace(self._run_heads, (run.next_due_ms, number))
            else:
                heapq.heappop(self._run_heads)
                del self._runs[number]
        known = self._known[position.ledger_id]
        known.remove(position.entry_id)
        if not len(known):
            del self._known[position.ledger_id]
        self.count -= 1
        return position

    def _make_run(self) -> None:
        run = DueRun(sorted(self._heap))
        self._heap = []
        self._runs[self._runs_made] = run
        heapq.heappush(self._run_heads, (run.next_due_ms, self._runs_made))
        self._runs_made += 1
