# SPDX-License-Identifier: Apache-2.0
"""Other bookies in the place of failed ones: chosen, put on record, and only then used.

Belongs to one writer. While a change is under way the writer confirms nothing, so that the new segment begins exactly
after what is confirmed, and nothing is confirmed by bookies that the record does not name (R6). Several failures are
taken together; one that comes meanwhile is the next round. A record that is not open any more ends the writer (R7).
Carries.
"""

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING

from magnetar.errors import BadVersion, LedgerFenced, MagnetarError, MetadataError, NotEnoughBookies
from magnetar.ledger.catalog import Versioned
from magnetar.ledger.parts import LedgerParts
from magnetar.ledger.placement import affinity_of

if TYPE_CHECKING:
    from magnetar.ledger.writer import LedgerWriter

_log = logging.getLogger(__name__)


class EnsembleChange:
    __slots__ = ("_changes", "_failed", "_parts", "_suspects", "_task", "_writer")

    def __init__(self, writer: "LedgerWriter", parts: LedgerParts) -> None:
        self._writer = writer
        self._parts = parts
        # Members of the present ensemble that failed and are not replaced yet → the bookie code that told so.
        self._failed: dict[int, int] = {}
        # Bookies that failed this writer before: chosen again only when no other is left.
        self._suspects: dict[str, None] = {}
        self._changes = 0
        self._task: asyncio.Task[None] | None = None

    def on_member_failed(self, member: int, code: int) -> None:
        if member in self._failed:
            return
        record = self._writer.known.record
        bookie = record.last_segment.ensemble[member]
        self._failed[member] = code
        self._suspects[bookie] = None
        self._parts.placement.on_bookie_failed(bookie)
        _log.warning("ledger %d: %s failed an add with code %d", record.ledger_id, bookie, code)
        if self._task is not None or self._may_wait():
            return
        self._writer.hold()
        try:
            self._task = self._parts.tasks.start(self._run(), f"ensemble change of ledger {record.ledger_id}")
        except MagnetarError as error:
            self._writer.fail(error)

    async def finish(self) -> None:
        """Until no change is under way."""
        while self._task is not None:
            await asyncio.wait([self._task])

    def _may_wait(self) -> bool:
        """Whether the quorum bears these failures and the settings say to bear them."""
        quorum = self._writer.known.record.quorum
        return self._parts.settings.delay_ensemble_change and quorum.may_confirm_without(self._failed)

    async def _run(self) -> None:
        try:
            while self._failed and not self._writer.is_over:
                await self._replace()
        except NotEnoughBookies as error:
            if not self._may_wait():
                self._writer.fail(error)
        except MagnetarError as error:
            self._writer.fail(error)
        finally:
            self._task = None
        self._writer.release()

    async def _replace(self) -> None:
        known = self._writer.known
        members = sorted(self._failed)
        self._changes += 1
        if self._changes > self._parts.settings.ensemble_changes_max:
            raise NotEnoughBookies(f"Ledger {known.record.ledger_id} changed its ensemble {self._changes - 1} times.")
        ensemble = self._chosen(known, members)
        first = self._writer.last_add_confirmed + 1
        stored = await self._record(known, first, ensemble)
        for member in members:
            del self._failed[member]
        _log.info("ledger %d: from entry %d on %s", known.record.ledger_id, first, ", ".join(ensemble))
        self._writer.adopt(stored, members)

    def _chosen(self, known: Versioned, members: list[int]) -> tuple[str, ...]:
        ensemble = known.record.last_segment.ensemble
        affinity = affinity_of(known.record.custom or {})
        choose = partial(self._parts.placement.replacements, known.record.quorum, ensemble, members, affinity=affinity)
        try:
            chosen = choose(excluded=self._suspects)
        except NotEnoughBookies:
            chosen = choose()
        return tuple(chosen.get(i, bookie) for i, bookie in enumerate(ensemble))

    async def _record(self, known: Versioned, first: int, ensemble: tuple[str, ...]) -> Versioned:
        """Put the new segment on record. The tail that we know must still be the stored one."""
        tail = known.record.last_segment
        try:
            async with asyncio.timeout(self._parts.settings.ensemble_change_timeout_ms / 1000):
                while True:
                    try:
                        return await self._parts.catalog.replace(known, known.record.with_ensemble(first, ensemble))
                    except BadVersion:
                        known = await self._parts.catalog.load(known.record.ledger_id)
                    if not known.record.is_open or known.record.last_segment != tail:
                        raise LedgerFenced(f"Another client is taking over ledger {known.record.ledger_id}.")
        except TimeoutError:
            raise MetadataError(
                f"Ledger {known.record.ledger_id}: the metadata store did not take the ensemble change in time."
            ) from None
