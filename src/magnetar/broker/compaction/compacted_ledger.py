# SPDX-License-Identifier: Apache-2.0
"""One compacted ledger being read: entries in the order of their old places, found by place.

Closed when a newer one takes over. Never written here.
Carries.
"""

from magnetar.broker.compaction.compacted_format import decode_entry, position_of
from magnetar.broker.compaction.horizon import Horizon
from magnetar.ids import Position
from magnetar.ledger.reader import LedgerReader
from magnetar.managed_ledger.entry import Entry
from magnetar.managed_ledger.side_ledgers import SideLedgers


class CompactedLedger:
    __slots__ = ("_reader", "horizon")

    def __init__(self, horizon: Horizon, reader: LedgerReader) -> None:
        self.horizon = horizon
        self._reader = reader

    @staticmethod
    async def open(horizon: Horizon, ledgers: SideLedgers) -> "CompactedLedger":
        return CompactedLedger(horizon, await ledgers.open(horizon.ledger_id))

    def __len__(self) -> int:
        return self._reader.last_entry + 1

    async def index_of(self, position: Position) -> int:
        """The first entry whose old place is at or behind a position; the number of entries when there is none."""
        low, high = 0, len(self)
        while low < high:
            middle = (low + high) // 2
            data = (await self._reader.read(middle, middle, bytes_max=1))[0]
            if position_of(data) < position:
                low = middle + 1
            else:
                high = middle
        return low

    async def read(self, index: int, *, entries_max: int, bytes_max: int) -> list[Entry]:
        """Entries from an index on; none at the end."""
        if index >= len(self):
            return []
        last = min(index + entries_max, len(self)) - 1
        return [decode_entry(data) for data in await self._reader.read(index, last, bytes_max=max(1, bytes_max))]

    def close(self) -> None:
        self._reader.close()
