# SPDX-License-Identifier: Apache-2.0
"""The newest packed entries of one ledger, in order: those that are not confirmed yet, and behind them the cached
ones.

One list serves both: an append adds one buffer at its end, a confirmation moves one number, and eviction cuts its
front. Those buffers are the ones that the ledger writer packed and sent; nothing is copied.

Invariant: entries[i] is entry base + i; what is not confirmed is never dropped.
Decides.
"""

from magnetar.managed_ledger.entry import Entry


class LedgerTail:
    __slots__ = ("base", "cached_bytes", "confirmed", "entries", "header_bytes", "ledger_id")

    def __init__(self, ledger_id: int, header_bytes: int) -> None:
        self.ledger_id = ledger_id
        self.header_bytes = header_bytes
        self.base = 0
        self.entries: list[bytes] = []
        # The last confirmed entry, and the bytes of those confirmed that are still held.
        self.confirmed = -1
        self.cached_bytes = 0

    def on_confirmed(self, entry_id: int) -> int:
        """The entries up to this one are confirmed; the packed bytes of those that were not before."""
        base = self.base
        size = sum(map(len, self.entries[self.confirmed + 1 - base : entry_id + 1 - base]))
        self.confirmed = entry_id
        self.cached_bytes += size
        return size

    def pass_on(self, entry_id: int) -> int:
        """As on_confirmed and drop_confirmed in one, for what nobody reads from memory; nothing confirmed is held."""
        count = entry_id + 1 - self.base
        entries = self.entries
        size = len(entries[0]) if count == 1 else sum(map(len, entries[:count]))
        del entries[:count]
        self.base += count
        self.confirmed = entry_id
        return size

    def drop_before(self, entry_id: int) -> int:
        """Let go of confirmed entries before this one; the bytes that this frees."""
        count = min(entry_id, self.confirmed + 1) - self.base
        if count <= 0:
            return 0
        size = sum(map(len, self.entries[:count])) if count <= self.confirmed - self.base else self.cached_bytes
        del self.entries[:count]
        self.base += count
        self.cached_bytes -= size
        return size

    def drop_confirmed(self) -> int:
        return self.drop_before(self.confirmed + 1)

    def take_unconfirmed(self) -> list[memoryview]:
        """Take the bodies of what was not confirmed out, oldest first."""
        start = self.confirmed + 1 - self.base
        header = self.header_bytes
        bodies = [memoryview(entry)[header:] for entry in self.entries[start:]]
        del self.entries[start:]
        return bodies

    def holds(self, entry_id: int) -> bool:
        return self.base <= entry_id <= self.confirmed

    def read(self, first: int, *, entries_max: int, bytes_max: int) -> list[Entry]:
        """Confirmed entries from first on, which must be held: at least one, together about bytes_max."""
        start = first - self.base
        ledger_id, header = self.ledger_id, self.header_bytes
        packed = self.entries[start : min(start + entries_max, self.confirmed + 1 - self.base)]
        found: list[Entry] = []
        for entry_id, entry in enumerate(packed, first):
            bytes_max -= len(entry)
            if bytes_max < 0 and found:
                break
            found.append(Entry(ledger_id, entry_id, memoryview(entry)[header:]))
        return found

    def check(self) -> None:
        assert self.base <= self.confirmed + 1
        held = self.entries[: self.confirmed + 1 - self.base]
        assert self.cached_bytes == sum(map(len, held))
