# SPDX-License-Identifier: Apache-2.0
"""One cursor ledger: states are appended to it, the last complete one is read back.

Carries.
"""

import asyncio

from magnetar.errors import MagnetarError, PersistenceFailed
from magnetar.ledger.reader import LedgerReader
from magnetar.ledger.writer import LedgerWriter
from magnetar.managed_ledger.cursor_format import CursorSnapshot, SavedEntry, decode_entry, snapshot_of
from magnetar.managed_ledger.parts import LogParts


class CursorLedger:
    """The writing side. One append at a time."""

    __slots__ = ("_born_s", "_confirmed", "_error", "_loop", "_timeout_ms", "_waiter", "writer")

    def __init__(self, timeout_ms: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._timeout_ms = timeout_ms
        self._confirmed = -1
        self._error: MagnetarError | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._born_s = self._loop.time()
        self.writer: LedgerWriter

    @staticmethod
    async def create(log: LogParts, cursor_name: str, ledger_id: int) -> "CursorLedger":
        ledger = CursorLedger(log.settings.append_timeout_ms)
        ledger.writer = await log.create_ledger(ledger_id, ledger, of_cursor=cursor_name)
        return ledger

    @property
    def age_ms(self) -> float:
        return (self._loop.time() - self._born_s) * 1000

    async def append(self, entries: list[bytes]) -> None:
        """Append a state; returns when all of it is safe, raises when that cannot be said."""
        for entry in entries:
            self.writer.append((entry,))
        last = self.writer.last_add_pushed
        try:
            async with asyncio.timeout(self._timeout_ms / 1000):
                while self._confirmed < last and self._error is None:
                    self._waiter = self._loop.create_future()
                    await self._waiter
        except TimeoutError as error:
            raise PersistenceFailed(f"Cursor ledger {self.writer.ledger_id} does not answer") from error
        if self._error is not None:
            raise self._error

    def on_confirmed(self, writer: LedgerWriter, entry_id: int) -> None:
        self._confirmed = entry_id
        self._wake()

    def on_failed(self, writer: LedgerWriter, error: MagnetarError) -> None:
        self._error = error
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


async def read_state(log: LogParts, ledger_id: int) -> CursorSnapshot | None:
    """Take a cursor ledger over and read its last complete state; None when it has none.

    Recovery fences the old owner: no ack of it is recorded from here on.
    """
    reader = await log.open_ledger(ledger_id, of_cursor=True)
    try:
        last = reader.last_entry
        while last >= 0:
            entry = await _entry(reader, last)
            if entry.is_last:
                parts = [await _entry(reader, entry_id) for entry_id in range(last - entry.before, last)]
                return snapshot_of([*parts, entry], log.ledgers)
            # A state that was cut off by a crash: the one before it is the last that was told as saved.
            last -= entry.before + 1
        return None
    finally:
        reader.close()


async def _entry(reader: LedgerReader, entry_id: int) -> SavedEntry:
    return decode_entry((await reader.read(entry_id, entry_id, bytes_max=1))[0])
