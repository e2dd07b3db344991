# SPDX-License-Identifier: Apache-2.0
"""One subscription of a non-persistent topic: what comes goes out at once, or is gone.

Takes consumers in by the rules of its type and lets the same deciding machines choose who gets what as for stored
topics. Nothing waits: an entry that nobody can take now is dropped and counted. Acks and redelivery have no meaning
here and change nothing. Lives as long as its consumers.
Carries.
"""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Final

from magnetar.broker.consumer import EPOCH_NONE, Consumer, Delivery
from magnetar.broker.dispatch.dispatcher import Dispatcher
from magnetar.broker.dispatch.key_ranges import ConsistentHashing, RangeSplitting, StickyRanges
from magnetar.broker.dispatch.key_shared import KeySharedDispatcher
from magnetar.broker.dispatch.shared import SharedDispatcher
from magnetar.broker.dispatch.single_active import ExclusiveDispatcher, FailoverDispatcher
from magnetar.broker.subscription import KeySharing, SubscriptionType
from magnetar.config.broker import BrokerSettings
from magnetar.errors import ConsumerBusy, NotSupported, ServiceNotReady
from magnetar.ids import LATEST, Position
from magnetar.names import TopicName

_UNLIMITED: Final = 0


class NoCursor:
    """Where a stored subscription has its cursor: nothing is kept, nothing lies behind."""

    is_durable: Final = False
    mark_delete: Final = LATEST

    def backlog_entries(self) -> int:
        return 0


class NonPersistentSubscription:
    def __init__(self, name: str, settings: BrokerSettings, *, topic: TopicName) -> None:
        self.name = name
        self.cursor = NoCursor()
        self.type: SubscriptionType | None = None
        self.key_sharing = KeySharing()
        self.dispatcher: Dispatcher | None = None
        self.messages_out = 0
        self.bytes_out = 0
        self.messages_dropped = 0
        self._settings = settings
        self._topic = topic
        self._closed = False

    @property
    def is_ordered(self) -> bool:
        return self.dispatcher is not None and self.dispatcher.is_ordered

    # --- consumers ----------------------------------------------------------------------------------

    @property
    def consumers(self) -> Sequence[Consumer]:
        return self.dispatcher.consumers if self.dispatcher is not None else ()

    def add_consumer(self, consumer: Consumer, type_: SubscriptionType, key_sharing: KeySharing | None = None) -> None:
        """Raises ConsumerBusy, ConsumerAssignRefused or ServiceNotReady; then nothing changed."""
        if self._closed:
            raise ServiceNotReady(f"Subscription {self.name} is closing")
        key_sharing = key_sharing or KeySharing()
        if self.dispatcher is None or not self.dispatcher.consumers:
            self.dispatcher = self._new_dispatcher(type_, key_sharing)
            self.type, self.key_sharing = type_, key_sharing
        if self.type is not type_ or self.key_sharing != key_sharing:
            assert self.type is not None
            raise ConsumerBusy(f"Subscription is of different type: {self.type.label}, asked {type_.label}")
        self.dispatcher.add(consumer)

    def remove_consumer(self, consumer: Consumer) -> None:
        if self.dispatcher is not None and consumer in self.dispatcher.consumers:
            self.dispatcher.remove(consumer)
            self.dispatcher.clear()

    def on_flow(self, consumer: Consumer, permits: int) -> None:
        consumer.on_flow(permits)

    def disconnect_consumers(self) -> None:
        for consumer in list(self.consumers):
            self.remove_consumer(consumer)
            consumer.link.disconnect_consumer(consumer)

    async def close(self) -> None:
        self._closed = True
        self.disconnect_consumers()

    # --- messages -----------------------------------------------------------------------------------

    def offer(self, delivery: Delivery) -> None:
        """Send an entry to whom it belongs, if that one can take it now."""
        dispatcher = self.dispatcher
        if dispatcher is None or dispatcher.room(1) <= 0:
            self.messages_dropped += delivery.messages
            return
        given = dispatcher.assign((delivery,)).assignment
        size = len(delivery.entry.body) - delivery.facts.message_start
        for consumer, deliveries in given.items():
            consumer.bytes_out += size
            self.bytes_out += size
            consumer.link.deliver(consumer, deliveries)
            # Whatever was sent is done with: nobody holds it, nobody gets it again.
            dispatcher.on_acked(consumer, delivery.position)
        if given:
            self.messages_out += delivery.messages
        else:
            dispatcher.forget(delivery.position)
            self.messages_dropped += delivery.messages

    # --- what has no meaning here -------------------------------------------------------------------

    def ack(self, consumer: Consumer, position: Position, ack_set: Sequence[int]) -> None:
        consumer.messages_acked += 1

    def ack_cumulative(self, consumer: Consumer, position: Position, ack_set: Sequence[int]) -> None:
        consumer.messages_acked += 1

    def redeliver(self, consumer: Consumer, positions: Iterable[Position] | None, epoch: int = EPOCH_NONE) -> None:
        consumer.epoch = max(consumer.epoch, epoch)

    async def reset(self, position: Position, ack_set: Sequence[int] = ()) -> None:
        raise NotSupported("A non-persistent topic keeps nothing to seek in")

    async def reset_to_time(self, publish_time: int) -> None:
        raise NotSupported("A non-persistent topic keeps nothing to seek in")

    def wake(self) -> None:
        """Nothing waits."""

    # --- inside -------------------------------------------------------------------------------------

    def _new_dispatcher(self, type_: SubscriptionType, key_sharing: KeySharing) -> Dispatcher:
        settings = self._settings
        if type_ is SubscriptionType.EXCLUSIVE:
            return ExclusiveDispatcher(self._on_active)
        if type_ is SubscriptionType.FAILOVER:
            return FailoverDispatcher(
                self._on_active, self._topic, ring_for_partitions=settings.failover_ring_for_partitions
            )
        if type_ is SubscriptionType.SHARED:
            return SharedDispatcher(round_entries_max=settings.dispatch_round_robin_entries_max, unacked_max=_UNLIMITED)
        if key_sharing.is_sticky:
            ranges: StickyRanges | ConsistentHashing | RangeSplitting = StickyRanges()
        elif settings.key_shared_consistent_hashing:
            ranges = ConsistentHashing(settings.key_shared_points_per_consumer)
        else:
            ranges = RangeSplitting()
        return KeySharedDispatcher(ranges, unacked_max=_UNLIMITED, look_ahead_max=1, allow_out_of_order=True)

    def _on_active(self, active: Consumer | None) -> None:
        # Later, so that a consumer hears of its role after the answer to its own SUBSCRIBE.
        if self.type is SubscriptionType.FAILOVER:
            asyncio.get_running_loop().call_soon(self._tell_active)

    def _tell_active(self) -> None:
        dispatcher = self.dispatcher
        if isinstance(dispatcher, FailoverDispatcher):
            for consumer in dispatcher.consumers:
                consumer.link.tell_active(consumer, consumer is dispatcher.active)
