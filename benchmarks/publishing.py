# SPDX-License-Identifier: Apache-2.0
"""Publish throughput: unbatched and batched, small and large, with one and with many producers and topics."""

import re
import shutil
import subprocess
from pathlib import Path
from statistics import median

from benchmarks import clients, topics
from benchmarks.figures import Figure, Scale
from benchmarks.peers import ApachePulsar
from benchmarks.raw_consume import RawConsumer, consume
from benchmarks.raw_frames import Shape
from benchmarks.raw_publish import publish, publish_for
from benchmarks.servers import Peer, Server, cpu_s, until_settled

MANY = 100
PARTITIONS = 100
SHAPES = (Shape(100), Shape(1024), Shape(65536), Shape(100, 100), Shape(1024, 100), Shape(65536, 4))
# As fast as it goes: so long at each scale, or so many megabytes.
SECONDS = (1, 2, 4)
MEGABYTES = (500, 1_000, 1_000)
# Of the official generator; and how long it may take to start and to end.
OUTSTANDING = 10_000
PERF_PATIENCE_S = 60.0
# Aims of the ratio to Apache Pulsar: the floor, then the aim.
_RAW_AIMS = {(1024, 1): "1.0× → 1.5×", (100, 1): "0.9× → 1.3×", (1024, 100): "1.1× → 2×"}


def warm_up(server: Server, scale: Scale) -> None:
    """What a server compiles or allocates at its first load is not measured."""
    for shape, entries in ((Shape(1024, keys=100), scale.of(10_000, 100_000, 200_000)), (Shape(1024, 100), 500)):
        topic = topics.fresh("warm-up")
        publish(server.service_url, shape, count=entries, topics=[topic])
        publish_for(
            server.service_url,
            shape,
            seconds=scale.of(1, 4, 8),
            bytes_max=scale.of(*MEGABYTES) * 10**6,
            topics=[topics.fresh("warm-up")],
        )
        for kind in ("Exclusive", "Shared"):
            consumer = RawConsumer(server.service_url, topic, kind, kind=kind, batch=shape.batch)
            consume([consumer], entries * shape.batch)


def raw(server: Server, scale: Scale) -> list[Figure]:
    """One topic, two producers on a connection each; and one producer alone."""
    found = []
    most = f"{scale.of(*SECONDS)} s or {scale.of(*MEGABYTES):,} MB"
    for shape in SHAPES:
        for producers in (2, 1):
            window = 2_000 if shape.size < 65536 else 64
            name = [topics.fresh("publish")]
            rate, used = _at_full_speed(server, shape, scale, producers, window, name)
            what = f"{shape.words}, raw frames{'' if producers == 2 else ', one producer'}"
            settings = f"{producers} producers, {window} messages in flight each, {shape.batch} in a batch, {most}"
            aim = _RAW_AIMS.get((shape.size, shape.batch), "") if producers == 2 else ""
            tags = ("F-DISP-19",) if shape == Shape(1024) else ()
            found.append(Figure(f"publish {what}", rate, "msg/s", "more", aim, settings, tags))
            found.append(Figure(f"  server's CPU for it, {what}", used, "µs/msg", "less", "", settings))
    return found


def _at_full_speed(
    server: Server, shape: Shape, scale: Scale, connections: int, window: int, names: list[str]
) -> tuple[float, float]:
    """Messages a second, and microseconds of the server's processors for each; what topics cost to make counts not."""
    used_before: list[float] = []
    outcome = publish_for(
        server.service_url,
        shape,
        seconds=scale.of(*SECONDS),
        bytes_max=scale.of(*MEGABYTES) * 10**6,
        connections=connections,
        window=window,
        topics=names,
        on_ready=lambda: used_before.append(cpu_s(server.pid)),
    )
    return outcome.rate, (cpu_s(server.pid) - used_before[0]) / outcome.messages * 1e6


def sustained(server: Server, scale: Scale) -> list[Figure]:
    """Batches for so long that whoever keeps much in memory before writing it out has to do that meanwhile."""
    laps = scale.of(1, 10, 20)
    shape, entries = Shape(1024, 100), scale.of(400, 2_500, 2_500) * laps
    used = cpu_s(server.pid)
    name = [topics.fresh("sustained")]
    outcome = publish(server.service_url, shape, count=entries, laps=laps, topics=name)
    used = (cpu_s(server.pid) - used) / outcome.messages * 1e6
    what = f"{shape.words}, raw frames, sustained"
    settings = f"{entries // 10:,} MB; 2 producers, 2000 messages in flight each, {shape.batch} in a batch"
    return [
        Figure(f"publish {what}", outcome.rate, "msg/s", "more", _RAW_AIMS[1024, 100], settings),
        Figure(f"  server's CPU for it, {what}", used, "µs/msg", "less", "", settings),
    ]


def many_producers(server: Server, scale: Scale) -> list[Figure]:
    """One topic that many clients publish to, each on a connection of its own with little in flight."""
    found = []
    most = f"{scale.of(*SECONDS)} s or {scale.of(*MEGABYTES):,} MB"
    for shape in SHAPES:
        window = shape.batch * (20 if shape.size < 65536 else 2)
        rate, used = _at_full_speed(server, shape, scale, MANY, window, [topics.fresh("producers")])
        what = f"{shape.words}, {MANY} producers"
        settings = f"raw frames, {window} messages in flight on each of {MANY} connections, {most}"
        found.append(Figure(f"publish {what}", rate, "msg/s", settings=settings))
        found.append(Figure(f"  server's CPU for it, {what}", used, "µs/msg", "less", "", settings))
    return found


