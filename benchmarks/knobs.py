# SPDX-License-Identifier: Apache-2.0
"""Settings that are said to change speed, one at a time: each line names what was set and what came of it.

Only Magnetar is measured here. The first value of a knob is its default where there is one.
"""

import asyncio
import multiprocessing
import resource
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any, Final

import uvloop

from benchmarks import bookie_knobs, publishing, sticky_reads, topics
from benchmarks.changed_keys import words
from benchmarks.figures import CLOSED_LOOP, Figure, Scale, percentile
from benchmarks.latency import at_rate
from benchmarks.raw_consume import RawConsumer, consume
from benchmarks.raw_frames import Shape
from benchmarks.raw_publish import publish
from benchmarks.servers import MagnetarServer, cpu_s, freshly_scraped, pss_mb, until_settled
from magnetar import Client, CompressionType, InitialPosition
from tests.cluster import Cluster

FORK: Final = multiprocessing.get_context("fork")
IN_FLIGHT: Final = 2_000
# A tail that is so far behind when it is read, and how much a cache of a megabyte can have of it.
LAG_ENTRIES: Final = 4_000


async def _send(url: str, topic: str, messages: int, options: dict[str, Any]) -> tuple[float, list[float]]:
    """Messages per second of our client as fast as it goes, and how long each took."""
    payload = b"the same words again and again " * 33
    taken: list[float] = []
    async with Client(url) as client:
        producer = await client.create_producer(topic, block_if_queue_full=True, **options)

        async def timed() -> None:
            began = time.perf_counter()
            await (await producer.submit(payload))
            taken.append((time.perf_counter() - began) * 1000)

        began = time.perf_counter()
        width = options.get("max_pending_messages", 1_000)
        for first in range(0, messages, width):
            async with asyncio.TaskGroup() as group:
                for _ in range(min(width, messages - first)):
                    group.create_task(timed())
        return messages / (time.perf_counter() - began), taken


def producer(directory: Path, scale: Scale) -> list[Figure]:
    """Batching, how often partitions change, the pending queue, compression."""
    messages = scale.of(3_000, 20_000, 200_000)
    variants: list[tuple[str, int, dict[str, Any]]] = [
        ("as it comes (batched)", 0, {"batching_enabled": True}),
        ("unbatched", 0, {"batching_enabled": False}),
        ("batched, 100 pending", 0, {"batching_enabled": True, "max_pending_messages": 100}),
        ("batched, 5,000 pending", 0, {"batching_enabled": True, "max_pending_messages": 5_000}),
        ("batched, LZ4", 0, {"batching_enabled": True, "compression_type": CompressionType.LZ4}),
        ("batched, ZSTD", 0, {"batching_enabled": True, "compression_type": CompressionType.ZSTD}),
        ("4 partitions, changed every delay", 4, {"batching_enabled": True, "batching_partition_switch_frequency": 1}),
        ("4 partitions, changed every 10 delays", 4, {"batching_enabled": True}),
    ]
    found = []
    with MagnetarServer(directory) as server:
        for name, partitions, options in variants:
            topic = topics.fresh("producer")
            if partitions:
                topic = topics.whole(topics.partitioned(server.web_url, partitions)[0])
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                rate, taken = runner.run(_send(server.service_url, topic, messages, options))
            settings = "our client, 1 KB"
            found.append(Figure(f"producer, {name}", rate, "msg/s", "more", "", settings, ("F-TUN-01",)))
            p99 = percentile(taken, 99)
            settings += f", {CLOSED_LOOP}"
            found.append(Figure(f"producer, {name}, p99", p99, "ms", "less", "", settings, ("F-TUN-01",)))
    return found


