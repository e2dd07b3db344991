# SPDX-License-Identifier: Apache-2.0
"""Consume throughput: tailing and catching up, for each subscription type; one message to many; many delayed ones."""

import statistics
import time

import pulsar

from benchmarks import topics
from benchmarks.figures import Figure, Scale, percentile
from benchmarks.raw_connection import Watched, run_until
from benchmarks.raw_consume import TYPES, RawConsumer, consume
from benchmarks.raw_frames import Shape
from benchmarks.raw_publish import Publisher, publish
from benchmarks.servers import Server, cpu_s, pss_mb

_AIMS = {("Exclusive", 1): "4× → 10×", ("Exclusive", 100): "1× → 2×"}
KEYS = 100


def _consumers(server: Server, topic: str, kind: str, batch: int, *, earliest: bool) -> list[RawConsumer]:
    count = 1 if kind in ("Exclusive", "Failover") else 4
    return [
        RawConsumer(server.service_url, topic, kind, kind=kind, batch=batch, earliest=earliest) for _ in range(count)
    ]


def catch_up(server: Server, scale: Scale) -> list[Figure]:
    """A backlog that was there before the consumer, from its first entry on."""
    found = []
    for batch, entries in ((1, scale.of(8_000, 60_000, 500_000)), (100, scale.of(200, 2_000, 20_000))):
        shape = Shape(1024, batch, keys=KEYS)
        topic = topics.fresh("catch-up")
        publish(server.service_url, shape, count=entries, topics=[topic])
        for kind in TYPES:
            used = cpu_s(server.pid)
            rate = consume(_consumers(server, topic, kind, batch, earliest=True), entries * batch)
            used = (cpu_s(server.pid) - used) / (entries * batch) * 1e6
            what = f"catch-up {shape.words}, {kind}"
            settings = "raw frames, receiver queue 1,000, acks in groups" + (
                "" if kind in ("Exclusive", "Failover") else ", 4 consumers"
            )
            found.append(Figure(f"consume {what}", rate, "msg/s", "more", _AIMS.get((kind, batch), ""), settings))
            found.append(Figure(f"  server's CPU for it, {what}", used, "µs/msg", "less", "", settings))
    return found


def tailing(server: Server, scale: Scale) -> list[Figure]:
    """Published and consumed at the same time, as fast as both go."""
    found = []
    for kind in TYPES:
        topic = topics.fresh("tail")
        entries = scale.of(6_000, 40_000, 200_000)
        publisher = Publisher(server.service_url, [topic], entries, Shape(1024, keys=KEYS), 2_000)
        consumers = _consumers(server, topic, kind, 1, earliest=True)
        rate = consume(consumers, entries, [publisher])
        found.append(Figure(f"consume tailing unbatched 1 KiB, {kind}", rate, "msg/s", settings="published beside it"))
    return found


def fan_out(server: Server, scale: Scale) -> list[Figure]:
    """One topic, a hundred subscriptions: every message leaves a hundred times."""
    topic = topics.fresh("fan-out")
    width = 100
    entries = scale.of(100, 1_000, 5_000)
    consumers = [RawConsumer(server.service_url, topic, f"sub-{number}") for number in range(width)]
    publisher = Publisher(server.service_url, [topic], entries, Shape(1024), 100)
    used = cpu_s(server.pid)
    rate = consume(consumers, entries * width, [publisher])
    used = (cpu_s(server.pid) - used) / (entries * width) * 1e6
    settings = "1 KiB, 100 subscriptions on a connection each"
    return [
        Figure("fan-out 1 → 100, deliveries", rate, "msg/s", "more", "", settings, ("F-PRB-20",)),
        Figure("  server's CPU for it, fan-out", used, "µs/delivery", "less", "", settings),
    ]


def official_client(server: Server, scale: Scale) -> list[Figure]:
    """The official Python client, acknowledging each message."""
    found = []
    for batch in (1, 100):
        entries = scale.of(40, 300, 2_000) * (100 if batch == 1 else 1)
        topic = topics.fresh("official-catch-up")
        publish(server.service_url, Shape(1024, batch), count=entries, topics=[topic])
        client = pulsar.Client(server.service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
        try:
            consumer = client.subscribe(topic, "official", initial_position=pulsar.InitialPosition.Earliest)
            began = time.perf_counter()
            for _ in range(entries * batch):
                consumer.acknowledge(consumer.receive(60_000))
            rate = entries * batch / (time.perf_counter() - began)
        finally:
            client.close()
        what = f"consume catch-up {Shape(1024, batch).words}, official Python client"
        found.append(Figure(what, rate, "msg/s", settings="Exclusive, one ack call a message"))
    return found


def delayed(server: Server, scale: Scale) -> list[Figure]:
    """Messages that are all due at one moment: how fast they are taken, what they weigh, how late the last one is."""
    topic = topics.fresh("delayed")
    count = scale.of(5_000, 50_000, 1_000_000)
    ahead_s = scale.of(6, 15, 120)
    late_ms: list[float] = []

    def on_entry(_: memoryview) -> None:
        late_ms.append(time.time() * 1000 - due_ms)

    consumer = RawConsumer(server.service_url, topic, "delayed", kind="Shared", on_entry=on_entry)
    memory = pss_mb(server.pid)
    due_ms = int((time.time() + ahead_s) * 1000)
    publisher = Publisher(server.service_url, [topic], count, Shape(100, deliver_at_ms=due_ms), 2_000)
    consumer.start()
    began = time.perf_counter()
    watched: Watched = {consumer.connection: (consumer.receive, None)}
    run_until(lambda: publisher.is_done, watched | {publisher.connection: (publisher.receive, publisher.send)})
    rate = count / (time.perf_counter() - began)
    early = consumer.entries if time.time() * 1000 < due_ms else 0
    memory = (pss_mb(server.pid) - memory) * 1024 * 1024 / count
    run_until(lambda: consumer.entries >= count, watched)
    publisher.connection.close()
    consumer.connection.close()
    settings = f"{count:,} messages of 100 B, Shared, all due {ahead_s} s after the first"
    assert early == 0, f"{early} delayed messages came before their time"
    return [
        Figure("delayed messages taken", rate, "msg/s", settings=settings),
        Figure("memory of a delayed message", max(0.0, memory), "B", "less", settings=settings),
        Figure("delayed messages, late, median", statistics.median(late_ms), "ms", "less", settings=settings),
        Figure("delayed messages, late, p99", percentile(late_ms, 99), "ms", "less", settings=settings),
    ]
