# SPDX-License-Identifier: Apache-2.0
"""A producer on one topic or partition: numbers, batches and sends messages, and settles their receipts.

Everything unconfirmed is kept in order and sent again, in order, on each new connection, until its receipt or its
time-out. The bound is the room that `reserve` gives before a message comes in. Never routes: that is `Producer`'s.
Carries.
"""

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from magnetar.client.batching import BatchCollector
from magnetar.client.connection import Connection
from magnetar.client.core import Core
from magnetar.client.entry_builder import EntryBuilder
from magnetar.client.link import Link
from magnetar.client.message_id import MessageId
from magnetar.client.options import BatchingType, ProducerOptions
from magnetar.client.outgoing import OutgoingMessage
from magnetar.client.pending_sends import PendingSend, PendingSends, ReceiptMatch
from magnetar.client.receipt import Receipt
from magnetar.client.room import Room
from magnetar.client.schema_info import SchemaInfo
from magnetar.client.states import State, is_live, step
from magnetar.client.statistics import ProducerStatistics
from magnetar.errors import (
    AlreadyClosed,
    ChecksumMismatch,
    ConnectionLost,
    MagnetarError,
    MemoryLimitReached,
    ProducerFenced,
    ProducerQueueFull,
    ServiceNotReady,
    TimedOut,
    TopicTerminated,
)
from magnetar.names import TopicName
from magnetar.wire.commands import Type
from magnetar.wire.error_codes import error_of_server_error
from magnetar.wire.proto import pulsar_api_pb2 as pb

if TYPE_CHECKING:
    from magnetar.client.encryption import MessageEncryption

WRITE_AT_ONCE = 1_000
_UINT64 = 2**64

_log = logging.getLogger(__name__)


