# SPDX-License-Identifier: Apache-2.0
"""Entries of one topic from a place on, read from the bookies: what `entry_feed.py` gives, without a broker.

The next entries are read while the last are worked on. Where the closed ledgers end, where bookies fail, and where an
entry belongs to a transaction, a broker's feed goes on with the very next entry, so that a reader sees one topic.
Carries.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from magnetar.errors import MagnetarError
from magnetar.ids import Position
from magnetar.spark.closed_ledger import ClosedLedger
from magnetar.spark.stored_entry import StoredEntry

if TYPE_CHECKING:
    from magnetar.spark.storage import Storage

_log = logging.getLogger(__name__)


class Feed(Protocol):
    async def take(self, timeout_s: float) -> list[StoredEntry]: ...
    async def close(self) -> None: ...


class LedgerFeed:
    """Usable at once, by one taker."""

    def __init__(
        self,
        storage: "Storage",
        ledgers: Sequence[ClosedLedger],
        start: Position,
        follow: Callable[[Position], Awaitable[Feed]],
    ) -> None:
        """`start`: the first entry that is wanted. `follow` opens what gives the entries behind these ledgers."""
        self._storage = storage
        self._ledgers = [one for one in ledgers if one.ledger_id >= start.ledger_id and one.entries]
        self._next = Position(start.ledger_id, max(0, start.entry_id))
        self._follow = follow
        self._reading: asyncio.Task[list[StoredEntry]] | None = None
        self._behind: Feed | None = None
        self.is_direct = True

    def _read_on(self) -> None:
        while self._ledgers and self._next.ledger_id == self._ledgers[0].ledger_id:
            if self._next.entry_id < self._ledgers[0].entries:
                break
            self._ledgers.pop(0)
        if not self._ledgers:
            return
        ledger = self._ledgers[0]
        if self._next.ledger_id != ledger.ledger_id:
            self._next = Position(ledger.ledger_id, 0)
        reading = self._storage.read(ledger, self._next.entry_id)
        self._reading = self._storage.tasks.start(reading, f"read of ledger {ledger.ledger_id}")

    async def take(self, timeout_s: float) -> list[StoredEntry]:
        """What comes next, one entry at least. Raises TimedOut, and what ended the reader."""
        if self._behind is None and self._reading is None:
            self._read_on()
        if self._reading is not None:
            try:
                taken = await self._reading
            except MagnetarError as error:
                _log.warning(
                    "ledger %d cannot be read from bookies, a broker is asked: %s", self._next.ledger_id, error
                )
                self._ledgers = []
                self._reading = None
            else:
                self._reading = None
                taken = self._before_transactions(taken)
                if taken:
                    last = taken[-1].position
                    self._next = Position(last.ledger_id, last.entry_id + 1)
                    self._read_on()
                    return taken
        if self._behind is None:
            self.is_direct = False
            self._behind = await self._follow(self._next)
        return await self._behind.take(timeout_s)

    def _before_transactions(self, taken: list[StoredEntry]) -> list[StoredEntry]:
        """What comes before the first entry of a transaction; a broker, which knows how it ended, gives the rest."""
        for number, entry in enumerate(taken):
            if entry.is_in_transaction:
                _log.info("from %s on a broker is asked, which knows how transactions ended", entry.position)
                self._ledgers, self._next = [], entry.position
                return taken[:number]
        return taken

    async def close(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
        if self._behind is not None:
            await self._behind.close()
