# SPDX-License-Identifier: Apache-2.0
"""A consumer on one topic or partition: subscribes, takes in messages, hands out permits, brings back what failed.

Messages go to the owner's queue through `deliver`; the owner says which were taken, and that is what permits are
counted by. A generation ends when everything delivered before is void (a new connection, a seek, a redelivery of all);
messages of an older one are never handed out. Never waits for the application.
Carries.
"""

import logging
from collections.abc import Callable
from typing import Any

from magnetar.client.acknowledgements import Acknowledgements
from magnetar.client.chunks import ChunkAssembly
from magnetar.client.connection import Connection
from magnetar.client.core import Core
from magnetar.client.encryption import MessageDecryption
from magnetar.client.incoming import (
    decompressed,
    is_before_start,
    messages_of,
    open_entry,
    plain_payload,
    position_of,
    validation_error_of,
)
from magnetar.client.link import Link
from magnetar.client.message import DeliveredEntry, EncryptionContext, Message
from magnetar.client.options import ConsumerCryptoFailureAction, ConsumerOptions
from magnetar.client.redeliveries import Redeliveries
from magnetar.client.schema import Schema
from magnetar.client.states import State, is_live, step
from magnetar.client.statistics import ConsumerStatistics
from magnetar.client.subscribing import delivery, last_id_of, redeliver_frame, seek_request, subscribe_request
from magnetar.errors import (
    AlreadyClosed,
    ConnectionLost,
    CryptoFailed,
    MagnetarError,
    ServiceNotReady,
    TimedOut,
    TooManyRequests,
)
from magnetar.ids import LATEST_MESSAGE, MessageId, Position
from magnetar.names import TopicName
from magnetar.wire.commands import Type
from magnetar.wire.hot import encode_flow
from magnetar.wire.proto import pulsar_api_pb2 as pb

Deliver = Callable[["PartitionConsumer", list[Message[Any]]], None]

_log = logging.getLogger(__name__)
PAYLOAD_BYTES_MAX = 2**31 - 1
new_position = tuple.__new__


