# SPDX-License-Identifier: Apache-2.0
"""Whether a bookie still holds what a fragment says it holds.

An answer that proves nothing (an error, silence) counts as missing here: a copy too many is harmless, one too few not.
Carries.
"""

from collections.abc import Sequence
from functools import partial

from magnetar.errors import DigestMismatch, MagnetarError
from magnetar.ledger.audit import Fragment, entries_of, probes
from magnetar.ledger.parts import LedgerParts
from magnetar.ledger.poll import Poll
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
        held = entries_of(fragment, self._record.quorum, member)
        at_once = self._parts.settings.read_entries_in_flight_max
        missing: list[int] = []
        for start in range(0, len(held), at_once):
            missing += await self._withheld(fragment.ensemble[member], held[start : start + at_once])
        return missing

    async def _withheld(self, bookie: str, entry_ids: Sequence[int]) -> list[int]:
        """Those of these entries that the bookie does not give, asked for together."""
        given: set[int] = set()
        with Poll[int, bool](self._parts.tasks, self._parts.settings.read_timeout_ms) as poll:
            for entry_id in entry_ids:
                poll.ask(entry_id, partial(self._gives, bookie, entry_id), f"check of ledger {self._record.ledger_id}")
            while poll.is_waiting:
                entry_id, answer = await poll.next()
                if answer is True:
                    given.add(entry_id)
        return [entry_id for entry_id in entry_ids if entry_id not in given]

    async def _gives(self, bookie: str, entry_id: int) -> bool:
        try:
            entry = await self._parts.channels(bookie).read(self._record.ledger_id, entry_id)
            self._packer.unpack(entry, entry_id)
        except (DigestMismatch, MagnetarError):
            return False
        return True
