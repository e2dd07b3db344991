# SPDX-License-Identifier: Apache-2.0
"""What one task reads: the messages of one topic partition between two places, and the check that none is missing.

Completeness is checked per entry: entry ids are dense within a ledger, a new ledger begins with entry 0, and where
brokers number messages each entry's first number is its predecessor's last plus one. What the check cannot explain is
an error, never a silent loss.
Decides.
"""

from typing import NamedTuple

from magnetar.errors import Damaged, MagnetarError
from magnetar.ids import Position
from magnetar.spark.closed_ledger import ClosedLedger
from magnetar.spark.offsets import Offset


class MessagesMissing(Damaged):
    """Messages that should be there are not: retention took them away, or storage lost them; the range is named."""


class TopicRange(NamedTuple):
    """Messages behind `start` and up to `end`, both with a place; picklable, so that it travels to a task."""

    topic: str
    start: Offset
    end: Offset
    # Closed ledgers that hold all of it, to be read from bookies; without them a broker is asked.
    ledgers: tuple[ClosedLedger, ...] = ()

    @property
    def messages(self) -> int | None:
        """How many there are, where both ends are numbered."""
        if self.start.index is None or self.end.index is None:
            return None
        return max(0, self.end.index - self.start.index)

    @property
    def via(self) -> str:
        return "bookies" if self.ledgers else "broker"

    def __str__(self) -> str:
        count = "" if self.messages is None else f", {self.messages} messages"
        return f"{self.topic} {self.start.after} to {self.end.after}{count}, through {self.via}"

    @property
    def is_empty(self) -> bool:
        assert self.start.after is not None
        assert self.end.after is not None
        return self.start.after.order >= self.end.after.order


class Continuity:
    """Told each entry of a range in turn; raises MessagesMissing where one does not follow the one before it."""

    __slots__ = ("_index", "_position", "_skips", "_topic", "skipped")

    def __init__(self, span: TopicRange, *, skips_missing: bool = False) -> None:
        assert span.start.after is not None
        self._topic = span.topic
        self._skips = skips_missing
        self._position = span.start.after.position
        # The number of the first message that must come; known only at the end of an entry or of everything.
        self._index = span.start.index
        self.skipped = 0
        if span.start.after.messages is not None:
            # Reading begins inside an entry, which comes whole: its first message has a lower number.
            self._index = None if span.start.index is None else span.start.index - span.start.after.messages
            self._position = Position(span.start.after.ledger_id, span.start.after.entry_id - 1)

    def check(self, position: Position, first_index: int | None, messages: int) -> None:
        """`first_index` is the number of the entry's first message, None where brokers do not number."""
        previous = self._position
        expected = self._index
        follows = self._follows(previous, position)
        if first_index is not None and expected is not None:
            if first_index != expected:
                self._missing(f"messages {expected} to {first_index - 1}", first_index - expected)
        elif not follows:
            self._missing(f"entries between {_text(previous)} and {_text(position)}", 0)
        self._position = position
        self._index = None if first_index is None else first_index + messages

    @staticmethod
    def _follows(previous: Position, position: Position) -> bool:
        if previous.ledger_id < 0:
            return True
        if position.ledger_id == previous.ledger_id:
            return position.entry_id == previous.entry_id + 1
        return position.entry_id == 0 and position.ledger_id > previous.ledger_id

    def _missing(self, what: str, count: int) -> None:
        if not self._skips or count < 0:
            raise missing(self._topic, what)
        self.skipped += count


def missing(topic: str, what: str) -> MagnetarError:
    return MessagesMissing(
        f"{topic}: {what} are not there: retention took them away or the topic was changed. "
        "A subscription that holds data for the query (option subscription) prevents this; "
        "failOnDataLoss=false skips what is missing."
    )


def _text(position: Position) -> str:
    return f"{position.ledger_id}:{position.entry_id}"
