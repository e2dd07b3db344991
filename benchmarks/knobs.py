# SPDX-License-Identifier: Apache-2.0
"""Settings that are said to change speed, one at a time: each line names what was set and what came of it.

Only Magnetar is measured here. The first value of a knob is its default where there is one.
"""

import asyncio
import multiprocessing
import resource
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import uvloop

from benchmarks import bookie_knobs, publishing, sticky_reads, topics
from benchmarks.changed_keys import words
from benchmarks.figures import CLOSED_LOOP, LESS, MORE, Figure, Scale, percentile
from benchmarks.latency import at_rate
from benchmarks.raw_consume import RawConsumer, consume
from benchmarks.raw_frames import Shape
from benchmarks.raw_publish import publish
from benchmarks.servers import MagnetarServer, cpu_s, freshly_scraped, pss_mb, until_settled
from benchmarks.turns import in_turns, turns_of
from magnetar import Client, CompressionType, InitialPosition
from tests.cluster import Cluster

FORK: Final = multiprocessing.get_context("fork")
IN_FLIGHT: Final = 2_000
# A tail that is so far behind when it is read, and how much a cache of a megabyte can have of it.
LAG_ENTRIES: Final = 4_000
# How long a cluster may take to write out what a turn left.
SETTLED_S: Final = 10.0
# What is measured of a variant.
RATE: Final = "rate"
P50: Final = "p50"
P99: Final = "p99"
CPU: Final = "cpu"
MEMORY: Final = "memory"


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
    messages = scale.of(3_000, 20_000, 100_000)
    variants: dict[str, tuple[int, dict[str, Any]]] = {
        "as it comes (batched)": (0, {"batching_enabled": True}),
        "unbatched": (0, {"batching_enabled": False}),
        "batched, 100 pending": (0, {"batching_enabled": True, "max_pending_messages": 100}),
        "batched, 5,000 pending": (0, {"batching_enabled": True, "max_pending_messages": 5_000}),
        "batched, LZ4": (0, {"batching_enabled": True, "compression_type": CompressionType.LZ4}),
        "batched, ZSTD": (0, {"batching_enabled": True, "compression_type": CompressionType.ZSTD}),
        "4 partitions, changed every delay": (4, {"batching_enabled": True, "batching_partition_switch_frequency": 1}),
        "4 partitions, changed every 10 delays": (4, {"batching_enabled": True}),
    }
    with MagnetarServer(directory) as server:

        def sent(name: str, count: int) -> dict[str, float]:
            partitions, options = variants[name]
            topic = topics.fresh("producer")
            if partitions:
                topic = topics.whole(topics.partitioned(server.web_url, partitions)[0])
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                rate, taken = runner.run(_send(server.service_url, topic, count, options))
            return {RATE: rate, P99: percentile(taken, 99)}

        taken = in_turns(
            [*variants], turns_of(scale), lambda name, _: sent(name, messages), lambda name: sent(name, messages // 4)
        )
    found = []
    settings = f"our client, 1 KB, {messages:,} messages"
    for name in variants:
        found.append(taken.figure(name, RATE, f"producer, {name}", "msg/s", MORE, settings, ("F-TUN-01",)))
        what = f"{settings}, {CLOSED_LOOP}"
        found.append(taken.figure(name, P99, f"producer, {name}, p99", "ms", LESS, what, ("F-TUN-01",)))
    return found


Quorums = tuple[int, int, int]


def _quorum_topic(web_url: str, quorums: Quorums) -> str:
    """Of a namespace with these, ensemble, write and ack."""
    namespace = "public/e{}w{}a{}".format(*quorums)
    # A connection for each: between two of them it would stand idle for longer than the broker keeps it.
    admin = topics.Admin(web_url)
    admin.call("PUT", f"namespaces/{namespace}", {})
    names = ("bookkeeperEnsemble", "bookkeeperWriteQuorum", "bookkeeperAckQuorum")
    policy = dict(zip(names, quorums, strict=True)) | {"managedLedgerMaxMarkDeleteRate": 0.0}
    admin.call("POST", f"namespaces/{namespace}/persistence", policy)
    admin.close()
    return f"persistent://{namespace}/load"


def replication(directory: Path, scale: Scale) -> list[Figure]:
    """Six bookies and a broker: a wider ensemble, and one answer less to wait for; always one to spare.

    What a slow bookie costs whoever waits for it is no question of the rate: the racks of `benchmarks.regions` have it.
    """
    messages = scale.of(2_000, 40_000, 100_000)
    variants: list[Quorums] = [(2, 2, 2), (5, 2, 2), (3, 3, 3), (3, 3, 2)]
    with Cluster(directory, bookies=6) as cluster:
        assert cluster.broker is not None
        broker = cluster.broker
        said = broker.said
        web_url = said["webServiceUrl"] if "webServiceUrl" in said else said["webUrl"]
        names = {quorums: _quorum_topic(web_url, quorums) for quorums in variants}

        def published(quorums: Quorums, _: int = 0) -> dict[str, float]:
            until_settled(broker.pid, SETTLED_S)
            topic = [names[quorums]]
            outcome = publish(cluster.service_url, Shape(1024), count=messages, connections=1, topics=topic)
            return {RATE: outcome.rate, P99: percentile(outcome.latencies_ms, 99)}

        taken = in_turns(variants, turns_of(scale), published, published)
    found = []
    settings = "ensemble/write/ack quorum; 6 bookies on the same disk and cores; "
    settings += f"{messages:,} unbatched messages of 1 KiB"
    for quorums in variants:
        name = "replication {}/{}/{}".format(*quorums)
        found.append(taken.figure(quorums, RATE, name, "msg/s", MORE, settings, ("F-TUN-02",)))
        # That of a full window, which says how fast it goes and nothing of whom a receipt waits for.
        found.append(taken.figure(quorums, P99, f"{name}, p99", "ms", LESS, f"{settings}; {CLOSED_LOOP}"))
    name = "  5/2/2 against 2/2/2"
    found.append(taken.ratio((5, 2, 2), (2, 2, 2), RATE, name, MORE, settings, ("F-TUN-02",)))
    return found


def _caught_up(server: MagnetarServer, entries: int) -> float:
    """Megabytes a second of a backlog that was just published."""
    topic = topics.fresh("reads")
    publish(server.service_url, Shape(1024), count=entries, topics=[topic])
    return consume([RawConsumer(server.service_url, topic, "all")], entries) / 1024


def broker_reads(directory: Path, scale: Scale) -> list[Figure]:
    """Cache size, entries read at once, and the wait before a tail is looked at again; a server for each."""
    entries = scale.of(6_000, 40_000, 100_000)
    turns = turns_of(scale)
    variants: dict[str, dict[str, str]] = {
        "as it comes": {},
        "cache 1 MB": {"managedLedgerCacheSizeMB": "1"},
        "20 entries a read": {"dispatcherMaxReadBatchSize": "20"},
        "1,000 entries a read": {"dispatcherMaxReadBatchSize": "1000"},
        "tail looked at every 100 ms": {"managedLedgerNewEntriesCheckDelayInMillis": "100"},
    }
    names = [*variants]
    with ExitStack() as stack:
        servers = {
            name: stack.enter_context(MagnetarServer(directory / str(number), config))
            for number, (name, config) in enumerate(variants.items())
        }

        def tail(name: str, _: int) -> dict[str, float]:
            return {P50: percentile(at_rate(servers[name], rate=500, seconds=1, consumed=True).end_to_end_ms, 50)}

        caught_up = in_turns(
            names,
            turns,
            lambda name, _: {RATE: _caught_up(servers[name], entries)},
            lambda name: _caught_up(servers[name], entries),
        )
        # The cache's counts are those of all turns of a load together.
        before = {name: freshly_scraped(server.web_url) for name, server in servers.items()}
        tails = in_turns(names, turns, tail)
        between = {name: freshly_scraped(server.web_url) for name, server in servers.items()}
        for server in servers.values():
            _read_behind(server)
        after = {name: freshly_scraped(server.web_url) for name, server in servers.items()}
    found = []
    for name, config in variants.items():
        settings = f"{entries:,} entries of 1 KiB; {words(config, 'broker')}"
        found.append(caught_up.figure(name, RATE, f"catch-up, {name}", "MB/s", MORE, settings, ("F-TUN-06",)))
        paced = f"500/s of 1 KiB; {words(config, 'broker')}"
        share = hit_percent(before[name], between[name])
        found.append(Figure(f"tail, {name}, from the cache", share, "%", MORE, "", paced, ("F-TUN-06",)))
        lag = f"{LAG_ENTRIES:,} entries of 1 KiB behind; {words(config, 'broker')}"
        behind = hit_percent(between[name], after[name])
        found.append(Figure(f"tail that lags, {name}, from the cache", behind, "%", MORE, "", lag, ("F-TUN-06",)))
        found.append(tails.figure(name, P50, f"tail, {name}, p50", "ms", LESS, paced, ("F-TUN-06",)))
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
    """What a Key_Shared dispatcher costs per message, by how many entries it reads at once; a server for each."""
    entries = scale.of(6_000, 40_000, 300_000)
    variants = (100, 20)
    with ExitStack() as stack:
        servers = {
            at_once: stack.enter_context(
                MagnetarServer(directory / str(at_once), {"dispatcherMaxReadBatchSize": str(at_once)})
            )
            for at_once in variants
        }

        def read(at_once: int, _: int = 0) -> dict[str, float]:
            server = servers[at_once]
            topic = topics.fresh("keys")
            publish(server.service_url, Shape(1024, keys=100), count=entries, topics=[topic])
            used = cpu_s(server.pid)
            consumers = [RawConsumer(server.service_url, topic, "keys", kind="Key_Shared") for _ in range(4)]
            rate = consume(consumers, entries)
            return {RATE: rate, CPU: (cpu_s(server.pid) - used) / entries * 1e6}

        taken = in_turns(variants, turns_of(scale), read, read)
    found = []
    settings = f"4 consumers, 100 keys, {entries:,} unbatched entries of 1 KiB"
    for at_once in variants:
        name = f"Key_Shared, {at_once} entries a read"
        found.append(taken.figure(at_once, RATE, name, "msg/s", MORE, settings, ("F-DISP-13",)))
        found.append(taken.figure(at_once, CPU, f"{name}, server's CPU", "µs/msg", LESS, settings, ("F-DISP-13",)))
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
    queues = (1_000, 100, 10_000)
    messages = scale.of(4_000, 30_000, 200_000)
    with MagnetarServer(directory) as server:

        def received(queue: int, _: int = 0) -> dict[str, float]:
            topic = topics.fresh("queue")
            publish(server.service_url, Shape(1024), count=messages, topics=[topic])
            answers = FORK.Queue()
            arguments = (server.service_url, topic, messages, queue, answers)
            process = FORK.Process(target=_receive_apart, args=arguments, daemon=True)
            process.start()
            rate, memory = answers.get(timeout=300)
            process.join(30)
            return {RATE: rate, MEMORY: memory}

        taken = in_turns(queues, turns_of(scale), received, received)
        settings = f"our client, {messages:,} messages of 1 KiB, server {pss_mb(server.pid):.0f} MB"
    found = []
    for queue in queues:
        name = f"receiver queue {queue:,}"
        found.append(taken.figure(queue, RATE, name, "msg/s", MORE, settings, ("F-TUN-07",)))
        found.append(taken.figure(queue, MEMORY, f"{name}, client's peak", "MB", LESS, settings, ("F-TUN-07",)))
    return found


def partitions(directory: Path, scale: Scale) -> list[Figure]:
    """A hot topic as one and as eight partitions, a producer on each, as many messages in flight in all.

    With as many in flight on each, eight would have eight times as many on their way, which says nothing of partitions.
    """
    messages = scale.of(8_000, 80_000, 400_000)
    counts = (1, 8)
    with MagnetarServer(directory) as server:
        publishing.warm_up(server, scale)

        def published(count: int, _: int) -> dict[str, float]:
            until_settled(server.pid)
            load = {"connections": count, "window": IN_FLIGHT // count}
            names = topics.partitioned(server.web_url, count)
            return {RATE: publish(server.service_url, Shape(1024), count=messages, topics=names, **load).rate}

        taken = in_turns(counts, scale.of(1, 5, 5), published)
    settings = f"unbatched 1 KiB, {IN_FLIGHT:,} in flight in all; one broker with one journal"
    found = []
    for count in counts:
        name = f"{count} partition{'s' if count > 1 else ''}"
        found.append(taken.figure(count, RATE, name, "msg/s", MORE, settings, ("F-TUN-10",)))
    found.append(taken.ratio(8, 1, RATE, "  8 partitions against 1", MORE, settings, ("F-TUN-10",)))
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
