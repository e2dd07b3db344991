# SPDX-License-Identifier: Apache-2.0
"""Delayed entries in the order of their time, 20 bytes each, read from the front.

A run that was stored as a bucket keeps only its present segment in memory; the others are loaded when their time comes.
Decides.
"""

from array import array
from collections.abc import Iterable, Iterator
from typing import Final

from magnetar.broker.delayed.bucket_format import DueItem, SegmentFacts

# A run whose front is consumed gives its memory back in steps of this many entries.
_CUT_ENTRIES: Final = 4_096


class DueRun:
    __slots__ = (
        "_at",
        "_entries",
        "_ledgers",
        "_times",
        "bucket",
        "is_loading",
        "next_segment",
        "segments_left",
        "tried_until_s",
        "wanted_since_s",
    )

    def __init__(self, items: Iterable[DueItem] = ()) -> None:
        self._times = array("q")
        self._ledgers = array("q")
        self._entries = array("I")
        self._at = 0
        # The property that names the stored bucket; empty while the run is in memory alone.
        self.bucket = ""
        # Of a stored run: segments that are not in memory, and the entry of its ledger that is the first of them.
        self.segments_left: list[SegmentFacts] = []
        self.next_segment = 1
        self.is_loading = False
        # Since when its next segment is being loaded, however often that fails, and when a try ended last.
        self.wanted_since_s: float | None = None
        self.tried_until_s = 0.0
        self.extend(items)

    def extend(self, items: Iterable[DueItem]) -> None:
        for due_ms, ledger_id, entry_id in items:
            self._times.append(due_ms)
            self._ledgers.append(ledger_id)
            self._entries.append(entry_id)

    @property
    def in_memory(self) -> int:
        return len(self._times) - self._at

    @property
    def is_finished(self) -> bool:
        return self._at == len(self._times) and not self.segments_left

    @property
    def next_due_ms(self) -> int:
        """When the next entry is due, or at the earliest, while its segment is not loaded."""
        return self._times[self._at] if self._at < len(self._times) else self.segments_left[0].first_ms

    @property
    def entries_left(self) -> int:
        """Entries in memory and on disk."""
        return self.in_memory + sum(len(bitmap) for facts in self.segments_left for bitmap in facts.entries.values())

    def first(self) -> DueItem | None:
        return next(self.items(), None)

    def items(self) -> Iterator[DueItem]:
        """What is in memory and left."""
        return zip(self._times[self._at :], self._ledgers[self._at :], self._entries[self._at :], strict=True)

    def pop(self) -> tuple[int, int]:
        at = self._at
        ledger_id, entry_id = self._ledgers[at], self._entries[at]
        self._at = at + 1
        if self._at >= _CUT_ENTRIES:
            for column in (self._times, self._ledgers, self._entries):
                del column[: self._at]
            self._at = 0
        return ledger_id, entry_id

    def on_stored(self, bucket: str, segment_entries: int, segments: list[SegmentFacts], popped: int) -> None:
        """The run is stored: what lies behind the present segment leaves memory.

        `popped` entries went out since its items were taken.
        """
        self.bucket = bucket
        present = popped // segment_entries
        keep = self._at + (present + 1) * segment_entries - popped
        for column in (self._times, self._ledgers, self._entries):
            del column[keep:]
        self.segments_left = segments[present + 1 :]
        self.next_segment = present + 2
