# SPDX-License-Identifier: Apache-2.0
"""One persistent topic: takes messages in order, hands out receipts up to a number, wakes its subscriptions.

Owns its managed ledger, its producers and its subscriptions, and the dense index that every message gets: the index
of an entry is that of its last message, kept in the broker entry metadata in front of the stored bytes. A payload
is stored as it came; it is never decoded or encoded again. With deduplication on, a message that is stored already is
answered without storing it, after everything that came before it. Loaded and closed by Topics; never knows sockets.

Invariants: answers leave in the order in which messages came; an entry's index is its predecessor's plus its messages.
Carries.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final

from magnetar.broker.access import ProducerAccess
from magnetar.broker.answers import Answers
from magnetar.broker.compaction.topic_compaction import TopicCompaction
from magnetar.broker.deduplication import NO_SEQUENCE, Identity, Verdict
from magnetar.broker.deduplication_cursor import CURSOR as DEDUPLICATION_CURSOR
from magnetar.broker.deduplication_cursor import DeduplicationCursor, identity_of_send
from magnetar.broker.delayed.delay_limit import check_delay
from magnetar.broker.dispatch.parts import DispatchMemory, DispatchParts
from magnetar.broker.dispatch_rates import DispatchRates
from magnetar.broker.entry_lookups import EntryLookups
from magnetar.broker.last_index import LAST_INDEX, last_index
from magnetar.broker.own_cursors import check_new_subscription, is_subscription
from magnetar.broker.policies.effective import TopicPolicies
from magnetar.broker.policies.topic_settings import topic_settings
from magnetar.broker.producer import Producer
from magnetar.broker.publish_rates import PublishRates
from magnetar.broker.rate_limit import CallLimiter, Rate, call_limiter
from magnetar.broker.send_run import ready_run
from magnetar.broker.size_limit import check_size
from magnetar.broker.subscription import Subscription, close_all
from magnetar.broker.topic_activity import refuse_when_busy
from magnetar.broker.topic_producers import TopicProducers
from magnetar.broker.transactions.topic_transactions import TopicTransactions
from magnetar.config.broker import BrokerSettings
from magnetar.errors import (
    BadPayload,
    MagnetarError,
    NotSupported,
    PersistenceFailed,
    QuotaExceeded,
    ServiceNotReady,
    SubscriptionNotFound,
    TopicTerminated,
)
from magnetar.ids import LATEST, Position
from magnetar.managed_ledger.cursor import Cursor
from magnetar.managed_ledger.managed_ledger import ManagedLedger
from magnetar.names import TopicName
from magnetar.runtime.clock import WallClock
from magnetar.runtime.tasks import Tasks
from magnetar.wire.broker_entry import entry_front
from magnetar.wire.runs import Send

if TYPE_CHECKING:
    from magnetar.broker.replication.topic_replication import TopicReplication

EPOCH_PROPERTY: Final = "pulsar.topic.epoch"
# A reader that was sent away, for a seek perhaps, has this long to come back to its place.
READER_GRACE_MS: Final = 60_000

_log = logging.getLogger(__name__)


class Topic:
    __slots__ = (
        *("name", "policies", "hold", "last_index", "stored_index", "bytes_in", "active_ms", "has_transactions"),
        *("managed_ledger", "subscriptions", "registered", "answers", "compaction", "transactions", "replication"),
        *("publish_rates", "dispatch_rates", "_subscribes", "_deduplication", "_deduplication_turn"),
        *("_settings", "_clock", "_tasks", "_dispatch", "_call_soon", "_now_s", "_on_failed"),
        *("_append", "_attended", "_closing", "_deleting", "_index_at_start", "_wake_scheduled"),
    )

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
        now_s: Callable[[], float],
        dispatch: DispatchMemory | None = None,
    ) -> None:
        self.name = name
        self.subscriptions: dict[str, Subscription] = {}
        self._deleting: dict[str, None] = {}
        # The number of the last message that was taken, and of the last that is durable.
        self.last_index = -1
        self.stored_index = self._index_at_start = -1
        self.bytes_in = 0
        self._settings, self._clock, self._tasks, self._call_soon = settings, clock, tasks, call_soon
        self._dispatch = DispatchParts(settings, clock, tasks, call_later, dispatch or DispatchMemory())
        # Its own way to what each message asks for: of thousands of topics no part is at hand in the processor (0381).
        self._attended = self._dispatch.attended
        self.has_transactions = False
        self._on_failed = on_failed
        self._now_s = now_s
        self._closing: str | None = None
        self._wake_scheduled = False
        # When something last kept it alive, as far as it was looked at.
        self.active_ms = clock.now_ms()
        self.registered = TopicProducers(
            str(name),
            ProducerAccess(None, settings.exclusive_waiters_per_topic_max),
            tasks,
            producers_max=settings.producers_per_topic_max,
            check_open=self._refuse_when_closing,
            save_epoch=self._save_epoch,
        )
        self._deduplication: DeduplicationCursor | None = None
        self._deduplication_turn: asyncio.Lock | None = None
        self.publish_rates = PublishRates(
            Rate(settings.topic_publish_messages_per_s, settings.topic_publish_bytes_per_s), now_s
        )
        self.answers = Answers(now_s)
        self.dispatch_rates = DispatchRates(str(name), settings, self.subscriptions, now_s, counted_in=self._counted_in)
        self._subscribes: CallLimiter | None = None
        self._limit_subscribes()
        self.policies: TopicPolicies | None = None
        # Why no producer is let in, while the backlog is over its quota.
        self.hold: QuotaExceeded | None = None
        self.replication: TopicReplication | None = None

    async def attach(self, managed_ledger: ManagedLedger, *, deduplicate: bool) -> None:
        """Take over an opened managed ledger: find the last index, the epoch and what deduplication must know, and
        bring back the durable subscriptions.
        """
        self.managed_ledger = managed_ledger
        self._append = managed_ledger.append
        self.compaction = TopicCompaction(str(self.name), managed_ledger, self._settings, self._tasks, self._clock)
        self.last_index = self.stored_index = self._index_at_start = await last_index(managed_ledger)
        managed_ledger.keep_when_trimmed(self._kept_when_trimmed)
        epoch = managed_ledger.properties.get(EPOCH_PROPERTY, "")
        self.registered.access.epoch = int(epoch) if epoch.lstrip("-").isdigit() else None
        await self.set_deduplication(deduplicate)
        self.transactions = await TopicTransactions.open(self, managed_ledger, self._dispatch)
        for cursor in managed_ledger.cursors.values():
            if is_subscription(cursor.name):
                self._new_subscription(cursor.name, cursor)

    @property
    def settings(self) -> BrokerSettings:
        """The broker's settings with the topic's policies over them."""
        return self._settings

    def apply(self, policies: TopicPolicies) -> None:
        """These policies hold from now on. Deduplication is `set_deduplication`'s, which waits; storage is the
        managed ledger's.
        """
        self.policies = policies
        settings = self._settings = self._dispatch.settings = topic_settings(self._settings, policies)
        self.registered.producers_max = settings.producers_per_topic_max
        self.publish_rates.limit_topic(Rate(settings.topic_publish_messages_per_s, settings.topic_publish_bytes_per_s))
        self.dispatch_rates.limit_topic(policies.dispatch_rate)
        self.dispatch_rates.limit_subscriptions(policies.subscription_dispatch_rate, policies.subscription_rates)
        self._limit_subscribes()
        for subscription in self.subscriptions.values():
            subscription.apply_limits()

    @property
    def messages_in(self) -> int:
        """How many were stored since it was loaded."""
        return self.stored_index - self._index_at_start

    # --- producers --------------------------------------------------------------------------------

    @property
    def producers(self) -> Mapping[str, Producer]:
        return self.registered.by_name

    @property
    def epoch(self) -> int | None:
        return self.registered.access.epoch

    async def add_producer(self, producer: Producer, on_waiting: Callable[[], None] = lambda: None) -> None:
        """Let a producer in; `on_waiting` is told when that must wait for others to leave."""
        self._refuse_when_closing()
        if self.managed_ledger.is_terminated:
            raise TopicTerminated("Topic was already terminated")
        if self.hold is not None:
            raise type(self.hold)(str(self.hold))
        await self.registered.add(producer, on_waiting)
        if self._deduplication is not None:
            self._deduplication.tracker.on_producer_added(producer.name, self._clock.now_ms())

    def remove_producer(self, producer: Producer) -> None:
        self.registered.remove(producer)
        self.active_ms = self._clock.now_ms()
        if self._deduplication is not None:
            self._deduplication.tracker.on_producer_removed(producer.name, self.active_ms)

    def forget_waiting_producer(self, producer: Producer) -> None:
        self.registered.forget_waiting(producer)

    async def last_sequence_id(self, producer_name: str) -> int:
        """The last sequence id that is stored for a producer name, once all of it that is on its way is; -1: none."""
        state = self._deduplication
        if state is None:
            return NO_SEQUENCE
        if not state.tracker.is_settled(producer_name):
            settled = asyncio.Event()
            self.answers.call_when_settled(settled.set)
            await settled.wait()
        return state.tracker.last_sequence_id(producer_name)

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
        """Store one entry; the receipt follows when it is durable. Hot: never waits."""
        size = len(payload)
        if size > self._settings.message_bytes_max:
            check_size(payload, self._settings.message_bytes_max)
        if messages < 1:
            raise BadPayload(f"An entry of {messages} messages is impossible")
        if self._closing is not None:
            self._refuse_when_closing()
        if self._settings.delayed_delivery_delay_max_ms > 0:
            check_delay(payload, self._settings.delayed_delivery_delay_max_ms, self._clock.now_ms())
        state = self._deduplication
        identity: Identity | None = None
        if state is not None and not is_marker:
            identity = identity_of_send(producer, sequence_id, highest_sequence_id, payload, is_chunk)
            verdict = state.tracker.judge(*identity)
            if verdict is not Verdict.NEW:
                self.answers.repeat(producer, sequence_id, highest_sequence_id, size, verdict)
                return
        index = self.last_index + messages
        self._append((entry_front(self._clock.now_ms(), index), payload))
        self.last_index = index
        if not self.answers.is_probing:
            self.answers.probe(1)
        self.answers.waiting.append((producer, sequence_id, highest_sequence_id, size, messages))
        producer.pending += 1
        if state is not None:
            state.tracker.on_appended(identity)
            if producer.is_replicator and identity is not None:
                state.tracker.on_brought(identity.name, producer.name, self._clock.now_ms())
        if self.publish_rates.is_limited:
            self._limit(producer, messages, size)

    def publish_run(self, producer: Producer, run: list[Send]) -> bool:
        """As `publish` for entries that came together; False, and nothing is taken, where each must be looked at."""
        settings, before = self._settings, self.last_index
        if self._deduplication is not None or self._closing is not None or settings.delayed_delivery_delay_max_ms > 0:
            return False
        ready = ready_run(producer, run, settings.message_bytes_max, before, self._clock.now_ms())
        if ready is None or not self.managed_ledger.append_run(ready[0]):
            return False
        _, waiting, self.last_index, size = ready
        if not self.answers.is_probing:
            self.answers.probe(len(run))
        self.answers.waiting += waiting
        producer.pending += len(run)
        if self.publish_rates.is_limited:
            self._limit(producer, self.last_index - before, size)
        return True

    # --- the managed ledger's listener ------------------------------------------------------------

    def on_persisted(self, ledger_id: int, first_entry: int, last_entry: int) -> None:
        """Entries first..last are durable: receipts, and between them the answers to what was stored already; then one
        wake-up for all readers.
        """
        if self._deduplication is not None:
            self._deduplication.on_persisted(last_entry - first_entry + 1, Position(ledger_id, last_entry))
        if self.has_transactions:
            self.transactions.on_persisted(self.answers.settled, ledger_id, first_entry, last_entry)
        messages, size = self.answers.on_persisted(ledger_id, first_entry, last_entry)
        self.stored_index += messages
        self.bytes_in += size
        if (self._attended or self.replication is not None) and not self._wake_scheduled:
            self._wake_scheduled = True
            if self._settings.new_entries_delay_ms:
                self._dispatch.call_later(self._settings.new_entries_delay_ms / 1000, self._wake_subscriptions)
            else:
                self._call_soon(self._wake_subscriptions)

    def on_append_failed(self, count: int, error: MagnetarError) -> None:
        """The oldest waiting appends will not be stored: refuse them, and give their index numbers back."""
        refusal = PersistenceFailed(f"Could not store the message on {self.name}: {error}")
        self.last_index -= self.answers.on_failed(count, refusal)
        self._on_failed(self, error)

    # --- subscriptions ----------------------------------------------------------------------------

    async def open_subscription(
        self, name: str, *, initial: Position, properties: dict[str, str] | None = None
    ) -> Subscription:
        """The durable subscription of this name; made at the given place when it is new."""
        self._refuse_when_closing()
        if (present := self.subscriptions.get(name)) is not None:
            return present
        self._refuse_name_and_number(name)
        cursor = await self.managed_ledger.open_cursor(name, initial=initial, properties=properties or {})
        self._refuse_when_closing()
        return self.subscriptions.get(name) or self._new_subscription(name, cursor)

    def open_reader_subscription(self, name: str, start: Position) -> Subscription:
        """A subscription that lives as long as its consumer and leaves nothing behind."""
        self._refuse_when_closing()
        if (present := self.subscriptions.get(name)) is not None:
            return present
        self._refuse_name_and_number(name)
        return self._new_subscription(name, self.managed_ledger.new_non_durable_cursor(name, start))

    async def delete_subscription(self, name: str) -> None:
        """Its consumers come back at once; until it is gone they are told to wait for a new one."""
        subscription = self.subscriptions.pop(name, None)
        if subscription is None:
            raise SubscriptionNotFound(f"Topic {self.name} has no subscription '{name}'")
        self._deleting[name] = None
        try:
            await subscription.delete_stored()
            self.dispatch_rates.forget(name)
            await subscription.close()
            if subscription.cursor.is_durable:
                await self.managed_ledger.delete_cursor(name)
        finally:
            del self._deleting[name]

    def forget_subscription(self, subscription: Subscription) -> None:
        """A non-durable subscription whose last consumer left."""
        if self.subscriptions.get(subscription.name) is subscription:
            del self.subscriptions[subscription.name]
            self.dispatch_rates.forget(subscription.name)
            subscription.end()

    def check_subscribe_rate(self, consumer: str) -> None:
        """NotSupported when this consumer, as its client names it, subscribes more often than allowed."""
        if self._subscribes is not None and not self._subscribes.may_call(consumer, self._now_s()):
            raise NotSupported("Subscribe limited by subscribe rate limit per consumer.")

    # --- end ----------------------------------------------------------------------------------------

    async def terminate(self) -> Position:
        """Take no more messages, ever; returns the position of the last one. Nobody is told before it is on record."""
        self._refuse_when_closing()
        try:
            last = await self.managed_ledger.terminate()
        except MagnetarError as error:
            self._on_failed(self, error)
            raise
        self.registered.send_away(TopicTerminated("Topic was already terminated"))
        self._wake_subscriptions()
        return last

    async def truncate(self) -> None:
        """Let go of everything but the present ledger; subscriptions stand at the end."""
        self._refuse_when_closing()
        for subscription in list(self.subscriptions.values()):
            await subscription.reset(LATEST)
        # The broker's own cursors go as far as what they keep says; nothing may become durable in between.
        if self._deduplication is not None:
            self._deduplication.close()
        self.transactions.close()
        await self.managed_ledger.truncate()

    async def close(self) -> None:
        """Send clients away, let what is on its way be stored, save the cursors."""
        self._closing = "is closing"
        failure = await self._send_clients_away()
        if self._deduplication is not None:
            self._deduplication.close()
        self.transactions.close()
        await self.compaction.close()
        await self.managed_ledger.close()
        if failure is not None:
            raise failure

    async def delete(self, *, force: bool) -> None:
        """Delete everything that is stored. TopicBusy when clients are connected, unless it is forced; then it goes on.

        What keeps it from being deleted closes it: whoever loads it next finds what is left.
        """
        self._refuse_when_closing()
        if not force:
            refuse_when_busy(self)
        self._closing = "is being deleted"
        try:
            for subscription in list(self.subscriptions.values()):
                await subscription.delete_stored()
        except MagnetarError:
            await self.close()
            raise
        await self._send_clients_away()
        await self.compaction.close()
        await self.managed_ledger.delete()
        await self.compaction.delete()
        await self.transactions.delete_stored()

    @property
    def is_closing(self) -> bool:
        """Whether it was closed or deleted, or is about to be."""
        return self._closing is not None

    # --- upkeep -------------------------------------------------------------------------------------

    def upkeep(self) -> None:
        """What time brings; called every few seconds."""
        if self._deduplication is not None:
            self._deduplication.upkeep()
        self.transactions.upkeep()
        self.answers.rest()
        for subscription in list(self.subscriptions.values()):
            if subscription.is_left_over(READER_GRACE_MS):
                self.forget_subscription(subscription)

    async def set_deduplication(self, enabled: bool) -> None:
        """Switch deduplication on or off; returns when it is so. While a topic loads, no message is taken before."""
        if self._deduplication_turn is None:
            self._deduplication_turn = asyncio.Lock()
        async with self._deduplication_turn:
            if enabled and self._deduplication is None:
                cursor = await self.managed_ledger.open_cursor(DEDUPLICATION_CURSOR, initial="latest")
                state = DeduplicationCursor(
                    self.managed_ledger, cursor, self._settings, self._clock, appends_before=len(self.answers.waiting)
                )
                for name in self.producers:
                    state.tracker.on_producer_added(name, self._clock.now_ms())
                self._deduplication = state
                await state.recover()
            elif not enabled:
                self._deduplication = None
                await DeduplicationCursor.delete(self.managed_ledger)

    @property
    def is_deduplicated(self) -> bool:
        return self._deduplication is not None

    # --- inside -------------------------------------------------------------------------------------

    def _refuse_when_closing(self) -> None:
        if self._closing is not None:
            raise ServiceNotReady(f"Topic {self.name} {self._closing}; look it up again")

    def _refuse_name_and_number(self, name: str) -> None:
        """A new subscription: not under the name of a cursor of our own or one that goes, and not beyond the limit."""
        check_new_subscription(name, self._deleting)
        if 0 < self._settings.subscriptions_per_topic_max <= len(self.subscriptions):
            raise NotSupported(f"Exceed the maximum number of subscriptions of the topic: {self.name}")

    def _counted_in(self) -> tuple[int, int]:
        return self.messages_in, self.bytes_in

    def _kept_when_trimmed(self) -> Mapping[str, str]:
        return {LAST_INDEX: str(self.stored_index)}

    def _limit_subscribes(self) -> None:
        settings = self._settings
        period_s = settings.subscribe_rate_period_s
        self._subscribes = call_limiter(settings.subscribes_per_consumer, period_s, self._subscribes)

    def _limit(self, producer: Producer, messages: int, size: int) -> None:
        wait_s = self.publish_rates.take(messages, size)
        if wait_s > 0:
            producer.link.hold_back(wait_s)

    async def _save_epoch(self, epoch: int) -> None:
        await self.managed_ledger.update_properties({EPOCH_PROPERTY: str(epoch)})

    async def _send_clients_away(self) -> MagnetarError | None:
        if self.replication is not None:
            await self.replication.close()
        self.registered.send_away(ServiceNotReady(f"Topic {self.name} {self._closing}; look it up again"))
        return await close_all(self.subscriptions.values())

    def _wake_subscriptions(self) -> None:
        self._wake_scheduled = False
        with self._dispatch.shared_reads.opened():
            for subscription in list(self._attended):
                subscription.wake()
        if self.replication is not None:
            self.replication.wake()

    def _new_subscription(self, name: str, cursor: Cursor) -> Subscription:
        subscription = Subscription(name, self.managed_ledger, cursor, self._dispatch, topic=self.name)
        lookups = EntryLookups(self.managed_ledger, self._dispatch.memory.facts)
        subscription.count_messages(lookups, partial(getattr, self, "stored_index"))
        self.subscriptions[name] = subscription
        self.dispatch_rates.apply(subscription)
        return subscription
