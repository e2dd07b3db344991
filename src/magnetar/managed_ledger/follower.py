# SPDX-License-Identifier: Apache-2.0
"""Following another log: its list of ledgers by a watch on its record, the end of its open ledger by asking bookies.

Stands where a log of its own has an appender. Never fences, recovers or writes anything of the other log, so its owner
cannot notice; reads only what is confirmed. One task keeps the list right:

- a ledger that the record says is closed has the record's numbers, and only the last one grows;
- how far the open one is confirmed is asked by a long poll that its closing ends, too;
- ledgers that left the record were trimmed: cursors in them move to the first one that is left.

Invariant: `entries` of a span never shrinks, because nothing is taken as confirmed that recovery could lose.
Carries.
"""

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

from magnetar.errors import MagnetarError, NotSupported, OwnerClosed
from magnetar.ids import Position
from magnetar.ledger.reader import LedgerReader
from magnetar.managed_ledger.catalog import Catalog
from magnetar.managed_ledger.cursors import Cursors
from magnetar.managed_ledger.ledger_list import LedgerList, LedgerSpan
from magnetar.managed_ledger.ledger_record import LedgerRecord
from magnetar.managed_ledger.parts import LogParts, PersistListener
from magnetar.runtime.disk import Buffer

# Stands for the ledgers of a log that has none yet, so that cursors have a place; never read, never on record.
_NO_LEDGER: Final = -1
# One long poll; afterwards the record is read again, in case a change of it was not told.
_POLL_MS: Final = 30_000

_log = logging.getLogger(__name__)


