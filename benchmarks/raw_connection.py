# SPDX-License-Identifier: Apache-2.0
"""One connection that speaks Pulsar's protocol in whole frames: what load is made of when the server is to be measured.

Requests are answered one at a time before the load begins; afterwards frames are told apart by one byte each.
"""

import selectors
import socket
import time
from collections.abc import Callable, Iterator
from typing import Final
from urllib.parse import urlparse

from magnetar.wire import frame, hot
from magnetar.wire.proto import pulsar_api_pb2 as pb

RECEIVE_BYTES: Final = 1024 * 1024
RECEIPT: Final = int(pb.BaseCommand.SEND_RECEIPT)
MESSAGE: Final = int(pb.BaseCommand.MESSAGE)
_PING: Final = int(pb.BaseCommand.PING)
# Answers and notices that a load need not look at.
_IGNORED: Final = frozenset(
    int(kind) for kind in (pb.BaseCommand.PONG, pb.BaseCommand.ACTIVE_CONSUMER_CHANGE, pb.BaseCommand.ACK_RESPONSE)
)
REQUEST_LIMIT_S: Final = 60.0


def address_of(service_url: str) -> tuple[str, int]:
    url = urlparse(service_url)
    assert url.hostname is not None
    return url.hostname, url.port or 6650


class RawConnection:
    """Invariant: what is held is less than one frame."""

    def __init__(self, service_url: str) -> None:
        self.socket = socket.create_connection(address_of(service_url), REQUEST_LIMIT_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._held = b""
        self._unsent = memoryview(b"")
        self._requests = 0
        connect = pb.BaseCommand(type=pb.BaseCommand.CONNECT)
        connect.connect.client_version = "raw"
        connect.connect.protocol_version = 19
        self.request(connect, pb.BaseCommand.CONNECTED)

    def next_request_id(self) -> int:
        self._requests += 1
        return self._requests

    def request(self, command: pb.BaseCommand, expected: int) -> pb.BaseCommand:
        """Send one command and wait for its answer; any other answer than the expected ends the run."""
        self.socket.sendall(frame.join(command.SerializeToString()))
        while True:
            for kind, data, start, until in self.frames():
                if kind == expected:
                    # The rest of what was read is for whoever reads next.
                    command_bytes = int.from_bytes(data[start + 4 : start + 8], "big")
                    self._held = data[until:]
                    return pb.BaseCommand.FromString(data[start + 8 : start + 8 + command_bytes])

    def lookup(self, topic: str) -> None:
        """Makes the broker own the topic; a standalone answers with itself."""
        command = pb.BaseCommand(type=pb.BaseCommand.LOOKUP)
        command.lookupTopic.topic = topic
        command.lookupTopic.request_id = self.next_request_id()
        self.request(command, pb.BaseCommand.LOOKUP_RESPONSE)

    def produce_on(self, topic: str, producer_id: int) -> None:
        self.lookup(topic)
        command = pb.BaseCommand(type=pb.BaseCommand.PRODUCER)
        command.producer.topic = topic
        command.producer.producer_id = producer_id
        command.producer.request_id = self.next_request_id()
        self.request(command, pb.BaseCommand.PRODUCER_SUCCESS)

    def subscribe(
        self,
        topic: str,
        subscription: str,
        consumer_id: int,
        *,
        kind: "pb.CommandSubscribe.SubType.ValueType" = pb.CommandSubscribe.Exclusive,
        earliest: bool = False,
        name: str = "",
    ) -> None:
        self.lookup(topic)
        command = pb.BaseCommand(type=pb.BaseCommand.SUBSCRIBE)
        asked = command.subscribe
        asked.topic, asked.subscription, asked.consumer_id = topic, subscription, consumer_id
        asked.subType = kind
        asked.request_id = self.next_request_id()
        asked.initialPosition = pb.CommandSubscribe.Earliest if earliest else pb.CommandSubscribe.Latest
        if name:
            asked.consumer_name = name
        self.request(command, pb.BaseCommand.SUCCESS)

    def flow(self, consumer_id: int, permits: int) -> None:
        self.write(hot.encode_flow(consumer_id, permits))

    def frames(self) -> Iterator[tuple[int, bytes, int, int]]:
        """What one read brings: kind, the bytes it is in, where it starts and where it ends. Pings are answered."""
        try:
            data = self._held + self.socket.recv(RECEIVE_BYTES)
        except BlockingIOError:
            return
        if len(data) == len(self._held):
            raise ConnectionError("the server closed a connection of the load")
        at, size = 0, len(data)
        while size - at >= 13:
            until = at + 4 + int.from_bytes(data[at : at + 4], "big")
            if until > size:
                break
            kind = data[at + 9]
            start, at = at, until
            if kind == _PING:
                self.write(hot.PONG)
            elif kind in (pb.BaseCommand.ERROR, pb.BaseCommand.SEND_ERROR, pb.BaseCommand.CLOSE_PRODUCER):
                raise ConnectionError(f"the server answered {pb.BaseCommand.FromString(data[start + 8 : until])}")
            elif kind not in _IGNORED:
                yield kind, data, start, until
        self._held = data[at:]

    def answer_pings(self) -> None:
        """What a connection does that rests: a server closes one that is silent for too long."""
        self.socket.setblocking(False)
        for _ in self.frames():
            pass

    def write(self, data: bytes) -> None:
        """Queue and send as much as goes; the rest goes with the next call of `flush`."""
        self._unsent = memoryview(bytes(self._unsent) + data) if self._unsent else memoryview(data)
        self.flush()

    def flush(self) -> bool:
        """Whether everything queued has gone."""
        try:
            while self._unsent:
                self._unsent = self._unsent[self.socket.send(self._unsent) :]
        except BlockingIOError:
            return False
        return True

    def close(self) -> None:
        self.socket.close()


# What to call when a connection can be read, and when it can be written; the latter says whether to call again.
Watched = dict[RawConnection, tuple[Callable[[], None], Callable[[], bool] | None]]


def run_until(
    done: Callable[[], bool],
    watched: Watched,
    limit_s: float = 600.0,
    on_turn: Callable[[], float] | None = None,
) -> None:
    """Serve connections until it is done: each has a call for when it can be read, and one for when there is room to
    write, which says whether it wants to be called again. What keeps a schedule does its part `on_turn`, and says how
    many seconds may pass until its next one.
    """
    until = time.monotonic() + limit_s
    # Not epoll, whose pauses are whole milliseconds here: half of a message's latency was the generator's oversleeping.
    kind = selectors.DefaultSelector if on_turn is None else selectors.SelectSelector
    with kind() as selector:
        masks: dict[RawConnection, int] = {}
        for connection, (_, write) in watched.items():
            connection.socket.setblocking(False)
            masks[connection] = selectors.EVENT_READ | (selectors.EVENT_WRITE if write is not None else 0)
            selector.register(connection.socket, masks[connection], connection)
        while not done():
            if time.monotonic() > until:
                raise TimeoutError(f"a load did not end in {limit_s:.0f} s")
            for key, events in selector.select(1.0 if on_turn is None else on_turn()):
                connection = key.data
                read, write = watched[connection]
                if events & selectors.EVENT_READ:
                    read()
                wants = not connection.flush()
                if write is not None:
                    wants = write() or wants
                mask = selectors.EVENT_READ | (selectors.EVENT_WRITE if wants else 0)
                if mask != masks[connection]:
                    masks[connection] = mask
                    selector.modify(connection.socket, mask, connection)
