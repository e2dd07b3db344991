# SPDX-License-Identifier: Apache-2.0
"""Many readers of a cluster whose bookies have small read caches: each ledger read at one bookie, or at all in turn."""

from pathlib import Path
from typing import Final

from benchmarks import topics
from benchmarks.bookie_isolation import forget
from benchmarks.bookie_knobs import READ_AHEAD
from benchmarks.changed_keys import words
from benchmarks.figures import LESS, MORE, Figure, Scale
from benchmarks.raw_consume import RawConsumer, consume
from benchmarks.raw_frames import Shape
from benchmarks.raw_publish import publish
from benchmarks.servers import scraped
from tests.cluster import Cluster

BOOKIES: Final = 3
READERS: Final = 10
STICKY: Final = "bookkeeperEnableStickyReads"
# Every bookie has every entry, and room for few that were read ahead; the broker keeps next to nothing.
_SMALL: Final = {
    "managedLedgerDefaultEnsembleSize": "3",
    "managedLedgerDefaultWriteQuorum": "3",
    "managedLedgerDefaultAckQuorum": "2",
    "managedLedgerCacheSizeMB": "1",
    "dbStorage_readAheadCacheMaxSizeMb": "1",
}


def _read_from_disk(cluster: Cluster) -> float:
    """Entries read from disk so far, and reads of it, at all bookies."""
    found = [scraped(f"http://127.0.0.1:{each.said['httpserver'].rpartition(':')[2]}") for each in cluster.bookies]
    return sum(each.get(name, 0.0) for each in found for name in READ_AHEAD)


def _cold(cluster: Cluster, sticky: str) -> None:
    """All ledgers are closed and in entry logs that the kernel forgot; brokers begin anew with the setting."""
    assert cluster.broker is not None
    cluster.broker.stop()
    for bookie in cluster.bookies:
        bookie.stop()
        forget(bookie.data_directory)
        bookie.start()
    cluster.broker.configure(**{STICKY: sticky})
    cluster.broker.start()


def many_readers(directory: Path, scale: Scale) -> list[Figure]:
    found = []
    entries = scale.of(2_000, 10_000, 50_000)
    names = [topics.fresh("sticky") for _ in range(READERS)]
    with Cluster(directory, bookies=BOOKIES, environment=_SMALL) as cluster:
        for name in names:
            publish(cluster.service_url, Shape(1024), count=entries, connections=1, topics=[name])
        for sticky in ("true", "false"):
            _cold(cluster, sticky)
            consumers = [RawConsumer(cluster.service_url, name, f"reader-{sticky}") for name in names]
            before = _read_from_disk(cluster)
            rate = consume(consumers, entries * READERS)
            ratio = (_read_from_disk(cluster) - before) / (entries * READERS)
            what = (
                f"{READERS} readers, {BOOKIES} bookies of 1 MB, {'sticky' if sticky == 'true' else 'from all in turn'}"
            )
            settings = f"{entries:,} entries of 1 KiB in each of {READERS} topics, 3/3/2, cold; "
            settings += words({STICKY: sticky, "managedLedgerCacheSizeMB": "1"}, "broker")
            tags = ("F-PRB-13", "F-MET-10")
            found.append(Figure(f"thrash ratio, {what}", ratio, "times", LESS, "", settings, tags))
            found.append(Figure(f"catch-up, {what}", rate / 1024, "MB/s", MORE, "", settings, ("F-TUN-06",)))
    return found
