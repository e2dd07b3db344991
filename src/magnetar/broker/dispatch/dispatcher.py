# SPDX-License-Identifier: Apache-2.0
"""What every dispatcher answers: how much may go out now, what must go out again first, and who gets what.

A subscription asks `room`, reads that much (`replays` before new entries), and hands the entries to `assign`, whose
answer it sends as it is. Assigning counts permits and holds at once, so the machine never promises the same permit
twice.

Liveness: when `room` is positive and an entry is offered, `assign` gives at least one entry to someone, or keeps it
for a consumer that it names in `waiting_for`.
Decides.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from magnetar.broker.consumer import Consumer, Delivery
from magnetar.ids import Position
from magnetar.managed_ledger.entry import Entry


class Candidate(NamedTuple):
    """An entry that may go out: read, not acknowledged, visible now."""

    entry: Entry
    position: Position
    message: memoryview
    messages: int
    ack_set: Sequence[int]
    # The sticky hash of the entry's key; 0 where the subscription type does not ask.
    key_hash: int


Assignment = dict[Consumer, list[Delivery]]


class Dispatcher(ABC):
    consumers: list[Consumer]

    @abstractmethod
    def add(self, consumer: Consumer) -> None:
        """Raises ConsumerBusy or another refusal; then nothing changed."""

    @abstractmethod
    def remove(self, consumer: Consumer) -> None:
        """What it held goes out again, to whom the type allows."""

    @abstractmethod
    def room(self) -> int:
        """Messages that may be sent now; 0 means that nothing is to be read."""

    @abstractmethod
    def replays(self, count_max: int) -> list[Position]:
        """Entries that must go out again before new ones are read, oldest first."""

    @abstractmethod
    def assign(self, candidates: Sequence[Candidate]) -> Assignment:
        """Give entries to consumers. What is not given is kept as a replay."""

    @abstractmethod
    def on_acked(self, consumer: Consumer, position: Position) -> None: ...

    @abstractmethod
    def on_acked_through(self, consumer: Consumer, position: Position) -> None: ...

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
        """The cursor was reset: nothing that was held or waits for replay counts any more."""

    @property
    def is_ordered(self) -> bool:
        """Whether one consumer gets all entries in order (Exclusive and Failover)."""
        return False
