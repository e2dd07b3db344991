# SPDX-License-Identifier: Apache-2.0
"""One persistent topic: takes messages in order, hands out receipts up to a number, wakes its subscriptions.

Owns its managed ledger, its producers and its subscriptions, and the dense index that every message gets: the index
of an entry is that of its last message, kept in the broker entry metadata in front of the stored bytes. A payload
is stored as it came; it is never decoded or encoded again. Loaded and closed by Topics; never knows sockets.

Invariants: receipts leave in the order of the appends; an entry's index is its predecessor's plus its messages.
Carries.
"""

import logging
from collections import deque
from collections.abc import Callable

from magnetar.broker.dispatch.parts import DispatchMemory, DispatchParts
from magnetar.broker.producer import Producer
from magnetar.broker.stored_message import stored_index
from magnetar.broker.subscription import Subscription
from magnetar.config.broker import BrokerSettings
from magnetar.errors import (
    MagnetarError,
    MessageTooLarge,
    PersistenceFailed,
    ProducerBusy,
    ServiceNotReady,
    SubscriptionNotFound,
)
from magnetar.ids import Position
from magnetar.managed_ledger.managed_ledger import ManagedLedger
from magnetar.names import TopicName
from magnetar.runtime.clock import WallClock
from magnetar.runtime.tasks import Tasks
from magnetar.wire.broker_entry import BrokerEntryEncoder

_log = logging.getLogger(__name__)


