# SPDX-License-Identifier: Apache-2.0
"""The ack state of one subscription: how far, and what beyond.

Owns the mark-delete position, the entries acked past it, and the unacked bits of partly acked batches. Told of acks by
Cursor, asked by dispatch, trimming and storage. Knows the log only through its LedgerList; never waits, never stores.

An ack set is Pulsar's: 64-bit words, lowest bit first, a set bit is a message still to be acknowledged.

Invariants: mark-delete is the longest acked prefix; acked entries and batch bits lie beyond it and exist; it never goes
back but by reset.
Decides.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final, cast

from pyroaring import BitMap
from sortedcontainers import SortedDict

from magnetar.errors import BadPosition
from magnetar.ids import EARLIEST, LATEST, Position
from magnetar.managed_ledger.acked_entries import AckedEntries
from magnetar.managed_ledger.ledger_list import LedgerList
from magnetar.managed_ledger.message_tally import HOLES_MAX, MessageTally

_WORD: Final = 2**64 - 1


def bits_of(words: Iterable[int]) -> int:
    """An ack set as one number; words may be signed, as protobuf gives them."""
    bits = 0
    for index, word in enumerate(words):
        bits |= (word & _WORD) << (64 * index)
    return bits


def words_of(bits: int) -> list[int]:
    """The ack set of a number, as unsigned words without trailing empty ones."""
    words = []
    while bits:
        words.append(bits & _WORD)
        bits >>= 64
    return words


# What most cursors have of batches acked in part: a sorted dict of their own would be half of their memory.
_NO_BATCHES: Final = cast("SortedDict[Position, int]", MappingProxyType({}))


class CursorState:
    __slots__ = ("_batches", "_ledgers", "_mark_ordinal", "acked", "changes", "mark_delete", "read_position", "tally")

    def __init__(self, ledgers: LedgerList, mark_delete: Position) -> None:
        self._ledgers = ledgers
        self.acked = AckedEntries()
        # Unacked bits by position, of entries whose batch is acked in part.
        self._batches = _NO_BATCHES
        self.mark_delete = mark_delete
        self._mark_ordinal = ledgers.ordinal(mark_delete)
        self.read_position = ledgers.next_position(mark_delete)
        # Rises with every change that must be saved.
        self.changes = 0
        # Counts messages, for whoever wants to know.
        self.tally: MessageTally | None = None

    # --- changes ------------------------------------------------------------------------------

    def ack(self, position: Position, ack_set: Sequence[int] = ()) -> bool:
        """Acknowledge an entry, or with an ack set the messages whose bits are clear. True when all of it is acked now.

        BadPosition when the entry does not exist yet. What was acked before stays so.
        """
        if position <= self.mark_delete:
            return True
        ledger_id, entry_id = position
        span = self._ledgers.span(ledger_id)
        if span is None or not 0 <= entry_id < span.entries:
            return self._ack_missing(position)
        if ack_set and self._ack_batch(position, ack_set):
            return False
        if span.first_ordinal + entry_id == self._mark_ordinal:
            if self.tally is not None:
                self.tally.on_acked(position, self._left_of(position), 0)
            self._move_to_next(position)
        elif self.acked.add(ledger_id, entry_id):
            self.changes += 1
            if self.tally is not None:
                self.tally.on_acked(position, self._left_of(position), 0)
            if self._batches:
                self._batches.pop(position, None)
        return True

    def ack_run(self, positions: Sequence[tuple[int, int]]) -> bool:
        """`ack` for many whole entries of one ledger; False, and nothing changes, where each must be looked at."""
        ledger_id = positions[0][0]
        span = self._ledgers.span(ledger_id)
        if span is None or self._batches or len({ledger for ledger, _ in positions}) > 1:
            return False
        entries = [entry_id for _, entry_id in positions]
        if max(entries) >= span.entries:
            return False
        mark_ledger, mark_entry = self.mark_delete
        if ledger_id < mark_ledger:
            return True
        fresh = BitMap(entries)
        if ledger_id == mark_ledger:
            fresh.remove_range(0, mark_entry + 1)
        fresh = self.acked.add_all(ledger_id, fresh)
        if fresh:
            self.changes += 1
            if self.tally is not None:
                self.tally.on_all_acked(ledger_id, fresh)
            self._advance()
        return True

    def ack_cumulative(self, position: Position, ack_set: Sequence[int] = ()) -> bool:
        """Acknowledge everything up to a position; with an ack set only the clear bits of that last entry.

        True when mark-delete moved or a bit was cleared. BadPosition when the entry does not exist yet.
        """
        if position <= self.mark_delete:
            return False
        if position > self._ledgers.last_position:
            raise BadPosition(f"Position {position} is behind the last entry {self._ledgers.last_position}")
        before = self.changes
        if any(ack_set) and self._ledgers.contains(position) and self._ack_batch(position, ack_set):
            # A part of the last entry stays: mark-delete stands before it.
            position = self._ledgers.previous_position(position)
        if position > self.mark_delete:
            ordinal = self._mark_ordinal
            self._move(position)
            # Over the end of an empty ledger it moves without passing an entry.
            if self.tally is not None and self._mark_ordinal != ordinal:
                self.tally.on_moved(self.mark_delete, self._holes(HOLES_MAX), self._batches)
            self._advance()
        return self.changes != before

    def reset(self, position: Position) -> None:
        """Go to the place where the entry at this position comes next; all acks are forgotten."""
        if position >= LATEST:
            self._place(self._ledgers.last_position)
        elif position <= EARLIEST:
            self._place(self._ledgers.before_first)
        else:
            self._place(self._before(position))

    def restore(self, acked: AckedEntries, batches: Mapping[Position, int]) -> None:
        """Take over what storage kept; what does not exist (any more) is left out."""
        self.acked = acked
        for ledger_id in acked.ledgers():
            span = self._ledgers.span(ledger_id)
            if span is None:
                acked.drop_ledger(ledger_id)
                continue
            bitmap = acked.bitmap(ledger_id)
            if bitmap is not None and bitmap.max() >= span.entries:
                kept = bitmap.copy()
                kept.remove_range(span.entries, bitmap.max() + 1)
                acked.adopt(ledger_id, kept)
        held = {
            position: bits
            for position, bits in batches.items()
            if bits and self._ledgers.contains(position) and not acked.contains(*position)
        }
        self._batches = SortedDict(held) if held else _NO_BATCHES
        self._forget_through(self.mark_delete)
        self._advance()

    def rewind(self) -> None:
        """Read again from the first unacked entry."""
        self.read_position = self._ledgers.next_position(self.mark_delete)

    def on_trimmed(self) -> None:
        """Ledgers went away: a mark-delete inside them stands before the first that is left."""
        first = self._ledgers.before_first
        if self.mark_delete < first:
            self.acked.drop_ledgers_before(first.ledger_id)
            self._forget_batches(first)
            self.mark_delete = first
            self._mark_ordinal = self._ledgers.ordinal(first)
            if self.tally is not None:
                self.tally.forget()
            self._advance()
            self.changes += 1
        if self.read_position < first:
            self.read_position = Position(first.ledger_id, 0)

    # --- questions ----------------------------------------------------------------------------

    def is_acked(self, position: Position) -> bool:
        return position <= self.mark_delete or self.acked.contains(position[0], position[1])

    def is_untouched_from(self, ledger_id: int, entry_id: int) -> bool:
        """Whether no entry from this one on is acknowledged, not even in part."""
        first = (ledger_id, entry_id)
        if first <= self.mark_delete or (self._batches and self._batches.peekitem(-1)[0] >= first):
            return False
        return not self.acked.count or self.acked.last < first

    def batch_bits(self, position: Position) -> int:
        """The unacked bits of a partly acked batch; 0 for an entry that is wholly acked or wholly not."""
        bits: int = self._batches.get(position, 0)
        return bits

    @property
    def batches(self) -> Mapping[Position, int]:
        """Partly acked batches, to read only."""
        batches: Mapping[Position, int] = self._batches
        return batches

    @property
    def backlog_entries(self) -> int:
        """Entries that are not acknowledged: exact, without counting."""
        return self._ledgers.last_ordinal - self._mark_ordinal - self.acked.count

    @property
    def fits(self) -> int:
        """A number that tells this state from others, for what is saved beside it."""
        ledger_id, entry_id = self.mark_delete
        left: int = sum([bits.bit_count() for bits in self._batches.values()])
        return (ledger_id << 24 ^ entry_id << 12 ^ self.acked.count << 4 ^ left) & 2**62 - 1

    @property
    def first_unacked(self) -> Position:
        """Where a reader that starts over begins."""
        return self._ledgers.next_position(self.mark_delete)

    @property
    def unread_entries(self) -> int:
        """Entries from the read position on, acked or not."""
        return (
            self._ledgers.last_ordinal
            - self._ledgers.ordinal(self.read_position)
            + int(self._ledgers.contains(self.read_position))
        )

    def next_unacked(self, position: Position) -> Position | None:
        """The first unacked entry at or after a position; None when all that exist are acked."""
        found = self._ledgers.entry_at_or_after(max(position, self.mark_delete))
        if found is not None and found <= self.mark_delete:
            found = self._ledgers.entry_at_or_after(Position(found.ledger_id, found.entry_id + 1))
        while found is not None:
            last = self.acked.run_end(*found)
            if last < found.entry_id:
                return found
            found = self._ledgers.entry_at_or_after(Position(found.ledger_id, last + 1))
        return None

    def unacked(self, position: Position, *, count_max: int) -> Iterator[Position]:
        """Unacked entries at or after a position, in order."""
        found = self.next_unacked(position)
        while found is not None and count_max > 0:
            yield found
            count_max -= 1
            found = self.next_unacked(Position(found.ledger_id, found.entry_id + 1))

    def check(self) -> None:
        self.acked.check()
        assert self._mark_ordinal == self._ledgers.ordinal(self.mark_delete)
        following = self._ledgers.entry_at_or_after(Position(self.mark_delete.ledger_id, self.mark_delete.entry_id + 1))
        assert following is None or not self.acked.contains(*following), "mark-delete could be further on"
        assert all(self._ledgers.contains(position) and bits for position, bits in self._batches.items())
        for run in self.acked.runs():
            assert Position(run.ledger_id, run.first) > self.mark_delete
        assert self.backlog_entries >= 0

    # --- private ------------------------------------------------------------------------------

    def _ack_missing(self, position: Position) -> bool:
        if position > self._ledgers.last_position:
            raise BadPosition(f"Position {position} is behind the last entry {self._ledgers.last_position}")
        return True

    def _ack_batch(self, position: Position, ack_set: Sequence[int]) -> int:
        """Clear bits of an entry that is not wholly acked; the bits that are left."""
        if self.acked.contains(*position):
            return 0
        known = self._batches.get(position)
        given = bits_of(ack_set)
        left = given if known is None else known & given
        if left and left != known:
            if self.tally is not None:
                self.tally.on_acked(position, None if known is None else known.bit_count(), left.bit_count())
            if self._batches is _NO_BATCHES:
                self._batches = SortedDict()
            self._batches[position] = left
            self.changes += 1
        return left

    def _move_to_next(self, position: Position) -> None:
        """The entry right behind mark-delete was acked: the common case, kept short."""
        self.mark_delete = position
        self._mark_ordinal += 1
        self.changes += 1
        if self._batches:
            self._batches.pop(position, None)
        if self.read_position <= position:
            self.read_position = self._ledgers.next_position(position)
        if self.acked.count:
            self._advance()

    def _advance(self) -> None:
        """Carry mark-delete over the acked entries that follow it, from ledger to ledger."""
        if not self.acked.count:
            return
        while True:
            ledger_id, entry_id = self._ledgers.next_position(self.mark_delete)
            last = self.acked.run_end(ledger_id, entry_id)
            if last < entry_id:
                return
            self._move(Position(ledger_id, last))

    def _move(self, position: Position) -> None:
        """Mark-delete goes forward; an entry id beyond its ledger's last means that last."""
        span = self._ledgers.span(position.ledger_id)
        if span is not None and position.entry_id >= span.entries:
            position = Position(position.ledger_id, span.entries - 1)
        assert position >= self.mark_delete, f"mark-delete may not go back from {self.mark_delete} to {position}"
        self.mark_delete = position
        self._mark_ordinal = self._ledgers.ordinal(position)
        self._forget_through(position)
        if self.read_position <= position:
            self.read_position = self._ledgers.next_position(position)
        self.changes += 1

    def _left_of(self, position: Position) -> int | None:
        """Unacknowledged messages of an entry that is partly acked; None when all of them are."""
        bits = self._batches.get(position)
        return None if bits is None else bits.bit_count()

    def _holes(self, count_max: int) -> list[Position] | None:
        """The entries acked beyond mark-delete; None when there are more than so many."""
        if self.acked.count > count_max:
            return None
        return [Position(run.ledger_id, entry) for run in self.acked.runs() for entry in range(run.first, run.last + 1)]

    def _place(self, position: Position) -> None:
        if self.tally is not None:
            self.tally.forget()
        self.acked.clear()
        self._batches = _NO_BATCHES
        self.mark_delete = position
        self._mark_ordinal = self._ledgers.ordinal(position)
        self.read_position = self._ledgers.next_position(position)
        self.changes += 1

    def _before(self, position: Position) -> Position:
        found = self._ledgers.entry_at_or_after(position)
        if found is None:
            return self._ledgers.last_position
        if found.entry_id > 0:
            return Position(found.ledger_id, found.entry_id - 1)
        return self._ledgers.previous_position(found)

    def _forget_through(self, position: Position) -> None:
        if self.acked.count:
            self.acked.drop_ledgers_before(position.ledger_id)
            self.acked.drop_through(*position)
        if self._batches:
            self._forget_batches(position)

    def _forget_batches(self, position: Position) -> None:
        batches = self._batches
        while batches and batches.peekitem(0)[0] <= position:
            batches.popitem(0)
