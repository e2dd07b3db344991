# SPDX-License-Identifier: Apache-2.0
"""Entries read ahead of a reader, bounded by bytes; the oldest go first.

Owns what was read from entry logs and is likely to be asked for next. A hint only: losing an entry costs a read.
Decides.
"""

from collections import OrderedDict


class ReadCache:
    """Invariant: bytes_held is the sum of the entries held and never above bytes_max after a call."""

    __slots__ = ("_bytes_max", "_entries", "bytes_held", "hits", "misses")

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._entries: OrderedDict[tuple[int, int], bytes] = OrderedDict()
        self.bytes_held = 0
        self.hits = 0
        self.misses = 0

    def __len__(self) -> int:
        return len(self._entries)

    def find(self, ledger_id: int, entry_id: int) -> bytes | None:
        entry = self._entries.get((ledger_id, entry_id))
        if entry is None:
            self.misses += 1
        else:
            self.hits += 1
        return entry

    def held(self, ledger_id: int, entry_id: int) -> bytes | None:
        """As find, for one who asks again where it misses: only a hit counts."""
        entry = self._entries.get((ledger_id, entry_id))
        if entry is not None:
            self.hits += 1
        return entry

    def put(self, ledger_id: int, entry_id: int, entry: bytes) -> None:
        self.drop(ledger_id, entry_id)
        self._entries[ledger_id, entry_id] = entry
        self.bytes_held += len(entry)
        while self.bytes_held > self._bytes_max:
            _, oldest = self._entries.popitem(last=False)
            self.bytes_held -= len(oldest)

    def drop(self, ledger_id: int, entry_id: int) -> None:
        entry = self._entries.pop((ledger_id, entry_id), None)
        if entry is not None:
            self.bytes_held -= len(entry)

    def drop_ledger(self, ledger_id: int) -> None:
        for key in [key for key in self._entries if key[0] == ledger_id]:
            self.drop(*key)

    def check(self) -> None:
        assert self.bytes_held == sum(map(len, self._entries.values())) <= self._bytes_max
