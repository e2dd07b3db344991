# SPDX-License-Identifier: Apache-2.0
"""Which entries of a subscription are due when: the earliest first, cheap at a million of them.

New ones go into a small heap; when that is full it becomes a run of sorted arrays. Runs of whole ledgers may be stored
as buckets, and then hold only their present segment here. Bitmaps by ledger tell which entries are known, so that
reading a stretch of the log again adds nothing, and an entry that a bucket names twice goes out once.

Invariant: `count` is the number of known entries; each of them is in the heap, in a run or in a segment on disk.
Decides.
"""

import heapq
from collections.abc import Iterable
from typing import Final

from pyroaring import BitMap

from magnetar.broker.delayed.bucket_format import DueItem, SegmentFacts
from magnetar.broker.delayed.due_run import DueRun
from magnetar.ids import Position

HEAP_ENTRIES_MAX: Final = 16_384


class DelayedIndex:
    __slots__ = ("_heap", "_heap_max", "_known", "_run_heads", "_runs", "_runs_made", "_unsaved", "count", "epoch")

    def __init__(self, heap_entries_max: int = HEAP_ENTRIES_MAX) -> None:
        self._heap_max = heap_entries_max
        self._heap: list[DueItem] = []
        self._runs: dict[int, DueRun] = {}
        self._runs_made = 0
        # The next time of each run, smallest first.
        self._run_heads: list[tuple[int, int]] = []
        self._known: dict[int, BitMap] = {}
        # Entries in the heap and in runs that are not stored.
        self._unsaved = 0
        self.count = 0
        # Rises when everything is forgotten, so that what was under way then is not believed.
        self.epoch = 0

    def __len__(self) -> int:
        return self.count

    def __contains__(self, position: Position) -> bool:
        known = self._known.get(position[0])
        return known is not None and position[1] in known

    @property
    def unsaved(self) -> int:
        return self._unsaved

    @property
    def next_due_ms(self) -> int | None:
        """When the earliest entry is due; None when there is none."""
        heap, heads = self._heap, self._run_heads
        if heap and heads:
            return min(heap[0][0], heads[0][0])
        if heap:
            return heap[0][0]
        return heads[0][0] if heads else None

    def first(self) -> tuple[Position | None, int] | None:
        """The entry that is due first, if it is in memory, and when."""
        due_ms = self.next_due_ms
        if due_ms is None:
            return None
        item = self._heap[0] if self._heap and self._heap[0][0] == due_ms else self._runs[self._run_heads[0][1]].first()
        return (Position(*item[1:]) if item is not None else None), due_ms

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
        self._unsaved += 1
        heapq.heappush(self._heap, (due_ms, ledger_id, entry_id))
        if len(self._heap) >= self._heap_max:
            items = sorted(self._heap)
            self._heap = []
            self._add_run(DueRun(items))
        return True

    def pop_due(self, now_ms: int, count_max: int) -> list[Position]:
        """The entries that are due, the earliest first; they are not known any more.

        Ends early where the next one is in a segment that is not loaded: see `wanted`.
        """
        due: list[Position] = []
        while len(due) < count_max:
            next_due_ms = self.next_due_ms
            if next_due_ms is None or next_due_ms > now_ms:
                break
            if self._heap and self._heap[0][0] == next_due_ms:
                _, ledger_id, entry_id = heapq.heappop(self._heap)
                self._unsaved -= 1
            else:
                number = self._run_heads[0][1]
                run = self._runs[number]
                if not run.in_memory:
                    break
                ledger_id, entry_id = run.pop()
                self._unsaved -= not run.bucket
                self._on_head_moved(number, run)
            if self._forget(ledger_id, entry_id):
                due.append(Position(ledger_id, entry_id))
        return due

    def clear(self) -> None:
        self._heap.clear()
        self._runs.clear()
        self._run_heads.clear()
        self._known.clear()
        self._unsaved = 0
        self.count = 0
        self.epoch += 1

    # --- buckets ----------------------------------------------------------------------------------

    def take_unsaved(self, first_ledger: int, before_ledger: int) -> tuple[DueRun, list[DueItem]]:
        """What is not stored of these ledgers as one run, which stays here, and its items, to be stored."""
        loose = [number for number, run in self._runs.items() if not run.bucket]
        unsaved = [*self._heap, *(item for number in loose for item in self._runs.pop(number).items())]
        items = sorted(item for item in unsaved if first_ledger <= item[1] < before_ledger)
        self._heap = [item for item in unsaved if not first_ledger <= item[1] < before_ledger]
        heapq.heapify(self._heap)
        self._run_heads = [head for head in self._run_heads if head[1] in self._runs]
        heapq.heapify(self._run_heads)
        run = DueRun(items)
        if items:
            self._add_run(run)
        return run, items

    def on_stored(
        self, run: DueRun, bucket: str, segment_entries: int, segments: list[SegmentFacts], stored: int
    ) -> None:
        """A run that `take_unsaved` gave is stored."""
        left = run.in_memory
        self._unsaved -= left
        run.on_stored(bucket, segment_entries, segments, stored - left)

    def add_stored(self, bucket: str, segments: Iterable[SegmentFacts]) -> None:
        """A bucket that was found: its entries are known, and its segments are loaded when they are due."""
        run = DueRun()
        run.bucket = bucket
        for segment in segments:
            run.segments_left.append(segment)
            for ledger_id, bitmap in segment.entries.items():
                known = self._known.setdefault(ledger_id, BitMap())
                before = len(known)
                known |= bitmap
                self._known[ledger_id] = known
                self.count += len(known) - before
        if run.segments_left:
            self._add_run(run)

    def wanted(self, now_ms: int) -> DueRun | None:
        """The run whose next segment must be loaded before what is due can go out."""
        if not self._run_heads or self._run_heads[0][0] > now_ms:
            return None
        run = self._runs[self._run_heads[0][1]]
        return None if run.in_memory else run

    def on_loaded(self, run: DueRun, items: Iterable[DueItem]) -> None:
        """The next segment of a stored run; what went out before is left out."""
        run.segments_left.pop(0)
        run.next_segment += 1
        run.extend(item for item in items if Position(*item[1:]) in self)
        number = next((number for number, known in self._runs.items() if known is run), None)
        if number is not None:
            self._run_heads = [head for head in self._run_heads if head[1] != number]
            heapq.heapify(self._run_heads)
            if run.is_finished:
                del self._runs[number]
            else:
                heapq.heappush(self._run_heads, (run.next_due_ms, number))

    def drop_run(self, run: DueRun) -> None:
        """A stored run that cannot be read: its entries are read from the log at once, and found not to be due."""
        for segment in run.segments_left:
            for ledger_id, bitmap in segment.entries.items():
                for entry_id in bitmap & self._known.get(ledger_id, BitMap()):
                    heapq.heappush(self._heap, (0, ledger_id, entry_id))
                    self._unsaved += 1
        for number in [number for number, known in self._runs.items() if known is run]:
            del self._runs[number]
            self._run_heads = [head for head in self._run_heads if head[1] != number]
            heapq.heapify(self._run_heads)

    def stored_runs(self) -> list[DueRun]:
        """The runs of buckets, in no order that matters."""
        return [run for run in self._runs.values() if run.bucket]

    def on_merged(self, merged: Iterable[DueRun], bucket: str, segments: Iterable[SegmentFacts]) -> None:
        """Two or more stored runs are one bucket now; what went out of them meanwhile is left out as it is loaded."""
        gone = [number for number, run in self._runs.items() if any(run is each for each in merged)]
        for number in gone:
            del self._runs[number]
        self._run_heads = [head for head in self._run_heads if head[1] in self._runs]
        heapq.heapify(self._run_heads)
        run = DueRun()
        run.bucket = bucket
        run.segments_left = list(segments)
        if run.segments_left:
            self._add_run(run)

    def buckets(self) -> list[str]:
        """The buckets that are still needed."""
        return [run.bucket for run in self._runs.values() if run.bucket]

    def check(self) -> None:
        assert self.count == sum(len(known) for known in self._known.values())
        in_memory = len(self._heap) + sum(run.in_memory for run in self._runs.values())
        assert self._unsaved == len(self._heap) + sum(run.in_memory for run in self._runs.values() if not run.bucket)
        assert in_memory >= self.count or any(run.segments_left for run in self._runs.values())
        assert sorted(self._run_heads) == sorted((run.next_due_ms, number) for number, run in self._runs.items())

    # --- private ----------------------------------------------------------------------------------

    def _add_run(self, run: DueRun) -> None:
        self._runs[self._runs_made] = run
        heapq.heappush(self._run_heads, (run.next_due_ms, self._runs_made))
        self._runs_made += 1

    def _on_head_moved(self, number: int, run: DueRun) -> None:
        if run.is_finished:
            heapq.heappop(self._run_heads)
            del self._runs[number]
        else:
            heapq.heapreplace(self._run_heads, (run.next_due_ms, number))

    def _forget(self, ledger_id: int, entry_id: int) -> bool:
        known = self._known.get(ledger_id)
        if known is None or entry_id not in known:
            return False
        known.remove(entry_id)
        if not len(known):
            del self._known[ledger_id]
        self.count -= 1
        return True
