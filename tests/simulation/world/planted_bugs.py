# SPDX-License-Identifier: Apache-2.0
"""Bugs put back on purpose, to see that a scenario finds each: the sensitivity table's left column.

Each is a small change of production code that lasts as long as the run. Their names are what `--plant` takes.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from magnetar.bookie import ledgers as bookie_ledgers
from magnetar.bookie import opening as bookie_opening
from magnetar.bookie import storage as bookie_storage
from magnetar.bookie.cookie_check import Cookies
from magnetar.bookie.journal_format import JournalRecord, RecordKind
from magnetar.bookie.ledger_state import LedgerState
from magnetar.bookie.opening import Opening
from magnetar.bookie.storage import BookieStorage
from magnetar.broker.consumer import Delivery
from magnetar.broker.deduplication import Deduplication
from magnetar.broker.dispatch.dispatcher import Assignment, Round
from magnetar.broker.dispatch.key_shared import KeySharedDispatcher
from magnetar.broker.ownership import cluster_ownership, shedding
from magnetar.broker.ownership.balancer import Balancer
from magnetar.broker.ownership.bundles import Bundle
from magnetar.broker.ownership.cluster_ownership import ClusterOwnership
from magnetar.broker.ownership.owner import Owner
from magnetar.config.bookie import BookieSettings
from magnetar.errors import NoSuchEntry
from magnetar.ids import Position
from magnetar.ledger import recoverer, recovery
from magnetar.ledger.fragment_copy import FragmentCopy
from magnetar.ledger.own_copies import OwnCopies
from magnetar.ledger.quorum import Quorum
from magnetar.ledger.tail_writer import TailWriter
from magnetar.ledger.tcp_channel import TcpChannel
from magnetar.managed_ledger.cursor import Cursor
from magnetar.managed_ledger.cursor_format import CursorSnapshot
from magnetar.managed_ledger.message_tally import MessageTally
from magnetar.metadata.cache import RecordCache
from magnetar.metadata.store import Change, SessionEvent
from magnetar.wire.bookkeeper.codes import LAST_ADD_CONFIRMED
from magnetar.wire.bookkeeper.entry import EntryPacker
from tests.simulation.world import planted_broker_bugs as broker_bugs
from tests.simulation.world import planted_upstream_bugs as upstream_bugs
from tests.simulation.world.storage_cluster import SMALL_BOOKIE

Bug = Callable[[], AbstractContextManager[Any]]


def bookie_settings(names: Iterable[str]) -> BookieSettings:
    """Acknowledging before the sync is a setting, if a loud one."""
    return replace(SMALL_BOOKIE, journal_sync="ack-before-sync" not in names)


def sentence_of(bug: str) -> str:
    """What is broken, in words: the bug's own docstring."""
    return " ".join((BUGS[bug].__doc__ or "").split())


@contextmanager
def planted(names: Iterable[str]) -> Iterator[None]:
    with ExitStack() as stack:
        for name in sorted(names):
            stack.enter_context(BUGS[name]())
        yield


def _ack_before_sync() -> AbstractContextManager[Any]:
    """A bookie acknowledges entries before its journal is synced."""
    return ExitStack()


def _broker_ack_before_sync() -> AbstractContextManager[Any]:
    """A standalone's bookie acknowledges messages before its journal is synced."""
    return ExitStack()


def _fence_ignored() -> AbstractContextManager[Any]:
    """Bookies answer fencing reads and take the old writer's adds all the same."""

    async def fence(self: BookieStorage, ledger_id: int, master_key: bytes) -> None:
        return

    return patch.object(BookieStorage, "fence", fence)


@contextmanager
def _fence_forgotten() -> Iterator[None]:
    """A bookie forgets its fences when it restarts."""
    encode, apply = LedgerState.encode, Opening._apply

    def encode_open(self: LedgerState) -> bytes:
        data = bytearray(encode(self))
        data[1] &= ~1
        return bytes(data)

    async def skip_fences(self: Opening, record: JournalRecord) -> None:
        if record.kind != RecordKind.FENCED:
            await apply(self, record)

    with patch.object(LedgerState, "encode", encode_open), patch.object(Opening, "_apply", skip_fences):
        yield


def _fence_before_durable() -> AbstractContextManager[Any]:
    """A fence is answered from memory: after a power loss it never was."""
    fence = bookie_ledgers.Ledgers.fence

    async def fence_at_once(self: bookie_ledgers.Ledgers, ledger_id: int, master_key: bytes) -> None:
        state = await self._touched(ledger_id, master_key)
        state.fence_durable = True
        await fence(self, ledger_id, master_key)

    return patch.object(bookie_ledgers.Ledgers, "fence", fence_at_once)


@contextmanager
def _no_rewrite() -> Iterator[None]:
    """Recovery closes the ledger behind entries that it read and did not write back."""

    def append(self: TailWriter, entry: bytes) -> None:
        self._window.pushed += 1
        self._window.confirmed = self._window.pushed

    with patch.object(TailWriter, "append", append):
        yield


