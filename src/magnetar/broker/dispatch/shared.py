# SPDX-License-Identifier: Apache-2.0
"""Shared: every entry goes to exactly one consumer, in turn, as permits allow.

Consumers of a better (lower) priority level are served first; a lower level gets entries only while the better ones
have no room. Entries that were nacked, or held by a consumer that left, wait in the replay queue and go out before
new ones.

Invariants: a position is held by at most one consumer, and never held and queued at once; unacked is the sum over
consumers.
Decides.
"""

from collections.abc import Iterable, Sequence

from sortedcontainers import SortedSet

from magnetar.broker.consumer import Consumer, Delivery
from magnetar.broker.dispatch.dispatcher import Assignment, Candidate, Dispatcher
from magnetar.ids import Position


class SharedDispatcher(Dispatcher):
    def __init__(self, *, round_entries_max: int, unacked_max: int) -> None:
        self.consumers: list[Consumer] = []
        self.unacked_max = unacked_max
        self._round_entries_max = round_entries_max
        self._turn = 0
        self._replay: SortedSet[Position] = SortedSet()
        self._sent_times: dict[Position, int] = {}

    @property
    def unacked(self) -> int:
        return sum(consumer.unacked for consumer in self.consumers)

    def add(self, consumer: Consumer) -> None:
        self.consumers.append(consumer)
        self.consumers.sort(key=lambda each: each.priority)

    def remove(self, consumer: Consumer) -> None:
        self.consumers.remove(consumer)
        self._requeue(consumer, list(consumer.pending))
        if not self.consumers:
            self._turn = 0

    def room(self) -> int:
        if self.unacked_max and self.unacked >= self.unacked_max:
            return 0
        return sum(consumer.room() for consumer in self.consumers)

    def replays(self, count_max: int) -> list[Position]:
        return list(self._replay[:count_max])

    def assign(self, candidates: Sequence[Candidate]) -> Assignment:
        assignment: Assignment = {}
        index = 0
        while index < len(candidates):
            consumer = self._next_consumer()
            if consumer is None:
                break
            given = 0
            while index < len(candidates) and given < self._round_entries_max and consumer.room() > 0:
                self._give(consumer, candidates[index], assignment)
                index += 1
                given += 1
        for candidate in candidates[index:]:
            self._replay.add(candidate.position)
        return assignment

    def on_acked(self, consumer: Consumer, position: Position) -> None:
        """Acks may come from another consumer than the one that holds the entry."""
        holder = consumer if position in consumer.pending else self._holder(position)
        if holder is not None:
            holder.release(position)
        self._replay.discard(position)
        self._sent_times.pop(position, None)

    def on_acked_through(self, consumer: Consumer, position: Position) -> None:
        self.forget_through(position)

    def redeliver(self, consumer: Consumer, positions: Iterable[Position] | None) -> bool:
        self._requeue(consumer, list(consumer.pending) if positions is None else positions)
        return False

    def forget(self, position: Position) -> None:
        self._replay.discard(position)
        self._sent_times.pop(position, None)

    def forget_through(self, position: Position) -> None:
        for consumer in self.consumers:
            consumer.release_through(position)
        while self._replay and self._replay[0] <= position:
            self._replay.pop(0)
        if self._sent_times:
            self._sent_times = {held: times for held, times in self._sent_times.items() if held > position}

    def clear(self) -> None:
        for consumer in self.consumers:
            for position in list(consumer.pending):
                consumer.release(position)
        self._replay.clear()
        self._sent_times.clear()

    def check(self) -> None:
        held: set[Position] = set()
        for consumer in self.consumers:
            consumer.check()
            assert held.isdisjoint(consumer.pending), "an entry is held by two consumers"
            held.update(consumer.pending)
        assert held.isdisjoint(self._replay), "an entry is held and queued"

    def _give(self, consumer: Consumer, candidate: Candidate, assignment: Assignment) -> None:
        position = candidate.position
        self._replay.discard(position)
        consumer.on_sent(candidate.messages)
        consumer.hold(position, candidate.messages)
        times = self._sent_times.get(position, 0) if self._sent_times else 0
        assignment.setdefault(consumer, []).append(
            Delivery(candidate.entry, candidate.message, candidate.messages, times, candidate.ack_set)
        )

    def _requeue(self, consumer: Consumer, positions: Iterable[Position]) -> None:
        for position in positions:
            if position in consumer.pending:
                consumer.release(position)
                self._replay.add(position)
                self._sent_times[position] = self._sent_times.get(position, 0) + 1

    def _holder(self, position: Position) -> Consumer | None:
        return next((consumer for consumer in self.consumers if position in consumer.pending), None)

    def _next_consumer(self) -> Consumer | None:
        """The next in turn among the best priority level that has room."""
        count = len(self.consumers)
        start = self._turn % count if count else 0
        for level in dict.fromkeys(consumer.priority for consumer in self.consumers):
            for step in range(count):
                index = (start + step) % count
                consumer = self.consumers[index]
                if consumer.priority == level and consumer.room() > 0:
                    self._turn = index + 1
                    return consumer
        return None
