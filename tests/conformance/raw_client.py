# SPDX-License-Identifier: Apache-2.0
"""A client that says exactly what a test tells it to, right or wrong, over a plain socket."""

import socket
from types import TracebackType
from typing import Any, Self

from google.protobuf.message import Message

from magnetar.wire import commands, frame, message
from magnetar.wire.frame import FrameCutter
from magnetar.wire.proto import pulsar_api_pb2 as pb

Type = pb.BaseCommand.Type
WAIT_S = 20.0


def body(producer_name: str = "p", sequence_id: int = 0, payload: bytes = b"payload", **fields: Any) -> bytes:
    """A message as SEND carries it, with a right checksum."""
    metadata = pb.MessageMetadata(producer_name=producer_name, sequence_id=sequence_id, publish_time=1, **fields)
    return b"".join(message.join(metadata.SerializeToString(), payload))


class RawClient:
    def __init__(self, port: int, *, connect: bool = True, preamble: bytes = b"") -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=WAIT_S)
        self._socket.sendall(preamble)
        self._cutter = FrameCutter(64 * 1024 * 1024)
        self._received: list[pb.BaseCommand] = []
        self._request_id = 100
        if connect:
            self.connect()

    # --- speaking -----------------------------------------------------------------------------------

    def connect(self) -> pb.CommandConnected:
        self.say(Type.CONNECT, pb.CommandConnect(client_version="raw", protocol_version=21))
        return self.expect(Type.CONNECTED).connected

    def say(self, kind: "Type.ValueType", inside: Message) -> None:
        self.say_bytes(commands.encode(kind, inside))

    def say_bytes(self, data: bytes) -> None:
        self._socket.sendall(data)

    def request_id(self) -> int:
        self._request_id += 1
        return self._request_id

    def open_producer(self, topic: str, producer_id: int = 1, **fields: Any) -> pb.BaseCommand:
        """PRODUCER; returns its answer, whatever it is."""
        request_id = self.request_id()
        self.say(
            Type.PRODUCER,
            pb.CommandProducer(topic=topic, producer_id=producer_id, request_id=request_id, **fields),
        )
        return self.answer_to(request_id)

    def subscribe(self, topic: str, subscription: str, consumer_id: int = 1, **fields: Any) -> pb.BaseCommand:
        """SUBSCRIBE and its answer."""
        request = pb.CommandSubscribe(
            topic=topic,
            subscription=subscription,
            subType=pb.CommandSubscribe.Shared,
            consumer_id=consumer_id,
            request_id=self.request_id(),
            **fields,
        )
        self.say(Type.SUBSCRIBE, request)
        return self.answer_to(request.request_id)

    def close_producer(self, producer_id: int = 1) -> pb.BaseCommand:
        request_id = self.request_id()
        self.say(Type.CLOSE_PRODUCER, pb.CommandCloseProducer(producer_id=producer_id, request_id=request_id))
        return self.answer_to(request_id)

    def send(self, producer_id: int = 1, sequence_id: int = 0, data: bytes | None = None, **fields: Any) -> None:
        send = pb.CommandSend(producer_id=producer_id, sequence_id=sequence_id, **fields)
        command = commands.wrap(Type.SEND, send).SerializeToString()
        self.say_bytes(frame.join(command, body(sequence_id=sequence_id) if data is None else data))

    # --- listening ----------------------------------------------------------------------------------

    def next(self) -> pb.BaseCommand | None:
        """The next command that is not a PING; None when the broker has closed the connection."""
        while True:
            command = self.next_or_ping()
            if command is None or command.type != Type.PING:
                return command
            try:
                self.say(Type.PONG, pb.CommandPong())
            except (BrokenPipeError, ConnectionResetError):
                return None

    def answer_ping(self) -> None:
        """Wait until the broker asks whether we are there, and say so."""
        command = self.next_or_ping()
        assert command is not None
        assert command.type == Type.PING, command
        self.say(Type.PONG, pb.CommandPong())

    def next_or_ping(self) -> pb.BaseCommand | None:
        while True:
            if self._received:
                return self._received.pop(0)
            try:
                data = self._socket.recv(1 << 16)
            except ConnectionResetError:
                return None
            if not data:
                return None
            for command_bytes, _ in self._cutter.feed(data):
                self._received.append(pb.BaseCommand.FromString(command_bytes))

    def expect(self, kind: "Type.ValueType") -> pb.BaseCommand:
        command = self.next()
        assert command is not None, f"the connection was closed instead of {Type.Name(kind)}"
        assert command.type == kind, command
        return command

    def answer_to(self, request_id: int) -> pb.BaseCommand:
        """The answer with this request id; anything else in between fails the test."""
        command = self.next()
        assert command is not None, "the connection was closed instead of an answer"
        inside: Any = commands.body_of(command)
        assert inside.request_id == request_id, command
        return command

    def is_closed_by_broker(self) -> bool:
        """Reads what is left; True when the broker closed, False when it stays silent after a PING of ours."""
        try:
            self.say(Type.PING, pb.CommandPing())
        except (BrokenPipeError, ConnectionResetError):
            return True
        while True:
            command = self.next()
            if command is None:
                return True
            if command.type == Type.PONG:
                return False

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
