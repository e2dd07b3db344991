# SPDX-License-Identifier: Apache-2.0
"""How fast a broker hands messages out, measured with a consumer that reads frames and no messages.

It gives permits back at half of its queue and acknowledges a thousand entries at a time, as clients do that group their
acks; the ids in an ack are the very bytes that came with the messages. `python -m benchmarks.perf consume` is its
command line.
"""

import time
from collections.abc import Callable
from typing import Final

from benchmarks.raw_connection import MESSAGE, RawConnection, Watched, run_until
from benchmarks.raw_publish import Publisher
from magnetar.wire import frame, message
from magnetar.wire.proto import pulsar_api_pb2 as pb
from magnetar.wire.varint import encode as varint

TYPES: Final = {
    "Exclusive": pb.CommandSubscribe.Exclusive,
    "Failover": pb.CommandSubscribe.Failover,
    "Shared": pb.CommandSubscribe.Shared,
    "Key_Shared": pb.CommandSubscribe.Key_Shared,
}
ACKS_AT_ONCE: Final = 1_000
# Well below what a broker lets one consumer leave unacknowledged: a batch counts with each of its messages.
UNACKED_MAX: Final = 10_000
_INDIVIDUAL: Final = b"\x10\x00"
_CUMULATIVE: Final = b"\x10\x01"


class RawConsumer:
    """One consumer on a connection of its own. `batch` is how many messages each entry has, for permits; 0: as many as
    its metadata says, which costs something for each.
    """

    def __init__(
        self,
        service_url: str,
        topic: str,
        subscription: str,
        *,
        kind: str = "Exclusive",
        queue: int = 1_000,
        batch: int = 1,
        earliest: bool = True,
        acks: bool = True,
        on_entry: Callable[[memoryview], None] | None = None,
    ) -> None:
        self.connection = RawConnection(service_url)
        self._cumulative = kind in ("Exclusive", "Failover")
        self._queue = max(queue, batch)
        self._batch = batch
        self._acks = acks
        self._on_entry = on_entry
        self._permits_owed = 0
        self._ids: list[bytes] = []
        self._unacked = 0
        self.entries = 0
        self.messages = 0
        self.connection.subscribe(topic, subscription, 0, kind=TYPES[kind], earliest=earliest)

    def start(self) -> None:
        self.connection.flow(0, self._queue)

    def receive(self) -> None:
        ids = self._ids
        came = messages = 0
        for kind, data, start, until in self.connection.frames():
            if kind != MESSAGE:
                continue
            came += 1
            # 4 total, 4 command, 08 type, 4a size, 08 consumer id, 12 size, id: short numbers all of them.
            at = start + 15
            ids.append(data[at : at + 1 + data[at]])
            if not self._batch:
                messages += messages_in(memoryview(data)[start:until])
            if self._on_entry is not None:
                self._on_entry(memoryview(data)[start:until])
        self.entries += came
        messages += came * self._batch
        self.messages += messages
        self._unacked += messages
        self._permits_owed += messages
        if self._permits_owed * 2 >= self._queue:
            self.connection.flow(0, self._permits_owed)
            self._permits_owed = 0
        if len(ids) >= ACKS_AT_ONCE or self._unacked >= UNACKED_MAX:
            self.acknowledge()

    def acknowledge(self) -> None:
        """Everything that has come and was not acknowledged yet."""
        ids, self._ids = self._ids, []
        self._unacked = 0
        if ids and self._acks:
            named = ids[-1:] if self._cumulative else ids
            body = (
                b"\x08\x00" + (_CUMULATIVE if self._cumulative else _INDIVIDUAL) + b"".join(b"\x1a" + i for i in named)
            )
            self.connection.write(frame.join(b"\x08\x0a\x52" + varint(len(body)) + body))


def messages_in(entry: memoryview) -> int:
    """How many messages an entry has, from the frame of a MESSAGE."""
    ((_, body),) = frame.FrameCutter().feed(bytes(entry))
    metadata, _ = message.split(body)
    return metadata.num_messages_in_batch or 1


def consume(consumers: list[RawConsumer], messages: int, beside: list[Publisher] | None = None) -> float:
    """Messages per second from the first permits until so many came, whoever got them; acks are sent by then."""
    publishers = beside or []
    watched: Watched = {consumer.connection: (consumer.receive, None) for consumer in consumers}
    writers: Watched = {publisher.connection: (publisher.receive, publisher.send) for publisher in publishers}
    started = time.perf_counter()
    for consumer in consumers:
        consumer.start()
    run_until(
        lambda: (
            sum(consumer.messages for consumer in consumers) >= messages
            and all(publisher.is_done for publisher in publishers)
        ),
        watched | writers,
    )
    seconds = time.perf_counter() - started
    for consumer in consumers:
        consumer.connection.socket.setblocking(True)
        consumer.acknowledge()
        consumer.connection.close()
    for publisher in publishers:
        publisher.connection.close()
    return messages / seconds
