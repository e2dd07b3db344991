# SPDX-License-Identifier: Apache-2.0
"""What Shared and Key_Shared have in common: entries held by consumers, counted, given back and asked for again.

Invariants: a position is held by at most one consumer; unacked is the sum over consumers.
Decides.
"""

from abc import abstractmethod
from collections.abc import Iterable, Sequence

from magnetar.broker.consumer import Consumer, Delivery
from magnetar.broker.dispatch.dispatcher import Assignment, Dispatcher
from magnetar.broker.dispatch.redelivery_counts import RedeliveryCounts
from magnetar.ids import Position


class ManyConsumersDispatcher(Dispatcher):
    def __init__(self, unacked_max: int) -> None:
        self.consumers: list[Consumer] = []
        # Unacknowledged messages of all consumers together at which dispatch stops; 0 means no limit.
        self.unacked_max = unacked_max
        self._unacked = 0
        self._counts = RedeliveryCounts()

    # --- for the types ----------------------------------------------------------------------------

    @abstractmethod
    def _requeue(self, positions: Iterable[Position]) -> None:
        """Entries that were held until now: they go out before new ones."""

    @abstractmethod
    def _unqueue(self, position: Position) -> None: ...

    def _on_released(self, position: Position) -> bool:
        """A held entry is acknowledged. True when that lets others go."""
        return False

    def _on_all_released(self, positions: Sequence[tuple[int, int]]) -> bool:
        """`_on_released` for each of many."""
        return False

    # --- giving out -----------------------------------------------------------------------------

    @property
    def unacked(self) -> int:
        return self._unacked

    @property
    def is_blocked(self) -> bool:
        return 0 < self.unacked_max <= self._unacked

    def room(self, enough: int) -> int:
        if 0 < self.unacked_max <= self._unacked:
            return 0
        room = 0
        for consumer in self.consumers:
            room += consumer.room()
            if room >= enough:
                break
        return room

    def _give(self, consumer: Consumer, delivery: Delivery, assignment: Assignment) -> None:
        position, messages = delivery.position, delivery.messages
        consumer.on_sent(messages)
        consumer.hold(position, messages)
        self._unacked += messages
        if self._counts:
            times = self._counts.of(position)
            if times:
                consumer.messages_redelivered += messages
                delivery = delivery._replace(redelivery_count=times)
        given = assignment.get(consumer)
        if given is None:
            assignment[consumer] = [delivery]
        else:
            given.append(delivery)

    # --- what comes back ------------------------------------------------------------------------

    def on_acked(self, consumer: Consumer, position: Position) -> bool:
        """Acks may come from another consumer than the one that holds the entry."""
        if self._counts:
            self._counts.forget(position)
        holder = consumer if position in consumer.pending else self._holder(position)
        if holder is None:
            # It waits to go out again, and was acknowledged after all: one more may be read in its place.
            might_read = self.may_read()
            self._unqueue(position)
            return not might_read and self.may_read()
        was_blocked = self.is_blocked or holder.is_blocked_by_unacked()
        messages = holder.release(position)
        self._unacked -= messages
        holder.messages_acked += messages
        return self._on_released(position) or was_blocked

    def on_all_acked(self, consumer: Consumer, positions: Sequence[tuple[int, int]]) -> bool:
        if self._counts:
            return super().on_all_acked(consumer, positions)
        was_blocked = self.is_blocked or consumer.is_blocked_by_unacked()
        before = consumer.unacked
        released, others = consumer.release_acked(positions)
        self._unacked -= before - consumer.unacked
        may_go_on = self._on_all_released(released) or (was_blocked and bool(released))
        return super().on_all_acked(consumer, others) or may_go_on

    def on_part_acked(self, consumer: Consumer, position: Position, messages_left: int) -> bool:
        holder = consumer if position in consumer.pending else self._holder(position)
        if holder is None:
            return False
        was_blocked = self.is_blocked or holder.is_blocked_by_unacked()
        before = holder.unacked
        holder.shrink(position, messages_left)
        self._unacked -= before - holder.unacked
        holder.messages_acked += before - holder.unacked
        return was_blocked

    def redeliver(self, consumer: Consumer, positions: Iterable[Position] | None) -> bool:
        before = consumer.unacked
        if positions is None:
            held = consumer.release_all()
        else:
            held = [position for position in positions if consumer.release(position)]
        self._unacked -= before - consumer.unacked
        self._counts.raise_all(held)
        self._requeue(held)
        return False

    def forget(self, position: Position) -> None:
        self._unqueue(position)
        if self._counts:
            self._counts.forget(position)

    def forget_through(self, position: Position) -> None:
        for consumer in self.consumers:
            for held in [held for held in consumer.pending if held <= position]:
                self._unacked -= consumer.release(held)
                self._on_released(held)
        self._counts.forget_through(position)

    def clear(self) -> None:
        for consumer in self.consumers:
            consumer.release_all()
        self._unacked = 0

    def forget_counts(self) -> None:
        self._counts.clear()

    def _take_back(self, consumer: Consumer) -> list[Position]:
        """All that a consumer holds; its leaving is no redelivery that counts."""
        self._unacked -= consumer.unacked
        return consumer.release_all()

    def _holder(self, position: Position) -> Consumer | None:
        return next((consumer for consumer in self.consumers if position in consumer.pending), None)

    def check(self) -> None:
        held: set[Position] = set()
        for consumer in self.consumers:
            consumer.check()
            assert held.isdisjoint(consumer.pending), "an entry is held by two consumers"
            held.update(consumer.pending)
        assert self._unacked == sum(consumer.unacked for consumer in self.consumers)