def _short_absence() -> AbstractContextManager[Any]:
    """The wrong coverage: one bookie that does not hold an entry proves that it was never confirmed."""
    return patch.object(Quorum, "absences_needed", property(lambda self: 1))


@contextmanager
def _unknown_is_absent() -> Iterator[None]:
    """An error is taken as proof of absence."""
    with (
        patch.object(recovery, "proves_absence", lambda error: True),
        patch.object(recoverer, "proves_absence", lambda error: True),
    ):
        yield


def _reads_do_not_fence() -> AbstractContextManager[Any]:
    """Recovery fences when it asks for the last add confirmed, and not when it reads on."""
    read = TcpChannel.read

    async def plain_read(self: TcpChannel, ledger_id: int, entry_id: int, *, fence_key: bytes | None = None) -> bytes:
        key = fence_key if entry_id == LAST_ADD_CONFIRMED else None
        return await read(self, ledger_id, entry_id, fence_key=key)

    return patch.object(TcpChannel, "read", plain_read)


@contextmanager
def _cookie_ignored() -> Iterator[None]:
    """A bookie starts with whatever its directories hold, and does not count its starts."""

    def missing(cookies: Cookies, found: Mapping[str, Any]) -> list[str]:
        return [directory for directory, cookie in found.items() if cookie is None]

    async def no_boots(self: Opening, cookies: Cookies | None) -> None:
        self.boots = 1

    with (
        patch.object(bookie_opening, "unstamped", missing),
        patch.object(Opening, "_check_boots", no_boots),
    ):
        yield


def _limbo_says_absent() -> AbstractContextManager[Any]:
    """A bookie that lost something answers "no such entry" for what it lost."""
    return patch.object(bookie_storage, "_absent", lambda state, sentence: NoSuchEntry(sentence))


def _limbo_left_unproven() -> AbstractContextManager[Any]:
    """A bookie that lost its disks takes itself for whole as soon as it has read a ledger's record."""

    async def at_once(self: OwnCopies, bookie: str, ledger_id: int) -> bytes | None:
        record = (await self._parts.catalog.load(ledger_id)).record
        return EntryPacker(ledger_id, record.digest, record.password).master_key

    return patch.object(OwnCopies, "_completed", at_once)


def _copies_nothing() -> AbstractContextManager[Any]:
    """A replication worker puts a bookie on record without giving it the entries."""

    async def copy(self: FragmentCopy, entry_ids: Sequence[int], target: str) -> None:
        return

    return patch.object(FragmentCopy, "copy", copy)


# --- in the broker ------------------------------------------------------------------------------------------


def _mark_delete_off_by_one() -> AbstractContextManager[Any]:
    """A cursor is saved one entry further than it was acknowledged."""
    snapshot = Cursor._snapshot

    def one_further(self: Cursor) -> tuple[CursorSnapshot, int]:
        saved, changes = snapshot(self)
        mark = saved.mark_delete
        return saved._replace(mark_delete=Position(mark.ledger_id, mark.entry_id + 1)), changes

    return patch.object(Cursor, "_snapshot", one_further)


def _cursor_before_data() -> AbstractContextManager[Any]:
    """A cursor that is level with its log is saved as if what is still on its way to storage were acknowledged too."""
    snapshot = Cursor._snapshot

    def ahead(self: Cursor) -> tuple[CursorSnapshot, int]:
        saved, changes = snapshot(self)
        mark = saved.mark_delete
        tail = self._log.tails.get(mark.ledger_id)
        if tail is not None and mark.entry_id == tail.confirmed:
            mark = Position(mark.ledger_id, tail.base + len(tail.entries) - 1)
        return saved._replace(mark_delete=mark), changes

    return patch.object(Cursor, "_snapshot", ahead)


def _cursor_not_saved() -> AbstractContextManager[Any]:
    """Acknowledgements stay in memory."""

    async def forget(self: Cursor) -> None:
        assert self._store is not None
        self._took_over(self._store)

    return patch.object(Cursor, "_save", forget)


def _redelivery_lost() -> AbstractContextManager[Any]:
    """What was delivered and not acknowledged is not delivered again."""
    return patch.object(Cursor, "rewind", lambda self: None)


def _duplicates_forgotten() -> AbstractContextManager[Any]:
    """After a restart nobody knows what was stored since the last snapshot."""
    return patch.object(Deduplication, "replay", lambda self, identity, now_ms: None)


@contextmanager
def _keys_not_drained() -> Iterator[None]:
    """A key goes to its new consumer while the one before it still holds messages of it."""

    def assign(self: KeySharedDispatcher, deliveries: Sequence[Delivery]) -> Round:
        assignment: Assignment = {}
        for delivery in deliveries:
            self._assign_one(delivery, assignment)
        return Round(assignment, len(deliveries))

    with (
        patch.object(KeySharedDispatcher, "_is_draining", lambda self, slot, target: False),
        patch.object(KeySharedDispatcher, "assign", assign),
    ):
        yield


