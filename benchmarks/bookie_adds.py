# SPDX-License-Identifier: Apache-2.0
"""Adds per second that one bookie takes over TCP: version 2 frames of 1 KiB, many in flight, every answer after fsync.

A real process on a real disk with the generator beside it, and in the same run a bare loop that writes and syncs groups
of the size that the bookie reached: the ratio says more than the number. `benchmarks.bookie_journal` has the same ratio
for the journal alone, `benchmarks.bookie_isolation` the time of single adds, with and without readers.
"""

import argparse
import os
import selectors
import socket
import tempfile
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import psutil

from benchmarks.results import Measurement, report
from magnetar.wire.bookkeeper import v2
from magnetar.wire.bookkeeper.digest import DigestType
from magnetar.wire.bookkeeper.entry import EntryPacker
from tests.cluster import Cluster

ENTRY_BYTES = 1024
ANSWER_BYTES = 28
BURST = 64
# Of ten ledgers and of many.
TURNS = 5
# Adds before the clock starts: more than a write cache takes, so that every flush that is measured is the load's own.
LEAD = 32_000


class Generator:
    """One connection with a window of adds in flight, round robin over its ledgers."""

    def __init__(self, port: int, first_ledger: int, ledgers: int, window: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._packers = [EntryPacker(first_ledger + i, DigestType.CRC32C, b"") for i in range(ledgers)]
        self._window = window
        self._sent = 0
        self._ready: list[bytes] = []
        self._rest = b""
        self._unsent = memoryview(b"")
        self.answered = 0

    def prepare(self, count: int, since: int = 0) -> None:
        """Packets made before the clock starts: the generator shares the cores with the bookie.

        `since` adds were sent in earlier turns: entry ids go on from there.
        """
        body = b"x" * (ENTRY_BYTES - 36)
        packers = self._packers
        packets = []
        for i in range(since, since + count):
            entry_id, which = divmod(i, len(packers))
            packer = packers[which]
            entry = packer.pack(entry_id, entry_id - 1, 0, [body])
            packets.append(v2.add_front(len(entry), packer.master_key) + entry)
        self._ready = [b"".join(packets[i : i + BURST]) for i in range(0, count, BURST)]
        self._ready.reverse()

    def pump(self) -> None:
        """Send what the window allows, without waiting."""
        while True:
            if not self._unsent:
                if not self._ready or self._sent - self.answered >= self._window:
                    return
                burst = self._ready.pop()
                self._sent += len(burst) // (ENTRY_BYTES + 28)
                self._unsent = memoryview(burst)
            try:
                self._unsent = self._unsent[self.socket.send(self._unsent) :]
            except BlockingIOError:
                return

    def take_answers(self) -> None:
        data = self._rest + self.socket.recv(256 * 1024)
        count = len(data) // ANSWER_BYTES
        for offset in range(8, 12):
            assert not any(data[offset : count * ANSWER_BYTES : ANSWER_BYTES]), "an add was refused"
        self._rest = data[count * ANSWER_BYTES :]
        self.answered += count


class Run(NamedTuple):
    adds_per_s: float
    adds_per_sync: float
    cpu_us_per_add: float


def cpu_s(pid: int) -> float:
    """What a process has used so far, on all cores: the one figure that other load does not move."""
    times = psutil.Process(pid).cpu_times()
    return times.user + times.system


def measure(
    said: dict[str, Any],
    *,
    connections: int,
    ledgers: int,
    adds: int,
    window: int,
    base: int,
    lead: int = 0,
    since: int = 0,
) -> Run:
    """Adds to these ledgers, of which `lead` come before the clock starts and `since` came in earlier turns."""
    port, http_port = (int(said[end].rpartition(":")[2]) for end in ("bookie", "httpserver"))
    each, lead_each, since_each = (count // connections for count in (adds, lead, since))
    share = max(1, ledgers // connections)
    generators = [Generator(port, base + i * share, share, window) for i in range(connections)]
    with selectors.DefaultSelector() as selector:
        for generator in generators:
            generator.prepare(lead_each + each, since_each)
            generator.socket.setblocking(False)
            selector.register(generator.socket, selectors.EVENT_READ, generator)
        syncs = scraped(http_port, "bookie_journal_JOURNAL_SYNC_count")
        for generator in generators:
            generator.pump()
        before = drive(selector, generators, lead_each * connections)
        cpu = cpu_s(said["pid"])
        started = time.perf_counter()
        count = drive(selector, generators, (lead_each + each) * connections) - before
        took = time.perf_counter() - started
        cpu = cpu_s(said["pid"]) - cpu
    for generator in generators:
        generator.socket.close()
    syncs = scraped(http_port, "bookie_journal_JOURNAL_SYNC_count") - syncs
    return Run(count / took, (before + count) / max(1, syncs), cpu / count * 1e6)


def drive(selector: selectors.BaseSelector, generators: list[Generator], until: int) -> int:
    """Send and take answers until there are so many; returns how many there are."""
    while (answered := sum(generator.answered for generator in generators)) < until:
        for key, _ in selector.select():
            key.data.take_answers()
            key.data.pump()
    return answered


class Comparison(NamedTuple):
    """Ten ledgers and many, a run of each in turn."""

    few: list[Run]
    many: list[Run]

    def ratio(self, figure: Callable[[Run], float]) -> str:
        """That of the medians, and between which the turns' own ratios lie: the index is merged in one now and then."""
        few, many = [*map(figure, self.few)], [*map(figure, self.many)]
        turns = [much / little for little, much in zip(few, many, strict=True)]
        return f"{median(many) / median(few):.2f} times (turns {min(turns):.2f} to {max(turns):.2f})"


def compare(said: dict[str, Any], many: int, **load: int) -> Comparison:
    """In turns: a disk has its moods, and none of them may come to one side only."""
    # The first entry of a ledger costs more than the others: what is compared is the traffic of ledgers that exist.
    measure(said, ledgers=many, base=10_000, **(load | {"adds": many}))
    sides: tuple[list[Run], list[Run]] = ([], [])
    for turn in range(TURNS):
        done = turn * (load["adds"] + LEAD)
        sides[0].append(measure(said, ledgers=10, base=1_000, lead=LEAD, since=done, **load))
        sides[1].append(measure(said, ledgers=many, base=10_000, lead=LEAD, since=many + done, **load))
    return Comparison(*sides)


def scraped(http_port: int, name: str) -> int:
    with urllib.request.urlopen(f"http://127.0.0.1:{http_port}/metrics") as answer:
        found = [line for line in answer.read().decode().splitlines() if line.partition("{")[0].split()[0] == name]
    assert found, f"{name} is not exported"
    return int(sum(float(line.rpartition(" ")[2]) for line in found))


def bare_loop(directory: Path, *, group_bytes: int, total_bytes: int) -> float:
    """Bytes per second of a loop that does nothing but write a group and sync it, in a file that is there already."""
    path = directory / "bare"
    data = os.urandom(group_bytes)
    groups = max(1, total_bytes // group_bytes)
    descriptor = os.open(path, os.O_CREAT | os.O_WRONLY)
    try:
        os.posix_fallocate(descriptor, 0, groups * group_bytes)
        started = time.perf_counter()
        for _ in range(groups):
            os.write(descriptor, data)
            os.fdatasync(descriptor)
        return groups * group_bytes / (time.perf_counter() - started)
    finally:
        os.close(descriptor)
        path.unlink()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--adds", type=int, default=200_000, help="Of each turn.")
    parser.add_argument("--connections", type=int, default=2)
    parser.add_argument("--window", type=int, default=4_000)
    parser.add_argument("--many", type=int, default=10_000, help="Ledgers of the turns that are compared with ten.")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, Cluster(Path(name), bookies=1, broker=False) as cluster:
        said = cluster.bookies[0].until_ready()
        load = {"connections": given.connections, "adds": given.adds, "window": given.window}
        measure(said, ledgers=10, base=1, **(load | {"adds": given.adds // 10}))
        compared = compare(said, given.many, **load)
        rate = median(run.adds_per_s for run in compared.few)
        per_sync = median(run.adds_per_sync for run in compared.few)
        bare = bare_loop(Path(name), group_bytes=int(per_sync * ENTRY_BYTES), total_bytes=given.adds * ENTRY_BYTES)
        measurements = [
            Measurement(
                "adds of 1 KiB over TCP, the median of turns", f"{rate:,.0f}/s", "50,000 to 80,000/s", ("F-BKS-06",)
            ),
            Measurement(
                "processor time of the bookie per add",
                f"{median(run.cpu_us_per_add for run in compared.few):.1f} µs",
                "20 µs",
            ),
            Measurement("entries per sync", f"{per_sync:,.0f}"),
            Measurement("over TCP, share of a bare loop with such groups", f"{rate * ENTRY_BYTES / bare:.0%}"),
            Measurement(
                f"{given.many:,} ledgers against 10, rate", compared.ratio(lambda run: run.adds_per_s), "0.80 times"
            ),
            Measurement(
                f"{given.many:,} ledgers against 10, processor time per add",
                compared.ratio(lambda run: run.cpu_us_per_add),
                "1.25 times",
            ),
        ]
        report("bookie adds", measurements)


if __name__ == "__main__":
    main()