def replication(directory: Path, scale: Scale) -> list[Figure]:
    """Six bookies and a broker: a wider ensemble, and one answer less to wait for; always one to spare."""
    found = []
    with Cluster(directory, bookies=6) as cluster:
        assert cluster.broker is not None
        said = cluster.broker.said
        for ensemble, write, ack in ((2, 2, 2), (5, 2, 2), (3, 3, 3), (3, 3, 2)):
            namespace = f"public/e{ensemble}w{write}a{ack}"
            # A connection for each: between two of them it would stand idle for longer than the broker keeps it.
            admin = topics.Admin(said["webServiceUrl"] if "webServiceUrl" in said else said["webUrl"])
            admin.call("PUT", f"namespaces/{namespace}", {})
            policy = {
                "bookkeeperEnsemble": ensemble,
                "bookkeeperWriteQuorum": write,
                "bookkeeperAckQuorum": ack,
                "managedLedgerMaxMarkDeleteRate": 0.0,
            }
            admin.call("POST", f"namespaces/{namespace}/persistence", policy)
            admin.close()
            topic = f"persistent://{namespace}/load"
            messages = scale.of(2_000, 20_000, 200_000)
            outcome = publish(cluster.service_url, Shape(1024), count=messages, connections=1, topics=[topic])
            name = f"replication {ensemble}/{write}/{ack}"
            settings = "ensemble/write/ack quorum; 6 bookies on the same disk and cores; unbatched 1 KiB"
            found.append(Figure(name, outcome.rate, "msg/s", "more", "", settings, ("F-TUN-02",)))
            p99 = percentile(outcome.latencies_ms, 99)
            settings += f"; {CLOSED_LOOP}"
            found.append(Figure(f"{name}, p99", p99, "ms", "less", "", settings, ("F-TUN-02",)))
    return found


def broker_reads(directory: Path, scale: Scale) -> list[Figure]:
    """Cache size, entries read at once, and the wait before a tail is looked at again."""
    found = []
    entries = scale.of(6_000, 40_000, 300_000)
    variants = [
        ("as it comes", {}),
        ("cache 1 MB", {"managedLedgerCacheSizeMB": "1"}),
        ("20 entries a read", {"dispatcherMaxReadBatchSize": "20"}),
        ("1,000 entries a read", {"dispatcherMaxReadBatchSize": "1000"}),
        ("tail looked at every 100 ms", {"managedLedgerNewEntriesCheckDelayInMillis": "100"}),
    ]
    for number, (name, config) in enumerate(variants):
        with MagnetarServer(directory / str(number), config) as server:
            topic = topics.fresh("reads")
            publish(server.service_url, Shape(1024), count=entries, topics=[topic])
            rate = consume([RawConsumer(server.service_url, topic, "all")], entries)
            before = freshly_scraped(server.web_url)
            tail = percentile(at_rate(server, rate=500, seconds=1, consumed=True).end_to_end_ms, 50)
            between = freshly_scraped(server.web_url)
            _read_behind(server)
            share, behind = hit_percent(before, between), hit_percent(between, freshly_scraped(server.web_url))
        settings = f"{entries:,} entries of 1 KiB; {words(config, 'broker')}"
        found.append(Figure(f"catch-up, {name}", rate / 1024, "MB/s", "more", "", settings, ("F-TUN-06",)))
        found.append(Figure(f"tail, {name}, from the cache", share, "%", "more", "", settings, ("F-TUN-06",)))
        lag = f"{LAG_ENTRIES:,} entries of 1 KiB behind; {words(config, 'broker')}"
        found.append(Figure(f"tail that lags, {name}, from the cache", behind, "%", "more", "", lag, ("F-TUN-06",)))
        found.append(Figure(f"tail, {name}, p50", tail, "ms", "less", "", settings, ("F-TUN-06",)))
    return found


def _read_behind(server: MagnetarServer) -> None:
    """A subscriber that is there from the start, and asks for entries when there are many."""
    topic = topics.fresh("behind")
    consumer = RawConsumer(server.service_url, topic, "behind")
    publish(server.service_url, Shape(1024), count=LAG_ENTRIES, connections=1, topics=[topic])
    consume([consumer], LAG_ENTRIES)


def hit_percent(before: dict[str, float], after: dict[str, float]) -> float:
    hits, misses = (
        after[name] - before[name] for name in ("magnetar_ml_cache_hits_total", "magnetar_ml_cache_misses_total")
    )
    return 100 * hits / (hits + misses) if hits + misses else 0.0


