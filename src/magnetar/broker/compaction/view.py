# SPDX-License-Identifier: Apache-2.0
"""What a consumer of the compacted view reads: the compacted ledger up to the horizon, then the topic.

One per subscription; the pump reads through it. The horizon is looked at with every read, so a newer compacted ledger
takes over without a restart. A subscription that starts at the beginning gets the compacted ledger from its first
entry, also what lay in ledgers that are gone.
Carries.
"""

from collections.abc import Sequence

from magnetar.broker.compaction.compacted_ledger import CompactedLedger
from magnetar.broker.compaction.messages import left_in_batch
from magnetar.broker.compaction.topic_compaction import TopicCompaction
from magnetar.ids import EARLIEST, Position
from magnetar.managed_ledger.cursor import Cursor
from magnetar.managed_ledger.cursor_state import words_of
from magnetar.managed_ledger.entry import Entry
from magnetar.managed_ledger.managed_ledger import ManagedLedger


class CompactedView:
    __slots__ = ("_compaction", "_cursor", "_index", "_left", "_managed_ledger", "_next", "_passed", "_start")

    def __init__(
        self, managed_ledger: ManagedLedger, cursor: Cursor, compaction: TopicCompaction, start: Position = EARLIEST
    ) -> None:
        self._managed_ledger = managed_ledger
        self._cursor = cursor
        self._compaction = compaction
        self._start = start
        # Where the last read ended, and the ledger and index that follow: most reads go on from there.
        self._next = EARLIEST
        self._index = (-1, 0)
        # Of the batches read last: which of their messages are left.
        self._left: dict[Position, int] = {}
        # A position, and the compacted ledger that has nothing at or behind it.
        self._passed = (EARLIEST, -1)

    def read_cached(self, position: Position, entries_max: int, bytes_max: int) -> list[Entry] | None:
        """As the managed ledger's; what is compacted is never in memory."""
        if self._is_compacted(position):
            return None
        return self._managed_ledger.read_cached(self._place(position), entries_max, bytes_max)

    async def read(self, position: Position, *, entries_max: int, bytes_max: int) -> list[Entry]:
        if self._is_compacted(position):
            ledger = await self._compaction.ledger()
            if ledger is not None:
                entries = await self._read_compacted(ledger, position, entries_max, bytes_max)
                if entries:
                    return entries
                self._passed = (position, ledger.horizon.ledger_id)
        place = self._place(position)
        return await self._managed_ledger.read(place, entries_max=entries_max, bytes_max=bytes_max)

    async def _read_compacted(
        self, ledger: CompactedLedger, position: Position, entries_max: int, bytes_max: int
    ) -> list[Entry]:
        ledger_id = ledger.horizon.ledger_id
        if self._index[0] != ledger_id or position != self._next:
            start = self._start if self._is_first(position) else position
            self._index = (ledger_id, await ledger.index_of(start))
        entries = await ledger.read(self._index[1], entries_max=entries_max, bytes_max=bytes_max)
        if entries:
            last = entries[-1]
            self._next = Position(last.ledger_id, last.entry_id + 1)
            self._index = (ledger_id, self._index[1] + len(entries))
        self._left = {entry.position: left for entry in entries if (left := left_in_batch(entry))}
        return entries

    def is_beyond_cursor(self, position: Position) -> bool:
        """Whether an entry lay in a ledger that is gone, and this subscription starts at the beginning: no cursor can
        tell whether it was consumed.
        """
        return position.ledger_id not in self._managed_ledger.ledgers and self._is_at_start()

    def left_of(self, position: Position, ack_set: Sequence[int]) -> Sequence[int]:
        """The ack set of an entry without what compaction has left out: not every client heeds `compacted_out`."""
        left = self._left.get(position, 0)
        if not left:
            return ack_set
        words = words_of(left)
        return [word & other for word, other in zip(words, ack_set, strict=False)] if ack_set else words

    def _is_compacted(self, position: Position) -> bool:
        """Whether the compacted ledger has, or may have, what comes next."""
        horizon = self._compaction.horizon
        if horizon is None or self._passed == (position, horizon.ledger_id):
            return False
        return position <= horizon.last or self._is_first(position)

    def _place(self, position: Position) -> Position:
        """Where to go on in the topic: behind the horizon, when the compacted ledger has nothing more."""
        horizon = self._compaction.horizon
        if horizon is None or position > horizon.last:
            return position
        return Position(horizon.last.ledger_id, horizon.last.entry_id + 1)

    def _is_first(self, position: Position) -> bool:
        """Whether this is where a subscription begins that starts with the first entry there is."""
        return self._is_at_start() and position == Position(self._managed_ledger.ledgers.first.ledger_id, 0)

    def _is_at_start(self) -> bool:
        return self._cursor.mark_delete <= self._managed_ledger.ledgers.before_first