def _batches_counted_whole() -> AbstractContextManager[Any]:
    """A part of a batch that is acknowledged counts as all of it."""
    on_acked = MessageTally.on_acked

    def whole(self: MessageTally, position: Position, left_before: int | None, left_after: int) -> None:
        on_acked(self, position, left_before, 0)

    return patch.object(MessageTally, "on_acked", whole)


# --- in the cluster -----------------------------------------------------------------------------------------


def _given_up_before_closed() -> AbstractContextManager[Any]:
    """A bundle is free for others while its topics are still open here."""

    async def release(self: ClusterOwnership, bundle: Bundle, target: Owner | None = None) -> bool:
        held = self._held.get(bundle)
        if held is None or held.is_leaving:
            return False
        held.is_leaving, held.target = True, target
        await held.claim.release()
        await self.close_topics(bundle)
        self._held.pop(bundle, None)
        return True

    return patch.object(ClusterOwnership, "release", release)


class _DeafCache(RecordCache[Any]):
    def _on_change(self, change: Change) -> None:
        """What was read once stays."""

    def _on_session(self, event: SessionEvent) -> None:
        """Whatever happens."""

    def forget(self, path: str) -> None:
        """Whoever says so."""


def _look_ups_stay_cached() -> AbstractContextManager[Any]:
    """Who had a bundle once is answered for ever."""
    return patch.object(cluster_ownership, "RecordCache", _DeafCache)


@contextmanager
def _shedding_flaps() -> Iterator[None]:
    """The heaviest bundle leaves a loaded broker, whether that helps or not, and however lately it came."""

    def heaviest(view: shedding.View, broker: str, amount: float, reason: str, **rest: Any) -> list[shedding.Move]:
        others = tuple(other for other in view.brokers if other != broker)
        heavy = [name for name, load in view.movable(broker) if load.bytes > 0]
        return [shedding.Move(name, broker, "", reason, others) for name in heavy[:1]]

    async def nothing_fixed(self: Balancer, members: Any) -> tuple[list[str], list[str]]:
        return [], []

    with patch.object(shedding, "_heaviest", heaviest), patch.object(Balancer, "_fixed", nothing_fixed):
        yield


def _owners_not_fenced() -> AbstractContextManager[Any]:
    """A topic's new owner asks bookies to fence the one before, and they take its entries all the same."""
    return _fence_ignored()


BUGS: dict[str, Bug] = {
    "ack-before-sync": _ack_before_sync,
    "fence-ignored": _fence_ignored,
    "fence-forgotten": _fence_forgotten,
    "fence-before-durable": _fence_before_durable,
    "no-rewrite": _no_rewrite,
    "short-absence": _short_absence,
    "unknown-is-absent": _unknown_is_absent,
    "reads-do-not-fence": _reads_do_not_fence,
    "cookie-ignored": _cookie_ignored,
    "limbo-says-absent": _limbo_says_absent,
    "limbo-left-unproven": _limbo_left_unproven,
    "copies-nothing": _copies_nothing,
    "broker-ack-before-sync": _broker_ack_before_sync,
    "mark-delete-off-by-one": _mark_delete_off_by_one,
    "cursor-before-data": _cursor_before_data,
    "cursor-not-saved": _cursor_not_saved,
    "redelivery-lost": _redelivery_lost,
    "duplicates-forgotten": _duplicates_forgotten,
    "keys-not-drained": _keys_not_drained,
    "batches-counted-whole": _batches_counted_whole,
    "owners-not-fenced": _owners_not_fenced,
    "given-up-before-closed": _given_up_before_closed,
    "look-ups-stay-cached": _look_ups_stay_cached,
    "shedding-flaps": _shedding_flaps,
    "duplicates-ahead": broker_bugs.duplicates_ahead,
    "aborted-is-visible": broker_bugs.aborted_is_visible,
    "marker-not-stored": broker_bugs.marker_not_stored,
    "pending-ack-not-saved": broker_bugs.pending_ack_not_saved,
    "transactions-not-replayed": broker_bugs.transactions_not_replayed,
    "buckets-not-scheduled": broker_bugs.buckets_not_scheduled,
    "delays-cut-short": broker_bugs.delays_cut_short,
    "horizon-ahead": broker_bugs.horizon_ahead,
    "metadata-before-sync": broker_bugs.metadata_before_sync,
    "versions-ignored": broker_bugs.versions_ignored,
    "copies-not-synced": broker_bugs.copies_not_synced,
    "recovery-from-the-start": upstream_bugs.recovery_from_the_start,
    "ack-before-the-change": upstream_bugs.ack_before_the_change,
    "same-ensemble-again": upstream_bugs.same_ensemble_again,
    "last-mark-goes-back": upstream_bugs.last_mark_goes_back,
    "stored-end-ignored": upstream_bugs.stored_end_ignored,
    "recoveries-race": upstream_bugs.recoveries_race,
    "trims-what-is-not-saved": upstream_bugs.trims_what_is_not_saved,
    "late-properties": upstream_bugs.late_properties,
    "refused-and-passed-over": upstream_bugs.refused_and_passed_over,
    "committed-is-open-again": upstream_bugs.committed_is_open_again,
}
