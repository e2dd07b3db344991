# SPDX-License-Identifier: Apache-2.0
"""A bookie's own knobs, one at a time: what is written, what is read cold, and how a small read cache thrashes."""

import multiprocessing
import os
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import psutil

from benchmarks.bookie_adds import measure
from benchmarks.bookie_isolation import CatchUp, Reader, catch_up, latencies
from benchmarks.changed_keys import words
from benchmarks.figures import CLOSED_LOOP, LESS, MORE, Figure, Scale, percentile
from benchmarks.servers import disk_of, scraped, until_settled
from benchmarks.turns import Turns, in_turns, turns_of
from tests.cluster import Cluster, RoleProcess
from tests.processes import free_port

FORK: Final = multiprocessing.get_context("fork")
LEDGERS: Final = 10
JOURNALS: Final = (1, 2, 4)
SYNC: Final = "as it comes"
NO_SYNC: Final = "no sync"
RATE: Final = "rate"
P99: Final = "p99"
# Ledgers of the adds that come one at a time.
PROBED: Final = 100_000
# A file system without a disk, how much room it must have, and how many adds of a turn fit into that.
MEMORY: Final = Path("/dev/shm")
IN_MEMORY_GB: Final = 4.0
IN_MEMORY_MAX: Final = 60_000


def _ports() -> list[str]:
    """Kept over a restart: a bookie is known by its address."""
    return ["--port", str(free_port()), "--http-port", str(free_port())]


class _Storage:
    """Metadata and one bookie with a configuration file, which may be changed between two lives of it."""

    def __init__(self, directory: Path, config: dict[str, str]) -> None:
        self._cluster = Cluster(directory, bookies=0, broker=False)
        self._config = directory / "bookie.conf"
        directory.mkdir(parents=True, exist_ok=True)
        self.set(config)
        arguments = ["bookie", "--metadata", self._cluster.metadata_url, *_ports()]
        self.bookie = RoleProcess("bookie", directory / "bookie", *arguments, "--config", str(self._config))

    def set(self, config: dict[str, str]) -> None:
        self._config.write_text("".join(f"{key}={value}\n" for key, value in config.items()))

    def __enter__(self) -> "_Storage":
        self._cluster.start()
        self.bookie.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.bookie.is_running:
            self.bookie.kill()
        self._cluster.__exit__(None, None, None)

    @property
    def said(self) -> dict[str, Any]:
        return self.bookie.said

    @property
    def port(self) -> int:
        return int(self.said["bookie"].rpartition(":")[2])

    @property
    def web_url(self) -> str:
        return f"http://127.0.0.1:{self.said['httpserver'].rpartition(':')[2]}"


def _write_variants(directory: Path) -> dict[str, dict[str, str]]:
    journals = ",".join(str(directory / f"journal-{number}") for number in range(2))
    ledgers = ",".join(str(directory / f"ledgers-{number}") for number in range(2))
    return {
        SYNC: {},
        NO_SYNC: {"journalSyncData": "false"},
        "no sync, pages every 10 ms": {"journalSyncData": "false", "journalPageCacheFlushIntervalMSec": "10"},
        "groups of 10 ms": {"journalMaxGroupWaitMSec": "10"},
        "two journals": {"journalDirectories": journals},
        "two ledger directories": {"ledgerDirectories": ledgers},
        "write cache of 8 MB": {"dbStorage_writeCacheMaxSizeMb": "8"},
        "flushed every second": {"flushInterval": "1000"},
        "50,000 adds may be pending": {"maxPendingAddRequestsPerThread": "50000"},
        "8 add threads": {"numAddWorkerThreads": "8"},
    }


