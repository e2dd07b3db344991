# SPDX-License-Identifier: Apache-2.0
"""Finding the entry that holds a message of a given number, by asking for few entries.

The protocol can give the first entry at or behind any place, and brokers number messages without holes; so the entry
is found as in a telephone book: guess, look, and guess again between the two pages that are known to be too early and
too late. Never asks itself: whoever carries it asks for `target` and tells `found`.
Decides.
"""

from typing import NamedTuple

from magnetar.ids import Position


class NumberedEntry(NamedTuple):
    """A stored entry and the numbers of its messages."""

    position: Position
    first_index: int
    messages: int

    @property
    def end_index(self) -> int:
        return self.first_index + self.messages


class IndexSearch:
    """Looks for `index` from an entry that is known to lie before it (or to hold it); done when `answer` is set."""

    __slots__ = ("_asked", "_high", "_low", "answer", "index", "target")

    def __init__(self, index: int, known: NumberedEntry, last: Position) -> None:
        """`last`: the topic's last entry, which holds the message or lies behind it."""
        self.index = index
        self.answer: NumberedEntry | None = None
        self._asked = 0
        self._low = known
        # Entries from here on begin behind the message.
        self._high = Position(last.ledger_id, last.entry_id + 1)
        self.target = known.position
        self.found(known)

    def found(self, entry: NumberedEntry | None) -> None:
        """The first entry at or behind `target`; None if there is none."""
        if entry is not None and entry.first_index <= self.index < entry.end_index:
            self.answer = entry
            return
        if entry is None or entry.first_index > self.index:
            self._high = min(self._high, self.target)
        else:
            self._low = entry
        self._asked += 1
        self.target = self._next_target()

    def _next_target(self) -> Position:
        low, high = self._low, self._high
        ledgers = high.ledger_id - low.position.ledger_id
        if ledgers > 1 or (ledgers == 1 and high.entry_id > 0):
            # Another ledger may begin between the two: halve the ledgers first.
            return Position(low.position.ledger_id + (ledgers + 1) // 2, 0)
        # Inside one ledger. Every entry has a message at least, which bounds how far ahead the entry can be.
        ahead = self.index - low.end_index
        end = low.position.entry_id + 2 + ahead
        if ledgers == 0:
            end = min(end, high.entry_id)
        begin = low.position.entry_id + 1
        guess = begin + ahead // max(1, low.messages)
        if guess >= end or self._asked % 3 == 0:
            # Batches of unequal size mislead the guess; halving now and then bounds the number of questions.
            guess = (begin + end) // 2
        return Position(low.position.ledger_id, max(begin, min(guess, end - 1)))

    @property
    def is_impossible(self) -> bool:
        """Nothing is left between what is too early and what is too late: the message is not there."""
        return self.answer is None and self._high <= Position(
            self._low.position.ledger_id, self._low.position.entry_id + 1
        )
