# SPDX-License-Identifier: Apache-2.0
"""The ledgers that make one log, oldest first, and the arithmetic of positions over them.

Owned by a ManagedLedger; grows by its appender, shrinks by trimming, asked by cursors. Every entry has an ordinal: how
many entries were before it since this list was made, trimmed ones included. Ordinals never change while the list lives,
so a count over any number of ledgers is one subtraction.

Invariant: ids rise; a span's first ordinal is its predecessor's plus its predecessor's entries.
Decides.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator

from magnetar.ids import Position


class LedgerSpan:
    """One ledger's share of the log: `entries` counts those that are confirmed."""

    __slots__ = ("closed_ms", "entries", "first_ordinal", "ledger_id", "size_bytes")

    def __init__(self, ledger_id: int, *, entries: int = 0, size_bytes: int = 0, closed_ms: int = 0) -> None:
        self.ledger_id = ledger_id
        self.first_ordinal = 0
        self.entries = entries
        self.size_bytes = size_bytes
        # Wall-clock time of closing; 0 while it is open.
        self.closed_ms = closed_ms

    def end_as(self, recorded: "LedgerSpan") -> None:
        """Take over the end that is on record, its time too: the next record must not tell another."""
        self.entries, self.size_bytes, self.closed_ms = recorded.entries, recorded.size_bytes, recorded.closed_ms


