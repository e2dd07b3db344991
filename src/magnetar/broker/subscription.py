# SPDX-License-Identifier: Apache-2.0
"""One subscription: a cursor, a dispatcher, and the consumers between them.

Owns the reading: it asks the dispatcher how much may go out, reads that much behind its read position (replays
first), drops what is acknowledged already, and sends what the dispatcher assigns. `wake` is the one door: new
entries, permits, acks, a consumer that comes or goes, a connection that can write again. It never stores a message
and never knows the protocol.
Carries.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from enum import Enum

from magnetar.broker.consumer import Consumer
from magnetar.broker.dispatch.dispatcher import Candidate, Dispatcher
from magnetar.broker.dispatch.shared import SharedDispatcher
from magnetar.broker.dispatch.single_active import ExclusiveDispatcher, FailoverDispatcher
from magnetar.broker.stored_message import stored_size
from magnetar.config.broker import BrokerSettings
from magnetar.errors import ConsumerBusy, MagnetarError, NotSupported, ServiceNotReady
from magnetar.ids import Position
from magnetar.managed_ledger.cursor import Cursor
from magnetar.managed_ledger.entry import Entry
from magnetar.managed_ledger.managed_ledger import ManagedLedger
from magnetar.runtime.tasks import Tasks

_log = logging.getLogger(__name__)


class SubscriptionType(Enum):
    EXCLUSIVE = 0
    SHARED = 1
    FAILOVER = 2
    KEY_SHARED = 3


class Subscription:
    # Rounds of one wake-up before other work on the loop gets its turn.
    ROUNDS_MAX = 16

    def __init__(
        self,
        name: str,
        managed_ledger: ManagedLedger,
        cursor: Cursor,
        settings: BrokerSettings,
        tasks: Tasks,
        *,
        partition: int,
        call_later: Callable[[float, Callable[[], None]], object],
    ) -> None:
        self.name = name
        self.cursor = cursor
        self.type: SubscriptionType | None = None
        self.dispatcher: Dispatcher | None = None
        self.messages_out = 0
        self._managed_ledger = managed_ledger
        self._settings = settings
        self._tasks = tasks
        self._partition = partition
        self._call_later = call_later
        self._reading = False
        self._held_back = False
        self._closed = False
        # A read that was started before a rewind or a reset must not be dispatched after it.
        self._read_epoch = 0
        self._messages_per_entry = 1.0

    # --- consumers ------------------------------------------------------------------------------

    @property
    def consumers(self) -> Sequence[Consumer]:
        return self.dispatcher.consumers if self.dispatcher is not None else ()

    def add_consumer(self, consumer: Consumer, type_: SubscriptionType) -> None:
        if self._closed:
            raise ServiceNotReady(f"Subscription {self.name} is closing")
        if self.dispatcher is None or (not self.dispatcher.consumers and self.type is not type_):
            self.dispatcher = self._new_dispatcher(type_)
            self.type = type_
        if self.type is not type_:
            assert self.type is not None
            raise ConsumerBusy(
                f"Subscription is of different type: {self.type.name.title()}, asked {type_.name.title()}"
            )
        if not self.dispatcher.consumers:
            self._rewind()
        self.dispatcher.add(consumer)

    def remove_consumer(self, consumer: Consumer) -> None:
        if self.dispatcher is None or consumer not in self.dispatcher.consumers:
            return
        self.dispatcher.remove(consumer)
        if self.dispatcher.consumers:
            self.wake()
        else:
            self.dispatcher.clear()

    def on_flow(self, consumer: Consumer, permits: int) -> None:
        consumer.on_flow(permits)
        self.wake()

    # --- acknowledgements -----------------------------------------------------------------------

    def ack(self, consumer: Consumer, position: Position, ack_set: Sequence[int]) -> None:
        """One entry, or with an ack set the part of its batch whose bits are cleared."""
        assert self.dispatcher is not None
        was_blocked = consumer.is_blocked_by_unacked()
        if self.cursor.ack(position, ack_set):
            self.dispatcher.on_acked(consumer, position)
        else:
            consumer.shrink(position, sum(word.bit_count() for word in self.cursor.batch_words(position)))
        if was_blocked:
            self.wake()

    def ack_cumulative(self, consumer: Consumer, position: Position, ack_set: Sequence[int]) -> None:
        if self.dispatcher is None or not self.dispatcher.is_ordered:
            raise NotSupported("Cumulative acknowledgement is for Exclusive and Failover subscriptions only")
        self.cursor.ack_cumulative(position, ack_set)
        self.dispatcher.forget_through(self.cursor.mark_delete)

    def redeliver(self, consumer: Consumer, positions: Iterable[Position] | None) -> None:
        if self.dispatcher is None:
            return
        if self.dispatcher.redeliver(consumer, positions):
            self._rewind()
        self.wake()

    # --- moving the cursor ------------------------------------------------------------------------

    async def reset(self, position: Position) -> None:
        """Seek: consumers are sent away first, so that nothing of the old place reaches them after the new one."""
        for consumer in list(self.consumers):
            self.remove_consumer(consumer)
            consumer.link.disconnect_consumer(consumer)
        self._read_epoch += 1
        await self.cursor.reset(position)

    async def close(self) -> None:
        self._closed = True
        self._read_epoch += 1
        for consumer in list(self.consumers):
            self.remove_consumer(consumer)
            consumer.link.disconnect_consumer(consumer)
        await self.cursor.close()

    # --- reading and sending ----------------------------------------------------------------------

    def wake(self) -> None:
        """Send what can be sent. Cheap when there is nothing to do."""
        if not (self._reading or self._held_back or self._closed) and self.dispatcher is not None:
            self._pump(self.dispatcher)

    def _pump(self, dispatcher: Dispatcher) -> None:
        for _ in range(self.ROUNDS_MAX):
            room = dispatcher.room()
            if room <= 0:
                return
            entries_max = self._entries_for(room)
            replays = dispatcher.replays(entries_max)
            if replays:
                self._start_reading(self._read_replays(replays), "replay")
                return
            position = self.cursor.read_position
            entries = self._managed_ledger.read_cached(position, entries_max, self._settings.dispatch_read_bytes_max)
            if entries is None:
                self._start_reading(self._read_next(position, entries_max), "read")
                return
            if not entries:
                return
            self._advance(entries)
            self._dispatch(dispatcher, entries)
        self._call_later(0, self.wake)

    def _entries_for(self, room: int) -> int:
        """Entries to read for so many messages, by the batch size seen lately: over-sending stays within an entry
        or so.
        """
        return max(1, min(self._settings.dispatch_read_entries_max, int(room / self._messages_per_entry)))

    def _start_reading(self, reading: "object", name: str) -> None:
        self._reading = True
        self._tasks.start(reading, f"{self.name}:{name}")  # type: ignore[arg-type]

    async def _read_next(self, position: Position, entries_max: int) -> None:
        epoch = self._read_epoch
        entries: Sequence[Entry] = ()
        try:
            entries = await self._managed_ledger.read(
                position, entries_max=entries_max, bytes_max=self._settings.dispatch_read_bytes_max
            )
        except MagnetarError as error:
            self._read_again_later(error)
            return
        self._reading = False
        if epoch == self._read_epoch and not self._closed and self.dispatcher is not None and entries:
            self._advance(entries)
            self._dispatch(self.dispatcher, entries)
        self.wake()

    async def _read_replays(self, positions: Sequence[Position]) -> None:
        epoch = self._read_epoch
        entries: list[Entry] = []
        gone: list[Position] = []
        try:
            for position in positions:
                found = await self._managed_ledger.read(position, entries_max=1, bytes_max=1)
                if found and found[0].position == position:
                    entries.append(found[0])
                else:
                    gone.append(position)
        except MagnetarError as error:
            self._read_again_later(error)
            return
        self._reading = False
        if epoch == self._read_epoch and not self._closed and self.dispatcher is not None:
            for position in gone:
                self.dispatcher.forget(position)
            self._dispatch(self.dispatcher, entries)
        self.wake()

    def _read_again_later(self, error: MagnetarError) -> None:
        _log.warning("reading for subscription %s failed, trying again: %s", self.name, error)

        def again() -> None:
            self._reading = False
            self.wake()

        self._call_later(1.0, again)

    def _advance(self, entries: Sequence[Entry]) -> None:
        last = entries[-1]
        self.cursor.read_position = Position(last.ledger_id, last.entry_id + 1)

    def _dispatch(self, dispatcher: Dispatcher, entries: Sequence[Entry]) -> None:
        candidates = []
        messages_in_all = 0
        cursor = self.cursor
        for entry in entries:
            position = entry.position
            start, messages = stored_size(entry)
            messages_in_all += messages
            if cursor.is_acked(position):
                dispatcher.forget(position)
                continue
            ack_set = cursor.batch_words(position)
            if ack_set:
                messages = sum(word.bit_count() for word in ack_set)
            candidates.append(Candidate(entry, position, entry.body[start:], messages, ack_set, 0))
        if not candidates:
            return
        self._messages_per_entry += (messages_in_all / len(entries) - self._messages_per_entry) / 4
        for consumer, deliveries in dispatcher.assign(candidates).items():
            self.messages_out += sum(delivery.messages for delivery in deliveries)
            consumer.link.deliver(consumer, deliveries)

    def _rewind(self) -> None:
        self._read_epoch += 1
        self.cursor.rewind()

    def _new_dispatcher(self, type_: SubscriptionType) -> Dispatcher:
        settings = self._settings
        if type_ is SubscriptionType.EXCLUSIVE:
            return ExclusiveDispatcher(self._on_active)
        if type_ is SubscriptionType.FAILOVER:
            return FailoverDispatcher(self._on_failover, self._partition)
        if type_ is SubscriptionType.SHARED:
            return SharedDispatcher(
                round_entries_max=settings.dispatch_round_robin_entries_max,
                unacked_max=settings.unacked_messages_per_subscription_max,
            )
        raise NotSupported("Key_Shared subscriptions are not served yet")

    def _on_active(self, consumer: Consumer | None) -> None:
        self._rewind()

    def _on_failover(self, active: Consumer | None) -> None:
        """Tell everyone who is active; the new one waits a moment for the acks of the old one that are on their way."""
        self._rewind()
        # Later, so that a consumer hears of its role after the answer to its own SUBSCRIBE.
        self._call_later(0, self._tell_active)
        if active is not None and len(self.consumers) > 1 and self._settings.failover_delay_ms:
            self._held_back = True
            self._call_later(self._settings.failover_delay_ms / 1000, self._go_on)

    def _tell_active(self) -> None:
        dispatcher = self.dispatcher
        if isinstance(dispatcher, FailoverDispatcher):
            for consumer in dispatcher.consumers:
                consumer.link.tell_active(consumer, consumer is dispatcher.active)

    def _go_on(self) -> None:
        self._held_back = False
        self._rewind()
        self.wake()
