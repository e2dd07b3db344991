# SPDX-License-Identifier: Apache-2.0
"""Entries of one topic from a place on, as they are stored: a reader that makes no object per message.

Owns a subscription that is not durable and dies with it. After a lost connection it goes on behind the last entry that
it took in, so that none comes twice and none is left out. Memory is bounded: permits follow the size of what came.
Never decodes a payload.
Carries.
"""

import asyncio
from typing import Final, NamedTuple

from magnetar.client.connection import Connection
from magnetar.client.core import Core
from magnetar.client.incoming import position_of
from magnetar.client.link import Link
from magnetar.errors import MagnetarError, TimedOut
from magnetar.ids import MessageId, Position
from magnetar.names import TopicName
from magnetar.spark.stored_entry import StoredEntry
from magnetar.wire.commands import Type
from magnetar.wire.hot import encode_flow
from magnetar.wire.proto import pulsar_api_pb2 as pb
from magnetar.wire.reader_words import SHOWS_MARKERS

AHEAD_BYTES_MAX: Final = 8 * 1024 * 1024
AHEAD_MESSAGES_MAX: Final = 20_000
FIRST_PERMITS: Final = 64
_UINT64: Final = 2**64


class TopicEnd(NamedTuple):
    """The topic's last message, and the place before the first message that this reader has not read."""

    last: MessageId
    read: Position

    @property
    def is_reached(self) -> bool:
        """Nothing is left to be delivered."""
        return self.last.entry_id < 0 or self.read >= self.last.position


class EntryFeed:
    """Usable between `open` and `close`, by one taker."""

    def __init__(self, core: Core, topic: TopicName, start: Position, *, permits: int = FIRST_PERMITS) -> None:
        """`start`: the first entry that is wanted; EARLIEST for the topic's first."""
        self.topic = topic
        self._core = core
        self._start = start
        self._taken: Position | None = None
        self._subscription = f"spark-reader-{core.random.getrandbits(64):016x}"
        self._consumer_id = next(core.consumer_ids)
        self._first_permits = permits
        self._grows = permits > 1
        self._permits = 0
        self._entries: list[StoredEntry] = []
        self._waiter: asyncio.Future[None] | None = None
        self._error: MagnetarError | None = None
        self._bytes_per_message = 0.0
        self._link = Link(core, topic, self._attach, self._fail)

    async def open(self) -> None:
        try:
            await self._link.open()
        except BaseException:
            self._link.close()
            raise

    async def _attach(self, connection: Connection) -> None:
        start = self._start if self._taken is None else self._taken
        request = pb.CommandSubscribe(
            topic=str(self.topic),
            subscription=self._subscription,
            subType=pb.CommandSubscribe.Exclusive,
            consumer_id=self._consumer_id,
            durable=False,
            initialPosition=pb.CommandSubscribe.Earliest,
            # A topic that is not there is an error, not a topic to make.
            force_topic_creation=False,
            metadata=[pb.KeyValue(key=key, value=value) for key, value in SHOWS_MARKERS.items()],
        )
        request.start_message_id.ledgerId = start.ledger_id % _UINT64
        request.start_message_id.entryId = start.entry_id % _UINT64
        if start.ledger_id >= 0:
            # With a batch index brokers begin with that entry and not behind it.
            request.start_message_id.batch_index = 0
        self._permits = 0
        connection.consumers[self._consumer_id] = self
        try:
            await connection.request(Type.SUBSCRIBE, request)
        except BaseException:
            connection.consumers.pop(self._consumer_id, None)
            raise
        self._core.loop.call_soon(self._flow, connection)

    def _flow(self, connection: Connection | None = None) -> None:
        """Ask for as much as memory allows, once half of it is free."""
        connection = connection or self._link.connection
        wanted = self._first_permits
        if self._grows and self._bytes_per_message:
            wanted = max(1, min(AHEAD_MESSAGES_MAX, int(AHEAD_BYTES_MAX / self._bytes_per_message)))
        waiting = sum(entry.messages for entry in self._entries)
        room = wanted - max(0, self._permits) - waiting
        if connection is not None and connection.is_open and room * 2 >= wanted:
            self._permits += room
            connection.send(encode_flow(self._consumer_id, room))

    # --- what the broker says ------------------------------------------------------------------------

    def on_message(self, command: pb.CommandMessage, body: bytes) -> None:
        self._on_entry(position_of(command.message_id), body)

    def on_run(self, ledger_id: int, run: list[tuple[int, bytes]], epoch: int) -> None:
        for entry_id, body in run:
            self._on_entry(Position(ledger_id, entry_id), body)

    def _on_entry(self, position: Position, body: bytes) -> None:
        if self._taken is not None and position <= self._taken:
            self._permits -= 1
            self._flow()
            return
        try:
            entry = StoredEntry(position, body)
        except MagnetarError as error:
            self._fail(error)
            return
        self._taken = position
        self._permits -= entry.messages
        self._bytes_per_message = 0.8 * self._bytes_per_message + 0.2 * entry.size / entry.messages
        self._entries.append(entry)
        self._wake()

    def on_closed_by_broker(self, connection: Connection, assigned_url: str) -> None:
        self._link.lost(connection, "closed by the broker", assigned_url)

    def on_connection_lost(self, connection: Connection, error: MagnetarError) -> None:
        self._link.lost(connection, error)

    def on_active_change(self, is_active: bool) -> None:
        """An exclusive reader is always the active one."""

    def on_end_of_topic(self) -> None:
        """Whoever reads knows from `end` how far it goes."""

    def _fail(self, error: MagnetarError) -> None:
        self._error = error
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # --- taking ----------------------------------------------------------------------------------------

    async def take(self, timeout_s: float) -> list[StoredEntry]:
        """What has come, one entry at least. Raises TimedOut, and what ended the reader."""
        if not self._entries and self._error is None:
            self._waiter = self._core.loop.create_future()
            try:
                async with asyncio.timeout(timeout_s):
                    await self._waiter
            except TimeoutError:
                raise TimedOut(f"{self.topic}: nothing came within {timeout_s:g} s") from None
            finally:
                self._waiter = None
        if not self._entries and self._error is not None:
            raise self._error
        taken, self._entries = self._entries, []
        self._flow()
        return taken

    async def end(self) -> TopicEnd:
        """Where the topic ends now; asked again over a connection that was lost meanwhile."""
        return await self._core.retried(self._end)

    async def _end(self) -> TopicEnd:
        connection = self._link.connection
        if connection is None:
            raise TimedOut(f"{self.topic}: not connected now")
        answer: pb.CommandGetLastMessageIdResponse = await connection.request(
            Type.GET_LAST_MESSAGE_ID, pb.CommandGetLastMessageId(consumer_id=self._consumer_id)
        )
        last = MessageId(*position_of(answer.last_message_id), self.topic.partition_index)
        last.batch_index = answer.last_message_id.batch_index if answer.last_message_id.HasField("batch_index") else -1
        read = Position(-1, -1)
        if answer.HasField("consumer_mark_delete_position"):
            read = position_of(answer.consumer_mark_delete_position)
        return TopicEnd(last, read)

    async def close(self) -> None:
        connection = self._link.close()
        if connection is None:
            return
        connection.consumers.pop(self._consumer_id, None)
        try:
            await connection.request(Type.CLOSE_CONSUMER, pb.CommandCloseConsumer(consumer_id=self._consumer_id))
        except MagnetarError:
            return  # the connection is gone, and the reader with it
