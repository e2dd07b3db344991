# SPDX-License-Identifier: Apache-2.0
"""Consecutive entries of one ledger as an entry log has them: one buffer, of which an entry is cut when it is wanted.

Owns the buffer and where each entry lies in it. Cutting all of them at once would keep the loop for as long as a sync
takes, and most of what is read ahead is wanted a little at a time. Decides.
"""

from collections.abc import Sequence

from magnetar.bookie.entry_log_format import CHECKSUM
from magnetar.bookie.ledger_index import Place


class EntryRun:
    __slots__ = ("_begins", "_data", "_ends", "_location", "first", "ledger_id")

    def __init__(
        self, ledger_id: int, first: int, location: int, data: bytes, begins: Sequence[int], ends: Sequence[int]
    ) -> None:
        """Location is that of the first byte of these data."""
        self.ledger_id = ledger_id
        self.first = first
        self._location = location
        self._data = data
        self._begins = begins
        self._ends = ends

    def __len__(self) -> int:
        return len(self._begins)

    def __contains__(self, entry_id: int) -> bool:
        return 0 <= entry_id - self.first < len(self._begins)

    @property
    def bytes_held(self) -> int:
        """What it keeps in memory, the records' own bytes included."""
        return len(self._data)

    @property
    def entry_bytes(self) -> int:
        return sum(self._ends) - sum(self._begins)

    @property
    def record_bytes(self) -> int:
        """What of the log it covers."""
        return self._ends[-1] + CHECKSUM.size

    @property
    def place_behind(self) -> Place:
        """Where the next entry lies if it follows in the log; its size is that of the last one here."""
        return Place(self.first + len(self), self._location + self.record_bytes, self._ends[-1] - self._begins[-1])

    def cut_out(self) -> "EntryRun":
        """The same in a buffer of its own, where most of this one is others' records."""
        if 2 * self.record_bytes >= len(self._data):
            return self
        own = self._data[: self.record_bytes]
        return EntryRun(self.ledger_id, self.first, self._location, own, self._begins, self._ends)

    def find(self, entry_id: int) -> bytes | None:
        at = entry_id - self.first
        return self._data[self._begins[at] : self._ends[at]] if 0 <= at < len(self._begins) else None

    def front(self, count_max: int, bytes_max: int) -> list[bytes]:
        """Its first entry, whatever its size, and those behind it that fit."""
        return self.part(self.first, count_max, bytes_max)

    def part(self, entry_id: int, count_max: int, bytes_max: int) -> list[bytes]:
        """The same from an entry of it on."""
        at, data = entry_id - self.first, self._data
        begins, ends = self._begins[at : at + max(1, count_max)], self._ends[at : at + max(1, count_max)]
        if sum(ends) - sum(begins) > bytes_max:
            fitting = 0
            for begin, end in zip(begins, ends, strict=True):
                bytes_max -= end - begin
                if bytes_max < 0:
                    break
                fitting += 1
            begins, ends = begins[: max(1, fitting)], ends[: max(1, fitting)]
        return [data[begin:end] for begin, end in zip(begins, ends, strict=True)]
