# SPDX-License-Identifier: Apache-2.0
"""One client's session: which command is legal now, and who carries it out.

Owns the producers and consumers that this client opened, by their ids, and the table of commands. Hot commands
(SEND, ACK, FLOW, PING, PONG) run at once; the others run as tasks of the session, each answered exactly once,
bounded in number. An expected no becomes the error answer that the client can read; a broken protocol closes the
connection; so does a bug that a command meets, and nobody else's.
Carries.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from google.protobuf.message import Message

from magnetar.broker.auth.authenticator import Principal
from magnetar.broker.closed_producers import ClosedProducers
from magnetar.broker.consumer import Consumer, Delivery
from magnetar.broker.producer import Producer
from magnetar.broker.publish_budget import MESSAGE_OVERHEAD_BYTES
from magnetar.broker.served import ServedSubscription, ServedTopic
from magnetar.broker.topic_watches import TopicWatch
from magnetar.errors import BadCommand, MagnetarError, NotSupported, PeerFault
from magnetar.runtime.tasks import Tasks
from magnetar.wire import commands
from magnetar.wire.commands import Sender, Since
from magnetar.wire.error_codes import codes_of
from magnetar.wire.hot import MessageEncoder, ReceiptEncoder
from magnetar.wire.proto import pulsar_api_pb2 as pb
from magnetar.wire.runs import Frame

if TYPE_CHECKING:
    from magnetar.broker.broker import Broker
    from magnetar.broker.connection import Connection

_log = logging.getLogger(__name__)


class OpenConsumer(NamedTuple):
    consumer: Consumer
    subscription: ServedSubscription
    topic: ServedTopic
    messages: MessageEncoder
    # Whether the client reads what the broker put in front of a message: its number and when it came.
    shows_broker_metadata: bool = False

    def frames(self, deliveries: Sequence[Delivery]) -> list[bytes | memoryview]:
        """MESSAGE frames: a header for each entry, and the stored bytes as they are."""
        # Only an ordered subscription sends everything again, so only there a client can tell old from new.
        epoch = self.consumer.epoch if self.consumer.epoch >= 0 and self.subscription.is_ordered else None
        return self.messages.frames(deliveries, whole=self.shows_broker_metadata, epoch=epoch)


class OpenProducer(NamedTuple):
    producer: Producer
    topic: ServedTopic
    receipts: ReceiptEncoder
    schema_version: bytes = b""


class OpeningProducer:
    """A PRODUCER that is being carried out; the client may close it, or be gone, before it is done."""

    __slots__ = ("is_abandoned", "on_abandoned")

    def __init__(self) -> None:
        self.is_abandoned = False
        self.on_abandoned: Callable[[], None] | None = None

    def abandon(self) -> None:
        self.is_abandoned = True
        if self.on_abandoned is not None:
            self.on_abandoned()


class Serving(NamedTuple):
    """How a command is served: at once by a hot function, or as a task by a cold coroutine. Before either, `quick` may
    serve its bytes without parsing them; False when it has not.
    """

    hot: Callable[["Session", Any], None] | None = None
    cold: Callable[["Session", Any], Coroutine[Any, Any, None]] | None = None
    quick: Callable[["Session", bytes], bool] | None = None


class Session:
    def __init__(
        self,
        broker: "Broker",
        connection: "Connection",
        tasks: Tasks,
        table: Mapping[int, Serving],
        on_sends: Callable[["Session", list[Frame], int], int],
        fail: Callable[[str, BaseException], None],
    ) -> None:
        self.broker = broker
        self.connection = connection
        # Whom to tell of what a command met that nobody expected.
        self.fail = fail
        self.producers: dict[int, OpenProducer] = {}
        self.opening_producers: dict[int, OpeningProducer] = {}
        self.closed_producers = ClosedProducers(
            broker.settings.closed_producers_kept_max, float(broker.settings.keep_alive_interval_s)
        )
        self.topic_watches: dict[int, TopicWatch] = {}
        # By producer: what waits behind a message whose transaction is being asked about.
        self.held_sends: dict[int, Any] = {}
        # Lists may be long: a client gets one after another, as fast as it reads them.
        self.list_turn = asyncio.Lock()
        self.consumers: dict[int, OpenConsumer | None] = {}
        self.is_connected = False
        # Who this is; None while nobody is asked.
        self.principal: Principal | None = None
        # Set while the client is asked to renew its credentials.
        self.renewal: asyncio.Future[bytes] | None = None
        self.is_connecting = False
        self.protocol_version = 0
        self.client_version = ""
        self.shows_broker_metadata = False
        self._tasks = tasks
        self._table = table
        self._on_sends = on_sends

    @property
    def host(self) -> str:
        """The address that the client comes from."""
        return self.connection.peer.rpartition(":")[0]

    def on_frames(self, frames: list[Frame]) -> None:
        """Serve commands in their order, messages that follow each other as one run. PeerFault when the peer broke the
        protocol; what came before that is served.
        """
        at = 0
        while at < len(frames):
            command, body = frames[at]
            if body:
                at = self._on_sends(self, frames, at)
            else:
                self._on_command(command)
                at += 1

    def _on_command(self, command_bytes: bytes) -> None:
        if self.is_connected and self._is_served_quickly(command_bytes):
            return
        command = commands.parse(command_bytes, Sender.CLIENT)
        if not self.is_connected and command.type != pb.BaseCommand.CONNECT:
            raise BadCommand(f"{commands.name_of(command)} came before CONNECT")
        serving = self._table.get(command.type)
        try:
            if serving is None:
                raise NotSupported(f"This broker does not serve {commands.name_of(command)}")
            if serving.hot is not None:
                serving.hot(self, commands.body_of(command))
            else:
                assert serving.cold is not None
                self._tasks.start(self._run(serving.cold, command), commands.name_of(command))
        except PeerFault:
            raise
        except MagnetarError as error:
            self.refuse(command, error)

    def _is_served_quickly(self, command_bytes: bytes) -> bool:
        # The type comes first, as one byte behind its tag.
        serving = self._table.get(command_bytes[1]) if len(command_bytes) > 1 and command_bytes[0] == 0x08 else None
        return serving is not None and serving.quick is not None and serving.quick(self, command_bytes)

    def start(self, work: Coroutine[Any, Any, None], name: str) -> None:
        """Run something beside the commands; it ends with the session."""
        self._tasks.start(work, name)

    def on_connection_lost(self) -> None:
        for opening in list(self.opening_producers.values()):
            opening.abandon()
        for open_producer in self.producers.values():
            open_producer.topic.remove_producer(open_producer.producer)
        for watch in self.topic_watches.values():
            watch.close()
        for open_consumer in self.consumers.values():
            if open_consumer is not None:
                self.leave(open_consumer)
        self.producers.clear()
        self.consumers.clear()
        self.topic_watches.clear()

    def on_writable(self) -> None:
        for watch in list(self.topic_watches.values()):
            watch.catch_up()
        for open_consumer in list(self.consumers.values()):
            if open_consumer is not None:
                open_consumer.subscription.wake()

    # --- answers ------------------------------------------------------------------------------------

    def answer(self, kind: "pb.BaseCommand.Type.ValueType", message: Message) -> None:
        self.connection.send(commands.encode(kind, message))

    def succeed(self, request_id: int) -> None:
        self.connection.send(commands.success(request_id))

    def refuse(self, command: pb.BaseCommand, error: MagnetarError) -> None:
        """The no that this command's client waits for; nothing where the protocol has none."""
        refusal = commands.refusal(command, codes_of(error).server_error, str(error))
        if refusal is not None:
            self.connection.send(refusal)

    # --- producers' link ----------------------------------------------------------------------------

    def send_receipts(
        self, producer: Producer, receipts: list[tuple[int, int]], ledger_id: int, first_entry_id: int, size: int
    ) -> None:
        if len(receipts) == 1 and not producer.is_closed:
            receipt = (producer.producer_id, ledger_id, first_entry_id, *receipts[0])
            self.connection.send_receipt(receipt, size + MESSAGE_OVERHEAD_BYTES)
            return
        self.connection.budget.give_back(size + MESSAGE_OVERHEAD_BYTES * len(receipts))
        if not producer.is_closed:
            opened = self.producers[producer.producer_id]
            self.connection.send(opened.receipts.encode(ledger_id, first_entry_id, receipts))

    def send_duplicate_receipt(self, producer: Producer, sequence_id: int, highest_sequence_id: int, size: int) -> None:
        self.connection.budget.give_back(size + MESSAGE_OVERHEAD_BYTES)
        if not producer.is_closed:
            receipt = pb.CommandSendReceipt(
                producer_id=producer.producer_id,
                sequence_id=sequence_id,
                highest_sequence_id=highest_sequence_id,
                message_id=pb.MessageIdData(ledgerId=commands.REQUEST_ID_NONE, entryId=commands.REQUEST_ID_NONE),
            )
            self.answer(pb.BaseCommand.SEND_RECEIPT, receipt)

    def send_refusal(self, producer: Producer, sequence_id: int, size: int, error: MagnetarError) -> None:
        self.connection.budget.give_back(size + MESSAGE_OVERHEAD_BYTES)
        if not producer.is_closed:
            code = codes_of(error).server_error
            self.connection.send(commands.send_error(producer.producer_id, sequence_id, code, str(error)))

    def hold_back(self, seconds: float) -> None:
        self.connection.hold_back(seconds)

    async def is_alive(self) -> bool:
        if await self.connection.answers():
            return True
        self.on_connection_lost()
        return False

    def disconnect_producer(self, producer: Producer) -> None:
        opened = self.producers.get(producer.producer_id)
        if opened is None or opened.producer is not producer:
            return
        del self.producers[producer.producer_id]
        self.closed_producers.remember(producer.producer_id, self.connection.now_s())
        closing = pb.CommandCloseProducer(producer_id=producer.producer_id, request_id=commands.REQUEST_ID_NONE)
        self._tell_next_owner(closing, opened.topic)
        self.answer(pb.BaseCommand.CLOSE_PRODUCER, closing)

    # --- consumers' link ----------------------------------------------------------------------------

    def is_writable(self) -> bool:
        return self.connection.is_writable

    def deliver(self, consumer: Consumer, deliveries: Sequence[Delivery]) -> None:
        opened = self.consumers.get(consumer.consumer_id)
        if opened is None:
            return
        frames = opened.frames(deliveries)
        self.connection.send_all(frames, sum(map(len, frames)))

    def tell_active(self, consumer: Consumer, active: bool) -> None:
        if self.protocol_version >= Since.ACTIVE_CONSUMER_CHANGE:
            change = pb.CommandActiveConsumerChange(consumer_id=consumer.consumer_id, is_active=active)
            self.answer(pb.BaseCommand.ACTIVE_CONSUMER_CHANGE, change)

    def tell_end_of_topic(self, consumer: Consumer) -> None:
        if self.protocol_version >= Since.END_OF_TOPIC:
            end = pb.CommandReachedEndOfTopic(consumer_id=consumer.consumer_id)
            self.answer(pb.BaseCommand.REACHED_END_OF_TOPIC, end)

    def disconnect_consumer(self, consumer: Consumer) -> None:
        opened = self.consumers.pop(consumer.consumer_id, None)
        closing = pb.CommandCloseConsumer(consumer_id=consumer.consumer_id, request_id=commands.REQUEST_ID_NONE)
        if opened is not None:
            self._tell_next_owner(closing, opened.topic)
        self.answer(pb.BaseCommand.CLOSE_CONSUMER, closing)

    def _tell_next_owner(self, closing: pb.CommandCloseProducer | pb.CommandCloseConsumer, topic: ServedTopic) -> None:
        """A client that reads it goes there without a look-up; others look the topic up."""
        owner = self.broker.ownership.moved_to(topic.name)
        if owner is not None:
            if owner.service_url:
                closing.assignedBrokerServiceUrl = owner.service_url
            if owner.service_url_tls:
                closing.assignedBrokerServiceUrlTls = owner.service_url_tls

    @staticmethod
    def leave(open_consumer: OpenConsumer) -> None:
        """Take a consumer out of its subscription; a reader's subscription ends with its last consumer."""
        subscription = open_consumer.subscription
        subscription.remove_consumer(open_consumer.consumer)
        if not subscription.cursor.is_durable and not subscription.consumers:
            open_consumer.topic.forget_subscription(subscription)  # type: ignore[arg-type]

    async def _run(self, serve: Callable[["Session", Any], Coroutine[Any, Any, None]], command: pb.BaseCommand) -> None:
        try:
            asked = commands.body_of(command)
            await self.broker.guard.check_command(self.principal, command.type, asked)
            await serve(self, asked)
        except PeerFault as error:
            self.connection.close_for(error)
        except MagnetarError as error:
            self.refuse(command, error)