class LedgerList:
    __slots__ = ("_ids", "_spans", "trimmed_entries")

    def __init__(self, spans: Iterable[LedgerSpan] = ()) -> None:
        self._ids: list[int] = []
        self._spans: dict[int, LedgerSpan] = {}
        self.trimmed_entries = 0
        for span in spans:
            self.append(span)

    # --- changes ------------------------------------------------------------------------------

    def append(self, span: LedgerSpan) -> None:
        assert not self._ids or span.ledger_id > self._ids[-1], f"ledger {span.ledger_id} comes after {self._ids[-1]}"
        span.first_ordinal = self.last_ordinal
        self._ids.append(span.ledger_id)
        self._spans[span.ledger_id] = span

    def drop_empty_last(self) -> None:
        """Take the last span out: nothing was ever in it, and its log does not have it any more."""
        span = self._spans[self._ids[-1]]
        assert not span.entries
        assert len(self._ids) > 1
        del self._spans[self._ids.pop()]

    def drop_oldest(self, count: int) -> list[LedgerSpan]:
        """Take the oldest spans out; at least one stays, so that the log has an end to append behind."""
        assert 0 <= count < len(self._ids)
        dropped = [self._spans.pop(ledger_id) for ledger_id in self._ids[:count]]
        del self._ids[:count]
        self.trimmed_entries += sum(span.entries for span in dropped)
        return dropped

    def restore_oldest(self, spans: list[LedgerSpan]) -> None:
        """Put back what drop_oldest took, when its removal could not be recorded."""
        self._ids[:0] = [span.ledger_id for span in spans]
        self._spans.update((span.ledger_id, span) for span in spans)
        self.trimmed_entries -= sum(span.entries for span in spans)

    # --- questions ----------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._ids)

    def __iter__(self) -> Iterator[LedgerSpan]:
        return iter([self._spans[ledger_id] for ledger_id in self._ids])

    def __contains__(self, ledger_id: int) -> bool:
        return ledger_id in self._spans

    def span(self, ledger_id: int) -> LedgerSpan | None:
        return self._spans.get(ledger_id)

    @property
    def last(self) -> LedgerSpan:
        return self._spans[self._ids[-1]]

    @property
    def first(self) -> LedgerSpan:
        return self._spans[self._ids[0]]

    @property
    def last_ordinal(self) -> int:
        """How many entries there were in all."""
        if not self._ids:
            return 0
        last = self._spans[self._ids[-1]]
        return last.first_ordinal + last.entries

    @property
    def entries(self) -> int:
        return self.last_ordinal - self._spans[self._ids[0]].first_ordinal if self._ids else 0

    @property
    def size_bytes(self) -> int:
        return sum(span.size_bytes for span in self._spans.values())

    def ordinal(self, position: Position) -> int:
        """How many entries lie at or before a position; a ledger that is not in the list counts as empty."""
        span = self._spans.get(position.ledger_id)
        if span is not None:
            return span.first_ordinal + min(max(position.entry_id + 1, 0), span.entries)
        index = bisect_left(self._ids, position.ledger_id)
        return self._spans[self._ids[index]].first_ordinal if index < len(self._ids) else self.last_ordinal

    def entries_between(self, after: Position, through: Position) -> int:
        """Entries after the first position, up to and with the second."""
        return max(0, self.ordinal(through) - self.ordinal(after))

    def position_of(self, ordinal: int) -> Position:
        """The position of the entry that has so many entries at or before it; the place before the first for less."""
        low, high = 0, len(self._ids)
        while low < high:
            middle = (low + high) // 2
            if self._spans[self._ids[middle]].first_ordinal < ordinal:
                low = middle + 1
            else:
                high = middle
        if low == 0:
            return self.before_first
        span = self._spans[self._ids[low - 1]]
        return Position(span.ledger_id, min(ordinal - span.first_ordinal, span.entries) - 1)

    def bytes_after(self, position: Position) -> int:
        """About how many bytes lie behind a position: exact for whole ledgers, by the mean entry inside one."""
        size = 0
        for ledger_id in self._ids[bisect_left(self._ids, position.ledger_id) :]:
            span = self._spans[ledger_id]
            if ledger_id == position.ledger_id and span.entries:
                left = max(0, span.entries - 1 - max(position.entry_id, -1))
                size += span.size_bytes * left // span.entries
            else:
                size += span.size_bytes
        return size

    @property
    def before_first(self) -> Position:
        return Position(self._ids[0], -1)

    @property
    def last_position(self) -> Position:
        """The last confirmed entry; the place before the first when there is none."""
        for ledger_id in reversed(self._ids):
            entries = self._spans[ledger_id].entries
            if entries:
                return Position(ledger_id, entries - 1)
        return self.before_first

    def is_past_ledger(self, before: Position, after: Position) -> bool:
        """True when a step from one position to a later one leaves a ledger behind: so that it may be let go."""
        if after.ledger_id != before.ledger_id:
            return True
        span = self._spans.get(after.ledger_id)
        return span is None or (span.closed_ms > 0 and after.entry_id >= span.entries - 1)

    def contains(self, position: Position) -> bool:
        span = self._spans.get(position.ledger_id)
        return span is not None and 0 <= position.entry_id < span.entries

    def has_place(self, position: Position) -> bool:
        """Whether there is an entry, or the place before a ledger's first, at a position."""
        span = self._spans.get(position.ledger_id)
        return span is not None and -1 <= position.entry_id < span.entries

    def entry_at_or_after(self, position: Position) -> Position | None:
        """The first entry from a position on; None when that is still to come."""
        ledger_id, entry_id = position
        span = self._spans.get(ledger_id)
        if span is not None and max(entry_id, 0) < span.entries:
            return position if entry_id >= 0 else Position(ledger_id, 0)
        for index in range(bisect_right(self._ids, ledger_id), len(self._ids)):
            if self._spans[self._ids[index]].entries:
                return Position(self._ids[index], 0)
        return None

    def next_position(self, position: Position) -> Position:
        """Where the entry after a position is, or will be as far as can be said now."""
        ledger_id, entry_id = position
        span = self._spans.get(ledger_id)
        if span is not None and entry_id + 1 < span.entries:
            return Position(ledger_id, max(entry_id + 1, 0))
        for index in range(bisect_right(self._ids, ledger_id), len(self._ids)):
            following = self._spans[self._ids[index]]
            if following.entries or index == len(self._ids) - 1:
                return Position(following.ledger_id, 0)
        last = self.last
        return Position(last.ledger_id, last.entries)

    def previous_position(self, position: Position) -> Position:
        """The entry before a position; the place before the first when there is none."""
        ledger_id, entry_id = position
        span = self._spans.get(ledger_id)
        if span is not None and entry_id > 0 and span.entries:
            return Position(ledger_id, min(entry_id, span.entries) - 1)
        for index in range(bisect_left(self._ids, ledger_id) - 1, -1, -1):
            previous = self._spans[self._ids[index]]
            if previous.entries:
                return Position(previous.ledger_id, previous.entries - 1)
        return self.before_first if span is None else Position(ledger_id, -1)

    def check(self) -> None:
        ordinal = self.first.first_ordinal if self._ids else 0
        assert self._ids == sorted(self._spans)
        for span in self:
            assert span.first_ordinal == ordinal, (
                f"ledger {span.ledger_id} starts at {span.first_ordinal}, not {ordinal}"
            )
            ordinal += span.entries
