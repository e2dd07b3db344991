# SPDX-License-Identifier: Apache-2.0
"""What an application sends with: one producer per partition behind one face, values in, message ids out.

Owns the routing, the schema and the partitions' producers. A message id is given only after the broker's receipt.
Carries.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Final, Generic, Self, TypeVar

from magnetar.client.core import Core
from magnetar.client.encryption import MessageEncryption
from magnetar.client.message_id import MessageId
from magnetar.client.options import ProducerOptions
from magnetar.client.outgoing import LOCAL_CLUSTER_ONLY, OutgoingMessage
from magnetar.client.partition_producer import PartitionProducer
from magnetar.client.receipt import Receipt
from magnetar.client.routing import router_of
from magnetar.client.schema import Schema
from magnetar.client.statistics import ProducerStatistics
from magnetar.errors import AlreadyClosed, BadSetting, MagnetarError
from magnetar.names import TopicName
from magnetar.runtime.tasks import Tasks

if TYPE_CHECKING:
    from magnetar.client.transaction import Transaction

T = TypeVar("T")

# One who submits as fast as there is room still lets the loop write what was submitted, this often.
TURN_MESSAGES: Final = 64

_log = logging.getLogger(__name__)


class Producer(Generic[T]):
    """Made by `Client.create_producer`. Any number of tasks may send at once; their order is that of their calls."""

    def __init__(
        self, core: Core, topic: TopicName, options: ProducerOptions, schema: Schema[T], partitions: int
    ) -> None:
        if options.chunking_enabled and not topic.is_persistent:
            raise BadSetting("chunking_enabled needs a persistent topic")
        self._core = core
        self._topic = topic
        self._options = options
        self._schema = schema
        self._router = router_of(options, core.random)
        self._encryption = self._make_encryption()
        self._partitions: list[PartitionProducer] = []
        self._opening: dict[int, asyncio.Task[MagnetarError | None]] = {}
        self._is_partitioned = partitions > 0
        self._is_simple = partitions == 0 and not options.interceptors
        self._tasks = Tasks(f"producer {topic}", lambda *_: None)
        self._closed = False
        self._until_turn = TURN_MESSAGES
        # Told when it closes, so that its client forgets it.
        self.on_closed: Callable[[], object] = _nothing
        for index in range(max(1, partitions)):
            self._partitions.append(self._make_partition(index, max(1, partitions)))

    def _make_encryption(self) -> MessageEncryption | None:
        options = self._options
        if not options.encryption_keys or options.crypto_key_reader is None:
            return None
        return MessageEncryption(
            options.encryption_keys, options.crypto_key_reader, self._core.clock, options.crypto_failure_action
        )

    def _make_partition(self, index: int, partitions: int) -> PartitionProducer:
        options = self._options
        places = options.max_pending_messages
        if self._is_partitioned and options.max_pending_messages_across_partitions:
            share = max(1, options.max_pending_messages_across_partitions // partitions)
            places = min(places, share) if places else share
        topic = self._topic.partition(index) if self._is_partitioned else self._topic
        return PartitionProducer(self._core, topic, options, self._schema.info, self._encryption, places)

    # --- opening -------------------------------------------------------------------------------

    async def open(self) -> None:
        """Called by the client. A lazy one opens a partition when it is first used, and one to know that it works."""
        try:
            if self._is_partitioned and self._options.lazy_start_partitioned_producers:
                await self._opened(self._core.random.randrange(len(self._partitions)))
            else:
                async with asyncio.TaskGroup() as group:
                    for index in range(len(self._partitions)):
                        group.create_task(self._opened(index))
        except BaseExceptionGroup as errors:
            await self.close()
            raise errors.exceptions[0] from None
        except BaseException:
            await self.close()
            raise
        if self._is_partitioned and self._core.settings.partitions_update_interval_seconds > 0:
            self._tasks.start(self._watch_partitions(), "watch partitions")

    async def _opened(self, index: int) -> PartitionProducer:
        """The partition's producer, open. Who waits may be cancelled; opening goes on for the others."""
        partition = self._partitions[index]
        task = self._opening.get(index)
        if task is None:
            task = self._opening[index] = self._tasks.start(_outcome(partition), f"open {partition.topic}")
        error = await asyncio.shield(task)
        if error is not None:
            self._opening.pop(index, None)
            self._partitions[index] = self._make_partition(index, len(self._partitions))
            raise error
        return partition

    async def _watch_partitions(self) -> None:
        """A topic may get more partitions; messages go there too once they are found."""
        interval_s = self._core.settings.partitions_update_interval_seconds
        while True:
            await asyncio.sleep(interval_s)
            try:
                await self.update_partitions()
            except MagnetarError as error:
                _log.info("%s: the number of partitions is not known now: %s", self._topic, error)

    async def update_partitions(self) -> None:
        """Look for new partitions now."""
        count = await self._core.lookup.partitions(self._topic)
        for index in range(len(self._partitions), count):
            self._partitions.append(self._make_partition(index, count))
            if not self._options.lazy_start_partitioned_producers:
                await self._opened(index)

    # --- sending -------------------------------------------------------------------------------

    async def send(
        self,
        content: T | None,
        properties: Mapping[str, str] | None = None,
        partition_key: str | bytes | None = None,
        ordering_key: str | bytes | None = None,
        sequence_id: int | None = None,
        replication_clusters: Sequence[str] | None = None,
        disable_replication: bool = False,
        event_timestamp: int | None = None,
        deliver_at: int | None = None,
        deliver_after: timedelta | None = None,
        txn: "Transaction | None" = None,
    ) -> MessageId:
        """Send and wait until the message is durable. Cancelling stops the waiting, not the message.

        `None` as content is a null value, which compaction takes as "delete this key". Raises MessageTooLarge,
        ProducerQueueFull, TimedOut, TopicTerminated, ProducerFenced, AlreadyClosed.
        """
        receipt = await self.submit(
            content,
            properties,
            partition_key,
            ordering_key,
            sequence_id,
            replication_clusters,
            disable_replication,
            event_timestamp,
            deliver_at,
            deliver_after,
            txn,
        )
        return await receipt

    async def submit(
        self,
        content: T | None,
        properties: Mapping[str, str] | None = None,
        partition_key: str | bytes | None = None,
        ordering_key: str | bytes | None = None,
        sequence_id: int | None = None,
        replication_clusters: Sequence[str] | None = None,
        disable_replication: bool = False,
        event_timestamp: int | None = None,
        deliver_at: int | None = None,
        deliver_after: timedelta | None = None,
        txn: "Transaction | None" = None,
    ) -> Receipt:
        """As send, but wait only for room in the queue; `await` the receipt for the message id."""
        payload = b"" if content is None else self._schema.encode(content)
        if partition_key is None and content is not None:
            partition_key = self._schema.key_of(content)
        if deliver_after is not None:
            deliver_at = self._core.clock.now_ms() + deliver_after // timedelta(milliseconds=1)
        clusters = (LOCAL_CLUSTER_ONLY,) if disable_replication else tuple(replication_clusters or ())
        message = OutgoingMessage(
            payload,
            properties,
            partition_key,
            ordering_key.encode() if isinstance(ordering_key, str) else ordering_key,
            sequence_id,
            clusters,
            event_timestamp or 0,
            deliver_at or 0,
            content is None,
        )
        if self._is_simple and txn is None and not self._closed:
            # The usual case without the detours: one partition, nothing to tell, room in the queue.
            partition = self._partitions[0]
            message.schema_version = partition.schema_version
            if partition.try_reserve(len(payload)):
                receipt = partition.send(message)
                self._until_turn -= 1
                if not self._until_turn:
                    # Behind the message: whoever submits meanwhile comes after it.
                    self._until_turn = TURN_MESSAGES
                    await asyncio.sleep(0)
                return receipt
        message.transaction = None if txn is None else txn.ids
        return await self.submit_message(message, txn)

    async def submit_message(self, message: OutgoingMessage, txn: "Transaction | None" = None) -> Receipt:
        """Submit what is encoded already."""
        if self._closed:
            raise AlreadyClosed(f"{self._topic}: the producer is closed")
        for interceptor in self._options.interceptors:
            message = interceptor.before_send(self, message)
        partition = await self._route(message)
        message.schema_version = message.schema_version or partition.schema_version
        if txn is not None:
            await txn.register_partition(partition.topic)
        await partition.reserve(len(message.payload))
        receipt = partition.send(message)
        if self._options.interceptors:
            receipt.add_done_callback(lambda done: self._tell_interceptors(message, done))
        if txn is not None:
            txn.register_send(receipt)
        return receipt

    async def _route(self, message: OutgoingMessage) -> PartitionProducer:
        if not self._is_partitioned:
            return self._partitions[0]
        index = self._router.choose(message, len(self._partitions), self._core.clock.now_ms())
        partition = self._partitions[index]
        task = self._opening.get(index)
        if task is None or not task.done():
            return await self._opened(index)
        return partition

    def _tell_interceptors(self, message: OutgoingMessage, receipt: Receipt) -> None:
        error = receipt.exception()
        message_id = receipt.result() if error is None else None
        for interceptor in self._options.interceptors:
            try:
                interceptor.on_send_acknowledgement(self, message, message_id, error)
            except Exception:
                _log.exception("%s: an interceptor failed", self._topic)

    def take_no_turns(self) -> None:
        """For those whose every call is a turn of the loop anyway."""
        self._until_turn = 0

    def push(self) -> None:
        """Send what is collected, without waiting for anything."""
        for partition in self._partitions:
            partition.push()

    async def flush(self) -> None:
        """Send what is collected and wait until everything submitted so far is settled."""
        for partition in list(self._partitions):
            await partition.flush()

    # --- questions -----------------------------------------------------------------------------

    def topic(self) -> str:
        return str(self._topic)

    def producer_name(self) -> str:
        return next((partition.name for partition in self._partitions if partition.name), "")

    def last_sequence_id(self) -> int:
        """Of the last message that is durable, or that the broker knew under this producer's name; -1 if none."""
        return max(partition.last_sequence_id for partition in self._partitions)

    def is_connected(self) -> bool:
        opened = [index for index, task in self._opening.items() if task.done()]
        return bool(opened) and all(self._partitions[index].is_connected for index in opened)

    def num_partitions(self) -> int:
        return len(self._partitions) if self._is_partitioned else 0

    def statistics(self) -> ProducerStatistics:
        total = ProducerStatistics()
        for partition in self._partitions:
            total = total.merged(partition.statistics)
        return total

    # --- the end -------------------------------------------------------------------------------

    async def close(self) -> None:
        """Flush, then leave the brokers. Asking again changes nothing."""
        if self._closed:
            return
        self._closed = True
        self.on_closed()
        try:
            await self._tasks.close()
        finally:
            opened = [partition for partition in self._partitions if partition.name]
            await asyncio.gather(*(partition.close() for partition in opened))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()


def _nothing() -> None:
    """Nobody wants to know."""


async def _outcome(partition: PartitionProducer) -> MagnetarError | None:
    """An error that the caller gets is no crash of the task that met it."""
    try:
        await partition.open()
    except MagnetarError as error:
        return error
    return None
