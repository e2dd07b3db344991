# SPDX-License-Identifier: Apache-2.0
"""Where a durable cursor is kept: a cursor ledger that its states are appended to, and a record that names that ledger.

Owns the present cursor ledger and the record's version. A save is one append; a new cursor ledger gets the whole state
first and is then named by the record, in the same write as the intent to delete the old one. When no ledger can be
written the state goes into the record itself, as it does on a clean close. One call at a time, by the Cursor. Never
decides when to save.
Carries.
"""

import logging
from collections.abc import Callable, Mapping
from typing import Final

from magnetar.errors import BadVersion, MagnetarError, NoSuchLedger, PersistenceFailed
from magnetar.ids import Position
from magnetar.managed_ledger.catalog import GuardedRecord
from magnetar.managed_ledger.cursor_format import CursorSnapshot, encode_entries
from magnetar.managed_ledger.cursor_ledger import CursorLedger, read_state
from magnetar.managed_ledger.cursor_record import NO_LEDGER, CursorRecord
from magnetar.managed_ledger.parts import LogParts

# What a range or a partly acked batch may take in a record, for the question whether a state fits.
_ITEM_BYTES: Final = 48

Snapshot = Callable[[], tuple[CursorSnapshot, int]]

_log = logging.getLogger(__name__)