class PartitionConsumer:
    """Usable once `open` returned. `on_failed` is told once if it will never be attached again."""

    def __init__(
        self,
        core: Core,
        topic: TopicName,
        subscription: str,
        options: ConsumerOptions,
        schema: Schema[Any],
        queue_size: int,
        deliver: Deliver,
        on_failed: Callable[["PartitionConsumer", MagnetarError], None],
    ) -> None:
        self.topic = topic
        self.subscription = subscription
        self.topic_text = str(topic)
        self.partition = topic.partition_index
        self.options = options
        self.name = options.consumer_name or f"{core.random.getrandbits(40):010x}"
        self.state = State.CONNECTING
        self.generation = 0
        self.statistics = ConsumerStatistics()
        self.is_active = True
        self.has_ended = False
        self.last_taken: Message[Any] | None = None
        self.waits_for_acks = options.ack_receipt_enabled
        self.start = options.start_message_id
        self.start_inclusive = options.start_message_id_inclusive
        self._core = core
        self.schema = schema
        self._queue_size = queue_size
        self._permits_step = max(1, queue_size // 2)
        # Without a durable place in the topic, the consumer itself knows where it was.
        self._forgets = not options.durable
        self._deliver = deliver
        self._on_failed = on_failed
        self._consumer_id = next(core.consumer_ids)
        self._epoch = 0
        self._permits_owed = self._queued = 0
        self._permit_asked = False
        self._seeking_in = -1
        self._paused = False
        self._end: MagnetarError | None = None
        self._link = Link(core, topic, self._attach, self._on_link_failed)
        self.acks = Acknowledgements(
            core,
            self._consumer_id,
            options,
            self.statistics,
            lambda: self._link.connection,
            is_persistent=topic.is_persistent,
        )
        self.redeliveries = Redeliveries(core, options, self.redeliver, self.statistics)
        self._chunks = ChunkAssembly(
            options.max_pending_chunked_message, options.expire_time_of_incomplete_chunked_message_ms
        )
        self._decryption = MessageDecryption(options.crypto_key_reader)
        # Asked with positions that must be delivered again; returns those that really must.
        self.bury: Callable[[PartitionConsumer, list[Position]], list[Position]] | None = None
        self.on_possible_death: Callable[[PartitionConsumer, list[Message[Any]]], bool] | None = None

    # --- opening -------------------------------------------------------------------------------

    async def open(self) -> None:
        try:
            await self._link.open()
            if self.start == LATEST_MESSAGE and self.start_inclusive:
                # "Latest" with itself is the last message, which no request to subscribe can name.
                last, _ = await self.last_message_id()
                if last.entry_id >= 0:
                    await self.seek(last)
        except BaseException:
            await self.close()
            self._link.close()
            raise

    async def _attach(self, connection: Connection) -> None:
        self._renew()
        connection.consumers[self._consumer_id] = self
        request = subscribe_request(self, self._consumer_id, self._epoch, self.schema.info.to_wire())
        try:
            await connection.request(Type.SUBSCRIBE, request)
        except BaseException as error:
            connection.consumers.pop(self._consumer_id, None)
            if not isinstance(error, MagnetarError) or isinstance(error, TimedOut):
                connection.tell(Type.CLOSE_CONSUMER, pb.CommandCloseConsumer(consumer_id=self._consumer_id))
            raise
        if connection.consumers.get(self._consumer_id) is not self:
            raise ServiceNotReady(f"{self.topic}: the broker closed the consumer while it was being attached")
        self.state = step(self.state, State.READY)
        self._core.loop.call_soon(self._on_attached, connection)

    def _on_attached(self, connection: Connection) -> None:
        if self._link.connection is not connection:
            return
        self.acks.flush()
        if self._queue_size > 0 and not self._paused:
            self._flow(self._queue_size)
        elif self._permit_asked:
            self._permit_asked = False
            self.ask_one()

    def _renew(self) -> None:
        """A new generation: what was delivered and not taken comes again."""
        self.generation += 1
        self._queued = 0
        self._permits_owed = 0
        self._chunks.clear()
        self.acks.forget_sent()
        if self.last_taken is not None:
            self.start, self.start_inclusive = self.last_taken.message_id(), False

    @property
    def is_connected(self) -> bool:
        return self._link.connection is not None

    # --- permits ---------------------------------------------------------------------------------

    def _flow(self, permits: int) -> None:
        connection = self._link.connection
        if connection is not None and permits > 0:
            connection.send(encode_flow(self._consumer_id, permits))
            self.statistics.flow_requests += 1

    def _owe(self, permits: int) -> None:
        """The queue has room again; the broker is told when half of it has."""
        if self._queue_size == 0:
            return
        self._permits_owed += permits
        if not self._paused and self._permits_owed >= self._permits_step:
            owed, self._permits_owed = self._permits_owed, 0
            self._flow(owed)

    def ask_one(self) -> None:
        """For a consumer without a queue: ask for one message, once."""
        if not self._permit_asked:
            self._permit_asked = True
            self._flow(1)

    def pause(self) -> None:
        self._paused = True

    def resume(self) -> None:
        if self._paused:
            self._paused = False
            self._owe(0)

    def on_taken(self, message: Message[Any]) -> None:
        """The application has it now."""
        self._queued -= 1
        if self._forgets:
            self.last_taken = message
        if self.redeliveries.has_timeout:
            self.redeliveries.on_taken(message)
        self._permits_owed += 1
        if self._permits_owed >= self._permits_step:
            self._owe(0)

    def on_put_back(self, message: Message[Any]) -> None:
        """It was taken and could not be handed over."""
        self._queued += 1
        self._permits_owed -= 1
        self.redeliveries.on_done(message.position)

    # --- messages ----------------------------------------------------------------------------------

    def on_run(self, ledger_id: int, run: list[tuple[int, bytes]], epoch: int) -> None:
        """Entries of one ledger that are delivered whole and for the first time, as (entry id, body)."""
        if 0 <= epoch < self._epoch:
            return
        messages: list[Message[Any]] = []
        covers = self.acks.covers
        is_simple = self._seeking_in < 0 and self._queue_size > 0
        first = None if self.start is None else self.start.position
        for entry_id, body in run:
            start = plain_payload(body) if is_simple else -1
            position = new_position(Position, (ledger_id, entry_id))
            if start < 0 or position == first or covers(position):
                # In order: what came before goes first.
                self._take_in(messages)
                messages = []
                self.on_message(delivery(self._consumer_id, position, self.partition), body)
            else:
                messages.append(Message(DeliveredEntry(self, position, body), body, start, len(body)))
        self._take_in(messages)

    def _take_in(self, messages: list[Message[Any]]) -> None:
        if messages:
            self._queued += len(messages)
            self._deliver(self, messages)

    def on_message(self, command: pb.CommandMessage, body: bytes) -> None:
        connection = self._link.connection
        if self._seeking_in == self._link.number and self._seeking_in >= 0:
            return
        if command.HasField("consumer_epoch") and command.consumer_epoch < self._epoch:
            return
        if self._queue_size == 0:
            self._permit_asked = False
        try:
            messages = self._read(command, body)
        except MagnetarError as error:
            self.statistics.damaged += 1
            position = position_of(command.message_id)
            _log.error("%s: message %s:%s cannot be read and is dropped: %s", self.topic, *position, error)
            if connection is not None:
                self.acks.reject(connection, position, validation_error_of(error))
            self._owe(1)
            return
        self._take_in(messages)

    def _read(self, command: pb.CommandMessage, body: bytes) -> list[Message[Any]]:
        entry, start = open_entry(self, command, body)
        payload: bytes | memoryview = memoryview(body)[start:]
        metadata = entry.metadata
        if len(metadata.encryption_keys):
            decrypted = self._decrypted(entry, payload)
            if decrypted is None:
                return []
            payload = decrypted
        if metadata.num_chunks_from_msg > 1:
            whole = self._assemble(entry, payload)
            if whole is None:
                return []
            payload = whole
        if entry.encryption is not None:
            return [Message(entry, payload)]
        payload = decompressed(metadata, payload, PAYLOAD_BYTES_MAX)
        messages = messages_of(entry, payload, command.ack_set)
        if entry.acks is not None:
            return self._batch_messages(entry, messages)
        if self.acks.covers(entry.ledger_entry) or self._is_before_start(entry, -1):
            self._owe(1)
            return []
        return self._unless_dead(messages)

    def _batch_messages(self, entry: DeliveredEntry, messages: list[Message[Any]]) -> list[Message[Any]]:
        """Without those that lie before the start; permits of what is left out are owed at once."""
        count = entry.metadata.num_messages_in_batch
        position = entry.ledger_entry
        if self.acks.covers(position):
            self._owe(count)
            return []
        assert entry.acks is not None
        self.acks.on_batch(position, entry.acks)
        kept = messages
        if self.start is not None:
            kept = [one for one in messages if not self._is_before_start(entry, one.batch_index)]
        self._owe(count - len(kept))
        if not kept:
            return []
        return self._unless_dead(kept)

    def _unless_dead(self, messages: list[Message[Any]]) -> list[Message[Any]]:
        """Messages that were delivered too often already go to the dead letters without being seen again."""
        if self.on_possible_death is not None and self.on_possible_death(self, messages):
            self._owe(len(messages))
            return []
        return messages

    def _is_before_start(self, entry: DeliveredEntry, batch_index: int) -> bool:
        is_before = is_before_start(entry.ledger_entry, batch_index, self.start, inclusive=self.start_inclusive)
        if is_before and self.options.durable:
            # Left out by a seek: it must not stay behind as a hole in what is acknowledged.
            self.acks.add(MessageId(*entry.ledger_entry, entry.partition, batch_index))
        return is_before

    def _decrypted(self, entry: DeliveredEntry, payload: bytes | memoryview) -> bytes | memoryview | None:
        """The readable payload; None if the entry is not to be seen. Raises CryptoFailed as the options say."""
        try:
            return self._decryption.decrypt(payload, entry.metadata)
        except CryptoFailed as error:
            action = self.options.crypto_failure_action
            if action is ConsumerCryptoFailureAction.CONSUME:
                entry.encryption = EncryptionContext(entry.metadata)
                return payload
            if action is ConsumerCryptoFailureAction.DISCARD:
                raise
            _log.error("%s: %s; the message stays unacknowledged", self.topic, error)
            self.redeliveries.watch(entry.ledger_entry)
            return None

    def _assemble(self, entry: DeliveredEntry, payload: bytes | memoryview) -> bytes | None:
        """One more chunk; the whole payload with the last. Each chunk is a permit used."""
        metadata = entry.metadata
        now_ms = self._core.clock.now_ms()
        whole = self._chunks.add(metadata, payload, entry.ledger_entry, now_ms, PAYLOAD_BYTES_MAX)
        for position in self._chunks.take_dropped():
            if self.options.auto_ack_oldest_chunked_message_on_queue_full:
                self.acks.add(MessageId(*position))
            else:
                self.redeliveries.watch(position)
        if whole is None:
            self._owe(1)
            return None
        entry.chunk_positions = whole.positions
        self.acks.on_chunked(whole.positions)
        return bytes(whole.buffer)

    # --- bringing back -----------------------------------------------------------------------------

    def redeliver(self, positions: list[Position] | None) -> None:
        """Have these delivered again, or all that are not acknowledged where the subscription cannot do less."""
        if positions is not None and self.options.acks_one_by_one:
            if self.bury is not None:
                positions = self.bury(self, positions)
            self._send_redeliver(positions)
            return
        queued = self._queued
        self.redeliveries.clear()
        self.generation += 1
        self._queued = 0
        self._epoch += 1
        connection = self._link.connection
        if connection is not None:
            command = pb.CommandRedeliverUnacknowledgedMessages(consumer_id=self._consumer_id)
            command.consumer_epoch = self._epoch
            connection.send(redeliver_frame(command))
        self._owe(queued)

    def _send_redeliver(self, positions: list[Position]) -> None:
        connection = self._link.connection
        if connection is None:
            return
        for start in range(0, len(positions), 1_000):
            command = pb.CommandRedeliverUnacknowledgedMessages(consumer_id=self._consumer_id)
            for position in positions[start : start + 1_000]:
                command.message_ids.add(ledgerId=position.ledger_id, entryId=position.entry_id)
            connection.send(redeliver_frame(command))

    # --- requests ------------------------------------------------------------------------------------

    async def seek(self, target: MessageId | int) -> None:
        """Move to a message id, or to a publish time in milliseconds; asked again when the connection is lost."""
        if self._seeking_in >= 0:
            raise TooManyRequests(f"{self.topic}: a seek is under way")
        try:
            connection = await self._core.retried(lambda: self._seek_once(target))
        finally:
            self._seeking_in = -1
        self.acks.forget()
        self.redeliveries.clear()
        self.last_taken = None
        self.start = target if isinstance(target, MessageId) else None
        self.start_inclusive = self.options.start_message_id_inclusive
        self.has_ended = False
        if self._link.connection is connection:
            # This broker kept the consumer: what it sent before the seek, and at its end, is void.
            self.redeliver(None)
        elif self._link.connection is None:
            # It closed the consumer; the next attachment brings everything anew.
            self.generation += 1
            self._queued = 0

    async def _seek_once(self, target: MessageId | int) -> Connection:
        connection = await self._connection()
        self._seeking_in = self._link.number
        self.acks.flush()
        await connection.request(Type.SEEK, seek_request(self._consumer_id, target))
        return connection

    async def unsubscribe(self, *, force: bool = False) -> None:
        self.acks.flush()
        request = pb.CommandUnsubscribe(consumer_id=self._consumer_id, force=force)
        await (await self._connection()).request(Type.UNSUBSCRIBE, request)
        await self.close()

    async def last_message_id(self) -> tuple[MessageId, Position | None]:
        """The topic's last message, and how far the subscription has acknowledged, if the broker says."""
        connection = await self._connection()
        answer: pb.CommandGetLastMessageIdResponse = await connection.request(
            Type.GET_LAST_MESSAGE_ID, pb.CommandGetLastMessageId(consumer_id=self._consumer_id)
        )
        reached = None
        if answer.HasField("consumer_mark_delete_position"):
            reached = position_of(answer.consumer_mark_delete_position)
        return last_id_of(answer, str(self.topic), self.topic.partition_index), reached

    async def broker_statistics(self) -> pb.CommandConsumerStatsResponse:
        request = pb.CommandConsumerStats(consumer_id=self._consumer_id)
        connection = await self._connection()
        answer: pb.CommandConsumerStatsResponse = await connection.request(Type.CONSUMER_STATS, request)
        return answer

    async def _connection(self) -> Connection:
        """The connection; while there is none, wait for the next."""
        self._core.check_process()
        if not is_live(self.state):
            raise self._end or AlreadyClosed(f"{self.topic}: the consumer is closed")
        return await self._link.attached()

    # --- what the broker says ------------------------------------------------------------------------

    def on_closed_by_broker(self, connection: Connection, assigned_url: str) -> None:
        self._lose(connection, "closed by the broker", assigned_url)

    def on_connection_lost(self, connection: Connection, error: MagnetarError) -> None:
        self._lose(connection, error)

    def _lose(self, connection: Connection, reason: object, assigned_url: str = "") -> None:
        if is_live(self.state) and self._link.connection is connection:
            self.state = step(self.state, State.CONNECTING)
        self._link.lost(connection, reason, assigned_url)

    def on_active_change(self, is_active: bool) -> None:
        self.is_active = is_active

    def on_end_of_topic(self) -> None:
        self.has_ended = True

    def _on_link_failed(self, error: MagnetarError) -> None:
        if is_live(self.state):
            self.state = step(self.state, State.FAILED)
            self._end = error
            self._release()
            self._on_failed(self, error)

    # --- the end -------------------------------------------------------------------------------------

    def _release(self) -> None:
        self.redeliveries.close()
        self.acks.close(self._end or AlreadyClosed(f"{self.topic}: the consumer is closed"))

    async def close(self) -> None:
        """Send outstanding acknowledgements and leave the subscription."""
        if not is_live(self.state):
            return
        self._release()
        self.state = step(self.state, State.CLOSING)
        connection = self._link.close()
        self.generation += 1
        try:
            if connection is not None:
                request = pb.CommandCloseConsumer(consumer_id=self._consumer_id)
                await connection.request(Type.CLOSE_CONSUMER, request)
        except (ConnectionLost, TimedOut) as error:
            _log.debug("%s: closing the consumer: %s", self.topic, error)
        finally:
            if connection is not None:
                connection.consumers.pop(self._consumer_id, None)
            self.state = step(self.state, State.CLOSED)
