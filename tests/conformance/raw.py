# SPDX-License-Identifier: Apache-2.0
"""A client that speaks the protocol command by command, for what the official one cannot be made to say."""

import socket
from types import TracebackType
from typing import Any, Self

from magnetar.wire import commands
from magnetar.wire.commands import Sender
from magnetar.wire.frame import FrameCutter, frame_bytes_max
from magnetar.wire.proto import pulsar_api_pb2 as pb

Type = pb.BaseCommand


class RawClient:
    def __init__(self, port: int, *, limit_s: float = 20.0, protocol_version: int = 21) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=limit_s)
        self._cutter = FrameCutter(frame_bytes_max(5 * 1024 * 1024))
        self._came: list[tuple[pb.BaseCommand, bytes]] = []
        self._request_id = 0
        self.send(Type.CONNECT, pb.CommandConnect(client_version="raw", protocol_version=protocol_version))
        self.expect("connected")

    def send(self, kind: "pb.BaseCommand.Type.ValueType", command: Any) -> None:
        self._socket.sendall(commands.encode(kind, command))

    def send_bytes(self, data: bytes) -> None:
        self._socket.sendall(data)

    def next_request(self) -> int:
        self._request_id += 1
        return self._request_id

    def receive(self) -> tuple[pb.BaseCommand, bytes]:
        while not self._came:
            data = self._socket.recv(65536)
            if not data:
                raise ConnectionError("the broker closed the connection")
            for command, body in self._cutter.feed(data):
                parsed = commands.parse(command, Sender.BROKER if command[1] not in (18, 19) else Sender.BOTH)
                self._came.append((parsed, body))
        return self._came.pop(0)

    def expect(self, field: str) -> Any:
        """The next command, which must be this one."""
        command, _ = self.receive()
        assert command.HasField(field), f"expected {field}, got {command}"  # type: ignore[arg-type]
        return getattr(command, field)

    def expect_message(self) -> tuple[Any, bytes]:
        command, body = self.receive()
        assert command.HasField("message"), f"expected a message, got {command}"
        return command.message, body

    def quiet(self) -> None:
        """Everything the broker had to say so far was read: a ping comes back, and nothing before it."""
        self.send(Type.PING, pb.CommandPing())
        command, _ = self.receive()
        assert command.HasField("pong"), f"expected nothing, got {command}"

    def subscribe(self, topic: str, subscription: str, consumer_id: int = 1, **fields: Any) -> Any:
        """The SUCCESS, or the ERROR, that answers SUBSCRIBE."""
        request = pb.CommandSubscribe(
            topic=topic,
            subscription=subscription,
            subType=fields.pop("subType", pb.CommandSubscribe.Exclusive),
            consumer_id=consumer_id,
            request_id=self.next_request(),
            **fields,
        )
        self.send(Type.SUBSCRIBE, request)
        command, _ = self.receive()
        return command.success if command.HasField("success") else command.error

    def flow(self, permits: int, consumer_id: int = 1) -> None:
        self.send(Type.FLOW, pb.CommandFlow(consumer_id=consumer_id, messagePermits=permits))

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
