# SPDX-License-Identifier: Apache-2.0
"""One subscription: a cursor, a dispatcher, a pump, and the consumers between them.

Owned by a Topic. Takes consumers in by the rules of its type, passes their acks to the cursor and tells the dispatcher,
moves the cursor for a seek. It never stores a message and never knows the protocol; reading and sending are the pump's.
Carries.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from enum import Enum
from typing import NamedTuple

from magnetar.broker.compaction.view import CompactedView
from magnetar.broker.consumer import EPOCH_NONE, Consumer
from magnetar.broker.delayed.bucket_format import INTERNAL_PREFIX
from magnetar.broker.dispatch.dispatcher import Dispatcher
from magnetar.broker.dispatch.key_ranges import ConsistentHashing, KeyRanges, RangeSplitting, StickyRanges
from magnetar.broker.dispatch.key_shared import KeySharedDispatcher
from magnetar.broker.dispatch.parts import DispatchParts
from magnetar.broker.dispatch.pump import Pump
from magnetar.broker.dispatch.shared import SharedDispatcher
from magnetar.broker.dispatch.single_active import ExclusiveDispatcher, FailoverDispatcher
from magnetar.broker.dispatch.spread import new_spread
from magnetar.broker.dispatch.unsaved_acks import UnsavedAcks
from magnetar.broker.entry_lookups import EntryLookups
from magnetar.broker.stored_message import publish_time_ms
from magnetar.broker.transactions.pending_ack_log import PendingAckLog
from magnetar.errors import BadPosition, ConsumerBusy, MagnetarError, NotSupported, ServiceNotReady
from magnetar.ids import EARLIEST, LATEST, Position
from magnetar.managed_ledger.cursor import Cursor
from magnetar.managed_ledger.managed_ledger import ManagedLedger
from magnetar.names import TopicName


class SubscriptionType(Enum):
    EXCLUSIVE = 0
    SHARED = 1
    FAILOVER = 2
    KEY_SHARED = 3

    @property
    def label(self) -> str:
        """As Pulsar writes it: Exclusive, Shared, Failover, Key_Shared."""
        return "Key_Shared" if self is SubscriptionType.KEY_SHARED else self.name.title()


class KeySharing(NamedTuple):
    """How the consumers of a Key_Shared subscription divide the keys; the same for all of them."""

    is_sticky: bool = False
    allow_out_of_order: bool = False


class Subscription:
    def __init__(
        self, name: str, managed_ledger: ManagedLedger, cursor: Cursor, parts: DispatchParts, *, topic: TopicName
    ) -> None:
        self.name = name
        self.cursor = cursor
        self.type: SubscriptionType | None = None
        self.key_sharing = KeySharing()
        self.dispatcher: Dispatcher | None = None
        self.pump = Pump(name, managed_ledger, cursor, parts)
        self.is_compacted = False
        # Entries that nobody consumed in time, since the topic was loaded.
        self.entries_expired = 0
        # When that was last looked at, when a consumer last asked for messages, when mark-delete last moved; 0: never.
        self.expired_ms = 0
        self.flow_ms = 0
        self.mark_moved_ms = 0
        # When a consumer was last here, or the topic was loaded.
        self.active_ms = parts.clock.now_ms()
        # Acknowledgements that wait for the end of their transaction; None while there never was one.
        self.pending_acks: PendingAckLog | None = None
        self.opening_pending_acks: asyncio.Lock | None = None
        # Opens their log anew after it failed; None while there never was one.
        self.reopen_pending_acks: Callable[[], Awaitable[PendingAckLog]] | None = None
        # The number of the topic's last durable message.
        self._stored_index: Callable[[], int] | None = None
        self._managed_ledger = managed_ledger
        self._parts = parts
        self._topic = topic
        self.pump.filters = parts.memory.filters.chosen(parts.settings.entry_filter_names)
        self._closed = False
        # While the cursor is being moved nobody may join: they would read from the old place.
        self._resetting = 0

    @property
    def messages_out(self) -> int:
        return self.pump.messages_out

    @property
    def is_ordered(self) -> bool:
        return self.dispatcher is not None and self.dispatcher.is_ordered

    @property
    def managed_ledger(self) -> ManagedLedger:
        return self._managed_ledger

    # --- consumers ------------------------------------------------------------------------------

    @property
    def consumers(self) -> Sequence[Consumer]:
        return self.dispatcher.consumers if self.dispatcher is not None else ()

    def add_consumer(self, consumer: Consumer, type_: SubscriptionType, key_sharing: KeySharing | None = None) -> None:
        """Raises ConsumerBusy, ConsumerAssignRefused or ServiceNotReady; then nothing changed."""
        if self._closed or self._resetting:
            raise ServiceNotReady(f"Subscription {self.name} is closing or being reset")
        key_sharing = key_sharing or KeySharing()
        if self.dispatcher is None or not self.dispatcher.consumers:
            self._make_dispatcher(type_, key_sharing)
        self._refuse_other_kinds(type_, key_sharing)
        assert self.dispatcher is not None
        was_active = self._active()
        self.dispatcher.add(consumer)
        self._parts.attended[self] = None
        if type_ is SubscriptionType.FAILOVER and self._active() is was_active:
            self._tell_active_later([consumer])

    def remove_consumer(self, consumer: Consumer) -> None:
        if self.dispatcher is None or consumer not in self.dispatcher.consumers:
            return
        self.dispatcher.remove(consumer)
        self.active_ms = self._parts.clock.now_ms()
        if self.dispatcher.consumers:
            # A connection that is lost takes many along, and each look at the others would be at all of them.
            self.pump.wake_soon()
        else:
            self._parts.attended.pop(self, None)
            self.dispatcher.clear()
            self.pump.rewind()

    def apply_limits(self) -> None:
        """The topic's settings have changed: their limits hold for the consumers that are here, too."""
        settings = self._parts.settings
        self.pump.filters = self._parts.memory.filters.chosen(settings.entry_filter_names)
        for consumer in self.consumers:
            consumer.unacked_max = settings.unacked_messages_per_consumer_max
        if isinstance(self.dispatcher, SharedDispatcher | KeySharedDispatcher):
            self.dispatcher.unacked_max = settings.unacked_messages_per_subscription_max
        self.pump.wake()

    @property
    def unsaved_acks(self) -> UnsavedAcks | None:
        """The pause that the policy asks for while acknowledgements cannot be saved."""
        return UnsavedAcks(self.cursor) if self._parts.settings.pause_until_acks_persist else None

    def read_compacted(self, view: CompactedView | None) -> None:
        """The first consumer decides whether the subscription reads the compacted view; others must want the same."""
        if self.consumers and (view is None) is self.is_compacted:
            raise ConsumerBusy("The subscription's consumers and this one do not both read the compacted view")
        if not self.consumers:
            self.is_compacted = view is not None
            self.pump.read_compacted(view)

    def on_flow(self, consumer: Consumer, permits: int) -> None:
        consumer.on_flow(permits)
        if self.dispatcher is None or not self.dispatcher.needs_keys or len(self.consumers) == 1:
            self.wake()
            return
        # What is read for the permits of one consumer is mostly for others: those that come in the same turn of the
        # loop count, too, or it is set aside and read again (0384).
        self.pump.wake_soon()
        self.tell_end_of_topic()

    # --- acknowledgements -----------------------------------------------------------------------

    def ack(self, consumer: Consumer, position: Position, ack_set: Sequence[int]) -> None:
        """One entry, or with an ack set the part of its batch whose bits are cleared."""
        dispatcher = self.dispatcher
        assert dispatcher is not None
        if ack_set and any(ack_set) and not self._parts.settings.batch_index_acks:
            return
        if self.cursor.ack(position, ack_set):
            may_go_on = dispatcher.on_acked(consumer, position)
        else:
            left = self.cursor.state.batch_bits(position).bit_count()
            may_go_on = dispatcher.on_part_acked(consumer, position, left)
        if may_go_on:
            self.pump.wake()
        if self._managed_ledger.is_terminated:
            self.tell_end_of_topic()

    def ack_run(self, consumer: Consumer, positions: Sequence[tuple[int, int]]) -> bool:
        """Whole entries that were acknowledged together; False, and nothing changes, where each needs an `ack`."""
        if self.dispatcher is None or not self.cursor.ack_run(positions):
            return False
        if self.dispatcher.on_all_acked(consumer, positions):
            self.pump.wake()
        if self._managed_ledger.is_terminated:
            self.tell_end_of_topic()
        return True

    def ack_cumulative(self, consumer: Consumer, position: Position, ack_set: Sequence[int]) -> None:
        """Everything up to an entry of this topic; BadPosition for any other place, and nothing changes."""
        if self.dispatcher is None or not self.dispatcher.is_ordered:
            raise NotSupported("Cumulative acknowledgement is for Exclusive and Failover subscriptions only")
        if position > self.cursor.mark_delete and not self._managed_ledger.ledgers.has_place(position):
            raise BadPosition(f"Position {position} is no entry of topic {self._topic}; nothing is acknowledged")
        if any(ack_set) and not self._parts.settings.batch_index_acks:
            # Without bits of batches the entry counts when all of it is acknowledged: up to the one before it.
            position, ack_set = self._managed_ledger.ledgers.previous_position(position), ()
        self.cursor.ack_cumulative(position, ack_set)
        self.dispatcher.forget_through(self.cursor.mark_delete)
        if self._managed_ledger.is_terminated:
            self.tell_end_of_topic()

    def redeliver(self, consumer: Consumer, positions: Iterable[Position] | None, epoch: int = EPOCH_NONE) -> None:
        """Give entries out again; with an epoch, what was sent in an earlier one is dropped by the client."""
        if self.dispatcher is None:
            return
        consumer.epoch = max(consumer.epoch, epoch)
        if self.dispatcher.redeliver(consumer, positions):
            self.pump.rewind()
        self.pump.wake()

    def count_messages(self, lookups: EntryLookups, stored_index: Callable[[], int]) -> None:
        """Keep the backlog in messages from now on."""
        self._stored_index = stored_index
        self.cursor.count_messages(lookups.size_of, lookups.number_of)
        # Without a backlog nothing has to be looked up to begin with.
        self.backlog_messages()

    def backlog_messages(self) -> int | None:
        """Messages that are not acknowledged, without counting; None until `on_counted` when memory cannot tell."""
        tally, stored_index = self.cursor.state.tally, self._stored_index
        if tally is None or stored_index is None:
            return None
        if not self.cursor.backlog_entries():
            tally.acked = stored_index() + 1
        return None if tally.acked is None else stored_index() + 1 - tally.acked

    @property
    def stored_index(self) -> int:
        """The number of the topic's last durable message; -1 where nobody tells."""
        return -1 if self._stored_index is None else self._stored_index()

    def on_counted(self, messages: int, stored_index: int) -> None:
        """Somebody counted so many unacknowledged messages up to that number, and no ack came between."""
        if self.cursor.state.tally is not None:
            self.cursor.state.tally.acked = stored_index + 1 - messages

    # --- moving the cursor ------------------------------------------------------------------------

    async def reset(self, position: Position, ack_set: Sequence[int] = ()) -> None:
        """Seek: the entry at this position comes next, without the cleared bits of an ack set.

        Consumers are sent away first, so that nothing of the old place reaches them after the new one.
        """
        self._resetting += 1
        try:
            self.disconnect_consumers()
            self.pump.start_over()
            await self.pump.buckets.delete_all()
            pending_acks = await self._every_pending_ack()
            if pending_acks is not None:
                await pending_acks.shorten()
            await self.cursor.reset(position)
            if ack_set and self._managed_ledger.ledgers.contains(position):
                self.cursor.ack(position, ack_set)
                await self.cursor.flush()
        finally:
            self._resetting -= 1

    async def reset_to_time(self, publish_time: int) -> None:
        """Seek: the first entry that was published at this time (ms) or later comes next."""
        await self.reset(await self.position_at(publish_time))

    async def position_at(self, publish_time: int) -> Position:
        """Where the first entry lies that was published at this time or later, or will lie."""
        last_before = await self._managed_ledger.last_matching(lambda entry: publish_time_ms(entry) < publish_time)
        if last_before is None:
            return EARLIEST
        if last_before >= self._managed_ledger.last_confirmed:
            return LATEST
        return self._managed_ledger.next_position(last_before)

    def skip_through(self, position: Position) -> int:
        """Everything up to a position counts as consumed, whoever holds it; returns how many entries that were."""
        before = self.cursor.backlog_entries()
        self.cursor.ack_cumulative(position)
        if self.dispatcher is not None:
            self.dispatcher.forget_through(self.cursor.mark_delete)
        self.wake()
        return before - self.cursor.backlog_entries()

    def disconnect_consumers(self) -> None:
        """Send every consumer away; their clients subscribe again."""
        for consumer in list(self.consumers):
            self.remove_consumer(consumer)
            consumer.link.disconnect_consumer(consumer)

    async def delete_stored(self) -> None:
        """The subscription is about to be deleted: what it stored beside its cursor goes first."""
        pending_acks = await self._every_pending_ack()
        self._closed = True
        self.disconnect_consumers()
        self.pump.start_over()
        await self.pump.buckets.delete_all()
        if pending_acks is not None:
            await pending_acks.delete()

    def is_left_over(self, grace_ms: int) -> bool:
        """Whether this is a reader's, and nobody has come back to it for so long."""
        if self.cursor.is_durable or self.consumers or self._resetting:
            return False
        return self._parts.clock.now_ms() - self.active_ms >= grace_ms

    def end(self) -> None:
        """A non-durable subscription whose last consumer left: its cursor pins and caches nothing any more."""
        assert not self.cursor.is_durable
        self._closed = True
        self.pump.close()
        self._managed_ledger.forget_non_durable_cursor(self.cursor)

    @property
    def properties(self) -> dict[str, str]:
        """What users keep with the subscription; what brokers keep there is not shown."""
        return {
            name: value for name, value in self.cursor.user_properties.items() if not name.startswith(INTERNAL_PREFIX)
        }

    async def set_properties(self, properties: Mapping[str, str]) -> None:
        """Replace what users keep with the subscription."""
        internal = {
            name: value for name, value in self.cursor.user_properties.items() if name.startswith(INTERNAL_PREFIX)
        }
        await self.cursor.set_user_properties({**properties, **internal})

    @property
    def is_closed(self) -> bool:
        """Whether it was closed or deleted, or is about to be."""
        return self._closed

    async def close(self) -> None:
        self._closed = True
        self.pump.close()
        self.disconnect_consumers()
        if self.pending_acks is not None:
            await self.pending_acks.close()
        await self.cursor.close()

    # --- notices ----------------------------------------------------------------------------------

    def wake(self) -> None:
        """New entries, or the end of the topic: send what can be sent."""
        self.pump.wake()
        if self._managed_ledger.is_terminated:
            self.tell_end_of_topic()

    def tell_end_of_topic(self) -> None:
        """Once everything of a terminated topic is acknowledged, every consumer learns that no more will come."""
        if self._managed_ledger.is_terminated and self.cursor.backlog_entries() == 0:
            for consumer in self.consumers:
                if not consumer.told_end_of_topic:
                    consumer.told_end_of_topic = True
                    consumer.link.tell_end_of_topic(consumer)

    # --- private ------------------------------------------------------------------------------------

    async def _every_pending_ack(self) -> PendingAckLog | None:
        """The log, also one that has failed: what it holds would be applied when it is opened the next time."""
        if self.pending_acks is None and self.reopen_pending_acks is not None:
            return await self.reopen_pending_acks()
        return self.pending_acks

    def _refuse_other_kinds(self, type_: SubscriptionType, key_sharing: KeySharing) -> None:
        assert self.type is not None
        if self.type is not type_:
            raise ConsumerBusy(f"Subscription is of different type: {self.type.label}, asked {type_.label}")
        if type_ is SubscriptionType.KEY_SHARED and key_sharing != self.key_sharing:
            raise ConsumerBusy("Subscription is of different type: its consumers divide the keys in another way")

    def _make_dispatcher(self, type_: SubscriptionType, key_sharing: KeySharing) -> None:
        """The first consumer decides the type, and reading starts at the first unacknowledged entry."""
        if self.dispatcher is None or self.type is not type_ or self.key_sharing != key_sharing:
            self.dispatcher = self._new_dispatcher(type_, key_sharing)
            self.type = type_
            self.key_sharing = key_sharing
        if self.dispatcher.is_ordered:
            # Ordered subscriptions get delayed messages in their place.
            self.pump.delayed.clear()
        elif self._parts.settings.delayed_delivery_enabled:
            self.pump.recover_delayed()
        self.pump.dispatcher = self.dispatcher
        self.pump.rewind()

    def _new_dispatcher(self, type_: SubscriptionType, key_sharing: KeySharing) -> Dispatcher:
        settings = self._parts.settings
        if type_ is SubscriptionType.EXCLUSIVE:
            return ExclusiveDispatcher(self._on_active)
        if type_ is SubscriptionType.FAILOVER:
            return FailoverDispatcher(
                self._on_failover, self._topic, ring_for_partitions=settings.failover_ring_for_partitions
            )
        if type_ is SubscriptionType.SHARED:
            return SharedDispatcher(
                new_spread(settings.shared_spread),
                round_entries_max=settings.dispatch_round_robin_entries_max,
                unacked_max=settings.unacked_messages_per_subscription_max,
            )
        return KeySharedDispatcher(
            self._new_ranges(key_sharing),
            unacked_max=settings.unacked_messages_per_subscription_max,
            look_ahead_max=settings.key_shared_look_ahead_entries_max,
            allow_out_of_order=key_sharing.allow_out_of_order,
        )

    def _new_ranges(self, key_sharing: KeySharing) -> KeyRanges:
        settings = self._parts.settings
        if key_sharing.is_sticky:
            return StickyRanges()
        if settings.key_shared_consistent_hashing:
            return ConsistentHashing(settings.key_shared_points_per_consumer)
        return RangeSplitting()

    def _active(self) -> Consumer | None:
        return self.dispatcher.active if isinstance(self.dispatcher, FailoverDispatcher) else None

    def _on_active(self, consumer: Consumer | None) -> None:
        self.pump.rewind()

    def _on_failover(self, active: Consumer | None) -> None:
        """Tell everyone who is active; the new one waits a moment for the acks of the old one that are on their way."""
        self.pump.rewind()
        self._tell_active_later(self.consumers)
        if active is not None and len(self.consumers) > 1 and self._parts.settings.failover_delay_ms:
            self.pump.hold(self._parts.settings.failover_delay_ms / 1000)

    def _tell_active_later(self, consumers: Sequence[Consumer]) -> None:
        """Later, so that a consumer hears of its role after the answer to its own SUBSCRIBE."""
        told = list(consumers)

        def tell() -> None:
            active = self._active()
            for consumer in told:
                if consumer in self.consumers:
                    consumer.link.tell_active(consumer, consumer is active)

        self._parts.call_later(0, tell)


async def close_all(subscriptions: Iterable[Subscription]) -> MagnetarError | None:
    """Returns why one of them was not saved, if so; the others close all the same."""
    failure: MagnetarError | None = None
    for subscription in list(subscriptions):
        try:
            await subscription.close()
        except MagnetarError as error:
            failure = failure or error
    return failure
