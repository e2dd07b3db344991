# SPDX-License-Identifier: Apache-2.0
"""How many messages a broker stores and acknowledges, measured with frames that were built beforehand.

    python -m benchmarks.raw_publish --service-url pulsar://127.0.0.1:6650 --sizes 1024 100 --batch 1 --topics 1

The load costs almost nothing per message, so that the server is what is measured. Every connection keeps a window of
entries in flight and counts receipts. Works against any Pulsar broker; prints one line per size.
"""

import argparse
import time
from bisect import bisect_right
from dataclasses import dataclass

from benchmarks.figures import percentile
from benchmarks.raw_connection import RECEIPT, RawConnection, run_until
from benchmarks.raw_frames import Shape

LATENCY_SAMPLE = 64


@dataclass
class Outcome:
    messages: int
    seconds: float
    latencies_ms: list[float]

    @property
    def rate(self) -> float:
        return self.messages / self.seconds


class Publisher:
    """One connection with a producer on each of its topics, and all its frames built.

    Of a load that would not fit into memory `laps` times the same frames go, count of them in all.
    """

    def __init__(
        self,
        service_url: str,
        topics: list[str],
        count: int,
        shape: Shape,
        window: int,
        laps: int = 1,
        connection: RawConnection | None = None,
    ) -> None:
        """A connection that is given has its producers already."""
        self.connection = connected(service_url, [topics])[0] if connection is None else connection
        self.count = count // laps * laps
        self.received = 0
        self._window = window
        frames = bytearray()
        self._ends: list[int] = []
        for index in range(count // laps):
            frames += shape.send(index % len(topics), index, index // len(topics))
            self._ends.append(len(frames))
        self._ends += [lap * len(frames) + end for lap in range(1, laps) for end in self._ends]
        self._frames = memoryview(frames)
        self._sent_bytes = 0
        self._sent_times: list[float] = []
        self.latencies_ms: list[float] = []

    @property
    def is_done(self) -> bool:
        return self.received >= self.count

    def send(self) -> bool:
        """As much as the window and the socket take; whether there is more that the window allows."""
        target = min(self.count, self.received + self._window)
        until = self._ends[target - 1]
        if self._sent_bytes >= until:
            return False
        lap, start = divmod(self._sent_bytes, len(self._frames))
        try:
            self._sent_bytes += self.connection.socket.send(self._frames[start : until - lap * len(self._frames)])
        except BlockingIOError:
            return True
        gone = bisect_right(self._ends, self._sent_bytes)
        self._sent_times += [time.perf_counter()] * (gone - len(self._sent_times))
        return self._sent_bytes < until

    def receive(self) -> None:
        now = time.perf_counter()
        for kind, _, _, _ in self.connection.frames():
            if kind == RECEIPT:
                if self.received % LATENCY_SAMPLE == 0:
                    self.latencies_ms.append((now - self._sent_times[self.received]) * 1000)
                self.received += 1


def connected(service_url: str, shares: list[list[str]]) -> list[RawConnection]:
    """A connection for each share of topics, with a producer on each. They take turns: thousands take minutes, and a
    server closes a connection that does not answer its pings meanwhile.
    """
    connections = [RawConnection(service_url) for _ in shares]
    for producer_id in range(max(map(len, shares))):
        for connection, share in zip(connections, shares, strict=True):
            if producer_id < len(share):
                connection.produce_on(share[producer_id], producer_id)
    return connections


def publish(
    service_url: str,
    shape: Shape,
    *,
    count: int,
    connections: int = 2,
    window: int = 2_000,
    topics: list[str],
    laps: int = 1,
) -> Outcome:
    """Publish count entries over all connections; time runs from the first byte to the last receipt.

    With fewer topics than connections each connection has a producer on all of them, otherwise a share of them. With
    several topics on a connection latencies are only those of the window as a whole.
    """
    shares = [topics[index::connections] or topics for index in range(connections)]
    each = max(1, count // connections // laps * laps)
    publishers = [
        Publisher(service_url, share, each, shape, max(1, window // shape.batch), laps, connection)
        for share, connection in zip(shares, connected(service_url, shares), strict=True)
    ]
    started = time.perf_counter()
    run_until(
        lambda: all(publisher.is_done for publisher in publishers),
        {publisher.connection: (publisher.receive, publisher.send) for publisher in publishers},
    )
    seconds = time.perf_counter() - started
    for publisher in publishers:
        publisher.connection.close()
    latencies = [ms for publisher in publishers for ms in publisher.latencies_ms]
    return Outcome(each * connections * shape.batch, seconds, latencies)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--service-url", default="pulsar://127.0.0.1:6650")
    parser.add_argument("--sizes", type=int, nargs="+", default=[1024, 100])
    parser.add_argument("--count", type=int, default=100_000, help="Entries in all.")
    parser.add_argument("--connections", type=int, default=2)
    parser.add_argument("--window", type=int, default=2_000, help="Messages in flight on a connection.")
    parser.add_argument("--batch", type=int, default=1, help="Messages in an entry.")
    parser.add_argument("--topics", type=int, default=1)
    parser.add_argument("--topic", default="persistent://public/default/raw-publish")
    arguments = parser.parse_args()
    for size in arguments.sizes:
        outcome = publish(
            arguments.service_url,
            Shape(size, arguments.batch),
            count=arguments.count,
            connections=arguments.connections,
            window=arguments.window,
            topics=[f"{arguments.topic}-{size}-{number}" for number in range(arguments.topics)],
        )
        middle, high = percentile(outcome.latencies_ms, 50), percentile(outcome.latencies_ms, 99)
        print(f"{size:>6} B  {outcome.rate:>9,.0f} messages/s  p50 {middle:6.1f} ms  p99 {high:6.1f} ms")


if __name__ == "__main__":
    main()
