# SPDX-License-Identifier: Apache-2.0
"""Latency at fixed rates, from the moment that each message was due: whoever stalls shows it in every message since.

`python -m benchmarks.perf latency` measures one rate from the command line.
"""

import multiprocessing
import os
import statistics
from multiprocessing.sharedctypes import Synchronized
from multiprocessing.synchronize import Event

from benchmarks import clients, topics
from benchmarks.figures import Figure, Scale, latency_figures, percentile
from benchmarks.raw_connection import RawConnection
from benchmarks.raw_consume import RawConsumer, consume
from benchmarks.raw_frames import Shape
from benchmarks.raw_paced import DRAIN_LIMIT_S, Latencies, Paced, drive
from benchmarks.raw_publish import connected, publish
from benchmarks.servers import Server, scraped
from magnetar.runtime.short_turns import ask_for_short_turns

FORK = multiprocessing.get_context("fork")
# A reader that stands for another machine gives way to whoever takes the time.
READER_NICE = 10
TAIL_HITS = "magnetar_ml_cache_hits_total"
"""Entries that came from the memory of what was just written. A reader of an old backlog finds none of its there."""
SPREAD_TURNS = 3


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
        tags = ("F-PLAT-14",) if rate >= 2_000 else ()
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
    hits_before = scraped(server.web_url).get(TAIL_HITS)
    scanner.start()
    beside = at_rate(server, rate=1_000, seconds=seconds, consumed=True)
    hits = scraped(server.web_url).get(TAIL_HITS)
    over.set()
    scanner.join(DRAIN_LIMIT_S)
    found = []
    settings = f"1,000/s of 1 KiB; a reader of low priority took {read.value:,} old messages"
    pairs: list[tuple[str, list[float], list[float], tuple[str, ...]]] = [
        ("publish", alone.publish_ms, beside.publish_ms, ("F-PLAT-04",)),
        ("tail read", alone.end_to_end_ms, beside.end_to_end_ms, ("F-PLAT-04", "F-PRB-14")),
    ]
    for what, quiet, busy, tags in pairs:
        before, after = percentile(quiet, 99), percentile(busy, 99)
        found.append(Figure(f"{what} p99, alone", before, "ms", "less", settings=settings))
        found.append(Figure(f"{what} p99, beside a backlog reader", after, "ms", "less", settings=settings))
        found.append(Figure(f"{what} p99, times", after / before, "times", "less", "≤ 2", settings, tags))
    if hits is not None and hits_before is not None:
        # A peer has no such count. A few looks for statistics are in it, too.
        share = min(100.0, 100 * (hits - hits_before) / len(beside.end_to_end_ms))
        what = "tail reads from memory, beside a backlog reader"
        found.append(Figure(what, share, "%", "more", "≥ 99 %", settings, ("F-BKS-31",)))
    return found


def _scan(service_url: str, backlog: str, entries: int, over: Event, read: "Synchronized[int]") -> None:
    """Read the first half of a backlog again and again; a subscription each, so that nothing is remembered."""
    os.nice(READER_NICE)
    while not over.is_set():
        reader = RawConsumer(service_url, backlog, f"scan-{read.value}", acks=False)
        consume([reader], entries)
        read.value += entries


def few_and_many_topics(server: Server, scale: Scale) -> list[Figure]:
    """The same rate over few and many topics. Producers are made once, a connection for each number of them, since
    thousands take a peer minutes; the numbers take turns, and each topic has been published to before.
    """
    ask_for_short_turns()
    many = scale.of(500, 10_000, 10_000)
    seconds = scale.of(2, 12, 20)
    turns = scale.of(1, SPREAD_TURNS, SPREAD_TURNS)
    rate = 1_000
    names = {count: [topics.fresh(f"spread-{count}") for _ in range(count)] for count in (many, 100, 10)}
    (made,) = connected(server.service_url, [names[many]])
    # Those that take no time come last, for nobody answers their pings meanwhile.
    connections = {many: made, **{count: connected(server.service_url, [names[count]])[0] for count in (100, 10)}}
    p99: dict[int, list[float]] = {count: [] for count in (10, 100, many)}
    for count in p99:
        _paced_on(connections, count, rate=10 * rate, messages=count)
    for _ in range(turns):
        for count, found_ms in p99.items():
            found_ms.append(percentile(_paced_on(connections, count, rate=rate, messages=rate * seconds), 99))
    for connection in connections.values():
        connection.close()
    settings = f"1,000/s of 1 KiB in all, {seconds} s, each topic published to before"
    settings += f"; median of {turns} turns" if turns > 1 else ""
    found = [
        Figure(f"publish p99 over {count:,} topics", statistics.median(each), "ms", "less", "", settings)
        for count, each in p99.items()
    ]
    for few, feature in ((100, "F-PLAT-07"), (10, "F-PRB-14")):
        times = statistics.median(p99[many]) / statistics.median(p99[few])
        what = f"publish p99, {many:,} topics against {few}"
        found.append(Figure(what, times, "times", "less", "≤ 2", settings, (feature,)))
    return found


def _paced_on(connections: dict[int, RawConnection], count: int, *, rate: float, messages: int) -> list[float]:
    """Milliseconds of each receipt; the other connections rest meanwhile, but for their pings."""
    for connection in connections.values():
        connection.answer_pings()
    paced = Paced(connections[count], count, Shape(1024), rate=rate, count=messages)
    drive([paced], [], messages / rate + DRAIN_LIMIT_S, keeps_open=True)
    return paced.latencies.publish_ms
