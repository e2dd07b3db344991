# SPDX-License-Identifier: Apache-2.0
"""Bugs to plant that BookKeeper and Pulsar had, each by the number of its report.

`planted_bugs.py` names them.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest.mock import patch
from weakref import WeakKeyDictionary

from magnetar.bookie import checkpoint
from magnetar.bookie.checkpoint import Checkpoints
from magnetar.bookie.journal import Journal, JournalPlace
from magnetar.broker.deduplication_cursor import CURSOR, DeduplicationCursor
from magnetar.broker.session import transactions as session_transactions
from magnetar.broker.topic import Topic
from magnetar.broker.transactions import coordinator
from magnetar.broker.transactions.coordinator_state import CoordinatorState, Status, Transaction, decode
from magnetar.errors import NotEnoughBookies
from magnetar.ids import Position
from magnetar.ledger.catalog import Versioned
from magnetar.ledger.ensemble_change import EnsembleChange
from magnetar.ledger.recovery import CoverageRound
from magnetar.ledger.writer import LedgerWriter
from magnetar.managed_ledger.cursors import Cursors
from magnetar.managed_ledger.ledger_record import LedgerRecord
from magnetar.managed_ledger.managed_ledger import ManagedLedger
from magnetar.managed_ledger.succession import OpenLedger, Succession
from magnetar.wire.proto.transaction_metadata_pb2 import TransactionMetadataEntry as Record

# --- BookKeeper ---------------------------------------------------------------------------------------------


def recovery_from_the_start() -> AbstractContextManager[Any]:
    """Recovery reads on from what bookies say is confirmed, even before the last segment (BookKeeper #2615)."""
    return patch.object(CoverageRound, "start", property(lambda self: self._last_add_confirmed))


def ack_before_the_change() -> AbstractContextManager[Any]:
    """Entries are confirmed by the bookies of a new ensemble before it is on record (BookKeeper #1591)."""

    async def replace(self: EnsembleChange) -> None:
        known, members = self._writer.known, sorted(self._failed)
        ensemble = self._chosen(known, members)
        first = self._writer.last_add_confirmed + 1
        for member in members:
            del self._failed[member]
        self._writer.adopt(Versioned(known.record.with_ensemble(first, ensemble), known.version), members)
        self._writer.release()
        self._writer.known = await self._record(known, first, ensemble)

    return patch.object(EnsembleChange, "_replace", replace)


@contextmanager
def same_ensemble_again() -> Iterator[None]:
    """Where no other bookie is left an ensemble is replaced by itself, and nothing is sent again (BookKeeper #4459)."""
    chosen, adopt = EnsembleChange._chosen, LedgerWriter.adopt

    def chosen_again(self: EnsembleChange, known: Versioned, members: list[int]) -> tuple[str, ...]:
        try:
            return chosen(self, known, members)
        except NotEnoughBookies:
            return known.record.last_segment.ensemble

    def adopt_others(self: LedgerWriter, known: Versioned, members: Any) -> None:
        before, after = self.known.record.last_segment.ensemble, known.record.last_segment.ensemble
        adopt(self, known, [member for member in members if before[member] != after[member]])

    with patch.object(EnsembleChange, "_chosen", chosen_again), patch.object(LedgerWriter, "adopt", adopt_others):
        yield


@contextmanager
def last_mark_goes_back() -> Iterator[None]:
    """A checkpoint that ends late writes its mark over a newer one; its journals are gone (BookKeeper #4105)."""
    move_mark = Checkpoints.move_mark
    places: WeakKeyDictionary[Checkpoints, dict[str, JournalPlace]] = WeakKeyDictionary()

    async def twice(self: Checkpoints, journal: Journal, place: JournalPlace) -> None:
        own = places.setdefault(self, {})
        late, own[journal.directory] = own.get(journal.directory), place
        await move_mark(self, journal, place)
        if late is not None:
            await move_mark(self, journal, late)

    with (
        patch.object(checkpoint, "may_follow", lambda previous, mark: True),
        patch.object(Checkpoints, "move_mark", twice),
    ):
        yield


# --- Pulsar -------------------------------------------------------------------------------------------------


def stored_end_ignored() -> AbstractContextManager[Any]:
    """A ledger that another client closed is put on record as long as its owner knows it to be (Pulsar #24722)."""
    recovered_end = Succession._recovered_end

    async def own_end(self: Succession, ledger: OpenLedger) -> tuple[int, int]:
        _, length = await recovered_end(self, ledger)
        return ledger.span.entries - 1, length

    return patch.object(Succession, "_recovered_end", own_end)


def recoveries_race() -> AbstractContextManager[Any]:
    """Deduplication is recovered twice at once, and the recovery that ends last counts (Pulsar #25954)."""

    async def set_deduplication(self: Topic, enabled: bool) -> None:
        if not enabled:
            self._deduplication = None
            await DeduplicationCursor.delete(self.managed_ledger)
        elif self._deduplication is None:
            cursor = await self.managed_ledger.open_cursor(CURSOR, initial="latest")
            state = DeduplicationCursor(
                self.managed_ledger, cursor, self._settings, self._clock, appends_before=len(self.answers.waiting)
            )
            for name in self.producers:
                state.tracker.on_producer_added(name, self._clock.now_ms())
            await state.recover()
            self._deduplication = state

    return patch.object(Topic, "set_deduplication", set_deduplication)


def trims_what_is_not_saved() -> AbstractContextManager[Any]:
    """Ledgers are let go that cursors have left in memory, and on disk not yet (Pulsar #25087)."""

    def slowest(self: Cursors) -> Position | None:
        return min((cursor.mark_delete for cursor in self.durable.values()), default=None)

    return patch.object(Cursors, "slowest_saved", slowest)


def late_properties() -> AbstractContextManager[Any]:
    """Properties are written with the list of ledgers as it was when they were asked for (Pulsar #26228)."""

    async def update_properties(self: ManagedLedger, changes: Any) -> None:
        before: LedgerRecord = self._record.present
        properties = {name: value for name, value in {**before.properties, **changes}.items() if value is not None}
        following = before.with_properties(properties)
        async with self._record.turn:
            await self._guarded(self._record.write(following))

    return patch.object(ManagedLedger, "update_properties", update_properties)


def refused_and_passed_over() -> AbstractContextManager[Any]:
    """What comes behind a refused message is stored: sent again, that one is a duplicate (Pulsar #26113)."""
    return patch.object(session_transactions, "_comes_again", lambda opened, error: False)


@contextmanager
def committed_is_open_again() -> Iterator[None]:
    """A coordinator's next owner takes what was committed for open (Pulsar #20150)."""
    move = CoordinatorState._move

    def stale(data: bytes) -> Record:
        record = decode(data)
        if record.new_status == Status.COMMITTED.value:
            record.new_status = Status.OPEN.value  # type: ignore[assignment]
        return record

    def backwards(self: CoordinatorState, transaction: Transaction, status: Status) -> None:
        if status is Status.OPEN:
            transaction.status = status
        else:
            move(self, transaction, status)

    with patch.object(coordinator, "decode", stale), patch.object(CoordinatorState, "_move", backwards):
        yield
