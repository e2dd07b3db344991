# SPDX-License-Identifier: Apache-2.0
"""What one bookie must hold of a ledger, brought back to it after a loss.

Owns the proof by which a bookie stops doubting: under the lock of repairs the record is read, an open ledger that still
counts on the bookie is recovered, every entry that the record asks of the bookie is read from it, and what it does not
give is copied from the others. Only a closed ledger is proven: then its record names all that will ever be expected.
Carries.
"""

from magnetar.config.ledger import RepairSettings
from magnetar.ledger.audit import fragments_of, lost_members
from magnetar.ledger.fragment_check import FragmentCheck
from magnetar.ledger.fragment_copy import FragmentCopy
from magnetar.ledger.parts import LedgerParts
from magnetar.ledger.record import LedgerRecord
from magnetar.ledger.recoverer import Recoverer
from magnetar.ledger.repair_list import RepairList
from magnetar.wire.bookkeeper.entry import EntryPacker
from magnetar.wire.bookkeeper.ledger_metadata import TEXT_LINES


class OwnCopies:
    __slots__ = ("_parts", "_repairs", "_settings")

    def __init__(self, parts: LedgerParts, repairs: RepairList, settings: RepairSettings) -> None:
        self._parts = parts
        self._repairs = repairs
        self._settings = settings

    async def complete(self, bookie: str, ledger_id: int) -> bytes | None:
        """The ledger's master key, when the bookie holds all that is asked of it. None: not yet, somebody repairs it.

        NoSuchLedger when it is gone; BookieUnavailable or EntryUnknown when other copies are needed; MetadataError.
        """
        if not await self._repairs.is_enabled() or not await self._repairs.lock(ledger_id):
            return None
        try:
            return await self._completed(bookie, ledger_id)
        finally:
            await self._repairs.unlock(ledger_id)

    async def _completed(self, bookie: str, ledger_id: int) -> bytes | None:
        known = await self._parts.catalog.load(ledger_id)
        if known.record.form == TEXT_LINES:
            # The oldest form stores no password, and without the key nothing can be written back.
            return None
        if not known.record.is_closed and bookie in known.record.last_segment.ensemble:
            # Its writer is fenced by the doubting bookie in any case.
            known = await Recoverer(known, self._parts).recover()
        record = known.record
        await self._fetch(record, bookie)
        return EntryPacker(ledger_id, record.digest, record.password).master_key if record.is_closed else None

    async def _fetch(self, record: LedgerRecord, bookie: str) -> None:
        check = FragmentCheck(record, self._parts)
        for fragment in fragments_of(record):
            for member in lost_members(fragment, (bookie,)):
                missing = await check.missing(fragment, member)
                if missing:
                    in_flight_max = self._settings.copied_entries_in_flight_max
                    await FragmentCopy(record, self._parts, in_flight_max, (bookie,)).copy(missing, bookie)