def key_shared_reads(directory: Path, scale: Scale) -> list[Figure]:
    """What a Key_Shared dispatcher costs per message, by how many entries it reads at once."""
    found = []
    entries = scale.of(6_000, 40_000, 300_000)
    for at_once in (100, 20):
        config = {"dispatcherMaxReadBatchSize": str(at_once)}
        with MagnetarServer(directory / str(at_once), config) as server:
            topic = topics.fresh("keys")
            publish(server.service_url, Shape(1024, keys=100), count=entries, topics=[topic])
            used = cpu_s(server.pid)
            consumers = [RawConsumer(server.service_url, topic, "keys", kind="Key_Shared") for _ in range(4)]
            rate = consume(consumers, entries)
            used = (cpu_s(server.pid) - used) / entries * 1e6
        settings = "4 consumers, 100 keys, unbatched 1 KiB"
        name = f"Key_Shared, {at_once} entries a read"
        found.append(Figure(name, rate, "msg/s", "more", "", settings, ("F-DISP-13",)))
        found.append(Figure(f"{name}, server's CPU", used, "µs/msg", "less", "", settings, ("F-DISP-13",)))
    return found


async def _receive(url: str, topic: str, messages: int, queue: int) -> float:
    async with Client(url) as client:
        consumer = await client.subscribe(
            topic, f"queue-{queue}", initial_position=InitialPosition.Earliest, receiver_queue_size=queue
        )
        began = time.perf_counter()
        for _ in range(messages):
            await consumer.acknowledge(await consumer.receive())
        return messages / (time.perf_counter() - began)


def _receive_apart(url: str, topic: str, messages: int, queue: int, answers: Any) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        rate = runner.run(_receive(url, topic, messages, queue))
    answers.put((rate, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024))


def receiver_queue(directory: Path, scale: Scale) -> list[Figure]:
    """A larger queue between broker and application; a process each, so that the memory is its own."""
    found = []
    with MagnetarServer(directory) as server:
        topic = topics.fresh("queue")
        messages = scale.of(4_000, 30_000, 200_000)
        publish(server.service_url, Shape(1024), count=messages, topics=[topic])
        for queue in (1_000, 100, 10_000):
            answers = FORK.Queue()
            arguments = (server.service_url, topic, messages, queue, answers)
            process = FORK.Process(target=_receive_apart, args=arguments, daemon=True)
            process.start()
            rate, memory = answers.get(timeout=300)
            process.join(30)
            name = f"receiver queue {queue:,}"
            settings = f"our client, {messages:,} messages of 1 KiB, server {pss_mb(server.pid):.0f} MB"
            found.append(Figure(name, rate, "msg/s", "more", "", settings, ("F-TUN-07",)))
            found.append(Figure(f"{name}, client's peak", memory, "MB", "less", "", settings, ("F-TUN-07",)))
    return found


def partitions(directory: Path, scale: Scale) -> list[Figure]:
    """A hot topic as one and as eight partitions, a producer on each, as many messages in flight in all.

    With as many in flight on each, eight would have eight times as many on their way, which says nothing of partitions.
    """
    found = []
    rates: dict[int, list[float]] = {1: [], 8: []}
    turns = scale.of(1, 5, 5)
    messages = scale.of(8_000, 80_000, 400_000)
    with MagnetarServer(directory) as server:
        publishing.warm_up(server, scale)
        for _ in range(turns):
            for count in rates:
                until_settled(server.pid)
                load = {"connections": count, "window": IN_FLIGHT // count}
                names = topics.partitioned(server.web_url, count)
                outcome = publish(server.service_url, Shape(1024), count=messages, topics=names, **load)
                rates[count].append(outcome.rate)
    settings = f"unbatched 1 KiB, {IN_FLIGHT:,} in flight in all, median of {turns} turns; one broker with one journal"
    for count, found_rates in rates.items():
        name = f"{count} partition{'s' if count > 1 else ''}"
        found.append(Figure(name, median(found_rates), "msg/s", "more", "", settings, ("F-TUN-10",)))
    ratio = median(rates[8]) / median(rates[1])
    found.append(Figure("  8 partitions against 1", ratio, "times", "more", "", settings, ("F-TUN-10",)))
    return found


ALL: Final[dict[str, Callable[[Path, Scale], list[Figure]]]] = {
    "knob-producer": producer,
    "knob-replication": replication,
    "knob-bookie-writes": bookie_knobs.writes,
    "knob-journals": bookie_knobs.journals,
    "knob-bookie-reads": bookie_knobs.reads,
    "knob-thrashing": bookie_knobs.thrashing,
    "knob-sticky-reads": sticky_reads.many_readers,
    "knob-broker-reads": broker_reads,
    "knob-key-shared": key_shared_reads,
    "knob-receiver-queue": receiver_queue,
    "knob-partitions": partitions,
}
