# SPDX-License-Identifier: Apache-2.0
"""One endless log per topic: append at its end, read from anywhere, remember who has read what, let the old go.

Owns the appender, the readers, the cursors and the trimming of one log, from the moment that it was taken over until
it is closed or another owner takes it. Opened by ManagedLedgers. Never knows what an entry means.
Carries.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Literal, TypeVar

from magnetar.config.managed_ledger import ManagedLedgerSettings
from magnetar.errors import (
    BadVersion,
    LedgerFenced,
    MagnetarError,
    OwnerClosed,
    ServiceNotReady,
    SubscriptionNotFound,
    TooManyRequests,
    TopicTerminated,
)
from magnetar.ids import EARLIEST, LATEST, Position
from magnetar.managed_ledger.appender import Appender
from magnetar.managed_ledger.cursor import Cursor
from magnetar.managed_ledger.cursor_state import CursorState
from magnetar.managed_ledger.cursor_store import CursorStore
from magnetar.managed_ledger.cursors import Cursors
from magnetar.managed_ledger.entry import Entry
from magnetar.managed_ledger.entry_reads import EntryReads
from magnetar.managed_ledger.ledger_list import LedgerList
from magnetar.managed_ledger.log_end import LogEnd
from magnetar.managed_ledger.log_record import LogRecord
from magnetar.managed_ledger.opening import delete_log, take_over
from magnetar.managed_ledger.parts import LogParts, PersistListener
from magnetar.managed_ledger.pending_operations import PendingOperations
from magnetar.managed_ledger.record_intents import refuse_own
from magnetar.managed_ledger.side_ledgers import SideLedgers
from magnetar.managed_ledger.trimming import Trimming
from magnetar.runtime.disk import Buffer

_CURSORS_AT_ONCE = 16

Result = TypeVar("Result")

_log = logging.getLogger(__name__)


class ManagedLedger:
    def __init__(self, log: LogParts, record: LogRecord, cursors: Cursors, appender: LogEnd) -> None:
        self.name = log.name
        self._log = log
        self._record = record
        self._cursors = cursors
        self._appender = appender
        self._reads = EntryReads(log)
        self.side_ledgers = SideLedgers(log)
        self._trimming = Trimming(log, record, cursors)
        # Cursors are made and deleted one after another, so that two of one name never meet.
        self._cursor_turn = asyncio.Lock()
        self._trim_wanted = False
        self._is_closed = False
        self._on_closed: Callable[[ManagedLedger], None] | None = None
        # The hot calls go straight to their owners.
        self.append: Callable[[Sequence[Buffer]], None] = appender.append
        self.append_run: Callable[[Sequence[Sequence[Buffer]]], bool] = appender.append_run
        self.read_cached: Callable[[Position, int, int], list[Entry] | None] = self._reads.read_cached
        log.on_fenced = self._on_fenced
        log.on_ledger_ended = self._ask_for_trimming

    @staticmethod
    async def open(
        log: LogParts,
        listener: PersistListener,
        *,
        create: bool,
        properties: Mapping[str, str],
        on_closed: Callable[["ManagedLedger"], None],
    ) -> "ManagedLedger":
        """Take the log over and bring its cursors back. TopicNotFound when it is absent and may not be made.

        LedgerFenced when another owner takes it over meanwhile.
        """
        record = await take_over(log, create=create, properties=properties)
        cursors = Cursors(log)
        appender = Appender(log, record, cursors, listener)
        if record.present.terminated is not None:
            appender.refuse(TopicTerminated(f"{log.name} was terminated"))
        ledger = ManagedLedger(log, record, cursors, appender)
        try:
            if not len(log.ledgers):
                await appender.open_first()
            await ledger._recover_cursors()
        except BadVersion as error:
            raise LedgerFenced(f"{log.name} was taken over by another owner while it was opened: {error}") from error
        ledger._on_closed = on_closed
        if ledger._trimming.has_work:
            ledger._ask_for_trimming()
        return ledger

    # --- the end of the log ---------------------------------------------------------------------

    @property
    def last_confirmed(self) -> Position:
        """The last persisted entry; before the first one, the place before it."""
        return self._appender.last_confirmed

    @property
    def pending_bytes(self) -> int:
        """Bytes appended and not yet told as persisted."""
        return self._appender.pending_bytes

    @property
    def pending_entries(self) -> int:
        return self._appender.pending_entries

    @property
    def pending_operations(self) -> PendingOperations:
        """What is done to its ledgers at this moment."""
        return self._log.pending

    @property
    def is_terminated(self) -> bool:
        return self._record.present.terminated is not None

    async def terminate(self) -> Position:
        """Take no more entries, ever; returns the last one. Again: the same answer.

        Until it is on record, appends are refused for a while only. When it fails the log must be opened anew.
        """
        if self._record.present.terminated is not None:
            return self._record.present.terminated
        self._appender.refuse(ServiceNotReady(f"{self.name} is being terminated; send it again in a moment"))
        await self._in_time(self._appender.drained())
        await self._guarded(self._appender.end(terminated=True))
        self._appender.refuse(TopicTerminated(f"{self.name} was terminated"), instead=True)
        return self.last_confirmed

    # --- reading ----------------------------------------------------------------------------------

    async def read(self, position: Position, *, entries_max: int, bytes_max: int) -> list[Entry]:
        """Entries from a position on, over as many ledgers as it takes: at least one, or none at the end of the log."""
        return await self._reads.read(position, entries_max=entries_max, bytes_max=bytes_max)

    @property
    def open_readers(self) -> int:
        """Ledgers that are open for reading."""
        return len(self._reads)

    # --- positions --------------------------------------------------------------------------------

    @property
    def ledgers(self) -> LedgerList:
        """The ledgers of the log, to read only."""
        return self._log.ledgers

    @property
    def first_position(self) -> Position:
        """The first entry that is there, or where it will be."""
        return self._log.ledgers.entry_at_or_after(EARLIEST) or self.next_position(self.last_confirmed)

    def next_position(self, position: Position) -> Position:
        return self._log.ledgers.next_position(position)

    def previous_position(self, position: Position) -> Position:
        return self._log.ledgers.previous_position(position)

    def entries_between(self, after: Position, through: Position) -> int:
        """Entries after the first position, up to and with the second."""
        return self._log.ledgers.entries_between(after, through)

    @property
    def entries(self) -> int:
        return self._log.ledgers.entries

    @property
    def size_bytes(self) -> int:
        return self._log.ledgers.size_bytes

    def bytes_after(self, position: Position) -> int:
        """About how many bytes lie behind a position: exact for whole ledgers, by the mean entry inside one."""
        return self._log.ledgers.bytes_after(position)

    def position_after(self, position: Position, entries: int) -> Position:
        """The entry that lies so many entries behind a position; the last one when there are fewer."""
        return self._log.ledgers.position_of(self._log.ledgers.ordinal(position) + entries)

    async def last_matching(self, matches: Callable[[Entry], bool], *, start: Position = EARLIEST) -> Position | None:
        """The last entry that matches, where all before it (from start on) match too: a binary search, by reading.

        For the last message published before a time; None when not even the first one matches.
        """
        ledgers = self._log.ledgers
        low, high = ledgers.ordinal(ledgers.previous_position(start)) if start > EARLIEST else 0, ledgers.last_ordinal
        low = max(low, ledgers.first.first_ordinal)
        found: Position | None = None
        while low < high:
            middle = (low + high + 1) // 2
            entries = await self.read(ledgers.position_of(middle), entries_max=1, bytes_max=1)
            if entries and matches(entries[0]):
                low, found = middle, entries[0].position
            else:
                high = middle - 1
        return found

    # --- cursors ----------------------------------------------------------------------------------

    @property
    def cursors(self) -> Mapping[str, Cursor]:
        """The durable cursors by name, to read only."""
        return self._cursors.durable

    async def open_cursor(
        self,
        name: str,
        *,
        initial: Position | Literal["earliest", "latest"] = LATEST,
        properties: Mapping[str, str] | None = None,
    ) -> Cursor:
        """The durable cursor of this name. A new one stands so that the entry at `initial` comes next to be read."""
        self._check_open()
        refuse_own(properties or ())
        async with self._cursor_turn:
            present = self._cursors.durable.get(name)
            if present is not None and not present.is_closed:
                return present
            if await self._recover_cursor(name):
                return self._cursors.durable[name]
            state = self._new_state(_place(initial))
            store = await self._guarded(CursorStore.create(self._log, name, state.mark_delete, properties or {}))
            self._check_open()
            # Trimming may have taken ledgers away while the record was written.
            state.on_trimmed()
            return self._add_durable(name, state, store, {})

    def new_non_durable_cursor(self, name: str, start: Position | Literal["earliest", "latest"]) -> Cursor:
        """A cursor that is kept in memory alone and pins nothing."""
        self._check_open()
        cursor = Cursor(
            self._log,
            name,
            self._new_state(_place(start)),
            store=None,
            properties={},
            on_saved=self._ask_for_trimming,
            on_closed=self._forget_cursor,
        )
        self._cursors.non_durable[cursor] = None
        return cursor

    def forget_non_durable_cursor(self, cursor: Cursor) -> None:
        """Its reader left; what it had still to read is not kept for it."""
        cursor.abandon()
        self._forget_cursor(cursor)

    async def delete_cursor(self, name: str) -> None:
        """Delete a durable cursor for good. SubscriptionNotFound when there is none."""
        async with self._cursor_turn:
            cursor = self._cursors.durable.pop(name, None)
            if cursor is None:
                raise SubscriptionNotFound(f"{self.name} has no cursor {name}")
            await self._guarded(cursor.delete())
        self._ask_for_trimming()

    # --- properties -------------------------------------------------------------------------------

    @property
    def properties(self) -> dict[str, str]:
        return dict(self._record.present.properties)

    async def confirm_ownership(self) -> None:
        """Returns when the store has said that nobody else had written this log when it was asked. LedgerFenced."""
        async with self._record.turn:
            await self._guarded(self._record.write(self._record.present))

    async def set_properties(self, properties: Mapping[str, str]) -> None:
        """Replace all properties of the log. BadName for those that are Magnetar's own."""
        refuse_own(properties)
        async with self._record.turn:
            await self._guarded(self._record.write(self._record.present.with_properties(properties)))

    async def update_properties(self, changes: Mapping[str, str | None]) -> None:
        """Set these properties, or with None remove them; the others stay, whoever changes them meanwhile."""
        refuse_own(changes)
        async with self._record.turn:
            merged = {**self._record.present.properties, **changes}
            properties = {name: value for name, value in merged.items() if value is not None}
            await self._guarded(self._record.write(self._record.present.with_properties(properties)))

    @property
    def kept(self) -> dict[str, str]:
        """What was kept of entries that are gone."""
        return dict(self._record.present.kept)

    def keep_when_trimmed(self, kept: Callable[[], Mapping[str, str]]) -> None:
        """Ask for this whenever ledgers are let go, and keep it for the owners to come."""
        self._trimming.keep = kept

    @property
    def settings(self) -> ManagedLedgerSettings:
        return self._log.settings

    @settings.setter
    def settings(self, settings: ManagedLedgerSettings) -> None:
        """New ledgers, limits and retention follow the new settings at once."""
        self._log.settings = settings

    # --- upkeep -----------------------------------------------------------------------------------

    async def trim(self) -> int:
        """Let go what no durable cursor needs and retention does not keep; returns how many ledgers went."""
        return await self._guarded(self._trimming.trim())

    async def truncate(self) -> int:
        """Let go of all before the present ledger, retention or not; durable cursors stand at what is the end now.

        A cursor that is there already keeps what is saved with its place.
        """
        end, cursors = self.last_confirmed, list(self._cursors.durable.values())
        for cursor in cursors:
            cursor.ack_cumulative(end)
        for cursor in cursors:
            await cursor.flush()
        return await self._guarded(self._trimming.trim(heed_retention=False))

    def upkeep(self) -> None:
        """What time brings: rollover by age, trimming by age, unfinished deletions."""
        if self._is_closed:
            return
        self._appender.check_rollover()
        if self._trimming.has_work:
            self._ask_for_trimming()
        for ledger_id, tail in list(self._log.tails.items()):
            if not tail.entries and ledger_id != self._log.ledgers.last.ledger_id:
                del self._log.tails[ledger_id]

    # --- end --------------------------------------------------------------------------------------

    async def close(self) -> None:
        """Let what is on its way be persisted, save the cursors, close the ledger. The next owner finds all of it."""
        if self._is_closed:
            return
        self._is_closed = True
        self._appender.refuse(ServiceNotReady(f"{self.name} is closing"))
        try:
            await self._in_time(self._appender.drained())
            errors = [error for cursor in self._cursors.all() if (error := await _closing_error(cursor))]
            await self._appender.end(terminated=False)
        finally:
            self._release()
        if errors:
            raise errors[0]

    async def delete(self) -> None:
        """Delete the log with its cursors and ledgers. A crash leaves an intent, which the next open finishes."""
        self._is_closed = True
        self._appender.refuse(ServiceNotReady(f"{self.name} is being deleted"))
        for cursor in self._cursors.all():
            cursor.abandon()
        try:
            # A ledger that is being made just now must not come after its own deletion.
            await self._in_time(self._appender.settled())
            await delete_log(self._log, self._record)
        finally:
            self._appender.give_up(ServiceNotReady(f"{self.name} was deleted"))
            self._release()

    # --- private ----------------------------------------------------------------------------------

    async def _recover_cursors(self) -> None:
        """Every durable cursor, some at a time; the log does not open when one of them cannot be read."""
        turns = asyncio.Semaphore(_CURSORS_AT_ONCE)

        async def recover(name: str) -> None:
            async with turns:
                await self._recover_cursor(name)

        names = await self._log.catalog.cursor_names()
        for outcome in await asyncio.gather(*map(recover, names), return_exceptions=True):
            if outcome is not None:
                raise outcome

    async def _recover_cursor(self, name: str) -> bool:
        """Take a cursor over from its last owner; False when there is none of this name."""
        found = await CursorStore.recover(self._log, name)
        if found is None:
            return False
        store, snapshot = found
        state = CursorState(self._log.ledgers, self._log.existing_place(snapshot.mark_delete))
        state.restore(snapshot.acked, snapshot.batches)
        state.rewind()
        self._add_durable(name, state, store, snapshot.properties)
        return True

    def _add_durable(self, name: str, state: CursorState, store: CursorStore, properties: Mapping[str, int]) -> Cursor:
        cursor = Cursor(
            self._log,
            name,
            state,
            store=store,
            properties=properties,
            on_saved=self._ask_for_trimming,
            on_closed=self._forget_cursor,
        )
        self._cursors.durable[name] = cursor
        return cursor

    def _new_state(self, initial: Position) -> CursorState:
        state = CursorState(self._log.ledgers, self._log.ledgers.before_first)
        state.reset(initial)
        state.changes = 0
        return state

    def _forget_cursor(self, cursor: Cursor) -> None:
        self._cursors.non_durable.pop(cursor, None)

    def _ask_for_trimming(self) -> None:
        if self._trim_wanted or self._is_closed:
            return
        try:
            self._log.tasks.start(self._trim_once(), f"{self.name}: trim")
        except (OwnerClosed, TooManyRequests):
            # The next round of upkeep asks again.
            return
        self._trim_wanted = True

    async def _trim_once(self) -> None:
        self._trim_wanted = False
        try:
            await self.trim()
        except MagnetarError as error:
            _log.warning("%s: trimming: %s", self.name, error)

    async def _guarded(self, step: Awaitable[Result]) -> Result:
        """A write of a record: losing it to another owner ends us."""
        try:
            return await step
        except BadVersion as error:
            fenced = LedgerFenced(f"{self.name} has another owner now: {error}")
            self._on_fenced(fenced)
            raise fenced from error

    async def _in_time(self, step: Awaitable[None]) -> None:
        try:
            async with asyncio.timeout(self._log.settings.append_timeout_ms / 1000):
                await step
        except TimeoutError as error:
            raise ServiceNotReady(f"{self.name} does not come to rest: {self.pending_entries} appends wait") from error

    def _on_fenced(self, error: MagnetarError) -> None:
        for cursor in self._cursors.all():
            cursor.abandon()
        self._appender.give_up(error)

    def _check_open(self) -> None:
        if self._is_closed:
            raise ServiceNotReady(f"{self.name} is closed")

    def _release(self) -> None:
        self._reads.close()
        for tail in self._log.tails.values():
            self._log.cache.forget(tail)
        self._log.tails.clear()
        if self._on_closed is not None:
            self._on_closed(self)


async def _closing_error(cursor: Cursor) -> MagnetarError | None:
    """Close a cursor; the others are closed whatever comes of it."""
    try:
        await cursor.close()
    except MagnetarError as error:
        _log.warning("cursor %s is not saved: %s", cursor.name, error)
        return error
    return None


def _place(initial: Position | Literal["earliest", "latest"]) -> Position:
    if isinstance(initial, str):
        return EARLIEST if initial == "earliest" else LATEST
    return initial
