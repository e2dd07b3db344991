# SPDX-License-Identifier: Apache-2.0
"""How the acknowledgements of one consumer reach its broker: grouped, in few commands, with an answer if wanted.

Owns the group, its timer, the batches that are partly acknowledged and the chunks of messages that were put together.
What cannot be sent now is sent with the next connection; until then it keeps redeliveries of itself away.
Carries.
"""

import asyncio
from collections.abc import Callable, Sequence

from magnetar.client.ack_group import AckGroup, Acks
from magnetar.client.connection import Connection
from magnetar.client.core import Core
from magnetar.client.message import BatchAcks
from magnetar.client.options import ConsumerOptions
from magnetar.client.statistics import ConsumerStatistics
from magnetar.errors import ConnectionLost, MagnetarError
from magnetar.ids import MessageId, Position
from magnetar.wire import commands
from magnetar.wire.commands import Type
from magnetar.wire.hot import encode_ack
from magnetar.wire.proto import pulsar_api_pb2 as pb

# Ids in one ACK; a frame with more would come near the limit of a command.
IDS_PER_COMMAND = 10_000


class Acknowledgements:
    def __init__(
        self,
        core: Core,
        consumer_id: int,
        options: ConsumerOptions,
        statistics: ConsumerStatistics,
        connection: Callable[[], Connection | None],
        *,
        is_persistent: bool,
    ) -> None:
        self._core = core
        self._consumer_id = consumer_id
        self._options = options
        self._statistics = statistics
        self._connection = connection
        # A topic that keeps nothing needs no acknowledgements.
        self._is_persistent = is_persistent
        self._group = AckGroup(options.ack_group_size_max)
        self._timer: asyncio.TimerHandle | None = None
        self._waiters: list[asyncio.Future[None]] = []
        self._open_batches: dict[Position, BatchAcks] = {}
        self._chunks: dict[Position, list[Position]] = {}

    # --- what was delivered ----------------------------------------------------------------------

    def on_batch(self, position: Position, acks: BatchAcks) -> None:
        self._open_batches[position] = acks

    def on_chunked(self, positions: list[Position]) -> None:
        """A message made of these chunks was delivered under the id of the last."""
        self._chunks[positions[-1]] = positions

    def covers(self, position: Position) -> bool:
        return self._group.covers(position)

    # --- acknowledging -----------------------------------------------------------------------------

    def add(self, message_id: MessageId) -> bool:
        """Note one message as done; true if nothing of its entry is left."""
        batch = self._batch_of(message_id) if message_id.batch_index >= 0 else None
        return self.add_at(message_id.position, message_id.batch_index, batch)

    def add_at(self, position: Position, batch_index: int, batch: BatchAcks | None) -> bool:
        """As add, for one who has the batch at hand."""
        ack_set: Sequence[int] = ()
        if batch is not None:
            if not batch.ack(batch_index):
                if not self._options.batch_index_ack_enabled:
                    return False
                ack_set = batch.words()
            else:
                self._open_batches.pop(position, None)
        if not self._chunks:
            is_full = self._group.add(position, ack_set)
        else:
            is_full = False
            for place in self._chunks.pop(position, (position,)):
                is_full |= self._group.add(place, ack_set)
        if is_full or self._timer is None:
            self._schedule(is_full)
        return not ack_set

    def add_cumulative(self, message_id: MessageId) -> Position | None:
        """Note everything up to this message as done; the last entry of which nothing is left, if any."""
        position = message_id.position
        ack_set: Sequence[int] = ()
        reached: Position | None = position
        if message_id.batch_index >= 0:
            batch = self._batch_of(message_id)
            if not batch.ack_up_to(message_id.batch_index):
                reached = Position(position.ledger_id, position.entry_id - 1)
                if self._options.batch_index_ack_enabled:
                    ack_set = batch.words()
                else:
                    position = reached
        for place in [place for place in self._open_batches if reached is not None and place <= reached]:
            del self._open_batches[place]
        for place in [place for place in self._chunks if reached is not None and place <= reached]:
            del self._chunks[place]
        if position.entry_id >= 0:
            self._group.add_cumulative(position, ack_set)
        self._schedule(is_full=False)
        return reached

    def _batch_of(self, message_id: MessageId) -> BatchAcks:
        """The open batch, or one made from an id that came from elsewhere."""
        batch = self._open_batches.get(message_id.position)
        if batch is None:
            batch = BatchAcks(max(message_id.batch_size, message_id.batch_index + 1))
            if message_id.batch_size:
                self._open_batches[message_id.position] = batch
        return batch

    async def confirmed(self) -> None:
        """Wait until what was added is at the broker, where the options ask for that; otherwise return at once."""
        if not self._options.ack_receipt_enabled or not self._is_persistent or not len(self._group):
            return
        waiter: asyncio.Future[None] = self._core.loop.create_future()
        self._waiters.append(waiter)
        if self._options.ack_group_time_ms == 0:
            self.flush()
        await waiter

    def _schedule(self, is_full: bool) -> None:
        if is_full or self._options.ack_group_time_ms == 0:
            # With receipts the waiter registers first; `confirmed` flushes.
            if not self._options.ack_receipt_enabled or is_full:
                self.flush()
        elif self._timer is None and len(self._group):
            self._timer = self._core.loop.call_later(self._options.ack_group_time_ms / 1000, self.flush)

    # --- sending -----------------------------------------------------------------------------------

    def flush(self) -> None:
        """Send what is there, if there is a connection to send it on."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        connection = self._connection()
        if not self._is_persistent:
            self._group.reset()
            return
        if connection is None or not len(self._group):
            return
        acks = self._group.take()
        waiters, self._waiters = self._waiters, []
        if self._options.ack_receipt_enabled:
            self._core.tasks.start(self._send_and_wait(connection, acks, waiters), "ack")
        else:
            self._send(connection, acks)

    def _send(self, connection: Connection, acks: Acks) -> None:
        whole = [position for position, ack_set in acks.individual if not ack_set]
        parts = [(position, ack_set) for position, ack_set in acks.individual if ack_set]
        for start in range(0, len(whole), IDS_PER_COMMAND):
            connection.send(encode_ack(self._consumer_id, whole[start : start + IDS_PER_COMMAND]))
            self._statistics.ack_requests += 1
        commands_left = [ack for ack in (self._command(parts), self._cumulative(acks)) if ack is not None]
        for ack in commands_left:
            connection.send(commands.encode(Type.ACK, ack))
            self._statistics.ack_requests += 1

    async def _send_and_wait(self, connection: Connection, acks: Acks, waiters: list[asyncio.Future[None]]) -> None:
        failure: MagnetarError | None = None
        try:
            for ack in (self._command(acks.individual), self._cumulative(acks)):
                if ack is not None:
                    self._statistics.ack_requests += 1
                    await connection.request(Type.ACK, ack)
        except MagnetarError as error:
            failure = error
        for waiter in waiters:
            if waiter.done():
                continue
            if failure is None:
                waiter.set_result(None)
            else:
                waiter.set_exception(failure)

    def _command(self, acks: Sequence[tuple[Position, Sequence[int]]]) -> pb.CommandAck | None:
        if not acks:
            return None
        command = pb.CommandAck(consumer_id=self._consumer_id, ack_type=pb.CommandAck.Individual)
        for position, ack_set in acks:
            command.message_id.add(ledgerId=position.ledger_id, entryId=position.entry_id, ack_set=ack_set)
        return command

    def _cumulative(self, acks: Acks) -> pb.CommandAck | None:
        if acks.cumulative is None:
            return None
        position, ack_set = acks.cumulative
        command = pb.CommandAck(consumer_id=self._consumer_id, ack_type=pb.CommandAck.Cumulative)
        command.message_id.add(ledgerId=position.ledger_id, entryId=position.entry_id, ack_set=ack_set)
        return command

    async def send_in_transaction(
        self, message_id: MessageId, transaction: tuple[int, int], *, cumulative: bool = False
    ) -> None:
        """An acknowledgement that counts only if the transaction commits; always answered."""
        connection = self._connection()
        if connection is None:
            raise ConnectionLost("An acknowledgement in a transaction needs a connection; there is none now")
        kind = pb.CommandAck.Cumulative if cumulative else pb.CommandAck.Individual
        command = pb.CommandAck(consumer_id=self._consumer_id, ack_type=kind)
        command.txnid_most_bits, command.txnid_least_bits = transaction
        batch: BatchAcks | None = None
        if message_id.batch_index >= 0:
            batch = BatchAcks(max(message_id.batch_size, message_id.batch_index + 1))
            (batch.ack_up_to if cumulative else batch.ack)(message_id.batch_index)
        for position in self._chunks.get(message_id.position, [message_id.position]):
            place = command.message_id.add(ledgerId=position.ledger_id, entryId=position.entry_id)
            if batch is not None:
                place.batch_size = batch.size
                place.ack_set.extend(batch.words())
        await connection.request(Type.ACK, command)

    def reject(
        self, connection: Connection, position: Position, reason: "pb.CommandAck.ValidationError.ValueType"
    ) -> None:
        """Acknowledge an entry that can never be read, and say why."""
        command = pb.CommandAck(
            consumer_id=self._consumer_id, ack_type=pb.CommandAck.Individual, validation_error=reason
        )
        command.message_id.add(ledgerId=position.ledger_id, entryId=position.entry_id)
        connection.send(commands.encode(Type.ACK, command))

    # --- the end -------------------------------------------------------------------------------------

    def forget_sent(self) -> None:
        """The consumer is attached anew: only what was not sent yet keeps redeliveries of itself away."""
        self._group.forget_sent()

    def forget(self) -> None:
        """After a seek: what was done may come again."""
        self._group.reset()
        self._open_batches.clear()
        self._chunks.clear()

    def close(self, error: MagnetarError) -> None:
        self.flush()
        if self._timer is not None:
            self._timer.cancel()
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_exception(error)
        self._waiters = []
