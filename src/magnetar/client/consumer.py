# SPDX-License-Identifier: Apache-2.0
"""What an application receives with: one consumer per topic and partition behind one face and one queue.

Owns the queue, the partitions' consumers, the listener and the dead letters. A message is handed to one taker; it is
gone from the subscription only when it is acknowledged.
Carries.
"""

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import datetime, timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Generic, Self, TypeAlias, TypeVar

from magnetar.client.core import Core
from magnetar.client.dead_letters import DeadLetters
from magnetar.client.message import Message
from magnetar.client.message_id import TopicMessageId
from magnetar.client.message_queue import MessageQueue
from magnetar.client.options import BatchReceivePolicy, ConsumerOptions, ConsumerType
from magnetar.client.partition_consumer import PartitionConsumer
from magnetar.client.schema import Schema
from magnetar.client.statistics import ConsumerStatistics
from magnetar.client.topic_set import TopicSet
from magnetar.errors import AlreadyClosed, BadSetting, MagnetarError, NotSupported, TimedOut
from magnetar.ids import MessageId, Position
from magnetar.names import TopicName
from magnetar.runtime.forks import FORKS
from magnetar.runtime.tasks import Tasks
from magnetar.wire.proto import pulsar_api_pb2 as pb

if TYPE_CHECKING:
    from magnetar.client.transaction import Transaction

T = TypeVar("T")
Listener: TypeAlias = "Callable[[Consumer[T], Message[T]], Awaitable[None] | None]"

# One who takes messages as fast as they lie there still lets the loop read, and ask the broker for more, this often.
TURN_MESSAGES: Final = 250

_log = logging.getLogger(__name__)


