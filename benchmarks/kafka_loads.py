# SPDX-License-Identifier: Apache-2.0
"""The loads that Kafka can be put under as well, through its own generators; figures bear the names of the rows that
they stand beside.

Kafka's clients choose their batches; `unbatched` is a batch size of nothing. Its broker syncs each batch by itself.
"""

import re
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks.figures import LESS, WORST, Figure, Scale
from benchmarks.kafka_peer import KafkaBrokers, KafkaServer
from benchmarks.servers import busy_percent, disk_bytes, pss_mb

RUN_LIMIT_S: Final = 600.0
UNLIMITED: Final = -1
# A client that comes before its broker asks again so often.
_IMPATIENT: Final = ("reconnect.backoff.ms=20", "reconnect.backoff.max.ms=20")
_CLOCK: Final = "counted from each send call, in whole milliseconds"
_PRODUCED: Final = re.compile(
    r"^\d+ records sent, ([\d.]+) records/sec .*?([\d.]+) ms max latency,"
    r" (\d+) ms 50th, \d+ ms 95th, (\d+) ms 99th, (\d+) ms 99\.9th",
    re.MULTILINE,
)


class Produced(NamedTuple):
    """What ProducerPerformance says at its end."""

    rate: float
    max_ms: float
    p50_ms: float
    p99_ms: float
    p999_ms: float


def produced(said: str) -> Produced:
    """Read the last line; ConnectionError when there is none."""
    found = _PRODUCED.search(said)
    if found is None:
        raise ConnectionError(f"ProducerPerformance measured nothing: {said[-300:]!r}")
    return Produced(*(float(value) for value in found.groups()))


def consumed(said: str) -> float:
    """Messages a second of ConsumerPerformance, without the time in which a group forms."""
    rows = [line.split(", ") for line in said.splitlines() if line.count(", ") == 9]
    rate = float(dict(zip(rows[0], rows[-1], strict=True))["fetch.nMsg.sec"]) if len(rows) > 1 else 0.0
    if rate <= 0:
        raise ConnectionError(f"ConsumerPerformance measured nothing: {said[-300:]!r}")
    return rate


def _consumer(server: KafkaServer, topic: str, count: int) -> list[str]:
    words = ["--bootstrap-server", server.address, "--topic", topic, "--messages", str(count)]
    return server.java("org.apache.kafka.tools.ConsumerPerformance", *words, "--timeout", str(int(RUN_LIMIT_S * 100)))


def _producer(
    server: KafkaServer, topic: str, *, count: int, size: int, rate: int = UNLIMITED, settings: tuple[str, ...] = ()
) -> list[str]:
    words = ["--topic", topic, "--num-records", str(count), "--record-size", str(size), "--throughput", str(rate)]
    words += ["--producer-props", f"bootstrap.servers={server.address}", "acks=all", *settings]
    return server.java("org.apache.kafka.tools.ProducerPerformance", *words)


# Of publish rates.
_WHOLE: Final = "rate is that of a whole run of its own generator, its start included"


def _said(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_LIMIT_S, check=False)
    return done.stdout + done.stderr


def warm_up(server: KafkaServer, scale: Scale) -> None:
    """What the broker compiles at its first load is not measured; the generators are new each time."""
    produced(_said(_producer(server, "warm-up", count=scale.of(10_000, 100_000, 200_000), size=1024)))


def publish(server: KafkaServer, scale: Scale) -> list[Figure]:
    """The rows of pulsar-perf: each vendor's own generator as it comes."""
    loads: list[tuple[str, int, int, tuple[str, ...]]] = [
        ("unbatched 1 KiB", 1024, scale.of(5_000, 20_000, 100_000), ("batch.size=0",)),
        ("batched 1 KiB", 1024, scale.of(20_000, 200_000, 1_000_000), ()),
        ("batched 100 B", 100, scale.of(50_000, 500_000, 2_000_000), ()),
        ("batched 64 KiB", 65536, scale.of(500, 2_000, 10_000), ()),
    ]
    found = []
    for what, size, count, settings in loads:
        topic = f"publish-{what.replace(' ', '-')}"
        rate = produced(_said(_producer(server, topic, count=count, size=size, settings=settings))).rate
        found.append(Figure(f"publish {what}, pulsar-perf", rate, "msg/s", unlike=_WHOLE))
    return found


def fixed_rates(server: KafkaServer, scale: Scale) -> list[Figure]:
    found = []
    for rate in (500, 2_000, 10_000):
        command = _producer(server, f"rate-{rate}", count=rate * scale.of(2, 10, 30), size=1024, rate=rate)
        measured = produced(_said(command))
        name = f"publish latency at {rate:,}/s"
        found += [
            Figure(f"{name}, p50", measured.p50_ms, "ms", LESS, unlike=_CLOCK),
            Figure(f"{name}, p99", measured.p99_ms, "ms", LESS, unlike=_CLOCK),
            Figure(f"{name}, p99.9", measured.p999_ms, "ms", LESS, unlike=_CLOCK),
            Figure(f"{name}{WORST}", measured.max_ms, "ms", LESS, unlike=_CLOCK),
        ]
    return found


def catch_up(server: KafkaServer, scale: Scale) -> list[Figure]:
    """A backlog of the client's own batches, read by one consumer."""
    count = scale.of(20_000, 200_000, 2_000_000)
    produced(_said(_producer(server, "catch-up", count=count, size=1024)))
    rate = consumed(_said(_consumer(server, "catch-up", count)))
    return [Figure("consume catch-up batched 1 KiB, Exclusive", rate, "msg/s")]


def start_and_load(peer: KafkaBrokers, directory: Path, scale: Scale) -> list[Figure]:
    """The producer is started with the broker and asks until it is there, so that its own start hardly counts."""
    server = peer.server(directory)
    server.make_storage()
    began = time.perf_counter()
    server.launch()
    try:
        produced(_said(_producer(server, "first", count=1, size=100, settings=_IMPATIENT)))
        started_s = time.perf_counter() - began
        memory = pss_mb(server.pid)
        time.sleep(scale.of(3, 10, 30))
        idle = busy_percent(server.pid, scale.of(3, 10, 60))
        entries = scale.of(10_000, 100_000, 1_000_000)
        produced(_said(_producer(server, "load", count=entries, size=1024)))
        consumed(_said(_consumer(server, "load", entries)))
        loaded = pss_mb(server.pid)
        on_disk = disk_bytes(server.data_directory) / 2**20
        after = busy_percent(server.pid, scale.of(3, 10, 60))
    finally:
        server.kill()
    return [
        Figure("start to first acknowledged publish", started_s, "s", LESS),
        Figure("memory (PSS) after start", memory, "MB", LESS),
        Figure("memory (PSS) after load", loaded, "MB", LESS),
        Figure("idle CPU after start", idle, "% of a core", LESS),
        Figure("idle CPU after load", after, "% of a core", LESS),
        Figure("on disk after load", on_disk, "MB", LESS),
    ]


# By the name of the load that each stands beside.
SHARED: Final[dict[str, Callable[[KafkaServer, Scale], list[Figure]]]] = {
    "publish-perf": publish,
    "latency": fixed_rates,
    "catch-up": catch_up,
}
FRESH: Final[dict[str, Callable[[KafkaBrokers, Path, Scale], list[Figure]]]] = {"start-and-load": start_and_load}