class Follower:
    __slots__ = (
        "_changed",
        "_cursors",
        "_end_watch",
        "_is_missing",
        "_listener",
        "_log",
        "_reader",
        "_source",
        "_task",
        "is_terminated",
        "last_confirmed",
    )

    def __init__(self, log: LogParts, source: Catalog, cursors: Cursors, listener: PersistListener) -> None:
        self._log = log
        self._source = source
        self._cursors = cursors
        self._listener = listener
        self._changed = asyncio.Event()
        self._reader: LedgerReader | None = None
        self._task: asyncio.Task[None] | None = None
        self._is_missing = False
        # The other log takes no more entries, ever.
        self.is_terminated = False
        log.ledgers = LedgerList([LedgerSpan(_NO_LEDGER)])
        self.last_confirmed = log.ledgers.last_position
        self._end_watch = source.watch(self._changed.set)

    async def open(self) -> None:
        """Find the other log as it is now. A log that does not exist is one without entries."""
        await self._read_list()
        last = self._log.ledgers.last
        if not last.closed_ms and last.ledger_id != _NO_LEDGER:
            reader = await self._open_reader(last.ledger_id)
            last.entries = max(last.entries, await reader.read_last_confirmed() + 1)
        self.last_confirmed = self._log.ledgers.last_position

    def start(self) -> None:
        self._task = self._log.tasks.start(self._follow(), f"{self._log.name}: follow {self._source.name}")

    def on_told(self, position: Position) -> None:
        """Somebody who knows says that this entry of the other log, and all before it, are confirmed."""
        last = self._log.ledgers.last
        if position.ledger_id == last.ledger_id and not last.closed_ms:
            last.entries = max(last.entries, position.entry_id + 1)
            self._tell()
        elif position.ledger_id > last.ledger_id:
            self._changed.set()

    # --- as an appender ---------------------------------------------------------------------------

    @property
    def pending_bytes(self) -> int:
        return 0

    @property
    def pending_entries(self) -> int:
        return 0

    def append(self, parts: Sequence[Buffer]) -> None:
        raise NotSupported(f"{self._log.name} shows the messages of {self._source.name} and takes none itself")

    def append_run(self, entries: Sequence[Sequence[Buffer]]) -> bool:
        return False

    def check_rollover(self) -> None:
        return

    def refuse(self, refusal: MagnetarError, *, instead: bool = False) -> None:
        return

    def give_up(self, error: MagnetarError) -> None:
        """Cursors found another owner: whoever listens closes the log and opens it anew."""
        self._stop()
        self._listener.on_append_failed(0, error)

    async def drained(self) -> None:
        return

    async def settled(self) -> None:
        return

    async def end(self, *, terminated: bool) -> None:
        self._stop()

    # --- private ----------------------------------------------------------------------------------

    def _stop(self) -> None:
        self._end_watch()
        if self._task is not None:
            self._task.cancel()
        self._close_reader()

    async def _follow(self) -> None:
        settings = self._log.settings
        delay_ms = settings.retry_delay_ms
        while True:
            try:
                await self._round()
                delay_ms = settings.retry_delay_ms
            except OwnerClosed:
                return
            except MagnetarError as error:
                _log.warning("%s: following %s: %s", self._log.name, self._source.name, error)
                self._close_reader()
                self._changed.set()
                await self._log.clock.pause(delay_ms / 1000)
                delay_ms = min(2 * delay_ms, settings.retry_delay_max_ms)

    async def _round(self) -> None:
        if self._changed.is_set():
            await self._read_list()
            self._tell()
        last = self._log.ledgers.last
        if last.closed_ms or last.ledger_id == _NO_LEDGER:
            await self._until_changed()
            return
        reader = await self._open_reader(last.ledger_id)
        confirmed = await reader.wait_for_confirmed(last.entries - 1, timeout_ms=_POLL_MS)
        if confirmed >= last.entries:
            last.entries = confirmed + 1
            self._tell()
        elif reader.is_closed:
            # Its end is known, and told; what comes next is for the record to say.
            await self._until_changed()
        else:
            self._changed.set()

    async def _until_changed(self) -> None:
        try:
            async with asyncio.timeout(_POLL_MS / 1000):
                await self._changed.wait()
        except TimeoutError:
            self._changed.set()

    def _tell(self) -> None:
        last = self._log.ledgers.last_position
        if last > self.last_confirmed:
            self.last_confirmed = last
            self._listener.on_persisted(last.ledger_id, 0, last.entry_id)

    async def _read_list(self) -> None:
        self._changed.clear()
        found = await self._source.record.read()
        record = LedgerRecord(found.value) if found is not None else LedgerRecord()
        is_missing = found is None or record.is_deleted
        if is_missing and not self._is_missing:
            _log.warning("%s shows the messages of %s, which does not exist", self._log.name, self._source.name)
        self._is_missing = is_missing
        self.is_terminated = record.terminated is not None
        await self._adopt(record.spans())

    async def _adopt(self, listed: list[LedgerSpan]) -> None:
        """Take over what the record says, oldest first: ordinals of a ledger need the end of the one before it."""
        ledgers = self._log.ledgers
        if not listed:
            return
        ids = {span.ledger_id for span in listed}
        if not ledgers.last.entries and ledgers.last.ledger_id not in ids and len(ledgers) > 1:
            # An owner leaves out the empty ledger of the one before.
            ledgers.drop_empty_last()
        for place, span in enumerate(listed):
            known = ledgers.span(span.ledger_id)
            if not span.closed_ms and place < len(listed) - 1 and not await self._has_ended(span):
                break
            if known is None and span.ledger_id > ledgers.last.ledger_id:
                ledgers.last.closed_ms = ledgers.last.closed_ms or 1
                ledgers.append(span if span.closed_ms else LedgerSpan(span.ledger_id))
            elif known is not None and span.closed_ms and not known.closed_ms and known is ledgers.last:
                known.entries, known.size_bytes = max(known.entries, span.entries), span.size_bytes
                known.closed_ms = span.closed_ms
        gone = next((count for count, span in enumerate(ledgers) if span.ledger_id in ids), 0)
        if gone:
            ledgers.drop_oldest(gone)
            for cursor in self._cursors.all():
                cursor.on_trimmed()

    async def _has_ended(self, span: LedgerSpan) -> bool:
        """The end of a ledger that has a follower in the list and no numbers on record; False while it is open."""
        reader = await self._log.read_ledger(span.ledger_id)
        if reader.is_closed:
            span.entries, span.size_bytes, span.closed_ms = reader.last_entry + 1, reader.length, 1
        reader.close()
        return bool(span.closed_ms)

    async def _open_reader(self, ledger_id: int) -> LedgerReader:
        if self._reader is not None and self._reader.ledger_id == ledger_id:
            return self._reader
        self._close_reader()
        self._reader = await self._log.read_ledger(ledger_id)
        return self._reader

    def _close_reader(self) -> None:
        if self._reader is not None:
            self._reader.close()
            self._reader = None
