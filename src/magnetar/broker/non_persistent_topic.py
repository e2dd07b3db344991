# SPDX-License-Identifier: Apache-2.0
"""One non-persistent topic: hands every message to whoever is there now, and keeps nothing.

Owns its producers and subscriptions as a stored topic does, with the same rules of access; epochs live as long as the
topic is loaded. A receipt says that the message was passed on, not that anyone got it. Its entries are numbered in a
ledger that does not exist. Never touches storage or the metadata store.
Carries.
"""

from collections.abc import Callable, Mapping

from magnetar.broker.access import ProducerAccess
from magnetar.broker.consumer import Delivery
from magnetar.broker.deduplication import NO_SEQUENCE
from magnetar.broker.entry_facts import FactsTable, parse_facts, with_key
from magnetar.broker.non_persistent_subscription import NonPersistentSubscription
from magnetar.broker.producer import Producer
from magnetar.broker.topic_producers import TopicProducers
from magnetar.config.broker import BrokerSettings
from magnetar.errors import BadPayload, MessageTooLarge, NotSupported, ServiceNotReady, SubscriptionNotFound
from magnetar.ids import Position
from magnetar.managed_ledger.entry import Entry
from magnetar.names import TopicName
from magnetar.runtime.tasks import Tasks
from magnetar.wire import message
from magnetar.wire.runs import Send

_NO_LEDGER = 0


class NonPersistentTopic:
    def __init__(self, name: TopicName, settings: BrokerSettings, tasks: Tasks, facts: FactsTable) -> None:
        self.name = name
        self.subscriptions: dict[str, NonPersistentSubscription] = {}
        self.messages_in = 0
        self.bytes_in = 0
        self._settings = settings
        self._facts = facts
        self._entries = 0
        self._closing = False
        self._producers = TopicProducers(
            str(name),
            ProducerAccess(None, settings.exclusive_waiters_per_topic_max),
            tasks,
            producers_max=settings.producers_per_topic_max,
            check_open=self._refuse_when_closing,
            save_epoch=self._keep_epoch,
        )

    # --- producers ----------------------------------------------------------------------------------

    @property
    def producers(self) -> Mapping[str, Producer]:
        return self._producers.by_name

    @property
    def epoch(self) -> int | None:
        return self._producers.access.epoch

    async def add_producer(self, producer: Producer, on_waiting: Callable[[], None] = lambda: None) -> None:
        self._refuse_when_closing()
        await self._producers.add(producer, on_waiting)

    def remove_producer(self, producer: Producer) -> None:
        self._producers.remove(producer)

    def forget_waiting_producer(self, producer: Producer) -> None:
        self._producers.forget_waiting(producer)

    async def last_sequence_id(self, producer_name: str) -> int:
        return NO_SEQUENCE

    def publish(
        self,
        producer: Producer,
        sequence_id: int,
        highest_sequence_id: int,
        messages: int,
        payload: bytes,
        *,
        is_chunk: bool = False,
        is_marker: bool = False,
    ) -> None:
        """Pass one entry on, then say so. Hot: never waits."""
        size = len(payload)
        if size > self._settings.message_bytes_max:
            self._check_size(payload)
        if messages < 1:
            raise BadPayload(f"An entry of {messages} messages is impossible")
        if is_chunk:
            raise NotSupported("Messages in chunks are for persistent topics only")
        self._refuse_when_closing()
        entry_id = self._entries
        self._entries += 1
        self.messages_in += messages
        self.bytes_in += size
        producer.messages_in += messages
        producer.bytes_in += size
        if self.subscriptions and not is_marker:
            self._pass_on(Entry(_NO_LEDGER, entry_id, memoryview(payload)))
        producer.link.send_receipts(producer, [(sequence_id, highest_sequence_id)], _NO_LEDGER, entry_id, size)

    def publish_run(self, producer: Producer, run: list[Send]) -> bool:
        """Nothing is gained by taking several at once where nothing is stored."""
        return False

    # --- subscriptions ------------------------------------------------------------------------------

    async def open_subscription(
        self, name: str, *, initial: Position, properties: dict[str, str] | None = None
    ) -> NonPersistentSubscription:
        return self.open_reader_subscription(name, initial)

    def open_reader_subscription(self, name: str, start: Position) -> NonPersistentSubscription:
        self._refuse_when_closing()
        subscription = self.subscriptions.get(name)
        if subscription is None:
            if 0 < self._settings.subscriptions_per_topic_max <= len(self.subscriptions):
                raise NotSupported(f"Exceed the maximum number of subscriptions of the topic: {self.name}")
            subscription = NonPersistentSubscription(name, self._settings, topic=self.name)
            self.subscriptions[name] = subscription
        return subscription

    async def delete_subscription(self, name: str) -> None:
        subscription = self.subscriptions.pop(name, None)
        if subscription is None:
            raise SubscriptionNotFound(f"Topic {self.name} has no subscription '{name}'")
        await subscription.close()

    def forget_subscription(self, subscription: NonPersistentSubscription) -> None:
        if self.subscriptions.get(subscription.name) is subscription:
            del self.subscriptions[subscription.name]

    # --- end ----------------------------------------------------------------------------------------

    @property
    def is_unused(self) -> bool:
        return not self.producers and not any(each.consumers for each in self.subscriptions.values())

    async def close(self) -> None:
        """Send clients away; nothing else is there."""
        self._closing = True
        self._producers.send_away(ServiceNotReady(f"Topic {self.name} is closing; look it up again"))
        for subscription in list(self.subscriptions.values()):
            await subscription.close()

    # --- inside -------------------------------------------------------------------------------------

    def _pass_on(self, entry: Entry) -> None:
        facts = parse_facts(entry)
        if facts.is_marker:
            return
        facts = with_key(entry, facts)
        delivery = Delivery(entry, entry.position, facts, facts.messages, (), 0)
        for subscription in self.subscriptions.values():
            subscription.offer(delivery)

    def _check_size(self, payload: bytes) -> None:
        size = len(payload) - message.metadata_span(payload)[1]
        if size > self._settings.message_bytes_max:
            raise MessageTooLarge(
                f"Message of {size} bytes is larger than the limit {self._settings.message_bytes_max}"
            )

    def _refuse_when_closing(self) -> None:
        if self._closing:
            raise ServiceNotReady(f"Topic {self.name} is closing; look it up again")

    async def _keep_epoch(self, epoch: int) -> None:
        """The epoch lives as long as the topic; there is nothing behind it to protect."""
