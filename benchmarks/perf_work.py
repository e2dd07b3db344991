# SPDX-License-Identifier: Apache-2.0
"""What `python -m benchmarks.perf` is to do, when it is over, and what it says meanwhile and at the end."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from magnetar.cli.pace import Latencies

PERCENTILES = (50.0, 95.0, 99.0, 99.9, 99.99)
ENDLESS = 2**62
OUTSTANDING = 1_000


@dataclass(frozen=True, slots=True)
class Work:
    """A load from the command line. A rate of 0 is none: as fast as the server lets it; 0 messages or seconds: any."""

    service_url: str
    topics: tuple[str, ...]
    rate: float = 0.0
    size: int = 1024
    batch: int = 1
    batch_ms: float = 1.0
    producers: int = 1
    consumers: int = 1
    connections: int = 1
    outstanding: int = OUTSTANDING
    messages: int = 0
    seconds: float = 0.0
    kind: str = "Exclusive"
    subscription: str = "sub"
    queue: int = 1_000
    earliest: bool = False

    @property
    def wanted(self) -> int:
        """How many messages there are in all. A schedule that has an end is kept to its last message."""
        found = self.messages or ENDLESS
        return max(1, min(found, int(self.rate * self.seconds))) if self.rate and self.seconds else found

    @property
    def limit_s(self) -> float:
        """When to stop although there could be more; with a schedule its last messages are waited for instead."""
        return self.seconds if self.seconds and not self.rate else float("inf")

    @property
    def schedule_s(self) -> float:
        return self.wanted / self.rate if self.rate else self.limit_s

    def shares(self) -> list[list[str]]:
        """For each connection, the topic of each of its producers."""
        slots = [topic for _ in range(self.producers) for topic in self.topics]
        count = min(self.connections, len(slots))
        return [slots[number::count] for number in range(count)]


class Meter:
    """One direction: how many messages, and how late they were. Whoever measures appends to `sources`, in milliseconds,
    in a thread of its own if it likes.
    """

    def __init__(
        self, verb: str, size: int = 0, sources: Sequence[list[float]] = (), messages: Callable[[], int] | None = None
    ) -> None:
        self._verb = verb
        self._size = size
        self.latencies_ms: list[float] = []
        self._sources = (*sources, self.latencies_ms)
        self._counted = messages
        self._interval, self._all = Latencies(), Latencies()
        self._began_s = self._last_s = time.perf_counter()
        self._before = 0

    @property
    def messages(self) -> int:
        """Those that came; without a count of their own every one has a latency."""
        if self._counted is not None:
            return self._counted()
        return self._all.count + self._interval.count + len(self.latencies_ms)

    def begin(self) -> None:
        self._began_s = self._last_s = time.perf_counter()

    def line(self) -> str:
        """About the time since the last line."""
        self._gather()
        now, messages = time.perf_counter(), self.messages
        text = self._text(messages - self._before, now - self._last_s, self._interval)
        self._all.merge(self._interval)
        self._interval = Latencies()
        self._before, self._last_s = messages, now
        return f"{self._verb}: {text}"

    def aggregate(self) -> str:
        self._gather()
        self._all.merge(self._interval)
        self._interval = Latencies()
        messages, seconds = self.messages, time.perf_counter() - self._began_s
        head = f"Aggregated: {self._verb} {messages:,} messages in {seconds:.1f} s --- "
        return head + self._text(messages, seconds, self._all)

    def _gather(self) -> None:
        for source in self._sources:
            taken = source[: len(source)]
            del source[: len(taken)]
            for milliseconds in taken:
                self._interval.add(round(milliseconds * 1_000))

    def _text(self, messages: int, seconds: float, latencies: Latencies) -> str:
        rate = messages / max(seconds, 1e-9)
        text = f"{rate:,.1f} msg/s"
        if self._size:
            text += f" --- {rate * self._size * 8 / 1e6:,.1f} Mbit/s"
        if latencies.count:
            found = [f"p{percent:g} {latencies.percentile_us(percent) / 1_000:.3f}" for percent in PERCENTILES]
            mean, most = latencies.mean_us / 1_000, latencies.max_us / 1_000
            text += f" --- latency ms: mean {mean:.3f} {' '.join(found)} max {most:.3f}"
        return text


class Report:
    """A line for each meter now and then, and one for all of it."""

    def __init__(self, work: Work, interval_s: float) -> None:
        self._limit_s = work.limit_s
        self._interval_s = interval_s
        self._meters: list[Meter] = []
        self._began_s = self._last_s = time.perf_counter()
        self.failures = 0
        self.ended = False

    def begin(self, *meters: Meter) -> None:
        self._meters += meters
        self._began_s = self._last_s = time.perf_counter()
        for meter in meters:
            meter.begin()

    def is_over(self) -> bool:
        """Asked all the time: prints what is to be printed by now."""
        now = time.perf_counter()
        if now - self._last_s >= self._interval_s:
            self._last_s = now
            for meter in self._meters:
                print(meter.line(), flush=True)
        return now - self._began_s >= self._limit_s

    def end(self) -> None:
        self.ended = True

    def show(self) -> None:
        for meter in self._meters:
            print(meter.aggregate())
        if self.failures:
            print(f"failures: {self.failures}")
