# SPDX-License-Identifier: Apache-2.0
"""Exclusive and Failover: all entries go to one consumer, in order.

Exclusive refuses a second consumer. Failover keeps them sorted by priority and name, and picks by the topic's partition
index, so that the active roles of a partitioned topic spread over the consumers. Redelivery rewinds: order is kept by
sending everything unacknowledged again.
Decides.
"""

from collections.abc import Callable, Iterable, Sequence

from magnetar.broker.consumer import Consumer, Delivery
from magnetar.broker.dispatch.dispatcher import Assignment, Candidate, Dispatcher
from magnetar.errors import ConsumerBusy
from magnetar.ids import Position


class SingleActiveDispatcher(Dispatcher):
    def __init__(self, on_active: Callable[[Consumer | None], None]) -> None:
        self.consumers: list[Consumer] = []
        self.active: Consumer | None = None
        self._on_active = on_active
        # How often each entry went out, for those that went out before; trimmed as the cursor moves.
        self._sent_times: dict[Position, int] = {}

    @property
    def is_ordered(self) -> bool:
        return True

    def remove(self, consumer: Consumer) -> None:
        self.consumers.remove(consumer)
        self._elect()

    def room(self) -> int:
        return self.active.room() if self.active is not None else 0

    def replays(self, count_max: int) -> list[Position]:
        return []

    def assign(self, candidates: Sequence[Candidate]) -> Assignment:
        consumer = self.active
        assert consumer is not None, "entries were read for a subscription without an active consumer"
        deliveries = []
        for candidate in candidates:
            consumer.on_sent(candidate.messages)
            times = self._sent_times.get(candidate.position, 0) if self._sent_times else 0
            deliveries.append(
                Delivery(candidate.entry, candidate.message, candidate.messages, times, candidate.ack_set)
            )
        return {consumer: deliveries}

    def on_acked(self, consumer: Consumer, position: Position) -> None:
        self._sent_times.pop(position, None)

    def on_acked_through(self, consumer: Consumer, position: Position) -> None:
        self.forget_through(position)

    def redeliver(self, consumer: Consumer, positions: Iterable[Position] | None) -> bool:
        if consumer is not self.active:
            return False
        for position in positions or ():
            self._sent_times[position] = self._sent_times.get(position, 0) + 1
        return True

    def forget(self, position: Position) -> None:
        self._sent_times.pop(position, None)

    def forget_through(self, position: Position) -> None:
        if self._sent_times:
            self._sent_times = {held: times for held, times in self._sent_times.items() if held > position}

    def clear(self) -> None:
        self._sent_times.clear()

    def _choose(self) -> Consumer | None:
        return self.consumers[0] if self.consumers else None

    def _elect(self) -> None:
        chosen = self._choose()
        if chosen is not self.active:
            self.active = chosen
            self._on_active(chosen)


class ExclusiveDispatcher(SingleActiveDispatcher):
    def add(self, consumer: Consumer) -> None:
        if self.consumers:
            raise ConsumerBusy("Exclusive consumer is already connected")
        self.consumers.append(consumer)
        self._elect()


class FailoverDispatcher(SingleActiveDispatcher):
    def __init__(self, on_active: Callable[[Consumer | None], None], partition: int) -> None:
        super().__init__(on_active)
        self._partition = partition

    def add(self, consumer: Consumer) -> None:
        self.consumers.append(consumer)
        self.consumers.sort(key=lambda each: (each.priority, each.name))
        self._elect()

    def _choose(self) -> Consumer | None:
        """Among the consumers of the best priority: by partition index, or the first where there is none."""
        if not self.consumers:
            return None
        best = self.consumers[0].priority
        peers = [consumer for consumer in self.consumers if consumer.priority == best]
        return peers[self._partition % len(peers)] if self._partition >= 0 else peers[0]
