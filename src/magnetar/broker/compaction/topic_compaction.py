# SPDX-License-Identifier: Apache-2.0
"""Compaction of one topic: runs it, switches to its result in one write, opens the result for reading.

Owns the cursor `__compaction` and the compacted ledger. The steps, and what a crash after each leaves:

1. the id of the new ledger is saved with the cursor: the next run deletes that ledger, if it came to be;
2. first pass, second pass into the new ledger, which is closed: as after 1;
3. the cursor moves to the horizon and names the new ledger, and the old one as to be deleted, all in one write;
4. the old ledger is deleted: the next run deletes it again, which does nothing.

Consumers read the old view until 3 is durable, the new one from then on. Never changes the topic's own entries.
Carries.
"""

import asyncio
import logging
from collections.abc import AsyncIterator
from enum import StrEnum
from typing import Final

from magnetar.broker.compaction.compacted_format import encode_entry
from magnetar.broker.compaction.compacted_ledger import CompactedLedger
from magnetar.broker.compaction.horizon import COMPACTION_CURSOR, LEDGER_PROPERTY, Horizon, horizon_of
from magnetar.broker.compaction.keys import LatestKeys
from magnetar.broker.compaction.messages import messages_of, without
from magnetar.broker.transactions.buffer import TransactionBuffer
from magnetar.config.broker import BrokerSettings
from magnetar.errors import MagnetarError, NotSupported
from magnetar.ids import EARLIEST, MessageId, Position
from magnetar.managed_ledger.cursor import Cursor
from magnetar.managed_ledger.entry import Entry
from magnetar.managed_ledger.managed_ledger import ManagedLedger
from magnetar.runtime.clock import WallClock
from magnetar.runtime.tasks import Tasks

# Ledgers that are to be deleted: one that a run was writing, one that a newer has replaced.
WRITING_PROPERTY: Final = "magnetar.compaction.writing"
REPLACED_PROPERTY: Final = "magnetar.compaction.replaced"
_READ_ENTRIES: Final = 100
_READ_BYTES: Final = 1024 * 1024

_log = logging.getLogger(__name__)


class CompactionStatus(StrEnum):
    """As administration says it."""

    NOT_RUN = "NOT_RUN"
    RUNNING = "RUNNING"
    SUCCESS = "SUCCESS"
    ERROR = "ERROR"


