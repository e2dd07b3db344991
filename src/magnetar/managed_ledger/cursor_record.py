# SPDX-License-Identifier: Apache-2.0
"""The record of one durable cursor in the metadata store: where its state is, or the state itself.

A CursorRecord is Pulsar's ManagedCursorInfo, with every field that we do not know kept on rewrite (R15). As in the
log's own record, hidden properties carry our intents: the ledger that is being made, ledgers to delete, and that the
whole cursor is going away.
Decides.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from magnetar.ids import Position
from magnetar.managed_ledger.acked_entries import AckedEntries
from magnetar.managed_ledger.cursor_format import (
    CursorSnapshot,
    batches_of,
    ranges_of,
    restore_ranges,
    restored_batches,
)
from magnetar.managed_ledger.ledger_list import LedgerList
from magnetar.managed_ledger.record_format import decode_cursor_record
from magnetar.managed_ledger.record_intents import Intents, joined_properties, split_properties
from magnetar.wire.proto.ml_formats_pb2 import ManagedCursorInfo

NO_LEDGER: Final = -1


class CursorRecord:
    __slots__ = ("_info", "deleting", "is_deleted", "reserved", "user_properties")

    def __init__(self, info: ManagedCursorInfo) -> None:
        self._info = info
        self.user_properties, intents = split_properties({pair.name: pair.value for pair in info.cursorProperties})
        self.deleting, self.is_deleted, self.reserved = intents

    @staticmethod
    def decode(data: bytes) -> "CursorRecord":
        """DamagedRecord when the bytes are not what a broker writes."""
        return CursorRecord(decode_cursor_record(data))

    @staticmethod
    def new(mark_delete: Position, user_properties: Mapping[str, str], now_ms: int) -> "CursorRecord":
        info = ManagedCursorInfo(cursorsLedgerId=NO_LEDGER, lastActive=now_ms)
        info.markDeleteLedgerId, info.markDeleteEntryId = mark_delete
        record = CursorRecord(info)
        record.user_properties = dict(user_properties)
        return record

    # --- questions ----------------------------------------------------------------------------

    @property
    def ledger_id(self) -> int:
        """The cursor ledger; -1 when the record itself has the state."""
        return self._info.cursorsLedgerId

    @property
    def mark_delete(self) -> Position:
        """Where the cursor stood when this record was written; a cursor ledger may know better."""
        return Position(self._info.markDeleteLedgerId, self._info.markDeleteEntryId)

    @property
    def has_mark_delete(self) -> bool:
        return self._info.HasField("markDeleteLedgerId")

    @property
    def last_active_ms(self) -> int:
        return self._info.lastActive

    def snapshot(self, ledgers: LedgerList) -> CursorSnapshot:
        """The state that the record itself has."""
        acked = AckedEntries()
        restore_ranges(self._info.individualDeletedMessages, ledgers, acked)
        batches = restored_batches(self._info.batchedEntryDeletionIndexInfo)
        return CursorSnapshot(self.mark_delete, acked, batches, self.properties)

    @property
    def properties(self) -> dict[str, int]:
        return {pair.name: pair.value for pair in self._info.properties}

    def encode(self) -> bytes:
        info = ManagedCursorInfo()
        info.CopyFrom(self._info)
        intents = Intents(self.deleting, self.is_deleted, self.reserved)
        del info.cursorProperties[:]
        for name, value in joined_properties(self.user_properties, intents):
            info.cursorProperties.add(name=name, value=value)
        return info.SerializeToString(deterministic=True)

    # --- the next record ------------------------------------------------------------------------

    def moved_to(
        self, ledger_id: int, mark_delete: Position, properties: Mapping[str, int], deleting: Iterable[int]
    ) -> "CursorRecord":
        """The state is in a cursor ledger; position and properties stay readable here."""
        following = self._copy(deleting)
        info = following._info
        info.cursorsLedgerId = ledger_id
        info.markDeleteLedgerId, info.markDeleteEntryId = mark_delete
        del info.individualDeletedMessages[:]
        del info.batchedEntryDeletionIndexInfo[:]
        del info.properties[:]
        for name in sorted(properties):
            info.properties.add(name=name, value=properties[name])
        return following

    def with_state(self, snapshot: CursorSnapshot, deleting: Iterable[int], now_ms: int) -> "CursorRecord":
        """The whole state is in the record; no cursor ledger is needed."""
        following = self.moved_to(NO_LEDGER, snapshot.mark_delete, snapshot.properties, deleting)
        following._info.lastActive = now_ms
        following._info.individualDeletedMessages.extend(ranges_of(snapshot.acked))
        following._info.batchedEntryDeletionIndexInfo.extend(batches_of(snapshot.batches))
        return following

    def with_user_properties(self, properties: Mapping[str, str]) -> "CursorRecord":
        following = self._copy(self.deleting)
        following.reserved = self.reserved
        following.user_properties = dict(properties)
        return following

    def taken_over(self) -> "CursorRecord":
        """The same, written by a new owner; a ledger that the old one was making is to be deleted."""
        return self._copy(self.deleting if self.reserved is None else [*self.deleting, self.reserved])

    def with_reserved(self, ledger_id: int, deleting: Iterable[int]) -> "CursorRecord":
        following = self._copy(deleting)
        following.reserved = ledger_id
        return following

    def as_deleted(self, deleting: Iterable[int]) -> "CursorRecord":
        following = self._copy(deleting)
        following._info.cursorsLedgerId = NO_LEDGER
        following.is_deleted = True
        return following

    def _copy(self, deleting: Iterable[int]) -> "CursorRecord":
        info = ManagedCursorInfo()
        info.CopyFrom(self._info)
        following = CursorRecord(info)
        following.user_properties = dict(self.user_properties)
        following.deleting = sorted(set(deleting))
        following.is_deleted = self.is_deleted
        following.reserved = None
        return following
