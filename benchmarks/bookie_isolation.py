# SPDX-License-Identifier: Apache-2.0
"""What a reader that catches up costs those who add: the time of each add, alone and beside it.

A bookie of its own, restarted after it was filled, so that nothing of the filling is left to be written; its journal is
in a file that was written before, as it is in every bookie that has run for a minute. Then turns, each of adds alone
and of adds beside every kind of reader, one after another: a disk has its moods, and none of them may decide. Told are
the median of the turns, the smallest and the largest, and what each reader got; and how often the machine itself let
nobody run, before and after: an add takes less time than most of its pauses.
"""

import argparse
import multiprocessing
import os
import socket
import tempfile
import time
from collections.abc import Iterator
from multiprocessing.synchronize import Event
from pathlib import Path
from statistics import median
from typing import Any, Final, NamedTuple

from benchmarks.bookie_adds import ANSWER_BYTES, ENTRY_BYTES, measure
from benchmarks.figures import percentile
from benchmarks.pauses import Pauses, machine_pauses
from benchmarks.results import Measurement, report
from magnetar.config.bookie import BookieSettings
from magnetar.runtime.short_turns import ask_for_short_turns
from magnetar.wire.bookkeeper import v2
from magnetar.wire.bookkeeper.digest import DigestType
from magnetar.wire.bookkeeper.entry import EntryPacker
from tests.cluster import Cluster, RoleProcess

TURNS: Final = 5
OLD_LEDGER: Final = 1_000
NEW_LEDGERS: Final = 1_000_000
# Entries that fit into the read cache; the whole ledger does not.
IN_MEMORY: Final = 8_000
BATCH: Final = 100
# Adds before the first turn, at most: the journal is in its first spare long before.
WARM_UP_MAX: Final = 30_000


class Reader(NamedTuple):
    """How somebody catches up: what share of the old ledger, in which steps, and whether the kernel forgot it first."""

    name: str
    entries: int
    window: int = 32
    batch: int = 1
    cold: bool = False
    ledger_id: int = OLD_LEDGER


class Turn(NamedTuple):
    p50_ms: float
    p99_ms: float
    read_per_s: float


def latencies(port: int, ledger_id: int, adds: int) -> list[float]:
    """Seconds of each add, one at a time: what a writer feels, whoever else is there."""
    packer = EntryPacker(ledger_id, DigestType.CRC32C, b"")
    body = b"x" * (ENTRY_BYTES - 36)
    taken: list[float] = []
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for entry_id in range(adds):
            entry = packer.pack(entry_id, entry_id - 1, 0, [body])
            packet = v2.add_front(len(entry), packer.master_key) + entry
            started = time.perf_counter()
            connection.sendall(packet)
            answer = b""
            while len(answer) < ANSWER_BYTES:
                answer += connection.recv(ANSWER_BYTES - len(answer))
            taken.append(time.perf_counter() - started)
            assert not any(answer[8:12]), "an add was refused"
    return taken


class CatchUp(NamedTuple):
    """What a reader's process is given: where, what, how much at a time, when to stop and where to count."""

    port: int
    reader: "Reader"
    over: Event
    entries_read: Any


def catch_up(given: CatchUp) -> None:
    """Read a ledger from its beginning, over and over, as fast as the bookie gives it; in a process of its own.

    Its process stands for another machine, so it has what the bookie leaves of the cores, and nobody waits for it.
    """
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    reader = given.reader
    questions = Questions(reader)
    with socket.create_connection(("127.0.0.1", given.port)) as connection:
        connection.settimeout(30)
        connection.sendall(b"".join(questions.next(stream, 0) for stream in range(reader.window)))
        left = b""
        while not given.over.is_set():
            data = left + connection.recv(1 << 20)
            at = 0
            asked = []
            while at + 4 <= len(data) and at + 4 + (length := int.from_bytes(data[at : at + 4], "big")) <= len(data):
                assert not any(data[at + 8 : at + 12]), "a read was refused"
                asked.append(questions.after(data[at + 4 : at + 4 + length]))
                at += 4 + length
            left = data[at:]
            given.entries_read.value = questions.entries_read
            connection.sendall(b"".join(asked))


