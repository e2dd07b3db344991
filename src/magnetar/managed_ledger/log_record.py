# SPDX-License-Identifier: Apache-2.0
"""The owner's copy of a managed ledger's record, and the turn in which it may be changed.

Rollover, trimming, properties and termination all rewrite the one record; whoever has the turn computes the next record
from the present one and writes it, so that none overwrites another's change (R15).
Carries.
"""

import asyncio

from magnetar.managed_ledger.catalog import GuardedRecord
from magnetar.managed_ledger.ledger_record import LedgerRecord


class LogRecord:
    __slots__ = ("_guarded", "present", "turn")

    def __init__(self, guarded: GuardedRecord, present: LedgerRecord) -> None:
        self._guarded = guarded
        self.present = present
        self.turn = asyncio.Lock()

    @property
    def version(self) -> int:
        return self._guarded.version

    async def write(self, following: LedgerRecord) -> None:
        """Replace the record; only in the turn. BadVersion when another owner has written it."""
        assert self.turn.locked(), "a record is written by whoever has the turn"
        await self._guarded.write(following.encode())
        self.present = following

    async def delete(self) -> None:
        """Delete the record; only in the turn."""
        assert self.turn.locked(), "a record is deleted by whoever has the turn"
        await self._guarded.delete()
