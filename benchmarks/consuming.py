# SPDX-License-Identifier: Apache-2.0
"""Consume throughput: tailing and catching up, for each subscription type; one message to many; many delayed ones."""

import statistics
import time

from benchmarks import clients, topics
from benchmarks.figures import Figure, Scale, percentile
from benchmarks.raw_connection import Watched, run_until
from benchmarks.raw_consume import TYPES, RawConsumer, consume
from benchmarks.raw_frames import Shape
from benchmarks.raw_publish import Publisher, publish
from benchmarks.servers import Server, cpu_s, pss_mb, until_settled

_AIMS = {("Exclusive", 1): "4× → 10×", ("Exclusive", 100): "1× → 2×"}
KEYS = 100
REGISTERED = {"Exclusive": 1, "Failover": 2, "Shared": 4, "Key_Shared": 4}
_REGISTERED_WORDS = {"Exclusive": "", "Failover": ", 2 consumers, one of them active"}
# Upstream lets a new active consumer wait for a second, which is no matter of throughput.
FAILOVER_S = 1.5
# How much too early a server may be by its settings: isDelayedDeliveryDeliverAtTimeStrict=false and its tick.
TICK_MS = {"pulsar": 1_000}


def _consumers(server: Server, topic: str, kind: str, batch: int, *, earliest: bool) -> list[RawConsumer]:
    found = [
        RawConsumer(server.service_url, topic, kind, kind=kind, batch=batch, earliest=earliest)
        for _ in range(REGISTERED[kind])
    ]
    if kind == "Failover":
        time.sleep(FAILOVER_S)
    return found


def catch_up(server: Server, scale: Scale) -> list[Figure]:
    """A backlog that was there before the consumer, from its first entry on."""
    found = []
    for batch, entries in ((1, scale.of(8_000, 200_000, 500_000)), (100, scale.of(200, 10_000, 20_000))):
        shape = Shape(1024, batch, keys=KEYS)
        topic = topics.fresh("catch-up")
        publish(server.service_url, shape, count=entries, topics=[topic])
        # What is read was published long ago: nobody writes it out beside the first of them (0306).
        until_settled(server.pid)
        for kind in TYPES:
            consumers = _consumers(server, topic, kind, batch, earliest=True)
            used = cpu_s(server.pid)
            rate = consume(consumers, entries * batch)
            used = (cpu_s(server.pid) - used) / (entries * batch) * 1e6
            what = f"catch-up {shape.words}, {kind}"
            settings = f"{entries:,} entries, raw frames, receiver queue 1,000, acks in groups, written out before"
            settings += _REGISTERED_WORDS.get(kind, f", {REGISTERED[kind]} consumers")
            found.append(Figure(f"consume {what}", rate, "msg/s", "more", _AIMS.get((kind, batch), ""), settings))
            found.append(Figure(f"  server's CPU for it, {what}", used, "µs/msg", "less", "", settings))
    return found


def tailing(server: Server, scale: Scale) -> list[Figure]:
    """Published and consumed at the same time, as fast as both go."""
    found = []
    for batch, entries in ((1, scale.of(6_000, 100_000, 200_000)), (100, scale.of(200, 3_000, 5_000))):
        shape = Shape(1024, batch, keys=KEYS)
        for kind in TYPES:
            topic = topics.fresh("tail")
            consumers = _consumers(server, topic, kind, batch, earliest=True)
            publisher = Publisher(server.service_url, [topic], entries, shape, 2_000 // batch)
            rate = consume(consumers, entries * batch, [publisher])
            settings = f"{entries:,} entries, published beside it" + _REGISTERED_WORDS.get(
                kind, f", {REGISTERED[kind]} consumers"
            )
            found.append(Figure(f"consume tailing {shape.words}, {kind}", rate, "msg/s", settings=settings))
    return found


def fan_out(server: Server, scale: Scale) -> list[Figure]:
    """One topic and many subscriptions: every message leaves as often. As many deliveries of each width."""
    found = []
    for width in (1, 10, 100):
        topic = topics.fresh("fan-out")
        entries = scale.of(10_000, 100_000, 500_000) // width
        consumers = [RawConsumer(server.service_url, topic, f"sub-{number}") for number in range(width)]
        publisher = Publisher(server.service_url, [topic], entries, Shape(1024), 100)
        used = cpu_s(server.pid)
        rate = consume(consumers, entries * width, [publisher])
        used = (cpu_s(server.pid) - used) / (entries * width) * 1e6
        settings = f"1 KiB, {width} subscriptions on a connection each, 100 messages in flight"
        found.append(Figure(f"fan-out 1 → {width}, deliveries", rate, "msg/s", "more", "", settings))
        what = "fan-out" if width == 100 else f"fan-out 1 → {width}"
        found.append(Figure(f"  server's CPU for it, {what}", used, "µs/delivery", "less", "", settings))
    return found


def python_clients(server: Server, scale: Scale) -> list[Figure]:
    """The official Python client and ours, acknowledging each message."""
    found = []
    settings = "Exclusive, one ack call a message"
    for batch in (1, 100):
        entries = scale.of(40, 300, 2_000) * (100 if batch == 1 else 1)
        shape = Shape(1024, batch)
        # One each: the second reader of a topic finds it in memory.
        names = [topics.fresh("client-catch-up") for _ in range(2)]
        for name in names:
            publish(server.service_url, shape, count=entries, topics=[name])
        rate = clients.official_catch_up(server.service_url, names[0], entries * batch)
        found.append(
            Figure(f"consume catch-up {shape.words}, official Python client", rate, "msg/s", settings=settings)
        )
        rate = clients.run(clients.own_catch_up(server.service_url, names[1], entries * batch))
        found.append(Figure(f"consume catch-up {shape.words}, our Python client", rate, "msg/s", settings=settings))
    return found


def delayed(server: Server, scale: Scale) -> list[Figure]:
    """Messages that are all due at one moment: how fast they are taken, what they weigh, how late they are."""
    topic = topics.fresh("delayed")
    count = scale.of(5_000, 1_000_000, 1_000_000)
    ahead_s = scale.of(6, 60, 120)
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
    spare_ms = due_ms - time.time() * 1000
    assert spare_ms > 0, f"publishing {count:,} delayed messages ended {-spare_ms:.0f} ms after they were due"
    memory = (pss_mb(server.pid) - memory) * 1024 * 1024 / count
    run_until(lambda: consumer.entries >= count, watched)
    publisher.connection.close()
    consumer.connection.close()
    early = sum(late < -TICK_MS.get(server.name, 0) for late in late_ms)
    assert early == 0, f"{early} delayed messages came before their time, the first {-min(late_ms):.0f} ms"
    settings = f"{count:,} messages of 100 B, Shared, all due {ahead_s} s after the first"
    found = [
        Figure("delayed messages taken", rate, "msg/s", settings=settings),
        Figure("delayed messages, late, median", statistics.median(late_ms), "ms", "less", settings=settings),
        Figure("delayed messages, late, p99", percentile(late_ms, 99), "ms", "less", settings=settings),
    ]
    if memory > 0:
        # Otherwise the server gave back more than they weigh: it cannot be told.
        found.append(Figure("memory of a delayed message", memory, "B", "less", settings=settings))
    return found