class Questions:
    """Single entries one after another; or batches in as many streams as may be under way, each through a share of the
    ledger: a batch may be smaller than was asked for, and the next one begins behind it.
    """

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._share = reader.entries // reader.window
        self._at = [0] * reader.window
        self._next = 0
        self.entries_read = 0

    def next(self, stream: int, entries: int) -> bytes:
        self.entries_read += entries
        if self._reader.batch == 1:
            self._next = (self._next + 1) % self._reader.entries
            return v2.encode_read(self._reader.ledger_id, self._next)
        self._at[stream] = (self._at[stream] + entries) % self._share
        first, batch = stream * self._share + self._at[stream], self._reader.batch
        return v2.encode_batch_read(self._reader.ledger_id, first, stream, batch, batch * ENTRY_BYTES)

    def after(self, answer: bytes) -> bytes:
        if self._reader.batch == 1:
            return self.next(0, 1)
        stream = int.from_bytes(answer[ANSWER_BYTES - 4 : ANSWER_BYTES + 4], "big")
        return self.next(stream, (len(answer) - ANSWER_BYTES - 4) // (ENTRY_BYTES + 4))


def forget(directory: Path) -> None:
    """Have the kernel drop what it holds of the entry logs: who reads them reads the disk."""
    for path in directory.rglob("*.log"):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


def filled(bookie: RoleProcess, entries: int) -> dict[str, Any]:
    """An old ledger in the entry logs, nothing left to write out, and a journal on blocks that were written before."""
    measure(bookie.until_ready(), connections=1, ledgers=1, adds=entries, window=4_000, base=OLD_LEDGER)
    bookie.stop()
    said = bookie.start()
    port = int(said["bookie"].rpartition(":")[2])
    for ledger_id in range(NEW_LEDGERS - WARM_UP_MAX // 1_000, NEW_LEDGERS):
        latencies(port, ledger_id, 1_000)
        newest = max(bookie.data_directory.rglob("*.txn"), key=lambda path: path.name)
        if newest.stat().st_size >= BookieSettings().journal_spare_bytes:
            break
    os.sync()
    return said


def turn(bookie: RoleProcess, said: dict[str, Any], reader: Reader | None, ledger_id: int, adds: int) -> Turn:
    port = int(said["bookie"].rpartition(":")[2])
    if reader is None:
        taken = latencies(port, ledger_id, adds)
        return Turn(percentile(taken, 50) * 1000, percentile(taken, 99) * 1000, 0.0)
    if reader.cold:
        forget(bookie.data_directory)
    given = CatchUp(port, reader, multiprocessing.Event(), multiprocessing.Value("q", 0))
    process = multiprocessing.Process(target=catch_up, args=(given,), daemon=True)
    process.start()
    while not given.entries_read.value:
        assert process.is_alive(), "the reader gave up"
    before, started = given.entries_read.value, time.perf_counter()
    taken = latencies(port, ledger_id, adds)
    read_per_s = (given.entries_read.value - before) / (time.perf_counter() - started)
    assert process.is_alive(), "the reader gave up"
    given.over.set()
    process.join(30)
    return Turn(percentile(taken, 50) * 1000, percentile(taken, 99) * 1000, read_per_s)


def spread(values: list[float]) -> str:
    """The median, and the least and the greatest."""
    return f"{median(values):.2f} ({min(values):.2f} to {max(values):.2f})"


def main() -> None:
    # Whoever takes the time stands for a third machine: that it is let in late is not the bookie's affair.
    ask_for_short_turns()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--probes", type=int, default=2_000, help="Adds of one turn, whose time is taken one by one.")
    parser.add_argument("--entries", type=int, default=100_000, help="Entries of 1 KiB in the old ledger.")
    parser.add_argument("--turns", type=int, default=TURNS)
    given = parser.parse_args()
    readers = [
        Reader("from memory", min(IN_MEMORY, given.entries)),
        Reader("from memory, 1,000 at a time", min(IN_MEMORY, given.entries), window=1_000),
        Reader("from entry logs", given.entries),
        Reader("from entry logs that the kernel forgot", given.entries, cold=True),
        Reader(f"from entry logs in batches of {BATCH}", given.entries, window=2, batch=BATCH),
    ]
    pauses = [machine_pauses()]
    with tempfile.TemporaryDirectory() as name, Cluster(Path(name), bookies=1, broker=False) as cluster:
        bookie = cluster.bookies[0]
        said = filled(bookie, given.entries)
        found: dict[Reader | None, list[Turn]] = {reader: [] for reader in (None, *readers)}
        ledger_id = NEW_LEDGERS
        for _ in range(given.turns):
            for reader, turns in found.items():
                ledger_id += 1
                turns.append(turn(bookie, said, reader, ledger_id, given.probes))
    pauses.append(machine_pauses())
    report("bookie isolation", [*(pause_row(each) for each in pauses), *rows(found)])


def pause_row(pauses: Pauses) -> Measurement:
    times = f"{pauses.per_second:.0f}/s, up to {pauses.longest_ms:.1f} ms"
    return Measurement("the machine's own pauses of more than 0.5 ms", times)


def rows(found: dict[Reader | None, list[Turn]]) -> Iterator[Measurement]:
    alone = found[None]
    yield Measurement("an add, alone: p50", f"{spread([each.p50_ms for each in alone])} ms")
    yield Measurement("an add, alone: p99", f"{spread([each.p99_ms for each in alone])} ms")
    for reader, turns in found.items():
        if reader is not None:
            rate = median(each.read_per_s for each in turns)
            name = f"beside a reader {reader.name}, {rate:,.0f} entries/s"
            times = [each.p99_ms / before.p99_ms for before, each in zip(alone, turns, strict=True)]
            yield Measurement(f"{name}: p50", f"{spread([each.p50_ms for each in turns])} ms")
            yield Measurement("  p99", f"{spread([each.p99_ms for each in turns])} ms")
            yield Measurement("  p99 against alone, turn by turn", f"{spread(times)} times", "2 times")


if __name__ == "__main__":
    main()
