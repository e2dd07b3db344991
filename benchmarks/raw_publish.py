# SPDX-License-Identifier: Apache-2.0
"""How many unbatched messages a broker stores and acknowledges, measured with frames that were built beforehand.

The load costs almost nothing per message, so that the server is what is measured. Every connection keeps a window of
messages in flight and counts receipts. Works against any Pulsar broker; prints one line per size.
"""

import argparse
import selectors
import socket
import struct
import time
from dataclasses import dataclass
from urllib.parse import urlparse

import google_crc32c

from magnetar.wire import frame, hot
from magnetar.wire.proto import pulsar_api_pb2 as pb

RECEIVE_BYTES = 256 * 1024


@dataclass
class Outcome:
    messages: int
    seconds: float
    latencies_ms: list[float]

    @property
    def rate(self) -> float:
        return self.messages / self.seconds


class Publisher:
    """One connection with one producer, and all its frames built."""

    def __init__(self, address: tuple[str, int], topic: str, producer_id: int, count: int, size: int) -> None:
        self.socket = socket.create_connection(address)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._held = b""
        self._handshake(topic, producer_id)
        self.count = count
        self.received = 0
        self.sent_frames = 0
        self._sent_bytes = 0
        self._frames = self._build(producer_id, count, size)
        self._frame_ends = self._ends(self._frames)
        self.sent_times: list[float] = []
        self.latencies_ms: list[float] = []
        self.socket.setblocking(False)

    def _handshake(self, topic: str, producer_id: int) -> None:
        connect = pb.BaseCommand(type=pb.BaseCommand.CONNECT)
        connect.connect.client_version = "raw-publish"
        connect.connect.protocol_version = 19
        self._request(connect, pb.BaseCommand.CONNECTED)
        lookup = pb.BaseCommand(type=pb.BaseCommand.LOOKUP)
        lookup.lookupTopic.topic = topic
        lookup.lookupTopic.request_id = 1
        self._request(lookup, pb.BaseCommand.LOOKUP_RESPONSE)
        producer = pb.BaseCommand(type=pb.BaseCommand.PRODUCER)
        producer.producer.topic = topic
        producer.producer.producer_id = producer_id
        producer.producer.request_id = 2
        self._request(producer, pb.BaseCommand.PRODUCER_SUCCESS)

    def _request(self, command: pb.BaseCommand, expected: int) -> None:
        self.socket.sendall(frame.join(command.SerializeToString()))
        cutter = frame.FrameCutter()
        while True:
            for answer_bytes, _ in cutter.feed(self.socket.recv(RECEIVE_BYTES)):
                answer = pb.BaseCommand.FromString(answer_bytes)
                if answer.type == expected:
                    return
                if answer.type != pb.BaseCommand.PING:
                    raise SystemExit(f"the broker answered {answer}")

    @staticmethod
    def _build(producer_id: int, count: int, size: int) -> bytes:
        payload = bytes(index % 251 for index in range(size))
        frames = []
        for sequence_id in range(count):
            metadata = pb.MessageMetadata(
                producer_name="raw", sequence_id=sequence_id, publish_time=1_700_000_000_000
            ).SerializeToString()
            covered = struct.pack(">I", len(metadata)) + metadata + payload
            body = b"\x0e\x01" + struct.pack(">I", google_crc32c.value(covered)) + covered
            frames.append(frame.join(hot.encode_send(producer_id, sequence_id, 1), body))
        return b"".join(frames)

    @staticmethod
    def _ends(frames: bytes) -> list[int]:
        ends, at = [], 0
        while at < len(frames):
            at += 4 + int.from_bytes(frames[at : at + 4], "big")
            ends.append(at)
        return ends

    def send(self, window: int) -> None:
        """As much as the window and the socket take."""
        target = min(self.count, self.received + window)
        if target <= self.sent_frames:
            return
        until = self._frame_ends[target - 1]
        try:
            self._sent_bytes += self.socket.send(memoryview(self._frames)[self._sent_bytes : until])
        except BlockingIOError:
            return
        now = time.perf_counter()
        while self.sent_frames < target and self._frame_ends[self.sent_frames] <= self._sent_bytes:
            self.sent_times.append(now)
            self.sent_frames += 1

    def receive(self) -> None:
        data = self._held + self.socket.recv(RECEIVE_BYTES)
        at, size = 0, len(data)
        now = time.perf_counter()
        while size - at >= 13:
            until = at + 4 + int.from_bytes(data[at : at + 4], "big")
            if until > size:
                break
            kind = data[at + 9]
            if kind == pb.BaseCommand.SEND_RECEIPT:
                if self.received & 63 == 0:
                    self.latencies_ms.append((now - self.sent_times[self.received]) * 1000)
                self.received += 1
            elif kind == pb.BaseCommand.PING:
                self.socket.send(hot.PONG)
            else:
                raise SystemExit(f"the broker answered {pb.BaseCommand.FromString(data[at + 8 : until])}")
            at = until
        self._held = data[at:]


def publish(service_url: str, *, size: int, count: int, connections: int, window: int, topic: str) -> Outcome:
    """Publish count messages over all connections; time runs from the first byte to the last receipt."""
    url = urlparse(service_url)
    assert url.hostname is not None
    assert url.port is not None
    publishers = [
        Publisher((url.hostname, url.port), topic, index, count // connections, size) for index in range(connections)
    ]
    selector = selectors.DefaultSelector()
    for publisher in publishers:
        selector.register(publisher.socket, selectors.EVENT_READ | selectors.EVENT_WRITE, publisher)
    wanted = sum(publisher.count for publisher in publishers)
    started = time.perf_counter()
    while sum(publisher.received for publisher in publishers) < wanted:
        for key, events in selector.select(1.0):
            publisher = key.data
            if events & selectors.EVENT_READ:
                publisher.receive()
            publisher.send(window)
            room = publisher.sent_frames < min(publisher.count, publisher.received + window)
            selector.modify(publisher.socket, selectors.EVENT_READ | (selectors.EVENT_WRITE if room else 0), publisher)
    seconds = time.perf_counter() - started
    for publisher in publishers:
        publisher.socket.close()
    return Outcome(wanted, seconds, [ms for publisher in publishers for ms in publisher.latencies_ms])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--service-url", default="pulsar://127.0.0.1:6650")
    parser.add_argument("--sizes", type=int, nargs="+", default=[1024, 100])
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--connections", type=int, default=2)
    parser.add_argument("--window", type=int, default=2_000)
    parser.add_argument("--topic", default="persistent://public/default/raw-publish")
    arguments = parser.parse_args()
    for size in arguments.sizes:
        outcome = publish(
            arguments.service_url,
            size=size,
            count=arguments.count,
            connections=arguments.connections,
            window=arguments.window,
            topic=f"{arguments.topic}-{size}",
        )
        latencies = sorted(outcome.latencies_ms)
        middle, high = latencies[len(latencies) // 2], latencies[len(latencies) * 99 // 100]
        print(f"{size:>6} B  {outcome.rate:>9,.0f} messages/s  p50 {middle:6.1f} ms  p99 {high:6.1f} ms")


if __name__ == "__main__":
    main()
