# SPDX-License-Identifier: Apache-2.0
"""Latency at fixed rates, from the moment that each message was due: whoever stalls shows it in every message since.

Publish latency ends with the receipt, end-to-end latency with the message in a consumer on another connection.
"""

import multiprocessing
import selectors
import time
from dataclasses import dataclass, field
from multiprocessing.sharedctypes import Synchronized
from multiprocessing.synchronize import Event

import pulsar

from benchmarks import topics
from benchmarks.figures import Figure, Scale, latency_figures, percentile
from benchmarks.raw_connection import RECEIPT, RawConnection
from benchmarks.raw_consume import RawConsumer, consume
from benchmarks.raw_frames import Shape
from benchmarks.raw_publish import publish
from benchmarks.servers import Server
from magnetar.wire.proto import pulsar_api_pb2 as pb

DRAIN_LIMIT_S = 60.0
FORK = multiprocessing.get_context("fork")


@dataclass
class Latencies:
    publish_ms: list[float] = field(default_factory=list)
    end_to_end_ms: list[float] = field(default_factory=list)


class Paced:
    """One connection that sends on a schedule, round robin over its topics, whatever has been answered."""

    def __init__(self, service_url: str, names: list[str], *, rate: float, count: int, size: int) -> None:
        self.connection = RawConnection(service_url)
        for producer_id, name in enumerate(names):
            self.connection.produce_on(name, producer_id)
        self.shape = Shape(size)
        self._topics = len(names)
        self._frames = [self.shape.send(index % len(names), index, index // len(names)) for index in range(count)]
        self._interval_s = 1 / rate
        self._started_s = 0.0
        self.sent = 0
        self.answered = 0
        self.latencies = Latencies()

    def begin(self) -> None:
        self._started_s = time.perf_counter()

    def due_s(self, index: int) -> float:
        return self._started_s + index * self._interval_s

    def send_due(self) -> float:
        """Send what is due by now; seconds until the next one is."""
        now = time.perf_counter()
        upto = min(len(self._frames), int((now - self._started_s) / self._interval_s) + 1)
        if upto > self.sent:
            self.connection.write(b"".join(self._frames[self.sent : upto]))
            self.sent = upto
        return max(0.0, self.due_s(upto) - now) if upto < len(self._frames) else 0.05

    def receive(self) -> None:
        now = time.perf_counter()
        for kind, data, start, until in self.connection.frames():
            if kind == RECEIPT:
                receipt = pb.BaseCommand.FromString(data[start + 8 : until]).send_receipt
                index = receipt.sequence_id * self._topics + receipt.producer_id
                self.latencies.publish_ms.append((now - self.due_s(index)) * 1000)
                self.answered += 1

    def on_entry(self, message: memoryview) -> None:
        due_s = self.due_s(self.shape.index_of(message))
        self.latencies.end_to_end_ms.append((time.perf_counter() - due_s) * 1000)

    @property
    def count(self) -> int:
        return len(self._frames)


def at_rate(
    server: Server,
    *,
    rate: float,
    seconds: float,
    size: int = 1024,
    names: list[str] | None = None,
    consumed: bool = False,
) -> Latencies:
    """Publish at a rate for so long; with a consumer on the first topic, whose messages are timed too."""
    chosen = names or [topics.fresh("latency")]
    paced = Paced(server.service_url, chosen, rate=rate, count=int(rate * seconds), size=size)
    consumer = None
    if consumed:
        consumer = RawConsumer(server.service_url, chosen[0], "timed", earliest=False, on_entry=paced.on_entry)
    # Not epoll, whose pauses are whole milliseconds here: half of a message's latency was the generator's oversleeping.
    with selectors.SelectSelector() as selector:
        for each in (paced, consumer):
            if each is not None:
                each.connection.socket.setblocking(False)
                selector.register(each.connection.socket, selectors.EVENT_READ, each)
        paced.begin()
        if consumer is not None:
            consumer.start()
        until = time.perf_counter() + seconds + DRAIN_LIMIT_S
        while paced.answered < paced.count or (consumer is not None and consumer.entries < paced.count):
            if time.perf_counter() > until:
                raise TimeoutError(f"{paced.answered} of {paced.count} messages were answered at {rate}/s")
            wait_s = paced.send_due()
            if not paced.connection.flush():
                wait_s = 0.001
            for key, _ in selector.select(wait_s):
                key.data.receive()
    for each in (paced, consumer):
        if each is not None:
            each.connection.close()
    return paced.latencies


def fixed_rates(server: Server, scale: Scale) -> list[Figure]:
    seconds = scale.of(2, 10, 30)
    found = []
    at_rate(server, rate=1_000, seconds=1)
    for rate in (500, 2_000, 10_000):
        latencies = at_rate(server, rate=rate, seconds=seconds)
        aims = ("0.5× → 0.3×", "1× → 0.5×", "1× → 0.5×", "") if rate == 2_000 else ("", "", "", "")
        tags = ("F-PLAT-14",) if rate == 2_000 else ()
        settings = f"1 KiB, one producer, {seconds} s, counted from when each was due"
        name = f"publish latency at {rate:,}/s"
        found += latency_figures(name, latencies.publish_ms, aims=aims, settings=settings, features=tags)
    return found


def end_to_end(server: Server, scale: Scale) -> list[Figure]:
    seconds = scale.of(2, 10, 30)
    latencies = at_rate(server, rate=2_000, seconds=seconds, consumed=True).end_to_end_ms
    settings = f"1 KiB, one producer, one consumer, {seconds} s, counted from when each was due"
    return latency_figures("end to end at 2,000/s", latencies, aims=("0.5× → 0.2×", "", "", ""), settings=settings)


def one_at_a_time(server: Server, scale: Scale) -> list[Figure]:
    """The official client's blocking send."""
    client = pulsar.Client(server.service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    try:
        producer = client.create_producer(topics.fresh("one"), batching_enabled=False)
        payload = bytes(1024)
        taken = []
        for number in range(scale.of(300, 2_000, 10_000) + 50):
            began = time.perf_counter()
            producer.send(payload)
            if number >= 50:
                taken.append((time.perf_counter() - began) * 1000)
    finally:
        client.close()
    aims = ("0.5× → 0.3×", "", "", "")
    return latency_figures("one send at a time, official client", taken, aims=aims, settings="1 KiB, unbatched")


def beside_a_reader(server: Server, scale: Scale) -> list[Figure]:
    """Publish and tail latency alone, and beside a reader of a long backlog that starts over and over."""
    backlog = topics.fresh("backlog")
    entries = scale.of(10_000, 100_000, 1_000_000)
    publish(server.service_url, Shape(1024), count=entries, topics=[backlog])
    seconds = scale.of(2, 8, 20)
    alone = at_rate(server, rate=1_000, seconds=seconds, consumed=True)
    over = FORK.Event()
    read = FORK.Value("q", 0)
    scanner = FORK.Process(target=_scan, args=(server.service_url, backlog, entries // 2, over, read), daemon=True)
    scanner.start()
    beside = at_rate(server, rate=1_000, seconds=seconds, consumed=True)
    over.set()
    scanner.join(DRAIN_LIMIT_S)
    found = []
    pairs: list[tuple[str, list[float], list[float], tuple[str, ...]]] = [
        ("publish", alone.publish_ms, beside.publish_ms, ("F-PLAT-04",))
    ]
    pairs += [("tail read", alone.end_to_end_ms, beside.end_to_end_ms, ("F-PLAT-04", "F-PRB-14", "F-BKS-31"))]
    for what, quiet, busy, tags in pairs:
        before, after = percentile(quiet, 99), percentile(busy, 99)
        settings = f"1,000/s of 1 KiB; a reader in a process of its own took {read.value:,} old messages"
        found.append(Figure(f"{what} p99, alone", before, "ms", "less", settings=settings))
        found.append(Figure(f"{what} p99, beside a backlog reader", after, "ms", "less", "≤ 2 times", settings))
        found.append(Figure(f"{what} p99, times", after / before, "times", "less", "≤ 2", settings, tags))
    return found


def _scan(service_url: str, backlog: str, entries: int, over: Event, read: "Synchronized[int]") -> None:
    """Read the first half of a backlog again and again; a subscription each, so that nothing is remembered."""
    while not over.is_set():
        reader = RawConsumer(service_url, backlog, f"scan-{read.value}", acks=False)
        consume([reader], entries)
        read.value += entries


def few_and_many_topics(server: Server, scale: Scale) -> list[Figure]:
    found = []
    p99: dict[int, float] = {}
    many = scale.of(500, 2_000, 10_000)
    seconds = scale.of(2, 8, 20)
    settings = f"1,000/s of 1 KiB in all, {seconds} s"
    for count in (10, 100, many):
        names = [topics.fresh(f"spread-{count}") for _ in range(count)]
        taken = at_rate(server, rate=1_000, seconds=seconds, names=names).publish_ms
        p99[count] = percentile(taken, 99)
        found.append(Figure(f"publish p99 over {count:,} topics", p99[count], "ms", "less", settings=settings))
    found.append(
        Figure(
            f"publish p99, {many:,} topics against 100",
            p99[many] / p99[100],
            "times",
            "less",
            "≤ 2",
            settings,
            ("F-PLAT-07",),
        )
    )
    found.append(
        Figure(
            f"publish p99, {many:,} topics against 10",
            p99[many] / p99[10],
            "times",
            "less",
            "≤ 2",
            settings,
            ("F-PRB-14",),
        )
    )
    return found
