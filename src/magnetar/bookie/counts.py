# SPDX-License-Identifier: Apache-2.0
"""What a bookie counts of its own work: how often, how long, how much. Names and text are `bookie_metrics.py`'s.

Owns plain numbers that the hot path adds to, and summaries that take a whole batch at once: an add costs nothing here.
Times are milliseconds.
Decides.
"""

from collections.abc import Iterator
from typing import Final

from magnetar.runtime.summary import Summary

# The questions that are answered by a task of their own, by BookKeeper's names.
OPERATIONS: Final = (
    "READ_ENTRY",
    "READ_LAC",
    "WRITE_LAC",
    "FORCE_LEDGER",
    "GET_BOOKIE_INFO",
    "GET_LIST_OF_ENTRIES_OF_LEDGER",
)


class Outcomes:
    """What went well, and what did not."""

    __slots__ = ("failed", "ok")

    def __init__(self) -> None:
        self.ok = Summary()
        self.failed = Summary()

    def observe(self, value: int | float, *, ok: bool = True, times: int = 1) -> None:
        (self.ok if ok else self.failed).observe(value, times)

    @property
    def count(self) -> int:
        return self.ok.count + self.failed.count

    def rotate(self) -> None:
        self.ok.rotate()
        self.failed.rotate()


class Peak:
    """The highest value of the present and the last window: a queue that was full for a moment is seen at a scrape."""

    __slots__ = ("_before", "_now")

    def __init__(self) -> None:
        self._now = 0
        self._before = 0

    def note(self, value: int) -> None:
        if value > self._now:
            self._now = value

    @property
    def value(self) -> int:
        return max(self._now, self._before)

    def rotate(self) -> None:
        self._before, self._now = self._now, 0


class JournalCounts:
    """Of one journal. A group is written and synced by one call, so both have one duration."""

    __slots__ = (
        "added", "bytes_written", "group_bytes", "group_entries", "queue", "queue_peak", "records_queued", "synced",
    )  # fmt: skip

    def __init__(self) -> None:
        # From append to durable, per record.
        self.added = Outcomes()
        # The part of it before the group's write began.
        self.queue = Summary()
        self.synced = Outcomes()
        self.group_bytes = Summary()
        self.group_entries = Summary()
        self.bytes_written = 0
        self.records_queued = 0
        self.queue_peak = Peak()

    def rotate(self) -> None:
        for part in (self.added, self.queue, self.synced, self.group_bytes, self.group_entries, self.queue_peak):
            part.rotate()


class BookieCounts:
    def __init__(self) -> None:
        # Adds of clients as they were answered.
        self.adds_ok = 0
        self.adds_failed = 0
        self.add_requests = Outcomes()
        # Questions of clients by kind: asked, and carried out. What is refused as too many is only asked.
        self.requests = {name: Outcomes() for name in OPERATIONS}
        self.operations = {name: Outcomes() for name in OPERATIONS}
        self.reads_rejected = 0
        self.read_wait = Summary()
        self.questions = 0
        self.questions_peak = Peak()
        self.bytes_read = 0
        self.bytes_added = 0
        self.write_cache_hits = 0
        self.write_cache_misses = 0
        self.read_entry = Outcomes()
        self.read_ahead_entries = Summary()
        self.read_ahead_bytes = Summary()
        self.flush = Outcomes()
        self.flush_bytes = Summary()
        # How long adds were held back, and how many were.
        self.held = Summary()
        self.journals: list[JournalCounts] = []
        self._requests_settled = (0, 0)

    def journal(self) -> JournalCounts:
        """Counts for one more journal."""
        self.journals.append(JournalCounts())
        return self.journals[-1]

    def settle_adds(self, latency_ms: float) -> None:
        """The adds answered since the last call took so long."""
        ok, failed = self._requests_settled
        self._requests_settled = (self.adds_ok, self.adds_failed)
        if self.adds_ok > ok:
            self.add_requests.ok.observe(latency_ms, self.adds_ok - ok)
        if self.adds_failed > failed:
            self.add_requests.failed.observe(latency_ms, self.adds_failed - failed)

    def rotate(self) -> None:
        """A window of quantiles and peaks ends."""
        for part in self._parts():
            part.rotate()

    def _parts(self) -> Iterator[Outcomes | Summary | Peak | JournalCounts]:
        yield from (self.add_requests, self.read_wait, self.questions_peak, self.read_entry, self.flush, self.held)
        yield from (self.read_ahead_entries, self.read_ahead_bytes, self.flush_bytes)
        yield from self.requests.values()
        yield from self.operations.values()
        yield from self.journals
