# SPDX-License-Identifier: Apache-2.0
"""What a bookie holds of its ledgers in memory, for the garbage collector: dropped when a ledger or its copy goes.

Owns that nothing is dropped while entries of the ledger wait to be written out. Never decides that a ledger is gone.
Carries.
"""

from magnetar.bookie.entry_reader import EntryReader
from magnetar.bookie.ledgers import Ledgers
from magnetar.bookie.write_cache import WriteCaches


class LedgerMemory:
    def __init__(self, bookie: str, ledgers: Ledgers, caches: WriteCaches, reader: EntryReader) -> None:
        self.bookie = bookie
        self._ledgers = ledgers
        self._caches = caches
        self._reader = reader

    def tombstones(self) -> bytes:
        return self._ledgers.table.tombstones()

    async def empty(self, ledger_id: int) -> bytes | None:
        """Fence a ledger durably and drop its entries from memory; its state. None while some wait to be written."""
        if ledger_id in self._caches.ledger_ids():
            return None
        state = await self._ledgers.known(ledger_id)
        await self._ledgers.fence(ledger_id, state.master_key)
        if ledger_id in self._caches.ledger_ids():
            return None
        self._reader.forget(ledger_id)
        return state.encode()

    def is_forgotten(self, ledger_id: int) -> bool:
        return self._ledgers.table.is_deleted(ledger_id)

    def forget(self, ledger_id: int) -> bool:
        """A ledger is gone for good. Not yet, while entries of it wait to be written out."""
        if ledger_id in self._caches.ledger_ids():
            return False
        self._ledgers.table.delete(ledger_id)
        self._reader.forget(ledger_id)
        return True
