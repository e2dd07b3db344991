# SPDX-License-Identifier: Apache-2.0
"""What a server takes: time to its first receipt, memory, CPU when idle, bytes on disk; and how soon it is back."""

import math
import statistics
import time
from pathlib import Path

from benchmarks import topics
from benchmarks.figures import Figure, Scale
from benchmarks.journals import Killed
from benchmarks.raw_consume import RawConsumer, consume
from benchmarks.raw_frames import Shape, Tally
from benchmarks.raw_publish import publish
from benchmarks.servers import Peer, Server, busy_percent, disk_bytes, pss_mb

RECOVERED = Shape(10 * 1024)
# How long somebody tries again who is refused: a server may say that it serves before it can.
RETRY_LIMIT_S = 120.0


def first_receipt_s(server: Server, topic: str) -> float:
    """From the start of the process to the first acknowledged publish, tried as a client does until it is taken."""
    began = time.perf_counter()
    server.start()
    while True:
        try:
            publish(server.service_url, Shape(100), count=1, connections=1, topics=[topic])
        except ConnectionError:
            if time.perf_counter() - began > RETRY_LIMIT_S:
                raise
            time.sleep(0.05)
        else:
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
    """kill -9 with so much just published, then start until the same topic acknowledges again: with defaults, under
    which a server has written a part of it out already; and with all of it in the journal.
    """
    published_mb = scale.of(20, 100, 1024)
    replayed_mb, back_s, read_mb_s = _recovered(peer, directory / "defaults", published_mb)
    settings = f"{published_mb:,} MB in messages of 10 KiB; each was there once afterwards; defaults"
    held = f"{settings}, {replayed_mb:,.0f} MB were in the journal only"
    what = f"recovery after kill -9 with {published_mb:,} MB published"
    found = [Figure(what, back_s, "s", "less", "", held, ("F-REC-14",))]
    found.append(Figure("  in the journal only, of it", replayed_mb, "MB", "less", "", settings))
    found.append(Figure("first read of it afterwards, cold", read_mb_s, "MB/s", "more", "", settings))

    published_mb = scale.of(20, 1024, 1024)
    config = {
        # Either half holds all of it; what is read ahead leaves a Java server's direct memory to that.
        "dbStorage_writeCacheMaxSizeMb": str(published_mb * 9 // 4 + 64),
        "dbStorage_readAheadCacheMaxSizeMb": "64",
        "flushInterval": "3600000",
    }
    replayed_mb, back_s, _ = _recovered(peer, directory / "journal", published_mb, config)
    assert replayed_mb >= published_mb, f"{replayed_mb:.0f} of {published_mb} MB were in the journal"
    settings = f"messages of 10 KiB; each was there once afterwards; {' '.join(map('='.join, config.items()))}"
    what = f"recovery after kill -9 with {published_mb:,} MB in the journal"
    return [*found, Figure(what, back_s, "s", "less", "", settings, ("F-REC-14",))]


def _recovered(
    peer: Peer, directory: Path, megabytes: int, config: dict[str, str] | None = None
) -> tuple[float, float, float]:
    """How many MB the journal alone had, seconds until the first receipt, and how fast all is read then, in MB/s."""
    server = peer.server(directory, config)
    topic = topics.fresh("recovery")
    # Even: two connections publish as many each.
    count = math.ceil(megabytes * 2**20 / RECOVERED.size / 2) * 2
    try:
        first_receipt_s(server, topic)
        publish(server.service_url, RECOVERED, count=count, window=500, topics=[topic])
        server.kill()
        killed = Killed(server)
        back_s = first_receipt_s(server, topic)
        killed.check_replayed()
        tally = Tally(RECOVERED, count)
        # And the receipts before and after.
        rate = consume([RawConsumer(server.service_url, topic, "check", on_entry=tally.on_entry)], count + 2)
    finally:
        server.kill()
    assert (tally.missing, tally.repeated, tally.others) == (0, 0, 2), (
        f"of {count:,} messages {tally.missing} are gone and {tally.repeated} are there more than once"
    )
    return killed.journal_mb, back_s, rate * RECOVERED.size / 2**20


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
