# SPDX-License-Identifier: Apache-2.0
"""One reader's place in a managed ledger: what it has consumed, where it reads next, and when that is saved.

Owns a CursorState and, if it is durable, the CursorStore that keeps it. Acks change memory at once and are saved
soon: at most every flush interval, and whenever someone asks by `flush`. What is not saved is delivered again after a
restart; what is saved never is. Never reads entries, never decides what may be trimmed.
Carries.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

from magnetar.errors import (
    BadVersion,
    LedgerFenced,
    MagnetarError,
    OwnerClosed,
    PersistenceFailed,
    ServiceNotReady,
    TooManyRequests,
)
from magnetar.ids import Position
from magnetar.managed_ledger.cursor_format import CursorSnapshot
from magnetar.managed_ledger.cursor_state import CursorState, words_of
from magnetar.managed_ledger.cursor_store import CursorStore
from magnetar.managed_ledger.message_tally import Lookup, MessageTally, restored
from magnetar.managed_ledger.parts import LogParts
from magnetar.managed_ledger.record_intents import refuse_own

_log = logging.getLogger(__name__)


class Cursor:
    __slots__ = (
        "_is_closed",
        "_log",
        "_loop",
        "_on_closed",
        "_on_saved",
        "_saved_at_s",
        "_saved_changes",
        "_saving",
        "_scheduled",
        "_store",
        "_timer",
        "is_save_failing",
        "name",
        "properties",
        "saved_mark_delete",
        "state",
    )

    def __init__(
        self,
        log: LogParts,
        name: str,
        state: CursorState,
        *,
        store: CursorStore | None,
        properties: Mapping[str, int],
        on_saved: Callable[[], None],
        on_closed: Callable[["Cursor"], None],
    ) -> None:
        self.name = name
        self.state = state
        # Numbers that are saved with the position, in the same write: deduplication and compaction keep theirs here.
        self.properties: dict[str, int] = dict(properties)
        self._log = log
        self._store = store
        self._on_saved = on_saved
        self._on_closed = on_closed
        self._loop = asyncio.get_running_loop()
        # Where mark-delete stands on disk: the only one that may justify deleting anything.
        self.saved_mark_delete = state.mark_delete
        self._saved_changes = state.changes
        if store is not None:
            store.saved_changes = state.changes
        self._saved_at_s = float("-inf")
        self._saving = asyncio.Lock()
        self._scheduled = store is None
        self._timer: asyncio.TimerHandle | None = None
        self._is_closed = False
        # The last attempt to save failed; acks go on in memory.
        self.is_save_failing = False

    # --- acknowledgements ---------------------------------------------------------------------

    def ack(self, position: Position, ack_set: Sequence[int] = ()) -> bool:
        """Acknowledge one entry, or with an ack set the messages of its batch whose bits are clear.

        True when the whole entry is acknowledged now. BadPosition for an entry that does not exist yet.
        """
        is_whole = self.state.ack(position, ack_set)
        if not self._scheduled:
            self._schedule()
        return is_whole

    def ack_run(self, positions: Sequence[tuple[int, int]]) -> bool:
        """Acknowledge whole entries that came together; False, and nothing changes, where each needs an `ack`."""
        is_taken = self.state.ack_run(positions)
        if is_taken and not self._scheduled:
            self._schedule()
        return is_taken

    def ack_all(self, positions: Iterable[Position]) -> None:
        """Acknowledge many entries; the first that does not exist yet ends it with BadPosition."""
        ack = self.state.ack
        for position in positions:
            ack(position)
        if not self._scheduled:
            self._schedule()

    def ack_cumulative(
        self, position: Position, ack_set: Sequence[int] = (), *, properties: Mapping[str, int] | None = None
    ) -> bool:
        """Acknowledge everything up to a position, with an ack set only the clear bits of its batch. True if it moved.

        Properties, when given, replace the cursor's and are saved together with the position.
        """
        moved = self.state.ack_cumulative(position, ack_set)
        if properties is not None and dict(properties) != self.properties:
            self.properties = dict(properties)
            self.state.changes += 1
        if not self._scheduled:
            self._schedule()
        return moved

    def count_messages(self, size_of: Lookup, number_of: Lookup) -> None:
        """Count acknowledged messages from now on; from what was saved, or once somebody has counted."""
        self.state.tally = MessageTally(size_of, number_of, restored(self.properties, self.state.fits))

    # --- places -------------------------------------------------------------------------------

    @property
    def is_durable(self) -> bool:
        return self._store is not None

    @property
    def mark_delete(self) -> Position:
        return self.state.mark_delete

    @property
    def read_position(self) -> Position:
        return self.state.read_position

    @read_position.setter
    def read_position(self, position: Position) -> None:
        self.state.read_position = position

    def rewind(self) -> None:
        """Read again from the first entry behind mark-delete."""
        self.state.rewind()

    def on_trimmed(self) -> None:
        """Ledgers left the log: places inside them move to its first one."""
        self.state.on_trimmed()
        first = self._log.ledgers.before_first
        # The record's own position may stay behind: whoever reads it finds the same place.
        self.saved_mark_delete = max(self.saved_mark_delete, min(first, self.state.mark_delete))
        if not self._scheduled:
            self._schedule()

    async def reset(self, position: Position) -> None:
        """Make the entry at this position the next one, forget all acks, and save that.

        EARLIEST and LATEST are places too. When it returns, a restart comes back to this place.
        """
        self.state.reset(position)
        # Going back: what lies between must not be trimmed on the word of the old place.
        self.saved_mark_delete = min(self.saved_mark_delete, self.state.mark_delete)
        await self.flush()

    # --- questions ----------------------------------------------------------------------------

    def is_acked(self, position: Position) -> bool:
        return self.state.is_acked(position)

    def batch_words(self, position: Position) -> list[int]:
        """The unacked bits of a partly acked batch as unsigned words; empty for an entry wholly acked or wholly not."""
        bits = self.state.batch_bits(position)
        return words_of(bits) if bits else []

    def next_unacked(self, position: Position) -> Position | None:
        return self.state.next_unacked(position)

    def unacked(self, position: Position, *, count_max: int) -> list[Position]:
        """Unacked entries at or after a position, in order."""
        return list(self.state.unacked(position, count_max=count_max))

    def backlog_entries(self) -> int:
        """Entries that are not acknowledged."""
        return self.state.backlog_entries

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    @property
    def is_saved(self) -> bool:
        """True when the present state is on disk."""
        return self._saved_changes == self.state.changes

    @property
    def user_properties(self) -> dict[str, str]:
        """The subscription's properties, as users set them."""
        return self._store.user_properties if self._store is not None else {}

    @property
    def store(self) -> CursorStore | None:
        return self._store

    # --- saving -------------------------------------------------------------------------------

    async def flush(self) -> None:
        """Save the present state now; returns when it is durable. Nothing happens for a cursor that is not durable.

        ServiceNotReady when it was closed before.
        """
        async with self._saving:
            await self._save()

    async def set_user_properties(self, properties: Mapping[str, str]) -> None:
        """Replace the subscription's properties. BadName for those that are Magnetar's own."""
        refuse_own(properties)
        if self._store is None:
            return
        async with self._saving:
            await self._in_time(self._store.set_user_properties(properties))

    async def set_properties(self, properties: Mapping[str, int]) -> None:
        """Replace the numbers that are saved with the position, and save."""
        self.properties = dict(properties)
        self.state.changes += 1
        await self.flush()

    async def close(self) -> None:
        """Save what is not saved, into the record if it is small enough, and take no further part."""
        if self._is_closed:
            return
        self._stop_timer()
        self._scheduled = True
        try:
            if self._store is not None:
                async with self._saving:
                    await self._in_time(self._store.close(self._snapshot))
                    self._took_over(self._store)
        finally:
            self._is_closed = True
            self._on_closed(self)

    async def delete(self) -> None:
        """Delete what is stored of the cursor, for good."""
        self.abandon()
        if self._store is not None:
            async with self._saving:
                await self._store.delete()

    def abandon(self) -> None:
        """Take no further part and save nothing: the log was deleted or has another owner."""
        self._stop_timer()
        self._scheduled = True
        self._is_closed = True

    # --- private ------------------------------------------------------------------------------

    def _snapshot(self) -> tuple[CursorSnapshot, int]:
        state = self.state
        properties = self.properties
        if state.tally is not None:
            properties = {**properties, **state.tally.saved(state.fits)}
        return CursorSnapshot(state.mark_delete, state.acked, state.batches, properties), state.changes

    async def _save(self) -> None:
        store = self._store
        if store is None or self.is_saved:
            return
        if self._is_closed:
            raise ServiceNotReady(f"Cursor {self.name} of {self._log.name} is closed: its last changes are not saved")
        try:
            await self._in_time(store.save(self._snapshot))
        except (BadVersion, LedgerFenced) as error:
            fenced = LedgerFenced(f"Cursor {self.name} of {self._log.name} has another owner now: {error}")
            self._log.on_fenced(fenced)
            raise fenced from error
        self._took_over(store)

    async def _in_time(self, step: Awaitable[None]) -> None:
        """No one waits for a store or a bookie for ever; what was sent may still be carried out."""
        timeout_ms = self._log.settings.append_timeout_ms
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await step
        except TimeoutError as error:
            text = f"Cursor {self.name} of {self._log.name} could not be saved within {timeout_ms} ms"
            raise PersistenceFailed(text) from error

    def _took_over(self, store: CursorStore) -> None:
        self._saved_changes = store.saved_changes
        self._saved_at_s = self._loop.time()
        self.is_save_failing = False
        before = self.saved_mark_delete
        # A reset may have gone back while the write was on its way.
        self.saved_mark_delete = min(store.saved_mark_delete, self.state.mark_delete)
        if self.saved_mark_delete != before and self._log.ledgers.is_past_ledger(before, self.saved_mark_delete):
            self._on_saved()

    def _schedule(self) -> None:
        if self._is_closed or self.is_saved:
            return
        self._scheduled = True
        self._timer = self._loop.call_at(max(self._loop.time(), self._due_s()), self._start_saving)

    def _due_s(self) -> float:
        return self._saved_at_s + self._log.settings.cursor_flush_interval_ms / 1000

    def _start_saving(self) -> None:
        self._timer = None
        try:
            self._log.tasks.start(self._save_in_turn(), f"{self._log.name}: save cursor {self.name}")
        except OwnerClosed:
            return
        except TooManyRequests:
            self._saved_at_s = self._loop.time()
            self._scheduled = False
            self._schedule()

    async def _save_in_turn(self) -> None:
        try:
            async with self._saving:
                # If someone asked for a flush meanwhile, what came after it waits its own interval.
                if self._loop.time() >= self._due_s() and not self._is_closed:
                    await self._save()
        except MagnetarError as error:
            _log.warning("%s: cursor %s is not saved yet: %s", self._log.name, self.name, error)
            self.is_save_failing = True
            self._saved_at_s = self._loop.time()
            if isinstance(error, LedgerFenced):
                return
        if not self._is_closed:
            self._scheduled = False
            self._schedule()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
