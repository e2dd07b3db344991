# SPDX-License-Identifier: Apache-2.0
"""Entries read ahead of a reader, bounded by bytes; the oldest go first.

Owns what was read from entry logs and is likely to be asked for next, in the runs in which it was read. A hint only:
losing an entry costs a read.
Decides.
"""

from collections import deque
from typing import NamedTuple


class _Run(NamedTuple):
    ledger_id: int
    ids: list[int]
    entries: list[bytes]
    bytes_held: int


class ReadCache:
    """Invariant: bytes_held is the sum of the runs held and never above bytes_max after a call; what is found is in one
    of them.
    """

    __slots__ = ("_bytes_max", "_ledgers", "_runs", "bytes_held", "hits", "misses")

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._ledgers: dict[int, dict[int, bytes]] = {}
        self._runs: deque[_Run] = deque()
        self.bytes_held = 0
        self.hits = 0
        self.misses = 0

    def __len__(self) -> int:
        return sum(map(len, self._ledgers.values()))

    def find(self, ledger_id: int, entry_id: int) -> bytes | None:
        held = self._ledgers.get(ledger_id)
        entry = None if held is None else held.get(entry_id)
        if entry is not None:
            self.hits += 1
        return entry

    def put(self, ledger_id: int, ids: list[int], entries: list[bytes]) -> None:
        """Keep entries that were read together; they leave together."""
        run = _Run(ledger_id, ids, entries, sum(map(len, entries)))
        self._ledgers.setdefault(ledger_id, {}).update(zip(ids, entries, strict=True))
        self._runs.append(run)
        self.bytes_held += run.bytes_held
        while self.bytes_held > self._bytes_max:
            self._forget(self._runs.popleft())

    def drop_ledger(self, ledger_id: int) -> None:
        if self._ledgers.pop(ledger_id, None) is not None:
            self._runs = deque(run for run in self._runs if run.ledger_id != ledger_id)
            self.bytes_held = sum(run.bytes_held for run in self._runs)

    def check(self) -> None:
        assert self.bytes_held == sum(run.bytes_held for run in self._runs) <= self._bytes_max
        for ledger_id, held in self._ledgers.items():
            mine = {id(entry) for run in self._runs if run.ledger_id == ledger_id for entry in run.entries}
            assert held
            assert all(id(entry) in mine for entry in held.values())

    def _forget(self, run: _Run) -> None:
        self.bytes_held -= run.bytes_held
        held = self._ledgers[run.ledger_id]
        for entry_id, entry in zip(run.ids, run.entries, strict=True):
            # A later run may have brought the same entry again.
            if held.get(entry_id) is entry:
                del held[entry_id]
        if not held:
            del self._ledgers[run.ledger_id]
