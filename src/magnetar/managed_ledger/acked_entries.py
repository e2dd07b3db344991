# SPDX-License-Identifier: Apache-2.0
"""The entries acknowledged beyond a cursor's mark-delete position: one compressed bitmap per ledger.

Owned by a CursorState. Knows nothing of which entries exist; entry ids fit 32 bits, as they do in Pulsar.

Invariant: `count` is the number of all set bits; no bitmap is empty.
Decides.
"""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from pyroaring import BitMap

ENTRY_ID_MAX: Final = 2**32 - 2


class AckedRun(NamedTuple):
    """Consecutive entries of one ledger, both ends included."""

    ledger_id: int
    first: int
    last: int


class AckedEntries:
    __slots__ = ("_bitmaps", "count")

    def __init__(self) -> None:
        self._bitmaps: dict[int, BitMap] = {}
        self.count = 0

    # --- changes ------------------------------------------------------------------------------

    def add(self, ledger_id: int, entry_id: int) -> bool:
        """True when the entry was not there before."""
        bitmap = self._bitmaps.get(ledger_id)
        if bitmap is None:
            bitmap = self._bitmaps[ledger_id] = BitMap()
        elif entry_id in bitmap:
            return False
        bitmap.add(entry_id)
        self.count += 1
        return True

    def add_run(self, ledger_id: int, first: int, last: int) -> None:
        if first > last:
            return
        bitmap = self._bitmaps.setdefault(ledger_id, BitMap())
        before = len(bitmap)
        bitmap.add_range(first, last + 1)
        self.count += len(bitmap) - before

    def add_all(self, ledger_id: int, entries: BitMap) -> BitMap:
        """Add many; returns those that were not there before."""
        known = self._bitmaps.get(ledger_id)
        fresh = entries if known is None else entries - known
        if fresh:
            if known is None:
                self._bitmaps[ledger_id] = fresh.copy()
            else:
                known |= fresh
            self.count += len(fresh)
        return fresh

    def adopt(self, ledger_id: int, bitmap: BitMap) -> None:
        """Take over a whole ledger's bitmap, in the place of what was known of it."""
        self.drop_ledger(ledger_id)
        if len(bitmap):
            self._bitmaps[ledger_id] = bitmap
            self.count += len(bitmap)

    def drop_through(self, ledger_id: int, entry_id: int) -> None:
        """Forget the ledger's entries up to and with this one."""
        bitmap = self._bitmaps.get(ledger_id)
        if bitmap is None:
            return
        before = len(bitmap)
        bitmap.remove_range(0, entry_id + 1)
        self.count -= before - len(bitmap)
        if not len(bitmap):
            del self._bitmaps[ledger_id]

    def drop_ledger(self, ledger_id: int) -> None:
        bitmap = self._bitmaps.pop(ledger_id, None)
        if bitmap is not None:
            self.count -= len(bitmap)

    def drop_ledgers_before(self, ledger_id: int) -> None:
        for older in [known for known in self._bitmaps if known < ledger_id]:
            self.drop_ledger(older)

    def clear(self) -> None:
        self._bitmaps.clear()
        self.count = 0

    # --- questions ----------------------------------------------------------------------------

    def contains(self, ledger_id: int, entry_id: int) -> bool:
        bitmap = self._bitmaps.get(ledger_id)
        return bitmap is not None and entry_id in bitmap

    def has_ledger(self, ledger_id: int) -> bool:
        return ledger_id in self._bitmaps

    def ledgers(self) -> list[int]:
        return sorted(self._bitmaps)

    def bitmap(self, ledger_id: int) -> BitMap | None:
        """A ledger's bitmap, to read only."""
        return self._bitmaps.get(ledger_id)

    @property
    def last(self) -> tuple[int, int]:
        """The ledger and the entry of the last one; there must be one."""
        ledger_id = max(self._bitmaps)
        return ledger_id, self._bitmaps[ledger_id].max()

    def run_end(self, ledger_id: int, entry_id: int) -> int:
        """The last of the consecutive acked entries that start here; entry_id - 1 when it is not acked itself."""
        bitmap = self._bitmaps.get(ledger_id)
        if bitmap is None or entry_id not in bitmap:
            return entry_id - 1
        # Gallop, then halve: contains_range is cheap on runs, and most runs are short.
        step = 1
        while bitmap.contains_range(entry_id, entry_id + step + 1):
            step *= 2
        low, high = entry_id + step // 2, entry_id + step
        while high - low > 1:
            middle = (low + high) // 2
            if bitmap.contains_range(low, middle + 1):
                low = middle
            else:
                high = middle
        return low

    def runs(self) -> Iterator[AckedRun]:
        for ledger_id in self.ledgers():
            bitmap = self._bitmaps[ledger_id]
            firsts: Iterable[int] = bitmap - bitmap.shift(1)
            lasts: Iterable[int] = bitmap - bitmap.shift(-1)
            for first, last in zip(firsts, lasts, strict=True):
                yield AckedRun(ledger_id, first, last)

    def run_count(self) -> int:
        return sum(bitmap.difference_cardinality(bitmap.shift(1)) for bitmap in self._bitmaps.values())

    def check(self) -> None:
        assert self.count == sum(len(bitmap) for bitmap in self._bitmaps.values())
        assert all(len(bitmap) for bitmap in self._bitmaps.values())
