# SPDX-License-Identifier: Apache-2.0
"""A broker of a few lines for tests of the client: real sockets, real frames, and whatever fault a test wants.

Keeps topics as lists of entries. A test changes what it does through `faults`: functions that see every command before
the broker does, and may answer for it, swallow it or cut the connection.
"""

import asyncio
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from magnetar.wire import commands, frame, message
from magnetar.wire.commands import Sender, Type
from magnetar.wire.frame import FrameCutter
from magnetar.wire.hot import PONG
from magnetar.wire.proto import pulsar_api_pb2 as pb

Fault = Callable[["FakeConnection", pb.BaseCommand], bool]
"""True: the fault has dealt with the command."""


@dataclass
class FakeConsumer:
    connection: "FakeConnection"
    consumer_id: int
    topic: str
    permits: int = 0
    next_entry: int = 0


@dataclass
class FakeBroker:
    """`async with FakeBroker() as broker`; connect to `broker.url`."""

    entries: dict[str, list[bytes]] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)
    log: list[str] = field(default_factory=list)
    acked: list[tuple[str, int]] = field(default_factory=list)
    connections: list["FakeConnection"] = field(default_factory=list)
    partitions: dict[str, int] = field(default_factory=dict)
    message_bytes_max: int = 5 * 1024 * 1024
    url: str = ""
    port: int = 0
    tls: ssl.SSLContext | None = None

    async def __aenter__(self) -> "FakeBroker":
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: FakeConnection(self), "127.0.0.1", self.port, ssl=self.tls)
        port = self._server.sockets[0].getsockname()[1]
        self.url = f"pulsar+ssl://localhost:{port}" if self.tls else f"pulsar://127.0.0.1:{port}"
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._server.close()
        self.cut_all()
        await self._server.wait_closed()

    def cut_all(self) -> None:
        for connection in list(self.connections):
            connection.cut()

    def count(self, kind: str) -> int:
        return self.log.count(kind)

    def contents(self, topic: str) -> list[bytes]:
        """Payloads of a topic's entries, in order."""
        return [bytes(message.split(entry)[1]) for entry in self.entries.get(topic, [])]


class FakeConnection(asyncio.Protocol):
    def __init__(self, broker: FakeBroker) -> None:
        self.broker = broker
        self.producers: dict[int, str] = {}
        self.consumers: dict[int, FakeConsumer] = {}
        self._cutter = FrameCutter()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self.broker.connections.append(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.broker.connections.remove(self)

    def cut(self) -> None:
        self._transport.abort()

    def data_received(self, data: bytes) -> None:
        for raw, body in self._cutter.feed(data):
            if self._transport.is_closing():
                return
            command = commands.parse(raw, Sender.CLIENT)
            self.broker.log.append(commands.name_of(command))
            if any(fault(self, command) for fault in list(self.broker.faults)):
                continue
            serve = getattr(self, f"on_{commands.name_of(command).lower()}")
            serve(commands.body_of(command), body) if body else serve(commands.body_of(command))

    def write(self, data: bytes) -> None:
        self._transport.write(data)

    def answer(self, kind: "Type.ValueType", said: Any) -> None:
        self._transport.write(commands.encode(kind, said))

    def refuse(self, command: pb.BaseCommand, code: int, text: str = "no") -> None:
        refusal = commands.refusal(command, pb.ServerError.ValueType(code), text)
        assert refusal is not None
        self._transport.write(refusal)

    def success(self, request_id: int) -> None:
        self._transport.write(commands.success(request_id))

    def on_connect(self, connect: pb.CommandConnect) -> None:
        self.answer(
            Type.CONNECTED,
            pb.CommandConnected(
                server_version="fake", protocol_version=21, max_message_size=self.broker.message_bytes_max
            ),
        )

    def on_ping(self, _: pb.CommandPing) -> None:
        self._transport.write(PONG)

    def on_pong(self, _: pb.CommandPong) -> None:
        pass

    def on_partitioned_metadata(self, request: pb.CommandPartitionedTopicMetadata) -> None:
        self.answer(
            Type.PARTITIONED_METADATA_RESPONSE,
            pb.CommandPartitionedTopicMetadataResponse(
                request_id=request.request_id,
                partitions=self.broker.partitions.get(request.topic, 0),
                response=pb.CommandPartitionedTopicMetadataResponse.Success,
            ),
        )

    def on_lookup(self, request: pb.CommandLookupTopic) -> None:
        self.answer(
            Type.LOOKUP_RESPONSE,
            pb.CommandLookupTopicResponse(
                request_id=request.request_id,
                brokerServiceUrl=self.broker.url,
                brokerServiceUrlTls=self.broker.url,
                response=pb.CommandLookupTopicResponse.Connect,
            ),
        )

    def on_producer(self, request: pb.CommandProducer) -> None:
        self.producers[request.producer_id] = request.topic
        name = request.producer_name or f"fake-{request.producer_id}"
        self.answer(
            Type.PRODUCER_SUCCESS,
            pb.CommandProducerSuccess(request_id=request.request_id, producer_name=name, last_sequence_id=-1),
        )

    def on_send(self, send: pb.CommandSend, body: bytes) -> None:
        topic = self.producers[send.producer_id]
        entries = self.broker.entries.setdefault(topic, [])
        entries.append(body)
        self.receipt(send, len(entries) - 1)
        for connection in self.broker.connections:
            connection.dispatch()

    def receipt(self, send: pb.CommandSend, entry_id: int) -> None:
        receipt = pb.CommandSendReceipt(producer_id=send.producer_id, sequence_id=send.sequence_id)
        receipt.message_id.ledgerId, receipt.message_id.entryId = 1, entry_id
        self.answer(Type.SEND_RECEIPT, receipt)

    def on_subscribe(self, request: pb.CommandSubscribe) -> None:
        consumer = FakeConsumer(self, request.consumer_id, request.topic)
        acked = [entry for topic, entry in self.broker.acked if topic == request.topic]
        consumer.next_entry = max(acked, default=-1) + 1
        self.consumers[request.consumer_id] = consumer
        self.success(request.request_id)

    def on_flow(self, flow: pb.CommandFlow) -> None:
        self.consumers[flow.consumer_id].permits += flow.messagePermits
        self.dispatch()

    def dispatch(self) -> None:
        for consumer in self.consumers.values():
            entries = self.broker.entries.get(consumer.topic, [])
            while consumer.permits > 0 and consumer.next_entry < len(entries):
                command = pb.BaseCommand(type=pb.BaseCommand.MESSAGE)
                command.message.consumer_id = consumer.consumer_id
                command.message.message_id.ledgerId = 1
                command.message.message_id.entryId = consumer.next_entry
                self._transport.write(frame.join(command.SerializeToString(), entries[consumer.next_entry]))
                consumer.permits -= 1
                consumer.next_entry += 1

    def on_ack(self, ack: pb.CommandAck) -> None:
        consumer = self.consumers[ack.consumer_id]
        self.broker.acked += [(consumer.topic, message_id.entryId) for message_id in ack.message_id]
        if ack.HasField("request_id"):
            self.answer(
                Type.ACK_RESPONSE, pb.CommandAckResponse(consumer_id=ack.consumer_id, request_id=ack.request_id)
            )

    def on_close_producer(self, close: pb.CommandCloseProducer) -> None:
        self.producers.pop(close.producer_id, None)
        self.success(close.request_id)

    def on_close_consumer(self, close: pb.CommandCloseConsumer) -> None:
        self.consumers.pop(close.consumer_id, None)
        self.success(close.request_id)
