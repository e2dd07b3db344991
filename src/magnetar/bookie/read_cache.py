# SPDX-License-Identifier: Apache-2.0
"""Entries read ahead of a reader, bounded by bytes; the oldest go first.

Owns what was read from entry logs and is likely to be asked for next, in the runs in which it was read. A hint only:
losing an entry costs a read.
Decides.
"""

from collections import deque

from magnetar.bookie.entry_run import EntryRun


class ReadCache:
    """Invariant: bytes_held is the sum of the runs held and never above bytes_max after a call; what is found is in one
    of them.
    """

    __slots__ = ("_bytes_max", "_ledgers", "_recent", "_runs", "bytes_held", "hits", "misses")

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        # By ledger, oldest first: few, because a run is long.
        self._ledgers: dict[int, deque[EntryRun]] = {}
        self._runs: deque[EntryRun] = deque()
        # Where something was found last: who reads on finds the next entry there, too.
        self._recent: EntryRun | None = None
        self.bytes_held = 0
        self.hits = 0
        self.misses = 0

    def __len__(self) -> int:
        return sum(map(len, self._runs))

    def find(self, ledger_id: int, entry_id: int) -> bytes | None:
        run = self._recent
        if run is not None and run.ledger_id == ledger_id and (entry := run.find(entry_id)) is not None:
            self.hits += 1
            return entry
        run = self._run_of(ledger_id, entry_id)
        if run is None:
            return None
        self.hits += 1
        return run.find(entry_id)

    def find_all(self, ledger_id: int, first: int, count_max: int, bytes_max: int) -> list[bytes]:
        """The first entry, whatever its size, and those behind it that are here too and fit."""
        found: list[bytes] = []
        while len(found) < max(1, count_max) and (run := self._run_of(ledger_id, first + len(found))) is not None:
            part = run.part(first + len(found), count_max - len(found), bytes_max)
            bytes_max -= sum(map(len, part))
            if found and bytes_max < 0:
                break
            found += part
        self.hits += len(found)
        return found

    def put(self, run: EntryRun) -> None:
        """Keep entries that were read together; they leave together."""
        self._ledgers.setdefault(run.ledger_id, deque()).append(run)
        self._runs.append(run)
        self.bytes_held += run.bytes_held
        while self.bytes_held > self._bytes_max:
            self._forget(self._runs.popleft())

    def drop_ledger(self, ledger_id: int) -> None:
        if self._ledgers.pop(ledger_id, None) is not None:
            self._runs = deque(run for run in self._runs if run.ledger_id != ledger_id)
            self.bytes_held = sum(run.bytes_held for run in self._runs)
            self._recent = None

    def check(self) -> None:
        assert self.bytes_held == sum(run.bytes_held for run in self._runs) <= self._bytes_max
        assert sum(map(len, self._ledgers.values())) == len(self._runs)
        for ledger_id, runs in self._ledgers.items():
            assert list(runs) == [run for run in self._runs if run.ledger_id == ledger_id] != []
        assert self._recent is None or self._recent in self._runs

    def _run_of(self, ledger_id: int, entry_id: int) -> EntryRun | None:
        """The newest that has this entry."""
        for run in reversed(self._ledgers.get(ledger_id, ())):
            if entry_id in run:
                self._recent = run
                return run
        return None

    def _forget(self, run: EntryRun) -> None:
        self.bytes_held -= run.bytes_held
        runs = self._ledgers[run.ledger_id]
        runs.popleft()
        if not runs:
            del self._ledgers[run.ledger_id]
        if self._recent is run:
            self._recent = None