class CursorStore:
    __slots__ = (
        "_gone",
        "_guarded",
        "_ledger",
        "_log",
        "_name",
        "_record",
        "saved_changes",
        "saved_mark_delete",
    )

    def __init__(self, log: LogParts, name: str, guarded: GuardedRecord, record: CursorRecord) -> None:
        self._log = log
        self._name = name
        self._guarded = guarded
        self._record = record
        self._ledger: CursorLedger | None = None
        # Ledgers that are deleted, although the record still says that they must be.
        self._gone: list[int] = []
        self.saved_changes = 0
        self.saved_mark_delete = record.mark_delete

    @property
    def place(self) -> tuple[int, int]:
        """The cursor ledger that is written now, and its last entry; -1 where there is none."""
        if self._ledger is None:
            return -1, -1
        return self._ledger.writer.ledger_id, self._ledger.writer.last_add_pushed

    # --- making -------------------------------------------------------------------------------

    @staticmethod
    async def create(
        log: LogParts, name: str, mark_delete: Position, user_properties: Mapping[str, str]
    ) -> "CursorStore":
        """A new cursor on record. BadVersion when there is one of this name."""
        guarded = log.catalog.cursor(name)
        record = CursorRecord.new(mark_delete, user_properties, log.clock.now_ms())
        await guarded.write(record.encode())
        return CursorStore(log, name, guarded, record)

    @staticmethod
    async def take(log: LogParts, name: str) -> "CursorStore | None":
        """A cursor on record, without its state; None when there is none."""
        guarded = log.catalog.cursor(name)
        found = await guarded.read()
        return CursorStore(log, name, guarded, CursorRecord.decode(found.value)) if found is not None else None

    @staticmethod
    async def recover(log: LogParts, name: str) -> "tuple[CursorStore, CursorSnapshot] | None":
        """Take a cursor over from its last owner, with its state; None when there is no such cursor.

        The record is written once, so that what the old owner still writes is refused; where that collides with its
        last write, it all begins again.
        """
        guarded = log.catalog.cursor(name)
        for _ in range(log.settings.open_attempts_max):
            found = await guarded.read()
            if found is None:
                return None
            record = CursorRecord.decode(found.value)
            store = CursorStore(log, name, guarded, record)
            if record.is_deleted:
                await store.finish_delete()
                return None
            snapshot = await store._recovered_snapshot()
            try:
                await store._write(record.taken_over())
            except BadVersion:
                continue
            await store._finish_deletions()
            return store, snapshot
        raise PersistenceFailed(f"Cursor {name} of {log.name} is being written by another owner")

    # --- questions ----------------------------------------------------------------------------

    @property
    def ledger_id(self) -> int:
        """The cursor ledger on record; -1 when the record itself has the state."""
        return self._record.ledger_id

    @property
    def last_entry(self) -> int:
        return self._ledger.writer.last_add_confirmed if self._ledger is not None else -1

    @property
    def user_properties(self) -> dict[str, str]:
        return dict(self._record.user_properties)

    @property
    def last_active_ms(self) -> int:
        return self._record.last_active_ms

    # --- saving -------------------------------------------------------------------------------

    async def save(self, snapshot: Snapshot) -> None:
        """Keep the state that `snapshot` gives when it is called. BadVersion when another owner has the record."""
        ledger = self._ledger
        if ledger is not None and not self._is_done(ledger):
            try:
                await self._append(ledger, snapshot)
                return
            except MagnetarError as error:
                _log.warning("%s: cursor ledger %d failed: %s", self._title, ledger.writer.ledger_id, error)
                self._ledger = None
        try:
            await self._switch(snapshot)
        except BadVersion:
            raise
        except MagnetarError as error:
            if not self._fits(snapshot()[0]):
                raise
            _log.warning("%s: no cursor ledger, the record takes the state: %s", self._title, error)
            await self._save_in_record(snapshot)

    async def set_user_properties(self, properties: Mapping[str, str]) -> None:
        await self._write(self._record.with_user_properties(properties))

    async def close(self, snapshot: Snapshot) -> None:
        """Keep the state for the next owner: in the record when it fits, else in a closed cursor ledger.

        Parts of batches stay in a ledger: Apache's broker, which may be that owner, does not look for them in a record.
        """
        if self.ledger_id == NO_LEDGER and snapshot()[1] == self.saved_changes and not self._to_delete():
            return
        state = snapshot()[0]
        if self._fits(state) and not state.batches:
            await self._save_in_record(snapshot)
        else:
            if snapshot()[1] != self.saved_changes:
                await self.save(snapshot)
            if self._ledger is not None:
                await self._log.close_ledger(self._ledger.writer, of_cursor=True)
        self._ledger = None
        await self._finish_deletions()

    async def delete(self) -> None:
        """Delete the cursor for good: the intent first, then its ledgers, then the record."""
        await self._write(self._record.as_deleted(self._to_delete()))
        self._ledger = None
        await self.finish_delete()

    async def finish_delete(self) -> None:
        await self._finish_deletions()
        await self._guarded.delete()

    # --- private ------------------------------------------------------------------------------

    @property
    def _title(self) -> str:
        return f"{self._log.name}/{self._name}"

    def _is_done(self, ledger: CursorLedger) -> bool:
        settings = self._log.settings
        entries = ledger.writer.last_add_pushed + 1
        return (
            entries >= settings.cursor_ledger_entries_max
            or ledger.writer.length >= settings.cursor_ledger_bytes_max
            or ledger.age_ms >= settings.cursor_rollover_age_ms
        )

    def _fits(self, state: CursorSnapshot) -> bool:
        items = state.acked.run_count() + len(state.batches)
        return items * _ITEM_BYTES <= self._log.settings.cursor_record_bytes_max

    async def _recovered_snapshot(self) -> CursorSnapshot:
        record = self._record
        if record.ledger_id == NO_LEDGER:
            return record.snapshot(self._log.ledgers)
        try:
            saved = await read_state(self._log, record.ledger_id)
        except NoSuchLedger:
            if not (record.has_mark_delete and self._log.settings.skip_lost_data):
                raise
            _log.error(
                "%s: cursor ledger %d is lost; its acks since %s are too",
                self._title,
                record.ledger_id,
                record.mark_delete,
            )
            saved = None
        # A ledger without a state was never told as saved: the record's own position is the last that was.
        return saved if saved is not None else record.snapshot(self._log.ledgers)

    async def _append(self, ledger: CursorLedger, snapshot: Snapshot) -> None:
        state, changes = snapshot()
        mark_delete = state.mark_delete
        await ledger.append(encode_entries(state, entry_bytes_max=self._log.settings.cursor_entry_bytes_max))
        self._on_saved(mark_delete, changes)

    async def _switch(self, snapshot: Snapshot) -> None:
        """Begin a new cursor ledger with the whole state, name it in the record, then let the old one go.

        Its id is on record before it is made, so that it is found and deleted if we do not come that far.
        """
        ledger_id = await self._log.client.reserve_id()
        doomed = [doomed for doomed in self._to_delete() if doomed != self._record.ledger_id]
        await self._write(self._record.with_reserved(ledger_id, doomed))
        ledger = await CursorLedger.create(self._log, self._name, ledger_id)
        state, changes = snapshot()
        mark_delete, properties = state.mark_delete, dict(state.properties)
        await ledger.append(encode_entries(state, entry_bytes_max=self._log.settings.cursor_entry_bytes_max))
        deleting = [doomed for doomed in self._to_delete() if doomed != ledger_id]
        await self._write(self._record.moved_to(ledger_id, mark_delete, properties, deleting))
        self._ledger = ledger
        self._on_saved(mark_delete, changes)
        await self._finish_deletions()

    async def _save_in_record(self, snapshot: Snapshot) -> None:
        state, changes = snapshot()
        mark_delete = state.mark_delete
        await self._write(self._record.with_state(state, self._to_delete(), self._log.clock.now_ms()))
        self._ledger = None
        self._on_saved(mark_delete, changes)

    def _to_delete(self) -> list[int]:
        """Every ledger of ours that a record without any cursor ledger leaves behind."""
        named = [] if self._record.ledger_id == NO_LEDGER else [self._record.ledger_id]
        reserved = [] if self._record.reserved is None else [self._record.reserved]
        doomed = (*self._record.deleting, *reserved, *named)
        return [ledger_id for ledger_id in doomed if ledger_id not in self._gone]

    async def _write(self, record: CursorRecord) -> None:
        await self._guarded.write(record.encode())
        self._record = record
        self._gone = [ledger_id for ledger_id in self._gone if ledger_id in record.deleting]

    def _on_saved(self, mark_delete: Position, changes: int) -> None:
        self.saved_mark_delete = mark_delete
        self.saved_changes = changes

    async def _finish_deletions(self) -> None:
        """Delete what the record says must go; the record forgets them when it is next written."""
        for ledger_id in self._record.deleting:
            if ledger_id in self._gone or ledger_id == self._record.ledger_id:
                continue
            try:
                await self._log.delete_ledger(ledger_id, of_cursor=True)
            except NoSuchLedger:
                pass
            except MagnetarError as error:
                _log.info("%s: ledger %d is deleted later: %s", self._title, ledger_id, error)
                if self._record.is_deleted:
                    raise
                continue
            self._gone.append(ledger_id)
