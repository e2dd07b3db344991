# SPDX-License-Identifier: Apache-2.0
"""Exclusive and Failover: all entries go to one consumer, in order.

Exclusive refuses a second consumer. Failover keeps them sorted by priority and name, and picks by the topic's partition
index, so that the active roles of a partitioned topic spread over the consumers; without one by `active_ring`.
Redelivery rewinds: order is kept by sending everything unacknowledged again.
Decides.
"""

from collections.abc import Callable, Iterable, Sequence

from magnetar.broker.consumer import Consumer, Delivery, DeliveryRun
from magnetar.broker.dispatch.active_ring import ActiveRing
from magnetar.broker.dispatch.dispatcher import Dispatcher, Round
from magnetar.broker.dispatch.redelivery_counts import RedeliveryCounts
from magnetar.errors import ConsumerBusy
from magnetar.ids import Position
from magnetar.names import TopicName


class SingleActiveDispatcher(Dispatcher):
    is_ordered = True

    def __init__(self, on_active: Callable[[Consumer | None], None]) -> None:
        self.consumers: list[Consumer] = []
        self.active: Consumer | None = None
        self._on_active = on_active
        self._counts = RedeliveryCounts()

    def remove(self, consumer: Consumer) -> None:
        self.consumers.remove(consumer)
        self._elect()

    def room(self, enough: int) -> int:
        return self.active.room() if self.active is not None else 0

    def replays(self, count_max: int) -> list[Position]:
        return []

    def assign(self, deliveries: Sequence[Delivery]) -> Round:
        """As many as there are permits for; the last batch may exceed them."""
        consumer = self.active
        assert consumer is not None, "entries were read for a subscription without an active consumer"
        counts = self._counts
        permits = consumer.permits
        if isinstance(deliveries, DeliveryRun) and not counts and permits >= deliveries.messages:
            consumer.on_sent(deliveries.messages, len(deliveries))
            return Round({consumer: deliveries}, len(deliveries))
        given: list[Delivery] = []
        for delivery in deliveries:
            if permits <= 0:
                break
            permits -= delivery.messages
            if counts:
                delivery = delivery._replace(redelivery_count=counts.of(delivery.position))
            given.append(delivery)
        if not given:
            return Round({}, 0)
        consumer.on_sent(consumer.permits - permits, len(given))
        return Round({consumer: given}, len(given))

    def enqueue(self, positions: Iterable[Position]) -> None:
        raise AssertionError("entries are never held back from an ordered subscription")

    def on_acked(self, consumer: Consumer, position: Position) -> bool:
        self._counts.forget(position)
        return False

    def redeliver(self, consumer: Consumer, positions: Iterable[Position] | None) -> bool:
        if consumer is not self.active:
            return False
        self._counts.raise_all(positions or ())
        return True

    def forget(self, position: Position) -> None:
        self._counts.forget(position)

    def forget_through(self, position: Position) -> None:
        if self._counts:
            self._counts.forget_through(position)

    def clear(self) -> None:
        """Nothing waits here; counts outlive a consumer that left, or a message that kills its reader has none."""

    def forget_counts(self) -> None:
        self._counts.clear()

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
    def __init__(
        self, on_active: Callable[[Consumer | None], None], topic: TopicName, *, ring_for_partitions: bool = False
    ) -> None:
        super().__init__(on_active)
        self._partition = topic.partition_index
        self._ring = ActiveRing(str(topic)) if self._partition < 0 or ring_for_partitions else None

    def add(self, consumer: Consumer) -> None:
        self.consumers.append(consumer)
        self.consumers.sort(key=lambda each: (each.priority, each.name))
        self._elect()

    def _choose(self) -> Consumer | None:
        """Among the consumers of the best priority: by partition index, or by the ring where there is none."""
        if not self.consumers:
            return None
        best = self.consumers[0].priority
        peers = [consumer for consumer in self.consumers if consumer.priority == best]
        return peers[self._partition % len(peers)] if self._ring is None else self._ring.choose(peers)
