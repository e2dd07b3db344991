# SPDX-License-Identifier: Apache-2.0
"""Frames that go on a schedule, whatever has been answered: latency counts from when each was due.

Publish latency ends with the receipt, end-to-end latency with the message in a consumer on another connection.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from benchmarks.raw_connection import RECEIPT, RawConnection, Watched, run_until
from benchmarks.raw_consume import RawConsumer
from benchmarks.raw_frames import Shape
from magnetar.wire.proto import pulsar_api_pb2 as pb

DRAIN_LIMIT_S = 60.0
IDLE_S = 0.05


@dataclass
class Latencies:
    publish_ms: list[float] = field(default_factory=list)
    end_to_end_ms: list[float] = field(default_factory=list)


class Paced:
    """One connection that sends so many entries a second, round robin over its topics, at most a window of them
    without a receipt. Of a load that would not fit into memory only so many frames are `built`, and go again and again.
    """

    def __init__(
        self,
        connection: RawConnection,
        topics: int,
        shape: Shape,
        *,
        rate: float,
        count: int,
        built: int = 0,
        window: int = 0,
        first: int = 0,
    ) -> None:
        """The connection has its producers already, one for each topic. Indexes begin with `first`."""
        self.connection = connection
        self.shape = shape
        self.count = count
        self._first = first
        self._topics = topics
        self._window = window or count
        # Whole rounds of the topics: a frame is always the same producer's.
        built = min(count, -(-(built or count) // topics) * topics)
        self._frames = [shape.send(index % topics, first + index, index // topics) for index in range(built)]
        self.interval_s = 1 / rate
        self._started_s = 0.0
        self.sent = 0
        self.answered = 0
        self._answered_of = [0] * topics
        self._laps_of = [0] * built
        self.latencies = Latencies()

    def begin(self, at_s: float) -> None:
        self._started_s = at_s

    def due_s(self, index: int) -> float:
        return self._started_s + index * self.interval_s

    def send_due(self) -> float:
        """Send what is due by now; seconds until the next one is."""
        now = time.perf_counter()
        if now < self._started_s:
            return self._started_s - now
        due = min(self.count, int((now - self._started_s) / self.interval_s) + 1)
        upto = min(due, self.answered + self._window)
        while self.sent < upto:
            at = self.sent % len(self._frames)
            until = min(len(self._frames), at + upto - self.sent)
            self.connection.write(b"".join(self._frames[at:until]))
            self.sent += until - at
        if not self.connection.flush():
            return 0.001
        return max(0.0, self.due_s(due) - now) if due < self.count else IDLE_S

    def receive(self) -> None:
        now = time.perf_counter()
        for kind, data, start, until in self.connection.frames():
            if kind == RECEIPT:
                # A producer's receipts come in its order; sequence ids begin again with each lap.
                producer = pb.BaseCommand.FromString(data[start + 8 : until]).send_receipt.producer_id
                index = self._answered_of[producer] * self._topics + producer
                self._answered_of[producer] += 1
                self.latencies.publish_ms.append((now - self.due_s(index)) * 1000)
                self.answered += 1

    def on_entry(self, message: memoryview) -> None:
        """What one subscription gets, each entry once."""
        index = self.shape.index_of(message) - self._first
        lap = self._laps_of[index]
        self._laps_of[index] += 1
        due_s = self.due_s(lap * len(self._frames) + index)
        self.latencies.end_to_end_ms.append((time.perf_counter() - due_s) * 1000)


def drive(
    paced: list[Paced],
    consumers: list[RawConsumer],
    limit_s: float,
    is_done: Callable[[], bool] | None = None,
    *,
    keeps_open: bool = False,
) -> None:
    """All of them, evenly apart, until every entry was answered, and came to a consumer where there are some. Whoever
    wants to send again keeps the connections open, and closes them.
    """
    wanted = sum(each.count for each in paced)
    watched: Watched = {each.connection: (each.receive, None) for each in paced}
    watched |= {consumer.connection: (consumer.receive, None) for consumer in consumers}

    def done() -> bool:
        if is_done is not None and is_done():
            return True
        return all(each.answered == each.count for each in paced) and (
            not consumers or sum(consumer.entries for consumer in consumers) >= wanted
        )

    began = time.perf_counter()
    for number, each in enumerate(paced):
        each.begin(began + number * each.interval_s / len(paced))
    for consumer in consumers:
        consumer.start()
    try:
        run_until(done, watched, limit_s, lambda: min(each.send_due() for each in paced))
    except TimeoutError:
        answered = sum(each.answered for each in paced)
        raise TimeoutError(f"{answered} of {wanted} entries were answered in {limit_s:.0f} s") from None
    if not keeps_open:
        for connection in watched:
            connection.close()
