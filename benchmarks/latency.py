# SPDX-License-Identifier: Apache-2.0
"""Latency at fixed rates, from the moment that each message was due: whoever stalls shows it in every message since.

`python -m benchmarks.perf latency` measures one rate from the command line.
"""

import multiprocessing
import os
from multiprocessing.sharedctypes import Synchronized
from multiprocessing.synchronize import Event

from benchmarks import clients, topics
from benchmarks.figures import Figure, Scale, latency_figures, percentile
from benchmarks.raw_consume import RawConsumer, consume
from benchmarks.raw_frames import Shape
from benchmarks.raw_paced import DRAIN_LIMIT_S, Latencies, Paced, drive
from benchmarks.raw_publish import connected, publish
from benchmarks.servers import Server
from magnetar.runtime.short_turns import ask_for_short_turns

FORK = multiprocessing.get_context("fork")
# A reader that stands for another machine gives way to whoever takes the time.
READER_NICE = 10


def at_rate(
    server: Server,
    *,
    rate: float,
    seconds: float,
    size: int = 1024,
    names: list[str] | None = None,
    consumed: bool = False,
) -> Latencies:
    """Publish at a rate for so long; with a consumer on the first topic, whose messages are timed too.

    Whoever takes the time stands for another machine: it waits for nobody's turn on a processor longer than it must.
    """
    ask_for_short_turns()
    chosen = names or [topics.fresh("latency")]
    (connection,) = connected(server.service_url, [chosen])
    paced = Paced(connection, len(chosen), Shape(size), rate=rate, count=int(rate * seconds))
    consumers = []
    if consumed:
        consumers.append(RawConsumer(server.service_url, chosen[0], "timed", earliest=False, on_entry=paced.on_entry))
    drive([paced], consumers, seconds + DRAIN_LIMIT_S)
    return paced.latencies


def fixed_rates(server: Server, scale: Scale) -> list[Figure]:
    seconds = scale.of(2, 6, 30)
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


def sizes(server: Server, scale: Scale) -> list[Figure]:
    """Small and large messages beside the 1 KiB of the other rates."""
    found = []
    for size, rate in ((100, 2_000), (65536, 500)):
        seconds = scale.of(2, 5, 20)
        latencies = at_rate(server, rate=rate, seconds=seconds, size=size)
        words = Shape(size).words.removeprefix("unbatched ")
        settings = f"{words}, one producer, {seconds} s, counted from when each was due"
        found += latency_figures(f"publish latency of {words} at {rate:,}/s", latencies.publish_ms, settings=settings)
    return found


def one_at_a_time(server: Server, scale: Scale) -> list[Figure]:
    """A client that waits for each receipt: the official one's blocking send, and ours."""
    messages = scale.of(300, 2_000, 10_000)
    taken = clients.official_one_at_a_time(server.service_url, topics.fresh("one"), messages)
    aims = ("0.5× → 0.3×", "", "", "")
    found = latency_figures("one send at a time, official client", taken, aims=aims, settings="1 KiB, unbatched")
    taken = clients.run(clients.own_one_at_a_time(server.service_url, topics.fresh("one"), messages))
    return found + latency_figures("one send at a time, our client", taken, settings="1 KiB, unbatched")


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
        settings = f"1,000/s of 1 KiB; a reader of low priority took {read.value:,} old messages"
        found.append(Figure(f"{what} p99, alone", before, "ms", "less", settings=settings))
        found.append(Figure(f"{what} p99, beside a backlog reader", after, "ms", "less", "≤ 2 times", settings))
        found.append(Figure(f"{what} p99, times", after / before, "times", "less", "≤ 2", settings, tags))
    return found


def _scan(service_url: str, backlog: str, entries: int, over: Event, read: "Synchronized[int]") -> None:
    """Read the first half of a backlog again and again; a subscription each, so that nothing is remembered."""
    os.nice(READER_NICE)
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
