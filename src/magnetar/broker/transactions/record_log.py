# SPDX-License-Identifier: Apache-2.0
"""A log of records of our own, kept as a managed ledger: append, learn how far it is durable, replay, let the old go.

Used by coordinators and by the pending acknowledgements of subscriptions. Taking it over fences whoever had it. Where
limits for batches are given, records that come shortly after one another become one entry; batches are read in any
case. When an append fails the log is of no more use: everyone who waits learns it, and its owner opens it anew. Never
knows what a record means.
Carries.
"""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Final

from magnetar.broker.transactions.record_batch import BatchLimits, entry_of, records_in
from magnetar.errors import MagnetarError, ServiceNotReady
from magnetar.ids import EARLIEST, Position
from magnetar.managed_ledger.cursor import Cursor
from magnetar.managed_ledger.managed_ledger import ManagedLedger
from magnetar.managed_ledger.managed_ledgers import ManagedLedgers

_REPLAY_ENTRIES: Final = 100
_REPLAY_BYTES: Final = 1024 * 1024

_log = logging.getLogger(__name__)

OnStored = Callable[[Position], None]


class RecordLog:
    def __init__(self, name: str, batches: BatchLimits | None = None) -> None:
        self.name = name
        self._batches = batches
        # Told once, when the log takes no more.
        self.on_failed: Callable[[MagnetarError], object] | None = None
        self.ledger: ManagedLedger
        self.cursor: Cursor
        self._failure: MagnetarError | None = None
        # Records, in all.
        self._appended = 0
        self._stored = 0
        # By entry that is on its way: whom to tell, one for each record.
        self._waiting: deque[list[OnStored | None]] = deque()
        # The batch that is being gathered.
        self._gathered: list[bytes] = []
        self._gathered_bytes = 0
        self._gathered_for: list[OnStored | None] = []
        self._timer: asyncio.TimerHandle | None = None
        self._waiters: deque[tuple[int, asyncio.Future[None]]] = deque()

    @staticmethod
    async def open(
        managed_ledgers: ManagedLedgers, name: str, cursor_name: str, batches: BatchLimits | None = None
    ) -> "RecordLog":
        log = RecordLog(name, batches)
        log.ledger = await managed_ledgers.open(name, log)
        try:
            log.cursor = await log.ledger.open_cursor(cursor_name, initial=EARLIEST)
        except BaseException:
            await log.ledger.close()
            raise
        return log

    async def records(self) -> AsyncIterator[tuple[Position, bytes]]:
        """What is stored and still needed, in order; the records of one batch have one position."""
        position = self.ledger.next_position(self.cursor.mark_delete)
        while position <= self.ledger.last_confirmed:
            entries = await self.ledger.read(position, entries_max=_REPLAY_ENTRIES, bytes_max=_REPLAY_BYTES)
            if not entries:
                return
            for entry in entries:
                for record in records_in(bytes(entry.body)):
                    yield entry.position, record
            position = self.ledger.next_position(entries[-1].position)

    def append(self, record: bytes, on_stored: OnStored | None = None) -> None:
        """Queue one record; `synced` says when it is durable."""
        if self._failure is not None:
            raise ServiceNotReady(f"{self.name} takes no more records: {self._failure}")
        limits = self._batches
        if limits is None:
            self.ledger.append((record,))
            self._appended += 1
            self._waiting.append([on_stored])
            return
        if self._gathered and self._gathered_bytes + len(record) > limits.bytes_max:
            self.cut()
        self._appended += 1
        self._gathered.append(record)
        self._gathered_bytes += len(record)
        self._gathered_for.append(on_stored)
        if len(self._gathered) >= limits.records_max or self._gathered_bytes >= limits.bytes_max:
            self.cut()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(limits.delay_ms / 1000, self.cut)

    def cut(self) -> None:
        """Write the batch that is being gathered, if there is one: what is appended after this lies behind it."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._gathered or self._failure is not None:
            return
        records, self._gathered, self._gathered_bytes = self._gathered, [], 0
        self._waiting.append(self._gathered_for)
        self._gathered_for = []
        try:
            self.ledger.append((entry_of(records),))
        except MagnetarError as error:
            self._waiting.pop()
            self._give_up(error)

    async def synced(self) -> None:
        """Return when everything appended until now is durable. ServiceNotReady when it will never be told."""
        if self._stored >= self._appended:
            return
        if self._failure is not None:
            raise ServiceNotReady(f"{self.name} failed: {self._failure}")
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append((self._appended, waiter))
        await waiter

    def forget_before(self, position: Position, properties: Mapping[str, int] | None = None) -> None:
        """The records before this one are needed no more."""
        last = self.ledger.previous_position(position)
        if last > self.cursor.mark_delete:
            self.cursor.ack_cumulative(last, properties=properties)

    async def forgotten(self) -> None:
        """Return when what was let go stays so: nobody replays it any more."""
        await self.cursor.flush()

    async def close(self) -> None:
        self.cut()
        self._fail(ServiceNotReady(f"{self.name} is closing"))
        try:
            await self.ledger.close()
        except MagnetarError as error:
            _log.warning("closing %s: %s", self.name, error)

    async def delete(self) -> None:
        self._fail(ServiceNotReady(f"{self.name} is being deleted"))
        await self.ledger.delete()

    # --- the managed ledger's listener ----------------------------------------------------------

    def on_persisted(self, ledger_id: int, first_entry: int, last_entry: int) -> None:
        for entry_id in range(first_entry, last_entry + 1):
            told = self._waiting.popleft()
            self._stored += len(told)
            for on_stored in told:
                if on_stored is not None:
                    on_stored(Position(ledger_id, entry_id))
        while self._waiters and self._waiters[0][0] <= self._stored:
            waiter = self._waiters.popleft()[1]
            if not waiter.done():
                waiter.set_result(None)

    def on_append_failed(self, count: int, error: MagnetarError) -> None:
        for _ in range(count):
            self._waiting.popleft()
        self._give_up(error)

    def _give_up(self, error: MagnetarError) -> None:
        _log.warning("%s takes no more records: %s", self.name, error)
        tell, self.on_failed = self.on_failed, None
        self._fail(error)
        if tell is not None:
            tell(error)

    def _fail(self, error: MagnetarError) -> None:
        if self._failure is None:
            self._failure = error
        if self._stored >= self._appended:
            return
        waiters, self._waiters = self._waiters, deque()
        for _, waiter in waiters:
            if not waiter.done():
                waiter.set_exception(ServiceNotReady(f"{self.name}: {error}"))
                # Whoever waited may have left.
                waiter.exception()