class Topic:
    def __init__(
        self,
        name: TopicName,
        settings: BrokerSettings,
        clock: WallClock,
        tasks: Tasks,
        *,
        call_soon: Callable[[Callable[[], None]], object],
        call_later: Callable[[float, Callable[[], None]], object],
        on_failed: Callable[["Topic", MagnetarError], None],
        dispatch: DispatchMemory | None = None,
    ) -> None:
        self.name = name
        self.producers: dict[str, Producer] = {}
        self.subscriptions: dict[str, Subscription] = {}
        self.last_index = -1
        self.messages_in = 0
        self.bytes_in = 0
        self._settings = settings
        self._clock = clock
        self._tasks = tasks
        self._call_soon = call_soon
        self._dispatch = DispatchParts(settings, clock, tasks, call_later, dispatch or DispatchMemory())
        self._on_failed = on_failed
        self._closing = False
        self._wake_scheduled = False
        self._prefixes = BrokerEntryEncoder()
        # What was appended and is not yet persisted, oldest first: producer, sequence id, highest sequence id,
        # bytes, messages.
        self._waiting: deque[tuple[Producer, int, int, int, int]] = deque()
        self.managed_ledger: ManagedLedger

    async def attach(self, managed_ledger: ManagedLedger) -> None:
        """Take over an opened managed ledger: find the last index and bring back the durable subscriptions."""
        self.managed_ledger = managed_ledger
        self.last_index = await self._stored_index()
        for cursor in managed_ledger.cursors.values():
            self._new_subscription(cursor.name, cursor)

    # --- producers --------------------------------------------------------------------------------

    def add_producer(self, producer: Producer) -> None:
        self._refuse_when_closing()
        present = self.producers.get(producer.name)
        if present is not None:
            if not producer.may_replace(present):
                raise ProducerBusy(f"Producer with name '{producer.name}' is already connected to topic")
            present.is_closed = True
            present.link.disconnect_producer(present)
        self.producers[producer.name] = producer

    def remove_producer(self, producer: Producer) -> None:
        producer.is_closed = True
        if self.producers.get(producer.name) is producer:
            del self.producers[producer.name]

    def publish(
        self, producer: Producer, sequence_id: int, highest_sequence_id: int, messages: int, payload: bytes
    ) -> None:
        """Store one entry; the receipt follows when it is durable. Hot: never waits."""
        size = len(payload)
        if size > self._settings.message_bytes_max:
            raise MessageTooLarge(
                f"Message of {size} bytes is larger than the limit {self._settings.message_bytes_max}"
            )
        self._refuse_when_closing()
        index = self.last_index + messages
        self.managed_ledger.append((self._prefixes.encode(self._clock.now_ms(), index), payload), messages)
        self.last_index = index
        self._waiting.append((producer, sequence_id, highest_sequence_id, size, messages))
        producer.pending += 1

    # --- the managed ledger's listener ------------------------------------------------------------

    def on_persisted(self, ledger_id: int, first_entry: int, last_entry: int) -> None:
        """Entries first..last are durable: one run of receipts per producer in turn, then one wake-up for all
        readers.
        """
        waiting = self._waiting
        entry_id = first_entry
        while entry_id <= last_entry:
            producer = waiting[0][0]
            run_start = entry_id
            receipts = []
            size_in_all = 0
            while entry_id <= last_entry and waiting[0][0] is producer:
                _, sequence_id, highest_sequence_id, size, messages = waiting.popleft()
                receipts.append((sequence_id, highest_sequence_id))
                size_in_all += size
                self.messages_in += messages
                entry_id += 1
            self.bytes_in += size_in_all
            producer.link.send_receipts(producer, receipts, ledger_id, run_start, size_in_all)
            producer.on_stored(len(receipts))
        if self.subscriptions and not self._wake_scheduled:
            self._wake_scheduled = True
            self._call_soon(self._wake_subscriptions)

    def on_append_failed(self, count: int, error: MagnetarError) -> None:
        """The oldest waiting appends will not be stored: refuse them, and give their index numbers back."""
        refusal = PersistenceFailed(f"Could not store the message on {self.name}: {error}")
        for _ in range(count):
            producer, sequence_id, _, size, messages = self._waiting.popleft()
            self.last_index -= messages
            producer.link.send_refusal(producer, sequence_id, size, refusal)
            producer.on_stored(1)
        self._on_failed(self, error)

    # --- subscriptions ----------------------------------------------------------------------------

    async def open_subscription(
        self, name: str, *, initial: Position, properties: dict[str, str] | None = None
    ) -> Subscription:
        """The durable subscription of this name; made at the given place when it is new."""
        self._refuse_when_closing()
        present = self.subscriptions.get(name)
        if present is not None:
            return present
        cursor = await self.managed_ledger.open_cursor(name, initial=initial, properties=properties or {})
        self._refuse_when_closing()
        return self.subscriptions.get(name) or self._new_subscription(name, cursor)

    def open_reader_subscription(self, name: str, start: Position) -> Subscription:
        """A subscription that lives as long as its consumer and leaves nothing behind."""
        self._refuse_when_closing()
        if name in self.subscriptions:
            return self.subscriptions[name]
        return self._new_subscription(name, self.managed_ledger.new_non_durable_cursor(name, start))

    async def delete_subscription(self, name: str) -> None:
        subscription = self.subscriptions.pop(name, None)
        if subscription is None:
            raise SubscriptionNotFound(f"Topic {self.name} has no subscription '{name}'")
        await subscription.close()
        if subscription.cursor.is_durable:
            await self.managed_ledger.delete_cursor(name)

    def forget_subscription(self, subscription: Subscription) -> None:
        """A non-durable subscription whose last consumer left."""
        if self.subscriptions.get(subscription.name) is subscription:
            del self.subscriptions[subscription.name]

    # --- end ----------------------------------------------------------------------------------------

    async def close(self) -> None:
        """Send clients away, let what is on its way be stored, save the cursors."""
        self._closing = True
        for producer in list(self.producers.values()):
            self.remove_producer(producer)
            producer.link.disconnect_producer(producer)
        for subscription in self.subscriptions.values():
            await subscription.close()
        await self.managed_ledger.close()

    # --- inside -------------------------------------------------------------------------------------

    def _refuse_when_closing(self) -> None:
        if self._closing:
            raise ServiceNotReady(f"Topic {self.name} is closing; look it up again")

    def _wake_subscriptions(self) -> None:
        self._wake_scheduled = False
        for subscription in list(self.subscriptions.values()):
            subscription.wake()

    def _new_subscription(self, name: str, cursor: object) -> Subscription:
        subscription = Subscription(
            name,
            self.managed_ledger,
            cursor,  # type: ignore[arg-type]
            self._dispatch,
            partition=self.name.partition_index,
        )
        self.subscriptions[name] = subscription
        return subscription

    async def _stored_index(self) -> int:
        """The index of the last stored message, from the last entry; -1 on a topic that never had one."""
        last = self.managed_ledger.last_confirmed
        if last.entry_id < 0:
            return -1
        entries = await self.managed_ledger.read(last, entries_max=1, bytes_max=1)
        return stored_index(entries[0]) if entries else -1
