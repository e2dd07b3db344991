# SPDX-License-Identifier: Apache-2.0
"""Shared: every entry goes to exactly one consumer, in turn, as permits allow.

Consumers of a better (lower) priority level are served first; a lower level gets entries only while the better ones
have no room. Entries that were nacked, or held by a consumer that left, wait in the replay queue and go out before
new ones. The parts of a chunked message all go to the consumer that got the first; one that waits for that consumer's
permits waits alone.

Invariant: a position is never held and queued at once.
Decides.
"""

from bisect import insort
from collections.abc import Iterable, Sequence
from operator import attrgetter

from sortedcontainers import SortedSet

from magnetar.broker.consumer import Consumer, Delivery, DeliveryRun
from magnetar.broker.dispatch.chunk_bindings import ChunkBindings
from magnetar.broker.dispatch.dispatcher import Assignment, Round
from magnetar.broker.dispatch.many_consumers import ManyConsumersDispatcher
from magnetar.broker.dispatch.spread import InTurn, Spread
from magnetar.ids import Position


class SharedDispatcher(ManyConsumersDispatcher):
    # Parts of chunked messages that may wait for their consumer before reading ahead stops.
    BOUND_MAX = 1_000

    def __init__(self, spread: Spread | None = None, *, round_entries_max: int, unacked_max: int) -> None:
        super().__init__(unacked_max)
        self._round_entries_max = round_entries_max
        self._spread = spread or InTurn()
        self._replay: SortedSet[Position] = SortedSet()
        self._chunks = ChunkBindings()
        # Queued parts of chunked messages, by the consumer that they wait for.
        self._bound: dict[Position, Consumer] = {}

    def add(self, consumer: Consumer) -> None:
        insort(self.consumers, consumer, key=attrgetter("priority"))

    def remove(self, consumer: Consumer) -> None:
        self.consumers.remove(consumer)
        self._chunks.forget(consumer)
        self._bound = {position: bound for position, bound in self._bound.items() if bound is not consumer}
        self._replay.update(self._take_back(consumer))
        if not self.consumers:
            self._spread.restart()

    @property
    def waiting(self) -> int:
        return len(self._replay)

    def replays(self, count_max: int) -> list[Position]:
        if not self._bound:
            return list(self._replay[:count_max])
        ready: list[Position] = []
        for position in self._replay:
            bound = self._bound.get(position)
            if bound is None or bound.room() > 0:
                ready.append(position)
                if len(ready) == count_max:
                    break
        return ready

    def may_read(self) -> bool:
        return len(self._bound) < self.BOUND_MAX

    def assign(self, deliveries: Sequence[Delivery]) -> Round:
        if isinstance(deliveries, DeliveryRun) and deliveries.is_single and not self._replay and not self._counts:
            return self._assign_run(deliveries)
        assignment: Assignment = {}
        consumer: Consumer | None = None
        left_in_turn = 0
        for index, delivery in enumerate(deliveries):
            chunk = delivery.facts.chunk
            if chunk is not None and self._chunks.consumer(chunk[0]) is not None:
                self._give_chunk(chunk, delivery, assignment)
                continue
            # As `room`, for one whose connection was asked when its turn began.
            if (
                consumer is None
                or left_in_turn == 0
                or consumer.permits <= 0
                or 0 < consumer.unacked_max <= consumer.unacked
                or 0 < self.unacked_max <= self._unacked
            ):
                consumer = self._next_consumer()
                left_in_turn = self._round_entries_max
                if consumer is None:
                    return Round(assignment, index)
            left_in_turn -= 1
            if self._replay:
                self._unqueue(delivery.position)
            self._give(consumer, delivery, assignment)
            if chunk is not None:
                self._chunks.on_given(*chunk, consumer)
        return Round(assignment, len(deliveries))

    def _assign_run(self, run: DeliveryRun) -> Round:
        """The same by turns instead of entries, where nothing sets one apart."""
        assignment: Assignment = {}
        done = 0
        while done < len(run):
            consumer = self._next_consumer()
            if consumer is None:
                break
            turn = min(self._round_entries_max, consumer.permits)
            if consumer.unacked_max > 0:
                turn = min(turn, consumer.unacked_max - consumer.unacked)
            if self.unacked_max > 0:
                turn = min(turn, self.unacked_max - self._unacked)
            given = run[done : done + turn]
            consumer.take(given)
            self._unacked += len(given)
            assignment.setdefault(consumer, []).extend(given)
            done += len(given)
        return Round(assignment, done)

    def enqueue(self, positions: Iterable[Position]) -> None:
        self._replay.update(positions)

    def forget_through(self, position: Position) -> None:
        super().forget_through(position)
        while self._replay and self._replay[0] <= position:
            self._unqueue(self._replay[0])

    def clear(self) -> None:
        super().clear()
        self._replay.clear()
        self._bound.clear()
        self._chunks.clear()

    def blocked_first(self) -> tuple[Position, str] | None:
        for position in self._replay:
            bound = self._bound.get(position)
            if bound is not None and bound.room() <= 0:
                return position, f"a part of a chunked message waits for permits of consumer '{bound.name}'"
        return None

    def check(self) -> None:
        super().check()
        for consumer in self.consumers:
            assert self._replay.isdisjoint(consumer.pending), "an entry is held and queued"
        assert all(position in self._replay for position in self._bound)

    # --- private --------------------------------------------------------------------------------

    def _requeue(self, positions: Iterable[Position]) -> None:
        self._replay.update(positions)

    def _unqueue(self, position: Position) -> None:
        if self._replay:
            self._replay.discard(position)
            self._bound.pop(position, None)

    def _give_chunk(self, chunk: tuple[str, bool], delivery: Delivery, assignment: Assignment) -> None:
        """The rest of a chunked message: to the consumer that has its beginning, now or when it has room."""
        uuid, is_last = chunk
        consumer = self._chunks.consumer(uuid)
        assert consumer is not None
        if consumer.room() > 0 and not self.is_blocked:
            self._unqueue(delivery.position)
            self._give(consumer, delivery, assignment)
            self._chunks.on_given(uuid, is_last, consumer)
        else:
            self._replay.add(delivery.position)
            self._bound[delivery.position] = consumer

    def _next_consumer(self) -> Consumer | None:
        return None if self.is_blocked else self._spread.next(self.consumers)
