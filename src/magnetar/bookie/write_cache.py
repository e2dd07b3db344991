# SPDX-License-Identifier: Apache-2.0
"""Entries that are not in an entry log yet, by ledger and entry.

Owns the pair of caches that is swapped at each checkpoint: one takes adds while the other is written out. Counts what
it holds; never refuses and never writes.
Decides.
"""

from collections.abc import Iterator
from typing import Final

from magnetar.bookie.entry_batches import put_entries

# What an entry costs beside its bytes: the bytes object, its id, and its share of the ledger's table.
ENTRY_OVERHEAD_BYTES: Final = 160
# Whoever walks through thousands of small ledgers is given several together.
_ENTRIES_AT_ONCE: Final = 64


class WriteCache:
    __slots__ = ("_ledgers", "bytes_held", "entries")

    def __init__(self) -> None:
        self._ledgers: dict[int, dict[int, bytes]] = {}
        self.bytes_held = 0
        self.entries = 0

    def put(self, ledger_id: int, entry_id: int, entry: bytes) -> int:
        """Hold an entry, the newest under its id; returns the bytes held now."""
        entries = self._ledgers.get(ledger_id)
        if entries is None:
            entries = self._ledgers[ledger_id] = {}
        elif entry_id in entries:
            self._forget(len(entries[entry_id]))
        entries[entry_id] = entry
        self.entries += 1
        held = self.bytes_held = self.bytes_held + len(entry) + ENTRY_OVERHEAD_BYTES
        return held

    def put_run(self, ledger_id: int, first: int, entries: list[bytes]) -> int:
        """The same for consecutive entries, from this id on."""
        if len(entries) == 1:
            return self.put(ledger_id, first, entries[0])
        ids = range(first, first + len(entries))
        present = self._ledgers.get(ledger_id)
        if present is None:
            present = self._ledgers[ledger_id] = {}
        elif not present.keys().isdisjoint(ids):
            for entry_id, entry in zip(ids, entries, strict=True):
                self.put(ledger_id, entry_id, entry)
            return self.bytes_held
        present.update(zip(ids, entries, strict=True))
        self.entries += len(entries)
        held = self.bytes_held = self.bytes_held + sum(map(len, entries)) + ENTRY_OVERHEAD_BYTES * len(entries)
        return held

    def put_all(self, ledger_ids: list[int], entries: list[bytes], start: int) -> int:
        """The same for packed entries from this one on, as many as ledgers are named: the ledger of each."""
        added, added_bytes = put_entries(self._ledgers, ledger_ids, entries, start)
        self.entries += added
        held = self.bytes_held = self.bytes_held + added_bytes + ENTRY_OVERHEAD_BYTES * added
        return held

    def find(self, ledger_id: int, entry_id: int) -> bytes | None:
        entries = self._ledgers.get(ledger_id)
        return None if entries is None else entries.get(entry_id)

    def has_ledger(self, ledger_id: int) -> bool:
        return ledger_id in self._ledgers

    def entry_ids(self, ledger_id: int) -> list[int]:
        return sorted(self._ledgers.get(ledger_id, ()))

    def last_entry_id(self, ledger_id: int) -> int | None:
        entries = self._ledgers.get(ledger_id)
        return max(entries) if entries else None

    def ledger_ids(self) -> list[int]:
        return sorted(self._ledgers)

    def in_order(self, part: int = 0, parts: int = 1) -> Iterator[list[bytes]]:
        """Every entry, by ledger and then by entry, some at a time: the order in which entry logs are written.

        With parts, only the ledgers whose id leaves `part` when divided by their number.
        """
        some: list[bytes] = []
        for ledger_id in sorted(self._ledgers):
            entries = self._ledgers.get(ledger_id)
            if entries is None or ledger_id % parts != part:
                continue
            some += map(entries.__getitem__, sorted(entries))
            if len(some) >= _ENTRIES_AT_ONCE:
                yield some
                some = []
        yield some

    def drop_ledger(self, ledger_id: int) -> None:
        for entry in self._ledgers.pop(ledger_id, {}).values():
            self._forget(len(entry))

    def check(self) -> None:
        held = [entry for entries in self._ledgers.values() for entry in entries.values()]
        assert self.entries == len(held)
        assert self.bytes_held == sum(map(len, held)) + ENTRY_OVERHEAD_BYTES * len(held)

    def _forget(self, entry_bytes: int) -> None:
        self.entries -= 1
        self.bytes_held -= entry_bytes + ENTRY_OVERHEAD_BYTES


class WriteCaches:
    """The pair. An entry is found in it from its add until it can be found in the index."""

    __slots__ = ("active", "flushing")

    def __init__(self) -> None:
        self.active = WriteCache()
        self.flushing: WriteCache | None = None

    def find(self, ledger_id: int, entry_id: int) -> bytes | None:
        entry = self.active.find(ledger_id, entry_id)
        if entry is None and self.flushing is not None:
            entry = self.flushing.find(ledger_id, entry_id)
        return entry

    def has_ledger(self, ledger_id: int) -> bool:
        return self.active.has_ledger(ledger_id) or (self.flushing is not None and self.flushing.has_ledger(ledger_id))

    def entry_ids(self, ledger_id: int) -> list[int]:
        if self.flushing is None:
            return self.active.entry_ids(ledger_id)
        return sorted({*self.active.entry_ids(ledger_id), *self.flushing.entry_ids(ledger_id)})

    def last_entry_id(self, ledger_id: int) -> int | None:
        found = [self.active.last_entry_id(ledger_id)]
        if self.flushing is not None:
            found.append(self.flushing.last_entry_id(ledger_id))
        return max((entry_id for entry_id in found if entry_id is not None), default=None)

    def ledger_ids(self) -> dict[int, None]:
        ids = dict.fromkeys(self.active.ledger_ids())
        if self.flushing is not None:
            ids |= dict.fromkeys(self.flushing.ledger_ids())
        return ids

    def swap(self) -> WriteCache:
        """What was active is to be written out; adds go to an empty one."""
        assert self.flushing is None
        self.flushing, self.active = self.active, WriteCache()
        return self.flushing

    def flushed(self) -> None:
        """What was written out is in the index now."""
        self.flushing = None

    def drop_ledger(self, ledger_id: int) -> None:
        self.active.drop_ledger(ledger_id)
        if self.flushing is not None:
            self.flushing.drop_ledger(ledger_id)