class TopicCompaction:
    def __init__(
        self,
        topic: str,
        managed_ledger: ManagedLedger,
        settings: BrokerSettings,
        tasks: Tasks,
        clock: WallClock | None = None,
    ) -> None:
        self.status = CompactionStatus.NOT_RUN
        self.error = ""
        # When it last ended well and badly, how long the last run took, how many entries it left out; 0: never.
        self.succeeded_ms = 0
        self.failed_ms = 0
        self.duration_ms = 0
        self.entries_removed = 0
        self.horizon: Horizon | None = horizon_of(managed_ledger.cursors.get(COMPACTION_CURSOR))
        self._topic = topic
        self._managed_ledger = managed_ledger
        self._ledgers = managed_ledger.side_ledgers
        self._settings = settings
        self._tasks = tasks
        self._clock = clock
        self._ledger: CompactedLedger | None = None
        self._opening: asyncio.Lock | None = None
        # What of the topic readers may see.
        self.buffer = TransactionBuffer()
        self._running: asyncio.Task[None] | None = None

    def start(self) -> asyncio.Task[None]:
        """Compact as a task of its own. NotSupported while it runs already."""
        if self._running is not None and not self._running.done():
            raise NotSupported(f"Compaction of {self._topic} is already running")
        self.status = CompactionStatus.RUNNING
        self._running = self._tasks.start(self._run(), f"compact {self._topic}")
        return self._running

    @property
    def bytes_since(self) -> int:
        """About how many bytes came since the last compaction."""
        return self._managed_ledger.bytes_after(self.horizon.last if self.horizon is not None else EARLIEST)

    async def ledger(self) -> CompactedLedger | None:
        """The compacted ledger, open for reading; None when the topic was never compacted."""
        horizon = self.horizon
        if horizon is None:
            return None
        if self._opening is None:
            self._opening = asyncio.Lock()
        async with self._opening:
            present = self._ledger
            if present is None or present.horizon.ledger_id != horizon.ledger_id:
                self._ledger = await CompactedLedger.open(horizon, self._ledgers)
                if present is not None:
                    present.close()
            return self._ledger

    async def last_entry(self) -> Entry | None:
        """The last entry of the compacted ledger; None when there is none."""
        ledger = await self.ledger()
        if ledger is None or not len(ledger):
            return None
        return (await ledger.read(len(ledger) - 1, entries_max=1, bytes_max=1))[0]

    @property
    def is_complete(self) -> bool:
        """Whether everything that the topic holds is compacted."""
        return self.horizon is not None and self._managed_ledger.last_confirmed <= self.horizon.last

    async def close(self) -> None:
        if self._running is not None and not self._running.done():
            self._running.cancel()
            await asyncio.wait((self._running,))
        if self._ledger is not None:
            self._ledger.close()
            self._ledger = None

    async def delete(self) -> None:
        """Delete the compacted ledger, after the topic itself. Left behind by a crash, it says whose it was."""
        if self.horizon is not None:
            await self._ledgers.delete(self.horizon.ledger_id)

    # --- one run --------------------------------------------------------------------------------------

    async def _run(self) -> None:
        started_ms = self._now_ms()
        try:
            await self.compact()
            self.status, self.error = CompactionStatus.SUCCESS, ""
            self.succeeded_ms = self._now_ms()
            self.duration_ms = self.succeeded_ms - started_ms
        except MagnetarError as error:
            self.status, self.error = CompactionStatus.ERROR, str(error)
            self.failed_ms = self._now_ms()
            self.duration_ms = self.failed_ms - started_ms
            _log.warning("%s: compaction failed: %s", self._topic, error)
            await self._withdraw()
        except asyncio.CancelledError:
            self.status, self.error = CompactionStatus.ERROR, "the topic was closed"
            raise

    def _now_ms(self) -> int:
        return 0 if self._clock is None else self._clock.now_ms()

    async def compact(self) -> None:
        """One run, from what the compacted view holds now. Nothing happens when nothing came since the last."""
        cursor = await self._managed_ledger.open_cursor(COMPACTION_CURSOR, initial=EARLIEST)
        self.horizon = horizon_of(cursor)
        await self._delete_left_over(cursor)
        through = self._managed_ledger.last_confirmed
        if self.buffer.through is not None:
            through = min(through, self.buffer.through)
        if through.entry_id < 0 or (self.horizon is not None and through <= self.horizon.last):
            return
        settings = self._settings
        keys = LatestKeys(
            bytes_max=settings.compaction_memory_bytes_max,
            keeps_unkeyed=settings.compaction_keeps_unkeyed,
            by_event_time=settings.compaction_order == "event_time",
        )
        async for entry in self._entries(through):
            keys.note(entry.position, messages_of(entry))
        horizon = await self._write(cursor, keys, through)
        await self._switch(cursor, horizon)

    async def _write(self, cursor: Cursor, keys: LatestKeys, through: Position) -> Horizon:
        ledger_id = await self._ledgers.reserve_id()
        await cursor.set_properties({**cursor.properties, WRITING_PROPERTY: ledger_id})
        about = {
            "component": b"compacted-topic",
            "pulsar/compactedTopic": self._topic.encode(),
            "pulsar/compactedTo": MessageId(*through).encode(),
        }
        ledger = await self._ledgers.create(ledger_id, about)
        pending: list[bytes] = []
        pending_bytes = 0
        removed = 0
        async for entry in self._entries(through):
            kept = keys.kept(entry.position, messages_of(entry))
            if kept.is_whole:
                pending.append(encode_entry(entry.position, entry.body))
            elif kept.indexes:
                pending.append(encode_entry(entry.position, without(entry, kept.indexes)))
            else:
                removed += 1
                continue
            pending_bytes += len(pending[-1])
            if pending_bytes >= _READ_BYTES:
                await ledger.append(pending)
                pending, pending_bytes = [], 0
        if pending:
            await ledger.append(pending)
        await ledger.writer.close()
        self.entries_removed = removed
        return Horizon(ledger_id, through)

    async def _switch(self, cursor: Cursor, horizon: Horizon) -> None:
        replaced = self.horizon
        properties = {LEDGER_PROPERTY: horizon.ledger_id}
        if replaced is not None:
            properties[REPLACED_PROPERTY] = replaced.ledger_id
        cursor.ack_cumulative(horizon.last, properties=properties)
        await cursor.flush()
        self.horizon = horizon
        if replaced is not None:
            await self._ledgers.delete(replaced.ledger_id)

    async def _withdraw(self) -> None:
        """A topic that has no compacted view yet gets no cursor from a run that failed: it would keep everything."""
        cursor = self._managed_ledger.cursors.get(COMPACTION_CURSOR)
        if self.horizon is not None or cursor is None:
            return
        try:
            await self._delete_left_over(cursor)
            await self._managed_ledger.delete_cursor(COMPACTION_CURSOR)
        except MagnetarError as error:
            _log.warning("%s: the cursor of the failed compaction stays: %s", self._topic, error)

    async def _delete_left_over(self, cursor: Cursor) -> None:
        """What an earlier run has left behind; but not what is only replaced here, and not on disk."""
        await cursor.flush()
        for name in (WRITING_PROPERTY, REPLACED_PROPERTY):
            ledger_id = cursor.properties.get(name)
            if ledger_id is not None and ledger_id != cursor.properties.get(LEDGER_PROPERTY):
                await self._ledgers.delete(ledger_id)

    async def _entries(self, through: Position) -> AsyncIterator[Entry]:
        """The compacted view as it is before this run, up to a position: the same entries each time."""
        ledger = await self.ledger()
        position = EARLIEST
        if ledger is not None:
            index = 0
            while entries := await ledger.read(index, entries_max=_READ_ENTRIES, bytes_max=_READ_BYTES):
                for entry in entries:
                    yield entry
                index += len(entries)
            position = Position(ledger.horizon.last.ledger_id, ledger.horizon.last.entry_id + 1)
        while position <= through:
            entries = await self._managed_ledger.read(position, entries_max=_READ_ENTRIES, bytes_max=_READ_BYTES)
            if not entries:
                return
            for entry in entries:
                if entry.position > through:
                    return
                if not self.buffer.has_aborted(entry):
                    yield entry
            position = Position(entries[-1].ledger_id, entries[-1].entry_id + 1)
            # Entries may all come from memory: others must have their turn.
            await asyncio.sleep(0)
