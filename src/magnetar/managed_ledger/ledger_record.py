# SPDX-License-Identifier: Apache-2.0
"""The record of one managed ledger: its ledgers, its properties, where it was terminated, what is being deleted.

A LedgerRecord is Pulsar's ManagedLedgerInfo with every field that we do not know kept on rewrite (R15). Hidden
properties carry our intents (`record_intents.py`). They change in the same write as the list: every ledger is in the
list or in an intent.
Decides.
"""

from collections.abc import Iterable, Mapping

from magnetar.ids import Position
from magnetar.managed_ledger.ledger_list import LedgerList, LedgerSpan
from magnetar.managed_ledger.record_format import decode_ledger_record
from magnetar.managed_ledger.record_intents import Intents, joined_properties, kept_of, split_properties
from magnetar.wire.proto.ml_formats_pb2 import ManagedLedgerInfo


class LedgerRecord:
    __slots__ = ("_info", "_ledgers", "deleting", "is_deleted", "kept", "properties", "reserved", "terminated")

    def __init__(self, data: bytes = b"") -> None:
        info = decode_ledger_record(data)
        self._info = info
        self._ledgers = {ledger.ledgerId: ledger for ledger in info.ledgerInfo}
        stored = {pair.key: pair.value for pair in info.properties}
        self.properties, intents = split_properties(stored)
        # What the owner wants to know when the entries that told it are gone.
        self.kept = kept_of(stored)
        self.deleting, self.is_deleted, self.reserved = intents
        self.terminated: Position | None = None
        if info.HasField("terminatedPosition"):
            self.terminated = Position(info.terminatedPosition.ledgerId, info.terminatedPosition.entryId)

    def spans(self) -> list[LedgerSpan]:
        """The ledgers on record, oldest first; the last one's numbers may be zero although it holds entries."""
        return [
            LedgerSpan(
                ledger_id,
                entries=self._ledgers[ledger_id].entries,
                size_bytes=self._ledgers[ledger_id].size,
                closed_ms=self._ledgers[ledger_id].timestamp,
            )
            for ledger_id in sorted(self._ledgers)
        ]

    def offloaded(self, ledger_id: int) -> bool:
        ledger = self._ledgers.get(ledger_id)
        return ledger is not None and ledger.offloadContext.complete

    def ledger_properties(self, ledger_id: int) -> dict[str, str]:
        ledger = self._ledgers.get(ledger_id)
        return {pair.key: pair.value for pair in ledger.properties} if ledger is not None else {}

    def with_list(
        self,
        ledgers: LedgerList | Iterable[LedgerSpan],
        *,
        deleting: Iterable[int] | None = None,
        properties: Mapping[str, str] | None = None,
        kept: Mapping[str, str] | None = None,
        terminated: Position | None = None,
        is_deleted: bool = False,
    ) -> "LedgerRecord":
        """The next record; what is not given stays as it is."""
        following = LedgerRecord()
        info = following._info
        info.CopyFrom(self._info)
        spans = list(ledgers)
        self._make_room(info, [span.ledger_id for span in spans])
        for span, ledger in zip(spans, info.ledgerInfo, strict=True):
            # An open ledger has no numbers on record, as upstream writes it: whoever opens the log counts its entries.
            if span.closed_ms:
                ledger.entries, ledger.size = span.entries, span.size_bytes
            ledger.timestamp = span.closed_ms
            following._ledgers[span.ledger_id] = ledger
        following.properties = dict(self.properties if properties is None else properties)
        following.kept = dict(self.kept if kept is None else kept)
        following.deleting = sorted(set(self.deleting if deleting is None else deleting))
        following.terminated = self.terminated if terminated is None else terminated
        following.is_deleted = self.is_deleted or is_deleted
        following.reserved = self.reserved
        return following

    def _make_room(self, info: ManagedLedgerInfo, ledger_ids: list[int]) -> None:
        """Let a copy of our record have these ledgers, each with all that is known of it."""
        known_ids = [ledger.ledgerId for ledger in info.ledgerInfo]
        trimmed = known_ids.index(ledger_ids[0]) if ledger_ids and ledger_ids[0] in self._ledgers else len(known_ids)
        stay = known_ids[trimmed:]
        if stay != ledger_ids[: len(stay)]:
            # Not the same ones without the oldest and with new ones behind them, which is what nearly always happens.
            trimmed, stay = len(known_ids), []
        del info.ledgerInfo[:trimmed]
        for ledger_id in ledger_ids[len(stay) :]:
            ledger = info.ledgerInfo.add()
            known = self._ledgers.get(ledger_id)
            if known is not None:
                ledger.CopyFrom(known)
            ledger.ledgerId = ledger_id

    def with_properties(self, properties: Mapping[str, str]) -> "LedgerRecord":
        """The next record, with other properties for users."""
        following = self._alike()
        following.properties = dict(properties)
        return following

    def with_reserved(self, ledger_id: int | None) -> "LedgerRecord":
        """The next record, with another id for the ledger that is being made; an earlier one is to be deleted."""
        following = self._alike()
        if self.reserved is not None and self.reserved not in self._ledgers:
            following.deleting = sorted({*self.deleting, self.reserved})
        following.reserved = ledger_id
        return following

    def _alike(self) -> "LedgerRecord":
        """The next record with the same list, which is shared: no record changes its own."""
        following = LedgerRecord()
        following._info, following._ledgers = self._info, self._ledgers
        following.properties, following.kept = dict(self.properties), dict(self.kept)
        following.deleting, following.reserved = list(self.deleting), self.reserved
        following.terminated, following.is_deleted = self.terminated, self.is_deleted
        return following

    def encode(self) -> bytes:
        info = ManagedLedgerInfo()
        info.CopyFrom(self._info)
        del info.properties[:]
        intents = Intents(self.deleting, self.is_deleted, self.reserved)
        for key, value in joined_properties(self.properties, intents, self.kept):
            info.properties.add(key=key, value=value)
        if self.terminated is not None:
            info.terminatedPosition.ledgerId, info.terminatedPosition.entryId = self.terminated
        return info.SerializeToString(deterministic=True)
