# SPDX-License-Identifier: Apache-2.0
"""One bookie's storage: add, read, fence. The door through which everything else in here is reached.

Owns the way of a plain add: checked against its ledger's state, put into the write cache, appended to the journal,
answered when the journal says that it is durable. An add never waits here. Reads give bytes, a proof of absence, or
"unknown", never one for another. When durability fails, everybody who waits is refused and the role ends.
Carries.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress

from magnetar.bookie.add_runs import AddListener, AddSource
from magnetar.bookie.adds_under_way import AddsUnderWay
from magnetar.bookie.careful_adds import CarefulAdds
from magnetar.bookie.checkpoint_cycle import CheckpointCycle
from magnetar.bookie.confirmation_waits import ConfirmationWaits
from magnetar.bookie.cookie_check import Cookies
from magnetar.bookie.counts import BookieCounts
from magnetar.bookie.doubts import Doubts
from magnetar.bookie.entry_batches import are_consecutive, fine_ledgers, ids_of
from magnetar.bookie.entry_reader import EntryReader
from magnetar.bookie.garbage_collector import GarbageCollector
from magnetar.bookie.held_adds import HeldAdd
from magnetar.bookie.holdings import Holdings
from magnetar.bookie.housekeeping import Housekeeping
from magnetar.bookie.journal import Journal
from magnetar.bookie.journal_format import FileHeader
from magnetar.bookie.journal_upkeep import JournalUpkeep
from magnetar.bookie.last_mark import LastMark
from magnetar.bookie.ledger_memory import LedgerMemory
from magnetar.bookie.ledger_questions import LedgerQuestions
from magnetar.bookie.ledger_state import LedgerState
from magnetar.bookie.ledgers import Ledgers
from magnetar.bookie.opening import IndexFactory, Opening, current
from magnetar.bookie.run_source import RunSource
from magnetar.bookie.scrubber import Scrubber
from magnetar.bookie.storage_stats import JournalStats, StorageStats
from magnetar.config.bookie import BookieSettings
from magnetar.errors import DiskFull, EntryUnknown, LedgerInLimbo, MagnetarError, NoSuchEntry, StorageFailed
from magnetar.runtime.clock import WallClock
from magnetar.runtime.disk import Disk
from magnetar.runtime.tasks import Tasks
from magnetar.wire.bookkeeper.codes import LAST_ADD_CONFIRMED
from magnetar.wire.bookkeeper.entry import METADATA_BYTES, last_add_confirmed_of
from magnetar.wire.bookkeeper.plain_adds import PlainAdds

_log = logging.getLogger(__name__)


class BookieStorage:
    """Made by `open`, usable when it returns. Everything happens on its loop."""

    def __init__(
        self, opening: Opening, *, bookie: str, clock: WallClock, on_failed: Callable[[StorageFailed], None]
    ) -> None:
        settings = opening.settings
        self.bookie = bookie
        self._loop = asyncio.get_running_loop()
        self._clock = clock
        self._settings = settings
        self._directories = opening.directories
        self._caches = opening.caches
        self._checkpoints = opening.checkpoints
        self._locks = opening.locks
        self._unsynced = opening.unsynced
        # One sentence for each loss that was found at the start.
        self.damage = tuple(opening.damage)
        # How often this bookie has started; the role keeps it in the metadata too, before it serves.
        self.boots = opening.boots
        self.counts = BookieCounts()
        self._on_failed = on_failed
        self._failure: StorageFailed | None = None
        self._closed = False
        # Two reasons to be read-only: a flush found no room, or the disks are nearly full.
        self._flush_failed = self._disk_full = self._asked_read_only = False
        self._journals: list[Journal] = []
        self.adds = AddsUnderWay(self._journals, self._loop.time)
        self._states = opening.table.states
        self._half_bytes_max = settings.write_cache_bytes_max // 2
        self._entry_bytes_max = settings.entry_bytes_max
        self._tasks = Tasks(f"bookie {bookie}", self._on_crash)
        self._ledgers = Ledgers(opening.table, self._directories, self._journals)
        self.doubts = Doubts(bookie, self._ledgers)
        self._waits = ConfirmationWaits(settings.reads_max)
        self._careful = CarefulAdds(
            bookie, settings, self._ledgers, self._tasks, self._store, self._store_fine, self.counts
        )
        self._reader = EntryReader(settings, self._caches, self._directories, self.counts)
        self._cycle = CheckpointCycle(
            settings,
            self._checkpoints,
            self._caches,
            opening.table,
            self._journals,
            self._tasks,
            self.counts,
            on_cache_full=self._careful.on_cache_full,
            on_disk_full=self._on_disk_full,
            on_failed=self._fail,
        )
        self.housekeeping = self._housekeeping_of(opening)
        self.holdings = Holdings(
            opening.disk, self._journals, self._directories, self._states, self._caches, self._reader
        )

    def _housekeeping_of(self, opening: Opening) -> Housekeeping:
        settings = opening.settings
        collectors = []
        if opening.questions is not None:
            memory = LedgerMemory(self.bookie, self._ledgers, self._caches, self._reader)
            collectors = [
                GarbageCollector(directory, settings, opening.questions, memory) for directory in self._directories
            ]
        scrubbers = [
            Scrubber(directory, bytes_per_second_max=settings.scrub_bytes_per_second_max)
            for directory in self._directories
        ]
        return Housekeeping(
            opening.disk, settings, self._clock, self.counts, collectors, scrubbers, on_usage=self._on_usage
        )

    @classmethod
    async def open(
        cls,
        disk: Disk,
        settings: BookieSettings,
        *,
        bookie: str,
        clock: WallClock,
        index_factory: IndexFactory,
        on_failed: Callable[[StorageFailed], None],
        questions: LedgerQuestions | None = None,
        cookies: Cookies | None = None,
    ) -> "BookieStorage":
        """Replay what was there and begin new journals.

        After a loss every ledger here is fenced and in limbo (`damage` says why); `questions` are then asked which
        ledgers exist, so that those lost without a trace are doubted too and new ones are taken. Without questions
        nothing is ever deleted. BadCookie, DataDirectoryInUse, DiskFull, OSError. Later failures end the role:
        `on_failed` is told once.
        """
        opening = await Opening.open(disk, settings, index_factory, questions, cookies)
        storage = cls(opening, bookie=bookie, clock=clock, on_failed=on_failed)
        try:
            for path, header in zip(settings.journal_directories, opening.next_files, strict=True):
                await storage._begin_journal(disk, current(path), header)
            if settings.read_only_enabled:
                # Whoever starts on a full disk takes no adds from its first moment.
                await storage.housekeeping.check_disks()
        except BaseException:
            for journal in storage._journals:
                await journal.close()
            await opening.abandon()
            raise
        storage._tasks.start(storage._cycle.at_intervals(), "checkpoints")
        JournalUpkeep(storage._journals, settings).start(storage._tasks)
        storage.housekeeping.start(storage._tasks)
        return storage

    async def _begin_journal(self, disk: Disk, directory: str, header: FileHeader) -> None:
        journal = await Journal.open(
            disk,
            directory,
            self.bookie,
            header,
            self._settings,
            self.counts,
            on_pressure=self._careful.on_journal_pressure,
            on_failed=self._fail,
        )
        self._journals.append(journal)
        await self._checkpoints.move_mark(journal, journal.place())

    # --- adds -------------------------------------------------------------------------------

    def add(
        self,
        ledger_id: int,
        entry_id: int,
        entry: bytes,
        master_key: bytes,
        listener: AddListener,
        recovery: bool = False,
    ) -> None:
        """Store one packed entry; never waits. The listener is told later on the loop, once per run and outcome."""
        state = self._states.get(ledger_id)
        if (
            state is None
            or entry_id < 0
            or self._careful.needed
            or not state.open_to_adds
            or state.master_key != master_key
            or not METADATA_BYTES <= len(entry) <= self._entry_bytes_max
            or ids_of(entry) != (ledger_id, entry_id)
        ):
            self._careful.add(HeldAdd(0.0, ledger_id, entry_id, entry, master_key, listener, recovery))
            return
        # Cache before journal: what is acknowledged can be read.
        held = self._caches.active.put(ledger_id, entry_id, entry)
        journals = self._journals
        journals[ledger_id % len(journals)].append_entry(entry, entry_id, listener)
        if self._waits:
            self._waits.wake(ledger_id)
        if held >= self._half_bytes_max:
            self._cycle.on_active_full()

    def add_run(
        self, ledger_id: int, first: int, entries: list[bytes], master_key: bytes, listener: AddListener
    ) -> None:
        """As `add` for consecutive entries of one ledger, from this id on."""
        if not are_consecutive(entries, ledger_id, first, self._entry_bytes_max):
            for entry_id, entry in enumerate(entries, first):
                self.add(ledger_id, entry_id, entry, master_key, listener)
            return
        state = self._states.get(ledger_id)
        if state is None or self._careful.needed or not state.open_to_adds or state.master_key != master_key:
            self._careful.add_batch(PlainAdds(master_key, entries), RunSource(listener))
            return
        held = self._caches.active.put_run(ledger_id, first, entries)
        self._ledgers.journal_of(ledger_id).append_entries(entries, first, listener)
        self._waits.wake(ledger_id)
        if held >= self._half_bytes_max:
            self._cycle.on_active_full()

    def add_batch(self, adds: PlainAdds, source: AddSource) -> None:
        """As `add` for entries of any ledgers that came together; the source says who is told of which."""
        taken = 0 if self._careful.needed else self._store_fine(adds, 0, source)
        if taken < len(adds.entries):
            self._careful.add_batch(adds._replace(entries=adds.entries[taken:]), source)

    def _store_fine(self, adds: PlainAdds, start: int, source: AddSource) -> int:
        """Store what may be taken as it comes, from this entry on; returns where the first is that may not."""
        entries = adds.entries
        ledger_ids = fine_ledgers(self._states, adds.master_key, entries, start, self._entry_bytes_max)
        if not ledger_ids:
            return start
        held = self._caches.active.put_all(ledger_ids, entries, start)
        taken = entries if len(ledger_ids) == len(entries) else entries[start : start + len(ledger_ids)]
        for journal, share in self._ledgers.shares(ledger_ids, taken):
            journal.append_entries(share, 0, source.batch_listener(share))
        if self._waits:
            for ledger_id in ledger_ids:
                self._waits.wake(ledger_id)
        if held >= self._half_bytes_max:
            self._cycle.on_active_full()
        return start + len(taken)

    def _store(self, add: HeldAdd) -> None:
        """The same for an add that was looked at with care."""
        held = self._caches.active.put(add.ledger_id, add.entry_id, add.entry)
        self._ledgers.journal_of(add.ledger_id).append_entry(add.entry, add.entry_id, add.listener)
        self._waits.wake(add.ledger_id)
        if held >= self._half_bytes_max:
            self._cycle.on_active_full()

    # --- fence and last add confirmed -------------------------------------------------------

    async def fence(self, ledger_id: int, master_key: bytes) -> None:
        """Take no more ordinary adds of a ledger; returns when that is durable. Also for a ledger not seen before."""
        self._check_usable()
        await self._ledgers.fence(ledger_id, master_key)

    async def write_last_confirmed(self, ledger_id: int, entry_id: int, body: bytes, master_key: bytes) -> None:
        """Keep the explicit last add confirmed of an idle writer; returns when it is durable."""
        self._check_usable()
        await self._ledgers.write_last_confirmed(ledger_id, entry_id, body, master_key)
        self._waits.wake(ledger_id)

    async def last_confirmed(self, ledger_id: int, fence_key: bytes | None = None) -> tuple[int, bytes | None]:
        """The last add confirmed as far as this bookie knows, and the last entry that it holds."""
        if fence_key is not None:
            await self.fence(ledger_id, fence_key)
        self._check_usable()
        state = await self._ledgers.known(ledger_id)
        last = await self._reader.last_entry_id(ledger_id)
        if last is None:
            if state.limbo:
                raise LedgerInLimbo(f"ledger {ledger_id} may have lost entries here")
            return state.explicit_lac, None
        entry = await self._reader.read(ledger_id, last)
        if entry is None:
            raise EntryUnknown(f"entry {ledger_id}:{last} was here and cannot be found")
        return max(state.explicit_lac, last_add_confirmed_of(entry)), entry

    async def last_confirmed_beyond(self, ledger_id: int, previous: int, timeout_ms: int) -> tuple[int, bytes | None]:
        """As `last_confirmed`, but only when it is beyond the previous one, or the time is up."""
        confirmed = await self.last_confirmed(ledger_id)
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_ms / 1000):
                while confirmed[0] <= previous:
                    await self._waits.wait(ledger_id)
                    confirmed = await self.last_confirmed(ledger_id)
        return confirmed

    async def explicit_last_confirmed(self, ledger_id: int) -> bytes | None:
        """The body that the writer's last explicit confirmation carried."""
        state = await self._ledgers.known(ledger_id)
        return state.explicit_body or None

    # --- reads ------------------------------------------------------------------------------

    async def read(self, ledger_id: int, entry_id: int, fence_key: bytes | None = None) -> bytes:
        """One packed entry; entry -1 is the last one here. With fence_key the ledger is fenced durably first.

        NoSuchLedger, NoSuchEntry: proofs of absence. EntryUnknown: no answer. WrongMasterKey, StorageFailed.
        """
        if fence_key is not None:
            await self.fence(ledger_id, fence_key)
        self._check_usable()
        entry = self._caches.find(ledger_id, entry_id)
        counts = self.counts
        if entry is not None:
            counts.write_cache_hits += 1
            counts.bytes_read += len(entry)
            counts.read_entry.ok.observe(0)
            return entry
        since = self._loop.time()
        try:
            entry = await self._find(ledger_id, entry_id)
        except (MagnetarError, OSError):
            counts.read_entry.failed.observe((self._loop.time() - since) * 1000)
            raise
        counts.bytes_read += len(entry)
        counts.read_entry.ok.observe((self._loop.time() - since) * 1000)
        return entry

    def at_hand(self, ledger_id: int, entry_id: int) -> bytes | None:
        """An entry that can be given without waiting, as `read` would give it and not counted; None: ask `read`."""
        self._check_usable()
        return self._reader.at_hand(ledger_id, entry_id)

    def run_at_hand(self, ledger_id: int, first: int, count_max: int, bytes_max: int) -> list[bytes]:
        """Those entries that `read_batch` would give without waiting; none: ask that."""
        self._check_usable()
        if self._ledgers.table.is_deleted(ledger_id):
            return []
        return self._reader.run_at_hand(ledger_id, first, count_max, bytes_max)

    async def _find(self, ledger_id: int, entry_id: int) -> bytes:
        state = await self._ledgers.known(ledger_id)
        if entry_id == LAST_ADD_CONFIRMED:
            last = await self._reader.last_entry_id(ledger_id)
            if last is None:
                raise _absent(state, f"ledger {ledger_id} has no entry here")
            entry_id = last
        entry = await self._reader.read(ledger_id, entry_id)
        if entry is None:
            raise _absent(state, f"entry {ledger_id}:{entry_id} is not here")
        return entry

    async def read_batch(self, ledger_id: int, first: int, count_max: int, bytes_max: int) -> list[bytes]:
        """Consecutive packed entries from first on, at least one, whatever its size, and at most what was asked for.

        Fewer where not all are in one place: whoever wants the rest asks again. Errors as in `read`.
        """
        self._check_usable()
        since = self._loop.time()
        counts = self.counts
        try:
            state = await self._ledgers.known(ledger_id)
            entries = await self._reader.read_run(ledger_id, first, max(1, count_max), bytes_max)
            if not entries:
                raise _absent(state, f"entry {ledger_id}:{first} is not here")
        except (MagnetarError, OSError):
            counts.read_entry.failed.observe((self._loop.time() - since) * 1000)
            raise
        counts.bytes_read += sum(map(len, entries))
        counts.read_entry.ok.observe((self._loop.time() - since) * 1000, len(entries))
        return entries

    async def entry_ids(self, ledger_id: int) -> list[int]:
        """The ids of the entries held of a ledger, rising; EntryUnknown when some may have been lost."""
        self._check_usable()
        state = await self._ledgers.known(ledger_id)
        if state.limbo:
            raise LedgerInLimbo(f"ledger {ledger_id} may have lost entries here")
        return await self._reader.entry_ids(ledger_id)

    # --- life -------------------------------------------------------------------------------

    @property
    def is_read_only(self) -> bool:
        return self._careful.read_only

    def ask_read_only(self, asked: bool) -> None:
        """An operator wants no adds here, until told otherwise or started again; a full disk has its own word."""
        self._asked_read_only = asked
        self._settle_read_only()

    def stats(self) -> StorageStats:
        caches, cache = self._caches, self._reader.cache
        flushing = caches.flushing
        return StorageStats(
            journal_queued_bytes=sum(journal.queued_bytes() for journal in self._journals),
            journal_syncs=sum(journal.syncs for journal in self._journals),
            journals=tuple(
                JournalStats(journal.log_stats(), journal.groups_waiting(), journal.queued_bytes())
                for journal in self._journals
            ),
            write_cache_entries=caches.active.entries + (flushing.entries if flushing is not None else 0),
            write_cache_bytes=caches.active.bytes_held + (flushing.bytes_held if flushing is not None else 0),
            held_adds=self._careful.held,
            held_adds_bytes=self._careful.held_bytes,
            adds_refused=dict(self._careful.refusals),
            read_cache_bytes=cache.bytes_held,
            read_cache_entries=len(cache),
            read_cache_hits=cache.hits,
            read_cache_misses=cache.misses,
            reads_in_progress=self._reader.reads_in_progress,
            checkpoints=self._checkpoints.completed,
            entries_written_out=self._checkpoints.entries_written,
            entry_logs=sum(len(directory.logs.log_ids()) for directory in self._directories),
            ledgers_in_memory=len(self._states),
            ledgers_deleted=self.housekeeping.ledgers_deleted,
            bytes_compacted=self.housekeeping.bytes_compacted,
            damaged_entries=len(self.housekeeping.damaged),
            is_read_only=self._careful.read_only,
            ledgers_in_limbo=self.doubts.left,
            is_unsure=self._ledgers.table.unsure,
        )

    def marks(self) -> list[LastMark]:
        """How far each journal is written out elsewhere, durably."""
        return self._checkpoints.marks()

    async def checkpoint(self) -> None:
        """Write out everything that came before this call, and move the marks."""
        self._check_usable()
        await self._cycle.run_now()
        self._check_usable()

    async def close(self) -> None:
        """Answer what waits, write everything out, let go of the directories."""
        if self._closed:
            return
        self._closed = True
        self._careful.end()
        self._waits.wake_all()
        await self._cycle.at_rest()
        if self._failure is None and self._cycle.has_news():
            await self._cycle.run_now()
        self._cycle.end()
        await self._tasks.close()
        for journal in self._journals:
            await journal.close()
        for directory in self._directories:
            await directory.close(finish=self._failure is None)
        if self._failure is None and not self._cycle.has_news():
            await self._unsynced.end()
        for lock in self._locks:
            await lock.release()

    def _check_usable(self) -> None:
        if self._failure is not None:
            raise self._failure
        if self._closed:
            raise StorageFailed("this bookie is closed")

    # --- what others tell -------------------------------------------------------------------

    def _on_disk_full(self, error: DiskFull | None) -> None:
        """A flush found no room, or went well."""
        if error is not None and not self._flush_failed:
            _log.error("%s: this bookie takes no adds until it can be written out", error)
        self._flush_failed = error is not None
        self._settle_read_only()

    def _on_usage(self, is_full: bool) -> None:
        """What the disk watch says, each time. Fences and recovery adds are served in any case."""
        self._disk_full = is_full
        self._settle_read_only()
        if not is_full:
            self._cycle.retry()

    def _settle_read_only(self) -> None:
        self._careful.on_read_only(self._flush_failed or self._disk_full or self._asked_read_only)

    def _on_crash(self, name: str, error: BaseException) -> None:
        failure = StorageFailed(f"{name} died of {error!r}")
        failure.__cause__ = error
        self._fail(failure)

    def _fail(self, failure: StorageFailed) -> None:
        """Durability cannot be promised any more: refuse everybody, once and for all."""
        if self._failure is not None:
            return
        self._failure = failure
        self._cycle.end()
        self._careful.end()
        self._waits.wake_all()
        self._on_failed(failure)


def _absent(state: LedgerState, sentence: str) -> NoSuchEntry | EntryUnknown:
    return LedgerInLimbo(f"{sentence}, but may have been lost") if state.limbo else NoSuchEntry(sentence)