def writes(directory: Path, scale: Scale) -> list[Figure]:
    """A bookie for each variant, all of them there at once."""
    adds = scale.of(10_000, 60_000, 100_000)
    settled_s = scale.of(2, 3, 60)
    variants = _write_variants(directory)
    common = {"connections": 2, "ledgers": LEDGERS, "window": 2_000}
    # One that gathers groups takes as long as they wait for each.
    probes = {
        name: scale.of(100, 100, 500) * (1 if "journalMaxGroupWaitMSec" in config else 10)
        for name, config in variants.items()
    }
    with ExitStack() as stack:
        storages = {
            name: stack.enter_context(_Storage(directory / str(number), config))
            for number, (name, config) in enumerate(variants.items())
        }
        for storage in storages.values():
            measure(storage.said, adds=adds // 2, base=1, **common)
        until_settled(storages[SYNC].bookie.pid, settled_s)

        def measured(name: str, turn: int) -> dict[str, float]:
            storage = storages[name]
            run = measure(storage.said, adds=adds, base=1_000 * (1 + turn), **common)
            # What the load left is written out first: a single add's time is not to be that of its checkpoint.
            until_settled(storage.bookie.pid, settled_s)
            alone = latencies(storage.port, PROBED + turn, probes[name])
            return {RATE: run.adds_per_s, P99: 1000 * percentile(alone, 99)}

        taken = in_turns([*variants], turns_of(scale), measured)
    found = []
    for name, config in variants.items():
        settings = f"adds of 1 KiB over TCP; {words(config, 'bookie', directory)}"
        found.append(taken.figure(name, RATE, f"bookie, {name}", "adds/s", MORE, settings, ("F-TUN-04",)))
        settings += f"; {probes[name]:,} one at a time, {CLOSED_LOOP}"
        tags = ("F-TUN-04", "F-BKS-08") if name in (SYNC, NO_SYNC) else ("F-TUN-04",)
        found.append(taken.figure(name, P99, f"bookie, {name}, p99 of one add", "ms", LESS, settings, tags))
    settings = "adds of 1 KiB over TCP, as many in flight as a window takes"
    name = "  adds, no sync against sync"
    found.append(taken.ratio(NO_SYNC, SYNC, RATE, name, MORE, settings, ("F-TUN-04",)))
    what = "  p99 of one add, no sync against sync"
    found.append(taken.ratio(NO_SYNC, SYNC, P99, what, LESS, "", ("F-BKS-08",)))
    return found


def journals(directory: Path, scale: Scale) -> list[Figure]:
    """One, two and four journal directories; every add after a sync. And where there is room for it, in memory: what
    several directories bring when they share no disk, only the cores.
    """
    settings = "adds of 1 KiB over TCP, every one after a sync; all directories on one disk"
    adds = scale.of(10_000, 60_000, 400_000)
    tags = ("F-BKS-05",)
    taken = _journals_in_turns(directory, directory, adds, scale)
    found = [taken.figure(count, RATE, _journals_name(count), "adds/s", MORE, settings, tags) for count in JOURNALS]
    for count, aim in ((2, ""), (4, "≥ 2")):
        what = f"{settings}: a factor of 2 needs several disks, and cores"
        name = f"  {count} directories against 1"
        found.append(taken.ratio(count, 1, RATE, name, MORE, what, tags, aim))
    if not _memory_has_room():
        return found
    with tempfile.TemporaryDirectory(prefix="bench-", dir=MEMORY) as journals_at:
        taken = _journals_in_turns(directory / "memory", Path(journals_at), min(adds, IN_MEMORY_MAX), scale)
    settings = "adds of 1 KiB over TCP; journals in memory, where a sync costs nothing: the cores alone are shared"
    found += [
        taken.figure(count, RATE, f"{_journals_name(count)} in memory", "adds/s", MORE, settings, tags)
        for count in JOURNALS
    ]
    found.append(taken.ratio(4, 1, RATE, "  4 directories in memory against 1", MORE, settings, tags))
    return found


def _journals_name(count: int) -> str:
    return f"bookie, {count} journal {'directory' if count == 1 else 'directories'}"


def _memory_has_room() -> bool:
    if not MEMORY.is_dir() or not disk_of(MEMORY).is_memory:
        return False
    return min(disk_of(MEMORY).room_gb, psutil.virtual_memory().available / 2**30) > IN_MEMORY_GB


def _journals_in_turns(directory: Path, journals_at: Path, adds: int, scale: Scale) -> Turns[int]:
    common = {"connections": 2, "ledgers": JOURNALS[-1] * LEDGERS, "window": 2_000}
    with ExitStack() as stack:
        storages = {}
        for count in JOURNALS:
            named = ",".join(str(journals_at / str(count) / f"journal-{number}") for number in range(count))
            storages[count] = stack.enter_context(_Storage(directory / str(count), {"journalDirectories": named}))

        def measured(count: int, turn: int) -> dict[str, float]:
            storage = storages[count]
            until_settled(storage.bookie.pid, scale.of(2, 60, 60))
            return {RATE: measure(storage.said, adds=adds, base=1_000 * (1 + turn), **common).adds_per_s}

        return in_turns(
            JOURNALS,
            turns_of(scale),
            measured,
            lambda count: measure(storages[count].said, adds=adds // 10, base=1, **common),
        )


def _fill(storage: _Storage, entries: int) -> None:
    """Ledgers 1 to 10, and a clean end, so that everything is read from entry logs afterwards."""
    measure(storage.said, connections=2, ledgers=LEDGERS, adds=entries * LEDGERS, window=2_000, base=1)


def _cold(storage: _Storage, config: dict[str, str]) -> None:
    storage.bookie.stop()
    for path in storage.bookie.data_directory.rglob("*"):
        if path.is_file():
            descriptor = os.open(path, os.O_RDONLY)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)
    storage.set(config)
    storage.bookie.start()


def _scanned(storage: _Storage, entries: int, readers: int, seconds: float) -> tuple[float, float]:
    """Entries a second that so many readers of a ledger each get, and the thrash ratio of that time."""
    before, began = scraped(storage.web_url), time.perf_counter()
    over = FORK.Event()
    processes = []
    for number in range(readers):
        reader = Reader("a ledger", entries, window=8, ledger_id=1 + number % LEDGERS)
        given = CatchUp(storage.port, reader, over, FORK.Value("q", 0))
        processes.append(FORK.Process(target=catch_up, args=(given,), daemon=True))
    for process in processes:
        process.start()
    time.sleep(seconds)
    after, took_s = scraped(storage.web_url), time.perf_counter() - began
    assert all(process.is_alive() for process in processes), "a reader gave up"
    over.set()
    for process in processes:
        process.join(30)
    return (after[READS] - before[READS]) / took_s, thrash_ratio(before, after)


READS: Final = "bookie_BOOKIE_READ_ENTRY_count"
# Reads of the disk, and the entries that they brought.
READ_AHEAD: Final = ("bookie_readahead_batch_count_count", "bookie_readahead_batch_count_sum")


def thrash_ratio(before: dict[str, float], after: dict[str, float]) -> float:
    """Entries read from disk, and reads of the disk, for each entry asked for: about one when nothing is read twice."""
    reads = after[READS] - before[READS]
    from_disk = sum(after[name] - before[name] for name in READ_AHEAD)
    return from_disk / reads if reads else 0.0


def reads(directory: Path, scale: Scale) -> list[Figure]:
    """One bookie, which starts anew with each variant."""
    entries = scale.of(1_000, 10_000, 50_000)
    seconds = scale.of(1, 2, 5)
    variants: dict[str, dict[str, str]] = {
        "as it comes": {},
        "read cache of 1 MB": {"dbStorage_readAheadCacheMaxSizeMb": "1"},
        "read cache of 256 MB": {"dbStorage_readAheadCacheMaxSizeMb": "256"},
        "10 entries ahead": {"dbStorage_readAheadCacheBatchSize": "10"},
        "index cache of 1 MB": {"dbStorage_rocksDB_blockCacheSize": str(1024 * 1024)},
        "one read worker": {"numReadWorkerThreads": "1"},
        "16 reads may be pending": {"maxPendingReadRequestsPerThread": "16"},
    }
    with _Storage(directory, {}) as storage:
        _fill(storage, entries)
        _cold(storage, {})
        _scanned(storage, entries, 2, 1)

        def measured(name: str, _: int) -> dict[str, float]:
            _cold(storage, variants[name])
            return {RATE: _scanned(storage, entries, 2, seconds)[0]}

        taken = in_turns([*variants], turns_of(scale), measured)
    found = []
    for name, config in variants.items():
        settings = f"2 readers of {entries:,} entries of 1 KiB, cold, {seconds} s; {words(config, 'bookie')}"
        found.append(taken.figure(name, RATE, f"bookie reads, {name}", "entries/s", MORE, settings, ("F-TUN-05",)))
    return found


def thrashing(directory: Path, scale: Scale) -> list[Figure]:
    """Readers that push each other's entries out of a small cache, and what helps: fewer places, a bigger cache, less
    read ahead. Sticky reads bring a ledger's reader to one bookie: here, fewer readers on this one; on three bookies
    `sticky_reads` has them.
    """
    found = []
    entries = scale.of(1_000, 10_000, 50_000)
    seconds = scale.of(1, 4, 10)
    small = {"dbStorage_readAheadCacheMaxSizeMb": "1"}
    variants = [
        ("10 readers, 1 MB", small, 10, ""),
        ("10 readers, 1 MB, 50 entries ahead", small | {"dbStorage_readAheadCacheBatchSize": "50"}, 10, "≤ 1.1"),
        ("10 readers, 64 MB", {"dbStorage_readAheadCacheMaxSizeMb": "64"}, 10, "≤ 1.1"),
        ("3 readers, 1 MB (as sticky reads leave)", small, 3, "≤ 1.1"),
    ]
    with _Storage(directory, {}) as storage:
        _fill(storage, entries)
        for name, config, readers, aim in variants:
            _cold(storage, config)
            rate, ratio = _scanned(storage, entries, readers, seconds)
            tags = ("F-PRB-13", "F-MET-10")
            settings = f"{entries:,} entries of 1 KiB in each of {LEDGERS} ledgers; {words(config, 'bookie')}"
            found.append(Figure(f"thrash ratio, {name}", ratio, "times", "less", aim, settings, tags))
            found.append(Figure(f"  entries read, {name}", rate, "entries/s", "more", "", settings))
    return found