class PartitionProducer:
    """Usable once `open` returned. All calls on the loop."""

    def __init__(
        self,
        core: Core,
        topic: TopicName,
        options: ProducerOptions,
        schema: SchemaInfo,
        encryption: "MessageEncryption | None",
        places_max: int,
    ) -> None:
        self.topic = topic
        self.name = options.producer_name or ""
        self.state = State.CONNECTING
        self.schema_version = b""
        self.last_sequence_id = -1 if options.initial_sequence_id is None else options.initial_sequence_id
        self.statistics = ProducerStatistics()
        self._core = core
        self._options = options
        self._schema = schema
        self._encryption = encryption
        self._producer_id = next(core.producer_ids)
        self._epoch = 0
        self._topic_epoch: int | None = None
        self._next_sequence_id = self.last_sequence_id + 1
        self._pending = PendingSends()
        self._places = Room(places_max)
        self._collector = BatchCollector(
            options.batching_max_messages,
            options.batching_max_allowed_size_in_bytes,
            by_key=options.batching_type is BatchingType.KeyBased,
        )
        self._batches = options.batching_enabled
        self._builder: EntryBuilder | None = None
        self._batch_timer: asyncio.TimerHandle | None = None
        self._send_timer: asyncio.TimerHandle | None = None
        self._end: MagnetarError | None = None
        self._link = Link(core, topic, self._attach, self._on_link_failed)

    # --- opening -------------------------------------------------------------------------------

    async def open(self) -> None:
        try:
            await self._link.open()
        except BaseException:
            self._link.close()
            self.state = step(self.state, State.FAILED)
            self._end = AlreadyClosed(f"{self.topic}: the producer could not be opened")
            raise
        self._arm_send_timer()

    async def _attach(self, connection: Connection) -> None:
        connection.producers[self._producer_id] = self
        try:
            success = await connection.request(Type.PRODUCER, self._request())
        except BaseException as error:
            connection.producers.pop(self._producer_id, None)
            # Without an answer the broker may have it registered; it must not block the next try.
            if not isinstance(error, MagnetarError) or isinstance(error, TimedOut):
                connection.tell(Type.CLOSE_PRODUCER, pb.CommandCloseProducer(producer_id=self._producer_id))
            raise
        if connection.producers.get(self._producer_id) is not self:
            raise ServiceNotReady(f"{self.topic}: the broker closed the producer while it was being attached")
        self._on_attached(connection, success)

    def _request(self) -> pb.CommandProducer:
        request = pb.CommandProducer(topic=str(self.topic), producer_id=self._producer_id, epoch=self._epoch)
        self._epoch += 1
        if self.name:
            request.producer_name = self.name
        request.user_provided_producer_name = self._options.producer_name is not None
        request.producer_access_mode = pb.ProducerAccessMode.ValueType(int(self._options.access_mode))
        if self._topic_epoch is not None:
            request.topic_epoch = self._topic_epoch
        if self._encryption is not None or self._options.payloads_encrypted:
            request.encrypted = True
        if self._options.initial_subscription_name:
            request.initial_subscription_name = self._options.initial_subscription_name
        for key, value in self._options.properties.items():
            request.metadata.add(key=key, value=value)
        schema = self._schema.to_wire()
        if schema is not None:
            request.schema.CopyFrom(schema)
        return request

    def _on_attached(self, connection: Connection, success: pb.CommandProducerSuccess) -> None:
        is_first = self._builder is None
        self.name = success.producer_name
        self.schema_version = success.schema_version
        if success.HasField("topic_epoch"):
            self._topic_epoch = success.topic_epoch
        if is_first:
            self._builder = EntryBuilder(
                self._producer_id, self.name, self._options, self._encryption, connection.message_bytes_max
            )
            if self._options.initial_sequence_id is None:
                self.last_sequence_id = success.last_sequence_id
                self._next_sequence_id = success.last_sequence_id + 1
        elif self._builder is not None:
            self._builder.bytes_max = connection.message_bytes_max
        self.state = step(self.state, State.READY)
        self._pending.rewind()
        # The link takes over the connection when this returns; writing goes on from there.
        self._core.loop.call_soon(self._pump)

    @property
    def is_connected(self) -> bool:
        return self._link.connection is not None

    # --- taking messages -------------------------------------------------------------------------

    def try_reserve(self, size: int) -> bool:
        """Take room for one message if there is room now."""
        self._check_live()
        if not self._places.try_take(1):
            return False
        if self._core.memory.try_take(size):
            return True
        self._places.give(1)
        return False

    async def reserve(self, size: int) -> None:
        """Take room for one message of this size: wait for it, or raise, as the options say."""
        self._check_live()
        memory = self._core.memory
        if self._places.try_take(1):
            if memory.try_take(size):
                return
            if not self._options.block_if_queue_full:
                self._places.give(1)
                raise MemoryLimitReached(f"{self.topic}: the client's memory limit for unconfirmed messages is reached")
        elif self._options.block_if_queue_full:
            await self._places.take(1)
        else:
            raise ProducerQueueFull(f"{self.topic}: {self._places.used} messages wait for their receipts already")
        try:
            await memory.take(size)
            try:
                self._check_live()
            except BaseException:
                memory.give(size)
                raise
        except BaseException:
            self._places.give(1)
            raise

    def send(self, message: OutgoingMessage) -> Receipt:
        """Take a message for which room is reserved. What is wrong with it is raised, and the room given back."""
        builder = self._builder
        assert builder is not None, "a producer takes messages once it is open"
        receipt = message.receipt = Receipt(message.sequence_id)
        if self._batches and not message.deliver_at_ms and not message.packed:
            self._collect(message)
            return receipt
        if len(self._collector):
            self._send_batches()
        self._number(message)
        size = len(message.payload)
        try:
            for entry in builder.single(message, self._core.clock.now_ms(), self._core.loop.time()):
                self._pending.add(entry)
        except BaseException:
            self._drop_chunks(message.sequence_id)
            self._release(1, size)
            raise
        self._pump()
        return receipt

    def _collect(self, message: OutgoingMessage) -> None:
        collector = self._collector
        if not collector.fits(message):
            self._send_batches()
        if not collector.by_key:
            self._number(message)
        if collector.add(message):
            self._send_batches()
        elif self._batch_timer is None:
            delay_s = self._options.batching_max_publish_delay_ms / 1000
            self._batch_timer = self._core.loop.call_later(delay_s, self._send_batches)

    def _number(self, message: OutgoingMessage) -> None:
        if message.sequence_id < 0:
            message.sequence_id = self._next_sequence_id
        self._next_sequence_id = max(self._next_sequence_id, message.highest_sequence_id + 1)
        if message.receipt is not None:
            message.receipt.sequence_id = message.sequence_id

    def _drop_chunks(self, sequence_id: int) -> None:
        """A later chunk could not be made: none of them leaves."""
        self._pending.remove(sequence_id)

    def _send_batches(self) -> None:
        if self._batch_timer is not None:
            self._batch_timer.cancel()
            self._batch_timer = None
        if not len(self._collector):
            return
        assert self._builder is not None
        now_ms, now_s = self._core.clock.now_ms(), self._core.loop.time()
        for batch in self._collector.take():
            if self._options.batching_type is BatchingType.KeyBased:
                # Numbered only now, so that numbers rise from entry to entry and the broker's check of them holds.
                for message in batch.messages:
                    self._number(message)
            try:
                for entry in self._builder.batch(batch, now_ms, now_s):
                    self._pending.add(entry)
            except MagnetarError as error:
                self._settle_failed(batch.messages, error)
        self._pump()

    def _pump(self) -> None:
        """Write what the connection takes."""
        connection = self._link.connection
        if connection is None or self.state is not State.READY:
            return
        while self._pending.unwritten and connection.is_writable:
            for send in self._pending.take_unwritten(WRITE_AT_ONCE):
                connection.send(*send.buffers)

    def push(self) -> None:
        self._send_batches()

    async def flush(self) -> None:
        """Send what is collected and wait until everything sent so far is settled."""
        self._send_batches()
        last = self._pending.tail
        if last is None:
            return
        waiter: asyncio.Future[None] = self._core.loop.create_future()
        last.flushers.append(lambda: None if waiter.done() else waiter.set_result(None))
        await waiter

    # --- receipts --------------------------------------------------------------------------------

    def on_receipt(self, receipt: pb.CommandSendReceipt) -> None:
        match = self._pending.on_receipt(receipt.sequence_id)
        if match is ReceiptMatch.STALE:
            return
        if match is ReceiptMatch.GAP:
            self._detach(f"a receipt for {receipt.sequence_id} came before its predecessor's")
            return
        send = self._pending.pop()
        message_id = receipt.message_id
        ledger_id, entry_id = _signed(message_id.ledgerId), _signed(message_id.entryId)
        partition = self.topic.partition_index
        self.last_sequence_id = max(self.last_sequence_id, send.highest_sequence_id)
        if send.chunk_count > 1:
            self._on_chunk_receipt(send, MessageId(ledger_id, entry_id, partition))
            return
        count = send.count
        told = send.messages[0].packed or count
        self.statistics.on_sent(told, send.size, self._core.loop.time() - send.created_s)
        if count == 1:
            self._resolve(send.messages[0], MessageId(ledger_id, entry_id, partition))
        else:
            for index, message in enumerate(send.messages):
                self._resolve(message, MessageId(ledger_id, entry_id, partition, index, count))
        self._release(count, send.size)
        _tell_flushers(send)

    def _on_chunk_receipt(self, send: PendingSend, message_id: MessageId) -> None:
        if send.chunk_index == 0:
            send.first_chunk = message_id
        if not send.is_last_chunk:
            following = self._pending.head
            if following is not None:
                following.first_chunk = send.first_chunk
            return
        message_id.first_chunk = send.first_chunk
        self.statistics.on_sent(1, send.size, self._core.loop.time() - send.created_s)
        self._resolve(send.messages[0], message_id)
        self._release(1, send.size)
        _tell_flushers(send)

    def _resolve(self, message: OutgoingMessage, message_id: MessageId) -> None:
        if message.receipt is not None:
            message.receipt.resolve(message_id)

    def on_send_error(self, refusal: pb.CommandSendError) -> None:
        error = error_of_server_error(refusal.error, f"{self.topic}: {refusal.message}")
        if isinstance(error, (TopicTerminated, ProducerFenced)):
            self._finish(error)
        elif isinstance(error, ChecksumMismatch):
            _log.warning("%s: a message was damaged on its way; sending it again", self.topic)
            self._pending.rewind()
            self._pump()
        elif error.retryable:
            self._detach(error)
        else:
            self._fail_entries(self._pending.remove(refusal.sequence_id), error)

    # --- losing the connection ---------------------------------------------------------------------

    def _detach(self, reason: object) -> None:
        """Leave the connection, and come back to it or another with everything unconfirmed."""
        connection = self._link.connection
        if connection is None:
            return
        connection.producers.pop(self._producer_id, None)
        connection.tell(Type.CLOSE_PRODUCER, pb.CommandCloseProducer(producer_id=self._producer_id))
        self._lose(connection, reason)

    def _lose(self, connection: Connection, reason: object, assigned_url: str = "") -> None:
        if is_live(self.state):
            self.state = step(self.state, State.CONNECTING)
        self._link.lost(connection, reason, assigned_url)

    def on_closed_by_broker(self, connection: Connection, assigned_url: str) -> None:
        self._lose(connection, "closed by the broker", assigned_url)

    def on_connection_lost(self, connection: Connection, error: MagnetarError) -> None:
        self._lose(connection, error)

    def on_writable(self) -> None:
        self._pump()

    def _on_link_failed(self, error: MagnetarError) -> None:
        self._finish(error)

    # --- time-outs ---------------------------------------------------------------------------------

    def _arm_send_timer(self) -> None:
        limit_s = self._options.send_timeout_millis / 1000
        if limit_s <= 0 or not is_live(self.state):
            return
        head = self._pending.head
        now = self._core.loop.time()
        due = now + limit_s if head is None else max(now + 0.001, head.created_s + limit_s)
        self._send_timer = self._core.loop.call_at(due, self._check_timeouts)

    def _check_timeouts(self) -> None:
        limit_s = self._options.send_timeout_millis / 1000
        now = self._core.loop.time()
        expired: list[PendingSend] = []
        while (head := self._pending.head) is not None and head.created_s + limit_s <= now:
            expired.append(self._pending.pop())
        if expired:
            why = "not connected" if self._link.connection is None else "no receipt"
            self._fail_entries(expired, TimedOut(f"{self.topic}: {why} within {limit_s:g} s; the outcome is unknown"))
        self._arm_send_timer()

    def _fail_entries(self, entries: list[PendingSend], error: MagnetarError) -> None:
        for send in entries:
            if send.is_last_chunk:
                self._settle_failed(send.messages, error)
            _tell_flushers(send)

    def _settle_failed(self, messages: list[OutgoingMessage], error: MagnetarError) -> None:
        self.statistics.failed += len(messages)
        for message in messages:
            if message.receipt is not None:
                message.receipt.fail(error)
        self._release(len(messages), sum(len(message.payload) for message in messages))

    def _release(self, count: int, size: int) -> None:
        self._places.give(count)
        self._core.memory.give(size)

    # --- the end -------------------------------------------------------------------------------------

    def _check_live(self) -> None:
        self._core.check_process()
        if self._end is not None:
            raise self._end

    def _finish(self, error: MagnetarError) -> None:
        """Nothing more will be sent: whoever waits learns why."""
        if not is_live(self.state):
            return
        ends: dict[type[MagnetarError], State] = {TopicTerminated: State.TERMINATED, ProducerFenced: State.FENCED}
        self.state = step(self.state, ends.get(type(error), State.FAILED))
        self._end = error
        connection = self._link.close()
        if connection is not None:
            connection.producers.pop(self._producer_id, None)
        self._settle_everything(error)

    def _settle_everything(self, error: MagnetarError) -> None:
        for timer in (self._batch_timer, self._send_timer):
            if timer is not None:
                timer.cancel()
        for batch in self._collector.take():
            self._settle_failed(batch.messages, error)
        self._fail_entries(self._pending.pop_all(), error)
        self._places.fail(error)

    async def close(self) -> None:
        """Send what is collected, wait for receipts within the send time-out, then leave the broker."""
        if not is_live(self.state):
            return
        try:
            await self._drain()
        finally:
            await self._leave()

    async def _drain(self) -> None:
        limit_s = self._options.send_timeout_millis / 1000 or self._core.settings.operation_timeout_seconds
        try:
            async with asyncio.timeout(limit_s if self._link.connection is not None else 0.001):
                await self.flush()
        except TimeoutError:
            _log.warning("%s: closed with %d entries unconfirmed", self.topic, len(self._pending))

    async def _leave(self) -> None:
        if not is_live(self.state):
            return
        self.state = step(self.state, State.CLOSING)
        self._end = AlreadyClosed(f"{self.topic}: the producer is closed")
        connection = self._link.close()
        self._settle_everything(self._end)
        try:
            if connection is not None:
                close = pb.CommandCloseProducer(producer_id=self._producer_id)
                await connection.request(Type.CLOSE_PRODUCER, close)
        except (ConnectionLost, TimedOut) as error:
            _log.debug("%s: closing the producer: %s", self.topic, error)
        finally:
            if connection is not None:
                connection.producers.pop(self._producer_id, None)
            self.state = step(self.state, State.CLOSED)

    def describe(self) -> dict[str, Any]:
        return {"topic": str(self.topic), "name": self.name, "state": self.state.value, "pending": len(self._pending)}


def _tell_flushers(send: PendingSend) -> None:
    for tell in send.flushers:
        tell()


def _signed(number: int) -> int:
    return number - _UINT64 if number >= _UINT64 // 2 else number
