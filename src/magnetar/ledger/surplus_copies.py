# SPDX-License-Identifier: Apache-2.0
"""Whether a bookie may drop its copy of a ledger, because others hold it instead.

Owns the proofs: the ledger is closed, so its record names every bookie it will ever need but for repairs; nobody
repairs it, because the lock of repairs is held meanwhile; it is on no list of ledgers that lack a copy; and its record,
read under that lock, does not name the bookie. A store that does not answer proves nothing.
Carries.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from magnetar.errors import NoSuchLedger
from magnetar.ledger.catalog import LedgerCatalog
from magnetar.ledger.repair_list import RepairList


class SurplusCopies:
    __slots__ = ("_catalog", "_repairs")

    def __init__(self, catalog: LedgerCatalog, repairs: RepairList) -> None:
        self._catalog = catalog
        self._repairs = repairs

    @asynccontextmanager
    async def is_surplus(self, bookie: str, ledger_id: int) -> AsyncIterator[bool]:
        """True while the context lasts, when the bookie's copy is needed by nobody. MetadataError."""
        if not await self._is_elsewhere(bookie, ledger_id) or not await self._repairs.lock(ledger_id):
            yield False
            return
        try:
            marked = await self._repairs.look(ledger_id) is not None
            yield not marked and await self._is_elsewhere(bookie, ledger_id)
        finally:
            await self._repairs.unlock(ledger_id)

    async def _is_elsewhere(self, bookie: str, ledger_id: int) -> bool:
        try:
            record = (await self._catalog.load(ledger_id)).record
        except NoSuchLedger:
            # Deleted: that is another collector's business, with other proofs.
            return False
        return record.is_closed and bookie not in record.bookies()
