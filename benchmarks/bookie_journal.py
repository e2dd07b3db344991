# SPDX-License-Identifier: Apache-2.0
"""Group commit by itself: 1 KiB entries through a bookie's journal, beside a bare loop that writes and syncs the same.

No network and no other process: entries are appended as a bookie appends what one read of a socket gave it, and each is
waited for until it is durable. The bare loop writes groups of the size that the journal reached, to the same directory
in the same run, one before and one after each turn of the journal.
"""

import argparse
import asyncio
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import NamedTuple

import uvloop

from benchmarks.bookie_adds import ENTRY_BYTES, bare_loop
from benchmarks.results import Measurement, report
from magnetar.bookie.counts import BookieCounts
from magnetar.bookie.journal import Journal
from magnetar.bookie.journal_format import FileHeader
from magnetar.config.bookie import BookieSettings
from magnetar.config.runtime import RuntimeSettings
from magnetar.runtime.real_disk import RealDisk
from magnetar.wire.bookkeeper.digest import DigestType
from magnetar.wire.bookkeeper.entry import EntryPacker

# As many as one read of a socket brings, and the ledgers among which they are shared.
READ_ENTRIES = 64
LEDGERS = 4


class Turn(NamedTuple):
    entries_per_s: float
    entries_per_group: float
    loop_us_per_entry: float


def packed(ledger_id: int, entries: int) -> list[bytes]:
    packer = EntryPacker(ledger_id, DigestType.CRC32C, b"")
    body = [b"x" * (ENTRY_BYTES - 36)]
    return [packer.pack(entry_id, entry_id - 1, 0, body) for entry_id in range(entries)]


class Load:
    """Keeps a window of entries in the journal, until all are durable; they are packed before the clock starts."""

    def __init__(self, journal: Journal, entries: int, window: int) -> None:
        self._journal = journal
        self._each = entries // LEDGERS
        self._ledgers = [packed(ledger_id, self._each) for ledger_id in range(LEDGERS)]
        self._window = window
        self._next = 0
        self._appended = 0
        self._durable = 0
        self.total = self._each * LEDGERS
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def fill(self) -> None:
        share = READ_ENTRIES // LEDGERS
        while self._appended < self.total and self._appended - self._durable < self._window:
            first, last = self._next, min(self._next + share, self._each) - 1
            entries = [entry for ledger in self._ledgers for entry in ledger[first : last + 1]]
            self._journal.append_entries(entries, self._appended, self)
            self._appended += len(entries)
            self._next = last + 1

    def on_added(self, bookie: str, first: int, last: int, code: int) -> None:
        assert code == 0, "an entry was refused"
        self._durable += last - first + 1
        if self._durable == self.total:
            self.over.set_result(None)
        elif self._appended - self._durable <= self._window // 2:
            self.fill()


async def journal_turn(directory: Path, settings: BookieSettings, *, entries: int, window: int) -> Turn:
    disk = RealDisk(str(directory))
    await disk.make_directory("journal")
    header = FileHeader(1, 0, session_start=True)
    journal = await Journal.open(
        disk, "journal", "b1", header, settings, BookieCounts(), on_pressure=lambda _: None, on_failed=_fail
    )
    warm = Load(journal, entries // 4, window)
    warm.fill()
    await warm.over
    load = Load(journal, entries, window)
    groups = journal.log_stats().groups
    cpu = time.clock_gettime(time.pthread_getcpuclockid(threading.get_ident()))
    started = time.perf_counter()
    load.fill()
    await load.over
    took = time.perf_counter() - started
    cpu = time.clock_gettime(time.pthread_getcpuclockid(threading.get_ident())) - cpu
    groups = journal.log_stats().groups - groups
    await journal.close()
    await disk.remove_directory("journal")
    await disk.close()
    return Turn(load.total / took, load.total / groups, cpu / load.total * 1e6)


def _fail(error: Exception) -> None:
    raise error


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--entries", type=int, default=200_000)
    parser.add_argument("--window", type=int, default=8_000, help="Entries in flight.")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--no-spare", action="store_true", help="Without files that are written ahead.")
    given = parser.parse_args()
    sys.setswitchinterval(RuntimeSettings().switch_interval_us / 1_000_000)
    settings = BookieSettings(journal_spare_bytes=0) if given.no_spare else BookieSettings()
    turns: list[Turn] = []
    bare: list[float] = []
    with tempfile.TemporaryDirectory() as name:
        for _ in range(given.turns):
            turn = uvloop.run(journal_turn(Path(name), settings, entries=given.entries, window=given.window))
            group_bytes = int(turn.entries_per_group * ENTRY_BYTES)
            total = given.entries * ENTRY_BYTES
            before = bare_loop(Path(name), group_bytes=group_bytes, total_bytes=total) / ENTRY_BYTES
            again = uvloop.run(journal_turn(Path(name), settings, entries=given.entries, window=given.window))
            after = bare_loop(Path(name), group_bytes=group_bytes, total_bytes=total) / ENTRY_BYTES
            turns += (turn, again)
            bare += (before, after)
    rate, alone = statistics.median(turn.entries_per_s for turn in turns), statistics.median(bare)
    report(
        "bookie journal",
        [
            Measurement("entries of 1 KiB made durable by the journal", f"{rate:,.0f}/s"),
            Measurement("entries per group", f"{statistics.median(turn.entries_per_group for turn in turns):,.0f}"),
            Measurement("a bare loop that writes and syncs such groups", f"{alone:,.0f}/s"),
            Measurement("share of the bare loop", f"{rate / alone:.0%}", "50 %", ("F-BKS-06",), rate < alone / 2),
            Measurement(
                "loop thread per entry", f"{statistics.median(turn.loop_us_per_entry for turn in turns):.2f} µs"
            ),
        ],
    )


if __name__ == "__main__":
    main()