def few_topics(server: Server, scale: Scale) -> list[Figure]:
    return [figure for count in (1, 100) for figure in _over_topics(server, scale, count)]


def many_topics(server: Server, scale: Scale) -> list[Figure]:
    return _over_topics(server, scale, scale.of(500, 10_000, 10_000))


def _over_topics(server: Server, scale: Scale, count: int) -> list[Figure]:
    found = []
    most = f"{scale.of(*SECONDS)} s or {scale.of(*MEGABYTES):,} MB"
    names = [topics.fresh(f"many-{count}") for _ in range(count)]
    for shape in SHAPES:
        window = 32 if shape.size == 65536 else 500 if shape.batch == 1 else 5_000
        rate, used = _at_full_speed(server, shape, scale, 4, window, names)
        settings = f"a producer on each, on 4 connections, {window:,} messages in flight each, round robin, {most}"
        what = f"{shape.words} over {count:,} topics"
        found.append(Figure(f"publish {what}", rate, "msg/s", settings=settings))
        found.append(Figure(f"  server's CPU for it, {what}", used, "µs/msg", "less", "", settings))
    return found


def partitions(server: Server, scale: Scale) -> list[Figure]:
    """Megabytes a second to a topic of one partition and of a hundred, as reference loads have it."""
    found = []
    shape = Shape(1024, 100)
    most = f"{scale.of(*SECONDS)} s or {scale.of(*MEGABYTES):,} MB"
    for count, connections in ((1, 2), (PARTITIONS, 4)):
        names = topics.partitioned(server.web_url, count)
        rate, _ = _at_full_speed(server, shape, scale, connections, 5_000, names)
        settings = f"raw frames, {shape.words}, {shape.batch} in a batch, {connections} connections, {most}"
        name = f"publish to {count} partition{'s' if count > 1 else ''}"
        found.append(Figure(name, rate * shape.size / 1e6, "MB/s", "more", "", settings, ("F-PLAT-14",)))
    return found


def python_clients(server: Server, scale: Scale) -> list[Figure]:
    """The official Python client and ours: what an application gets, the client's own work included."""
    found = []
    messages = scale.of(5_000, 30_000, 200_000)
    settings = f"{clients.IN_FLIGHT:,} in flight"
    for batched in (False, True):
        kind = "batched" if batched else "unbatched"
        topic = topics.fresh("official")
        rate = clients.official_publish(server.service_url, topic, messages, batched=batched)
        found.append(Figure(f"publish {kind} 1 KiB, official Python client", rate, "msg/s", settings=settings))
        topic = topics.fresh("own")
        rate = clients.run(clients.own_publish(server.service_url, topic, messages, batched=batched))
        found.append(Figure(f"publish {kind} 1 KiB, our Python client", rate, "msg/s", settings=settings))
    return found


def pulsar_perf(peer: Peer, directory: Path, scale: Scale) -> list[Figure]:
    """Apache's own load generator, where its distribution is at hand.

    Each kind of message has a server of its own, whose data goes with it: tens of gigabytes that nobody reads would
    be in the way of whoever comes next, and a disk that is nearly full makes a server read-only.
    """
    apache = ApachePulsar()
    loads = [("unbatched 1 KiB", 1024, ["--batch-max-messages", "1"], "1.0× → 1.5×")]
    loads += [("batched 1 KiB", 1024, [], "1.2× → 1.5×"), ("batched 100 B", 100, [], "0.9× → 1×")]
    loads += [("batched 64 KiB", 65536, [], "")]
    found = []
    for number, (what, size, more, aim) in enumerate(loads):
        own = directory / str(number)
        try:
            with peer.server(own) as server:
                warm_up(server, scale)
                until_settled(server.pid)
                words = ["produce", "-u", server.service_url, "-r", "2000000", "-s", str(size), *more]
                rates = _perf_rates(apache.perf(*words), scale)
        finally:
            shutil.rmtree(own, ignore_errors=True)
        settings = f"median of {len(rates)} times 10 s after the first, {OUTSTANDING:,} messages outstanding"
        found.append(Figure(f"publish {what}, pulsar-perf", median(rates), "msg/s", "more", aim, settings))
    return found


def _perf_rates(command: list[str], scale: Scale) -> list[float]:
    """What was produced in every ten seconds but the first, which have the generator's start in them."""
    seconds = scale.of(22, 32, 52)
    # Without a bound the generator fills its memory first, and the rate is its collector's.
    command = [*command, "-time", str(seconds), "-o", str(OUTSTANDING), topics.fresh("perf")]
    # It waits for its last receipts without end, and then nothing that it said is a rate.
    said = subprocess.run(command, capture_output=True, text=True, timeout=seconds + PERF_PATIENCE_S, check=False)
    rates = [float(rate) for rate in re.findall(r"Throughput produced:.*?--- +([\d.]+) msg/s", said.stdout)]
    if not rates[1:]:
        raise RuntimeError(f"pulsar-perf said no rate: {said.stdout[-300:]} {said.stderr[-300:]}")
    return rates[1:]
