# SPDX-License-Identifier: Apache-2.0
"""What every dispatcher answers: how much may go out now, what must go out again first, and who gets what.

The pump asks `room`, reads that much (`replays` before new entries, and those only while `may_read`), and hands the
entries to `assign`, whose answer it sends as it is. Assigning counts permits and holds at once, so the machine never
promises the same permit twice.

Liveness: a position that `replays` names is given out, or no longer named, when `assign` is called with it; when `room`
is positive and a new entry is offered, `assign` gives it to someone or keeps it.
Decides.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from magnetar.broker.consumer import Consumer, Delivery
from magnetar.ids import Position

Assignment = dict[Consumer, list[Delivery]]


class Round(NamedTuple):
    """What one call to `assign` decided."""

    assignment: Assignment
    # So many of the offered entries, from the first on, are given out or kept; the rest must be read again.
    settled: int


class Dispatcher(ABC):
    consumers: list[Consumer]
    # Whether one consumer gets all entries in order (Exclusive and Failover).
    is_ordered: bool = False
    # Whether `assign` needs the hash of each entry's key.
    needs_keys: bool = False

    @abstractmethod
    def add(self, consumer: Consumer) -> None:
        """Raises ConsumerBusy or another refusal; then nothing changed."""

    @abstractmethod
    def remove(self, consumer: Consumer) -> None:
        """What it held goes out again, to whom the type allows."""

    @abstractmethod
    def room(self, enough: int) -> int:
        """Messages that may be sent now, counted no further than `enough`; 0 means that nothing is to be read."""

    @abstractmethod
    def replays(self, count_max: int) -> list[Position]:
        """Entries that must go out before new ones are read and can go out now, oldest first."""

    def may_read(self) -> bool:
        """Whether new entries may be read although others still wait: look-ahead is bounded."""
        return True

    @abstractmethod
    def assign(self, deliveries: Sequence[Delivery]) -> Round:
        """Give entries to consumers, in their order."""

    @abstractmethod
    def enqueue(self, positions: Iterable[Position]) -> None:
        """Entries that were held back (delayed, rescheduled) may go out: before new ones."""

    @abstractmethod
    def on_acked(self, consumer: Consumer, position: Position) -> bool:
        """An entry is wholly acknowledged. True when something may go out now that could not before."""

    def on_all_acked(self, consumer: Consumer, positions: Sequence[tuple[int, int]]) -> bool:
        """`on_acked` for each of many."""
        told = [self.on_acked(consumer, Position(*position)) for position in positions]
        return any(told)

    def on_part_acked(self, consumer: Consumer, position: Position, messages_left: int) -> bool:
        """A part of a batch is acknowledged. True as for `on_acked`."""
        return False

    @abstractmethod
    def redeliver(self, consumer: Consumer, positions: Iterable[Position] | None) -> bool:
        """Give entries out again (None: all that the consumer holds). True: rewind reading to the mark-delete
        position.
        """

    @abstractmethod
    def forget(self, position: Position) -> None:
        """An entry needs no more delivery: it is acknowledged, or no longer stored."""

    @abstractmethod
    def forget_through(self, position: Position) -> None:
        """The cursor moved: entries up to position need no more delivery."""

    @abstractmethod
    def clear(self) -> None:
        """Reading starts over: nothing waits for replay any more. What consumers hold is theirs no longer."""

    @abstractmethod
    def forget_counts(self) -> None:
        """The cursor was moved: every delivery is a first one again."""

    @property
    def waiting(self) -> int:
        """Entries that wait to go out again."""
        return 0

    @property
    def unacked(self) -> int:
        return sum(consumer.unacked for consumer in self.consumers)

    @property
    def is_blocked(self) -> bool:
        """True when the limit on unacknowledged messages of the whole subscription stops dispatch."""
        return False

    def blocked_first(self) -> tuple[Position, str] | None:
        """For people: the first waiting entry that cannot go out, and why; None when no entry waits so."""
        return None