class Consumer(Generic[T]):
    """Made by `Client.subscribe`. `async for message in consumer` ends when the consumer is closed."""

    def __init__(
        self,
        core: Core,
        topics: TopicSet,
        subscription: str,
        options: ConsumerOptions,
        schema: Schema[T],
        dead_letters: DeadLetters | None,
        tasks: Tasks,
        listener: "Listener[T] | None" = None,
    ) -> None:
        self._core = core
        self._subscription = subscription
        self._options = options
        self._schema = schema
        self._dead_letters = dead_letters
        self._tasks = tasks
        self._queue = MessageQueue()
        self._listener = listener
        # Messages go from the queue to the application as they are, with nothing to be done in between.
        self._is_plain = listener is None and not schema.needs_preparing and not options.interceptors
        self._listening = asyncio.Event()
        self._topics = topics
        self._closed = False
        self._paused = False
        self._until_turn = TURN_MESSAGES
        self._forks = FORKS.count
        # Told when it closes, so that its client forgets it.
        self.on_closed: Callable[[], object] = _nothing

    # --- opening -------------------------------------------------------------------------------

    async def open(self) -> None:
        """Called by the client."""
        try:
            await self._topics.open(self._make_partition)
        except BaseException:
            await self.close()
            raise
        if self._listener is not None:
            self._listening.set()
            self._tasks.start(self._listen(self._listener), "listener")

    def _make_partition(self, topic: TopicName, share: int) -> PartitionConsumer:
        """`share`: among how many the total queue size is divided."""
        total = self._options.max_total_receiver_queue_size_across_partitions
        size = self._options.receiver_queue_size
        if size > 0 and share > 1:
            size = max(1, min(size, total // share))
        consumer = PartitionConsumer(
            self._core, topic, self._subscription, self._options, self._schema, size, self._on_messages, self._on_failed
        )
        if self._paused:
            consumer.pause()
        if self._dead_letters is not None and self._options.dead_letter_policy is not None:
            consumer.bury = self._dead_letters.bury
            consumer.on_possible_death = self._dead_letters.on_delivered
        return consumer

    def _on_messages(self, source: PartitionConsumer, messages: list[Message[Any]]) -> None:
        source.statistics.received += len(messages)
        source.statistics.received_bytes += sum([message.size() for message in messages])
        self._queue.put(messages)

    def _on_failed(self, source: PartitionConsumer, error: MagnetarError) -> None:
        _log.error("%s: the consumer ended: %s", source.topic, error)
        if not self._topics.is_dynamic:
            self._queue.end(error)

    # --- receiving -----------------------------------------------------------------------------

    async def receive(self, timeout_millis: int | None = None) -> Message[T]:
        """The next message. Raises TimedOut, AlreadyClosed. Cancelling loses nothing."""
        if self._closed or FORKS.count != self._forks:
            self._check_open()
        if self._is_plain:
            self._until_turn -= 1
            if not self._until_turn:
                self._until_turn = TURN_MESSAGES
                await asyncio.sleep(0)
            message = self._queue.take()
            if message is not None:
                return message
        if self._listener is not None:
            raise NotSupported("a consumer with a listener cannot be asked for messages")
        if timeout_millis is None:
            return await self._next()
        try:
            async with asyncio.timeout(timeout_millis / 1000):
                return await self._next()
        except TimeoutError:
            raise TimedOut(f"no message within {timeout_millis} ms") from None

    async def _next(self) -> Message[T]:
        message = self._queue.take()
        if message is None:
            if self._options.receiver_queue_size == 0:
                self._topics.ask_one()
            message = await self._queue.get()
        if self._schema.needs_preparing:
            try:
                await self._schema.prepare(message)
            except BaseException:
                self._queue.put_back(message)
                raise
        for interceptor in self._options.interceptors:
            message = interceptor.before_consume(self, message)
        return message

    async def batch_receive(self, policy: BatchReceivePolicy | None = None) -> list[Message[T]]:
        """Messages until the policy says enough: a number, bytes, or time since the call. May be empty."""
        self._check_open()
        policy = policy or self._options.batch_receive_policy
        messages: list[Message[T]] = []
        size = 0
        limit_s = policy.timeout_ms / 1000 if policy.timeout_ms > 0 else None
        try:
            async with asyncio.timeout(limit_s):
                while not _is_enough(policy, len(messages), size):
                    message = await self._next()
                    messages.append(message)
                    size += message.size()
        except TimeoutError:
            pass
        except asyncio.CancelledError:
            for message in reversed(messages):
                self._queue.put_back(message)
            raise
        return messages

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message[T]:
        try:
            return await self.receive()
        except AlreadyClosed:
            raise StopAsyncIteration from None

    async def _listen(self, listener: "Listener[T]") -> None:
        while True:
            await self._listening.wait()
            message = await self._next()
            try:
                outcome = listener(self, message)
                if inspect.isawaitable(outcome):
                    await outcome
            except Exception:
                _log.exception("%s: the message listener failed", message.topic_name())

    def pause(self) -> None:
        """Ask the brokers for no more messages; what was asked for before still comes."""
        self._paused = True
        for partition in self._topics.partitions:
            partition.pause()

    def resume(self) -> None:
        self._paused = False
        for partition in self._topics.partitions:
            partition.resume()

    def pause_message_listener(self) -> None:
        self._listening.clear()

    def resume_message_listener(self) -> None:
        self._listening.set()

    # --- acknowledging -------------------------------------------------------------------------

    async def acknowledge(
        self, message: "Message[Any] | MessageId | Iterable[Message[Any] | MessageId]", txn: "Transaction | None" = None
    ) -> None:
        """One message, or many. Returns when it is noted, or with ack receipts when the broker has it."""
        if self._closed or FORKS.count != self._forks:
            self._check_open()
        if isinstance(message, Message) and txn is None and not self._options.interceptors:
            entry = message.entry
            partition: PartitionConsumer = entry.source  # type: ignore[assignment]
            partition.statistics.acknowledged += 1
            is_whole = partition.acks.add_at(entry.ledger_entry, message.batch_index, entry.acks)
            if is_whole and (partition.redeliveries.is_used or self._dead_letters is not None):
                self._forget(partition, entry.ledger_entry)
            if partition.waits_for_acks and (is_whole or self._options.batch_index_ack_enabled):
                await partition.acks.confirmed()
            return
        many = [message] if isinstance(message, (Message, MessageId)) else list(message)
        touched: dict[PartitionConsumer, None] = {}
        for one in many:
            message_id = one.message_id() if isinstance(one, Message) else one
            partition = self._source(one)
            for interceptor in self._options.interceptors:
                interceptor.on_acknowledge(self, message_id)
            if txn is not None:
                await txn.register_subscription(partition.topic, self._subscription)
                await txn.acknowledge(partition.acks, message_id)
                partition.redeliveries.on_done(message_id.position)
                continue
            partition.statistics.acknowledged += 1
            if partition.acks.add(message_id):
                self._forget(partition, message_id.position)
            touched[partition] = None
        for partition in touched:
            await partition.acks.confirmed()

    def _forget(self, partition: PartitionConsumer, position: Position) -> None:
        """Nothing of the entry is left: it will not come again, and is no candidate for the dead letters."""
        partition.redeliveries.on_done(position)
        if self._dead_letters is not None:
            self._dead_letters.on_done(str(partition.topic), position)

    async def acknowledge_cumulative(
        self, message: "Message[Any] | MessageId", txn: "Transaction | None" = None
    ) -> None:
        """This message and all before it on the same partition."""
        self._check_open()
        if self._options.consumer_type in (ConsumerType.Shared, ConsumerType.KeyShared):
            raise NotSupported("shared and key-shared subscriptions are acknowledged message by message")
        message_id = message.message_id() if isinstance(message, Message) else message
        partition = self._source(message)
        for interceptor in self._options.interceptors:
            interceptor.on_acknowledge_cumulative(self, message_id)
        if txn is not None:
            await txn.register_subscription(partition.topic, self._subscription)
            await txn.acknowledge(partition.acks, message_id, cumulative=True)
            return
        partition.statistics.acknowledged += 1
        reached = partition.acks.add_cumulative(message_id)
        if reached is not None:
            partition.redeliveries.on_done_up_to(reached)
        await partition.acks.confirmed()

    def negative_acknowledge(self, message: "Message[Any] | MessageId") -> None:
        """Have it delivered again after the redelivery delay."""
        self._check_open()
        message_id = message.message_id() if isinstance(message, Message) else message
        for interceptor in self._options.interceptors:
            interceptor.on_negative_acks_send(self, message_id)
        self._source(message).redeliveries.refuse(message)

    async def reconsume_later(
        self,
        message: Message[Any],
        delay: timedelta | int = 0,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        """Publish the message to the retry-letter topic, to come again after the delay (milliseconds), and
        acknowledge it; after enough tries it goes to the dead-letter topic instead."""
        self._check_open()
        if self._dead_letters is None or not self._options.retry_enabled:
            raise NotSupported("reconsume_later needs retry_enabled=True when subscribing")
        delay_ms = delay // timedelta(milliseconds=1) if isinstance(delay, timedelta) else delay
        try:
            await self._dead_letters.reconsume_later(message, delay_ms, properties)
        except MagnetarError:
            self.negative_acknowledge(message)
            raise
        await self.acknowledge(message)

    def push(self) -> None:
        """Send the acknowledgements that are collected now."""
        for partition in self._topics.partitions:
            partition.acks.flush()

    def redeliver_unacknowledged_messages(self) -> None:
        """Have everything delivered again that was delivered and not acknowledged."""
        self._check_open()
        for partition in self._topics.partitions:
            partition.redeliver(None)

    def _source(self, message: "Message[Any] | MessageId") -> PartitionConsumer:
        """Whose message it is: by the topic that it knows, by its partition, or because there is one only."""
        if isinstance(message, Message) and isinstance(message.entry.source, PartitionConsumer):
            return message.entry.source
        topic = message.topic if isinstance(message, TopicMessageId) else None
        partition = self._topics.find(topic, message.partition if isinstance(message, MessageId) else -1)
        if partition is None:
            raise BadSetting(f"message id {message} does not say which of this consumer's topics it belongs to")
        return partition

    # --- moving ----------------------------------------------------------------------------------

    async def seek(self, target: "MessageId | int | datetime | Callable[[str], MessageId | int]") -> None:
        """Go to a message id, a publish time (milliseconds or datetime), or what a function says for each topic.

        When a partition cannot go there, the others have gone all the same.
        """
        self._check_open()
        if isinstance(target, datetime):
            target = int(target.timestamp() * 1000)
        partitions = self._topics.partitions
        if isinstance(target, TopicMessageId) and len(partitions) > 1:
            partitions = [self._source(target)]
        elif isinstance(target, MessageId) and len(partitions) > 1 and target.ledger_id >= 0 and target.entry_id >= 0:
            last = 2**63 - 1
            if target.ledger_id != last:
                partitions = [self._source(target)]
        # All of them, whatever keeps one from it: those that can go there do.
        places = [target(str(partition.topic)) if callable(target) else target for partition in partitions]
        seeks = (partition.seek(place) for partition, place in zip(partitions, places, strict=True))
        for failure in await asyncio.gather(*seeks, return_exceptions=True):
            if failure is not None:
                raise failure

    async def unsubscribe(self, *, force: bool = False) -> None:
        """Delete the subscription, and close."""
        self._check_open()
        for partition in self._topics.partitions:
            await partition.unsubscribe(force=force)
        await self.close()

    async def get_last_message_id(self) -> TopicMessageId:
        """Of a topic without partitions; see last_message_ids for the others."""
        return (await self.last_message_ids())[0]

    async def last_message_ids(self) -> list[TopicMessageId]:
        self._check_open()
        found = []
        for partition in self._topics.partitions:
            message_id, _ = await partition.last_message_id()
            assert isinstance(message_id, TopicMessageId)
            found.append(message_id)
        return found

    # --- questions -------------------------------------------------------------------------------

    def topic(self) -> str:
        return self._topics.name

    def topics(self) -> list[str]:
        """The topics and partitions that it is attached to now."""
        return [str(partition.topic) for partition in self._topics.partitions]

    def subscription_name(self) -> str:
        return self._subscription

    def consumer_name(self) -> str:
        return self._topics.consumer_name

    def is_connected(self) -> bool:
        partitions = self._topics.partitions
        return bool(partitions) and all(partition.is_connected for partition in partitions)

    def is_active(self) -> bool:
        """Whether a failover subscription serves this consumer now (all of its partitions)."""
        return all(partition.is_active for partition in self._topics.partitions)

    def has_reached_end_of_topic(self) -> bool:
        """Whether the topics are terminated and everything in them was delivered."""
        return all(partition.has_ended for partition in self._topics.partitions)

    def statistics(self) -> ConsumerStatistics:
        total = ConsumerStatistics()
        for partition in self._topics.partitions:
            total = total.merged(partition.statistics)
        return total

    async def broker_statistics(self) -> list[pb.CommandConsumerStatsResponse]:
        """What the brokers say, one per partition."""
        return [await partition.broker_statistics() for partition in self._topics.partitions]

    @property
    def partitions(self) -> list[PartitionConsumer]:
        return self._topics.partitions

    def queue_is_empty(self) -> bool:
        return self._queue.is_empty

    # --- the end -----------------------------------------------------------------------------------

    def _check_open(self) -> None:
        self._core.check_process()
        if self._closed:
            raise AlreadyClosed(f"{self._topics.name}: the consumer is closed")

    async def close(self) -> None:
        """Send outstanding acknowledgements and leave; the subscription stays."""
        if self._closed:
            return
        self._closed = True
        self.on_closed()
        self._queue.end(AlreadyClosed(f"{self._topics.name}: the consumer is closed"))
        try:
            await self._tasks.close()
        finally:
            try:
                await self._topics.close()
            finally:
                if self._dead_letters is not None:
                    await self._dead_letters.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()


def _nothing() -> None:
    """Nobody wants to know."""


def _is_enough(policy: BatchReceivePolicy, count: int, size: int) -> bool:
    return (0 < policy.max_num_message <= count) or (0 < policy.max_num_bytes <= size)
