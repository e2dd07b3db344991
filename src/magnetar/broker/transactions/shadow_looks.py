# SPDX-License-Identifier: Apache-2.0
"""The transactions of a topic that somebody else writes: found by looking at its entries before readers get them.

Owned by a ShadowTopic. Looks from the first place that a subscription reads on, once for all of them; one that reads
from an earlier place makes it look from there again. What was not looked at is hidden, as is what an open transaction
hides. Messages of a transaction before that place do not matter: nobody here reads them.
Carries.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from magnetar.broker.transactions.buffer import TransactionBuffer
from magnetar.broker.transactions.marker import read_in_transaction
from magnetar.errors import MagnetarError, OwnerClosed
from magnetar.ids import Position
from magnetar.managed_ledger.managed_ledger import ManagedLedger
from magnetar.runtime.tasks import Tasks

_READ_ENTRIES: Final = 100
_READ_BYTES: Final = 4 * 1024 * 1024
_RETRY_S: Final = 1.0

_log = logging.getLogger(__name__)


class ShadowLooks:
    __slots__ = ("_buffer", "_caught_up", "_is_looking", "_managed_ledger", "_next", "_on_looked", "_tasks")

    def __init__(
        self, buffer: TransactionBuffer, managed_ledger: ManagedLedger, tasks: Tasks, on_looked: Callable[[], None]
    ) -> None:
        self._buffer = buffer
        self._managed_ledger = managed_ledger
        self._tasks = tasks
        # Told when readers may see more.
        self._on_looked = on_looked
        self._is_looking = False
        self._caught_up = asyncio.Event()
        self._next = managed_ledger.next_position(managed_ledger.last_confirmed)
        buffer.look_from(self._next)
        buffer.on_early = self.look_from

    def look_from(self, position: Position) -> None:
        """Somebody reads from this place, which is before all that was looked at."""
        self._next = position
        self._buffer.look_from(position)
        self.on_grown()

    def on_grown(self) -> None:
        """There is something to look at."""
        self._caught_up.clear()
        if not self._is_looking:
            try:
                self._tasks.start(self._look(), f"{self._managed_ledger.name}: look for transactions")
                self._is_looking = True
            except MagnetarError as error:
                _log.warning("%s: looking for transactions: %s", self._managed_ledger.name, error)

    async def caught_up(self) -> None:
        """Return when everything that is stored was looked at."""
        if self._is_looking:
            await self._caught_up.wait()

    async def _look(self) -> None:
        ledger = self._managed_ledger
        try:
            while (position := self._next) <= ledger.last_confirmed:
                try:
                    entries = await ledger.read(position, entries_max=_READ_ENTRIES, bytes_max=_READ_BYTES)
                except OwnerClosed:
                    return
                except MagnetarError as error:
                    _log.warning("%s: looking for transactions, trying again: %s", ledger.name, error)
                    await asyncio.sleep(_RETRY_S)
                    continue
                if not entries:
                    break
                if self._next != position:
                    # Somebody has come who reads from an earlier place.
                    continue
                for entry in entries:
                    found = read_in_transaction(entry)
                    if found is not None and found.commit is None:
                        self._buffer.on_message(found.txn_id, entry.position)
                    elif found is not None:
                        self._buffer.on_marker(found.txn_id, entry.position, commit=found.commit is True)
                self._next = ledger.next_position(entries[-1].position)
                self._buffer.on_looked(entries[-1].position)
                self._on_looked()
        finally:
            self._is_looking = False
            self._caught_up.set()
