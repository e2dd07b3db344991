# SPDX-License-Identifier: Apache-2.0
"""Ledgers in limbo brought out of it: when everything that belongs here is here again, an absence may be claimed.

Owns the walk over the ledgers in limbo and its repetition until none is left. Which entries belong here, and where they
are copied from, others know (`LedgerQuestions.complete`); a question without an answer leaves the ledger in limbo for
the next walk. A fence that was assumed stays.
Carries.
"""

import asyncio
import logging

from magnetar.bookie.ledger_questions import Complete
from magnetar.bookie.ledgers import Ledgers
from magnetar.errors import Damaged, MagnetarError, NoSuchLedger

_log = logging.getLogger(__name__)


class Doubts:
    def __init__(self, bookie: str, ledgers: Ledgers) -> None:
        self._bookie = bookie
        self._ledgers = ledgers
        # How many ledgers were in limbo when the last walk over them ended.
        self.left = 0

    async def ledger_ids(self) -> list[int]:
        """The ledgers whose entries may have been lost here, rising."""
        return await self._ledgers.in_limbo()

    async def settle_all(self, complete: Complete, interval_ms: int) -> None:
        """Walk until no ledger is in limbo; the bookie must be served by now, because copies come through its port."""
        while True:
            try:
                if not await self.settle(complete):
                    return
            except Damaged as error:
                _log.error("it cannot be read which ledgers are in limbo: %s", error)
            await asyncio.sleep(interval_ms / 1000)

    async def settle(self, complete: Complete) -> int:
        """One walk; returns how many ledgers stay in limbo."""
        doubtful = await self.ledger_ids()
        self.left = len(doubtful)
        settled = 0
        reasons: dict[str, None] = {}
        for ledger_id in doubtful:
            try:
                master_key = await complete(self._bookie, ledger_id)
                if master_key is not None:
                    await self._ledgers.leave_limbo(ledger_id, master_key)
                    settled += 1
                    self.left -= 1
            except NoSuchLedger:
                # Deleted: the garbage collector finds that out for itself, with its own proofs.
                continue
            except MagnetarError as error:
                reasons[str(error)] = None
        if doubtful:
            _log.warning("%d of %d ledgers in limbo are whole again", settled, len(doubtful))
        if reasons:
            _log.warning("others wait, for %d reasons, the last one: %s", len(reasons), list(reasons)[-1])
        return self.left
