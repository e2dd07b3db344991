# SPDX-License-Identifier: Apache-2.0
"""What a server takes: time to its first receipt, memory, CPU when idle, bytes on disk; and how soon it is back."""

import statistics
import time
from pathlib import Path

from benchmarks import topics
from benchmarks.figures import Figure, Scale
from benchmarks.raw_consume import RawConsumer, consume
from benchmarks.raw_frames import Shape
from benchmarks.raw_publish import publish
from benchmarks.servers import Peer, Server, busy_percent, disk_bytes, pss_mb


def first_receipt_s(server: Server, topic: str) -> float:
    """From the start of the process to the first acknowledged publish."""
    began = time.perf_counter()
    server.start()
    publish(server.service_url, Shape(100), count=1, connections=1, topics=[topic])
    return time.perf_counter() - began


def start_and_load(peer: Peer, directory: Path, scale: Scale) -> list[Figure]:
    """A fresh server: started, left alone, loaded with publishing and consuming, left alone again."""
    server = peer.server(directory)
    try:
        started_s = first_receipt_s(server, topics.fresh("first"))
        memory = pss_mb(server.pid)
        time.sleep(scale.of(3, 10, 30))  # what a start leaves to be done is not idleness
        idle = busy_percent(server.pid, scale.of(3, 10, 60))
        entries = scale.of(10_000, 100_000, 1_000_000)
        topic = topics.fresh("load")
        publish(server.service_url, Shape(1024), count=entries, topics=[topic])
        consume([RawConsumer(server.service_url, topic, "load")], entries)
        loaded = pss_mb(server.pid)
        on_disk = disk_bytes(server.data_directory) / 2**20
        after = busy_percent(server.pid, scale.of(3, 10, 60))
    finally:
        server.kill()
    load = f"{entries:,} messages of 1 KiB published and consumed"
    return [
        Figure("start to first acknowledged publish", started_s, "s", "less", "0.1× → 0.05×", "fresh data directory"),
        Figure("memory (PSS) after start", memory, "MB", "less", "≤ 120 MB"),
        Figure("memory (PSS) after load", loaded, "MB", "less", "≤ 300 MB", load),
        Figure("idle CPU after start", idle, "% of a core", "less", "1 % → 0.3 %"),
        Figure("idle CPU after load", after, "% of a core", "less", "", load),
        Figure("on disk after load", on_disk, "MB", "less", "", f"{load}; files allocated ahead count"),
    ]


def recovery(peer: Peer, directory: Path, scale: Scale) -> list[Figure]:
    """kill -9 with so much just published, then start until the same topic acknowledges again."""
    server = peer.server(directory)
    megabytes = scale.of(20, 100, 1024)
    topic = topics.fresh("recovery")
    try:
        first_receipt_s(server, topic)
        publish(server.service_url, Shape(10 * 1024), count=megabytes * 100, window=500, topics=[topic])
        server.kill()
        back_s = first_receipt_s(server, topic)
        rate = consume([RawConsumer(server.service_url, topic, "check")], megabytes * 100 + 2)
    finally:
        server.kill()
    settings = f"{megabytes} MB in messages of 10 KiB; all of them were there afterwards"
    return [
        Figure(
            f"recovery after kill -9 with {megabytes:,} MB published", back_s, "s", "less", "", settings, ("F-REC-14",)
        ),
        Figure("first read of it afterwards, cold", rate * 10 / 1024, "MB/s", "more", "", settings),
    ]


def restarts(peer: Peer, directory: Path, scale: Scale) -> list[Figure]:
    """Started again on data that is there."""
    server = peer.server(directory)
    topic = topics.fresh("restart")
    taken = []
    try:
        for _ in range(scale.of(2, 3, 5) + 1):
            taken.append(first_receipt_s(server, topic))
            server.kill()
    finally:
        server.kill()
    return [Figure("start again to first acknowledged publish", statistics.median(taken[1:]), "s", "less")]
