# SPDX-License-Identifier: Apache-2.0
"""Whether a bookie still holds what a fragment says it holds.

An answer that proves nothing (an error, silence) counts as missing here: a copy too many is harmless, one too few not.
Carries.
"""

from magnetar.errors import DigestMismatch, MagnetarError
from magnetar.ledger.audit import Fragment, entries_of, probes
from magnetar.ledger.parts import LedgerParts
from magnetar.ledger.record import LedgerRecord
from magnetar.wire.bookkeeper.entry import EntryPacker


class FragmentCheck:
    __slots__ = ("_packer", "_parts", "_record")

    def __init__(self, record: LedgerRecord, parts: LedgerParts) -> None:
        self._record = record
        self._parts = parts
        self._packer = EntryPacker(record.ledger_id, record.digest, record.password)

    async def holds(self, fragment: Fragment, member: int, percentage: int) -> bool:
        """Whether the member gives its first and last entry of the fragment, and a share of the others, undamaged."""
        for entry_id in probes(fragment, self._record.quorum, member, percentage):
            if not await self._gives(fragment.ensemble[member], entry_id):
                return False
        return True

    async def missing(self, fragment: Fragment, member: int) -> list[int]:
        """Every entry that the member must hold and does not give."""
        bookie = fragment.ensemble[member]
        return [e for e in entries_of(fragment, self._record.quorum, member) if not await self._gives(bookie, e)]

    async def _gives(self, bookie: str, entry_id: int) -> bool:
        try:
            entry = await self._parts.channels(bookie).read(self._record.ledger_id, entry_id)
            self._packer.unpack(entry, entry_id)
        except (DigestMismatch, MagnetarError):
            return False
        return True
