# SPDX-License-Identifier: Apache-2.0
"""How many messages a broker stores and acknowledges, measured with frames that were built beforehand.

The load costs almost nothing per message, so that the server is what is measured. Every connection keeps a window of
entries in flight and counts receipts. Works against any Pulsar broker; `python -m benchmarks.perf produce` is its
command line.
"""

import time
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.raw_connection import RECEIPT, RawConnection, run_until
from benchmarks.raw_frames import Shape

LATENCY_SAMPLE = 64
# Of a load that goes on for a time each connection has so many bytes of frames, which go again and again.
BUILT_BYTES_MAX = 16 * 2**20
BUILT_MAX = 20_000
_ENDLESS = 2**62


@dataclass
class Outcome:
    messages: int
    seconds: float
    latencies_ms: list[float]

    @property
    def rate(self) -> float:
        return self.messages / self.seconds


class Publisher:
    """One connection with a producer on each of its topics, and its frames built; their indexes begin with `first`.

    Of a load that would not fit into memory only so many frames are `built`, and go again and again.
    """

    def __init__(
        self,
        service_url: str,
        topics: list[str],
        count: int,
        shape: Shape,
        window: int,
        built: int = 0,
        connection: RawConnection | None = None,
        first: int = 0,
    ) -> None:
        """A connection that is given has its producers already."""
        self.connection = connected(service_url, [topics])[0] if connection is None else connection
        self.count = count
        self.received = 0
        self._window = window
        frames = bytearray()
        self._ends: list[int] = []
        for index in range(min(count, built or count)):
            frames += shape.send(index % len(topics), first + index, index // len(topics))
            self._ends.append(len(frames))
        self._frames = memoryview(frames)
        self.sent_bytes = 0
        # How many had gone when, of those without a receipt.
        self._sent: deque[tuple[int, float]] = deque()
        self.latencies_ms: list[float] = []

    @property
    def is_done(self) -> bool:
        return self.received >= self.count

    def send(self) -> bool:
        """As much as the window and the socket take; whether there is more that the window allows."""
        target = min(self.count, self.received + self._window)
        laps, last = divmod(target - 1, len(self._ends))
        until = laps * len(self._frames) + self._ends[last]
        if self.sent_bytes >= until:
            return False
        lap, start = divmod(self.sent_bytes, len(self._frames))
        try:
            self.sent_bytes += self.connection.socket.send(self._frames[start : until - lap * len(self._frames)])
        except BlockingIOError:
            return True
        lap, rest = divmod(self.sent_bytes, len(self._frames))
        self._sent.append((lap * len(self._ends) + bisect_right(self._ends, rest), time.perf_counter()))
        return self.sent_bytes < until

    def stop(self) -> None:
        """Nothing more than what has begun to go."""
        lap, rest = divmod(self.sent_bytes, len(self._frames))
        begun = lap * len(self._ends) + (bisect_left(self._ends, rest) + 1 if rest else 0)
        self.count = min(self.count, begun)

    def receive(self) -> None:
        now = time.perf_counter()
        for kind, _, _, _ in self.connection.frames():
            if kind == RECEIPT:
                if self.received % LATENCY_SAMPLE == 0:
                    while self._sent[0][0] <= self.received:
                        self._sent.popleft()
                    self.latencies_ms.append((now - self._sent[0][1]) * 1000)
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
    """Publish count entries over all connections; time runs from the first byte to the last receipt. Each has an index
    of its own, unless the same frames go in several laps.

    With fewer topics than connections each connection has a producer on all of them, otherwise a share of them. With
    several topics on a connection latencies are only those of the window as a whole.
    """
    shares = [topics[index::connections] or topics for index in range(connections)]
    built = max(1, count // connections // laps)
    each = built * laps
    made = zip(shares, connected(service_url, shares), strict=True)
    publishers = [
        Publisher(service_url, share, each, shape, max(1, window // shape.batch), built, connection, number * built)
        for number, (share, connection) in enumerate(made)
    ]
    return _outcome(publishers, shape)


def publish_for(
    service_url: str,
    shape: Shape,
    *,
    seconds: float,
    bytes_max: int,
    connections: int = 2,
    window: int = 2_000,
    topics: list[str],
    on_ready: Callable[[], None] | None = None,
) -> Outcome:
    """The same for so many seconds, so that a fast server's rate is not that of a moment, or until so much was sent,
    which a disk must hold: until the last receipt of what was sent by then. `on_ready` is called when all producers
    are there and nothing has been sent.
    """
    shares = [topics[index::connections] or topics for index in range(connections)]
    frame_bytes = len(shape.send(0, 0, 0))
    # Whole rounds of the topics: a frame is always the same producer's.
    rounds = [max(1, min(BUILT_MAX, BUILT_BYTES_MAX // frame_bytes) // len(share)) for share in shares]
    publishers = [
        Publisher(service_url, share, _ENDLESS, shape, max(1, window // shape.batch), count * len(share), connection)
        for count, share, connection in zip(rounds, shares, connected(service_url, shares), strict=True)
    ]
    if on_ready is not None:
        on_ready()
    return _outcome(publishers, shape, seconds, bytes_max)


def _outcome(publishers: list[Publisher], shape: Shape, seconds: float | None = None, bytes_max: int = 0) -> Outcome:
    started = time.perf_counter()

    def is_done() -> bool:
        if seconds is not None:
            has_room = sum(publisher.sent_bytes for publisher in publishers) < bytes_max
            if has_room and time.perf_counter() < started + seconds:
                return False
            for publisher in publishers:
                publisher.stop()
        return all(publisher.is_done for publisher in publishers)

    run_until(is_done, {publisher.connection: (publisher.receive, publisher.send) for publisher in publishers})
    took_s = time.perf_counter() - started
    for publisher in publishers:
        publisher.connection.close()
    latencies = [ms for publisher in publishers for ms in publisher.latencies_ms]
    return Outcome(sum(publisher.received for publisher in publishers) * shape.batch, took_s, latencies)
