# SPDX-License-Identifier: Apache-2.0
"""One bookie's storage: add, read, fence. The door through which everything else in here is reached.

Owns the way of an add: checked against its ledger's state, put into the write cache, appended to the journal, answered
when the journal says that it is durable. An add never waits here; what cannot be taken now is held within bounds, what
cannot be taken at all is refused with the protocol's code. Reads give bytes, a proof of absence, or "unknown", never
one for another. When durability fails, everybody who waits is refused and the role ends.
Carries.
"""

import asyncio
import logging
from collections.abc import Callable
from struct import Struct
from typing import Final

from magnetar.bookie.add_runs import AddListener, AddRuns
from magnetar.bookie.entry_reader import EntryReader
from magnetar.bookie.held_adds import HeldAdd, HeldAdds
from magnetar.bookie.journal import Journal, JournalPlace
from magnetar.bookie.journal_format import FileHeader, RecordKind
from magnetar.bookie.ledger_directory import LedgerDirectory
from magnetar.bookie.ledger_state import LedgerState, decode_state
from magnetar.bookie.opening import IndexFactory, Opening, current
from magnetar.config.bookie import BookieSettings
from magnetar.errors import (
    DiskFull,
    EntryUnknown,
    LedgerFenced,
    NoSuchEntry,
    NoSuchLedger,
    StorageFailed,
    WrongMasterKey,
)
from magnetar.runtime.clock import WallClock
from magnetar.runtime.disk import Disk
from magnetar.runtime.tasks import Tasks
from magnetar.wire.bookkeeper.codes import LAST_ADD_CONFIRMED, ReturnCode
from magnetar.wire.bookkeeper.entry import METADATA_BYTES, last_add_confirmed_of

_IDS: Final = Struct(">qq")
_LEDGER_ID: Final = Struct(">q")
_ids_of = _IDS.unpack_from

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
        self._table = opening.table
        self._states = opening.table.states
        self._checkpoints = opening.checkpoints
        self._locks = opening.locks
        self._on_failed = on_failed
        self._journals: list[Journal] = []
        self._places: list[JournalPlace] = []
        self._tasks = Tasks(f"bookie {bookie}", self._on_crash)
        self._reader = EntryReader(settings, self._caches, self._directories)
        self._held = HeldAdds(settings.held_adds_bytes_max)
        self._held_timer: asyncio.TimerHandle | None = None
        self._refused: dict[int, AddRuns] = {}
        self._half_bytes_max = settings.write_cache_bytes_max // 2
        self._entry_bytes_max = settings.entry_bytes_max
        self._checkpoint_task: asyncio.Task[None] | None = None
        self._failure: StorageFailed | None = None
        self._closing = False
        self._journals_full = 0
        self._cache_full = False
        self._read_only = False
        # True when an add has to be looked at twice: any of the states above.
        self._with_care = False
        self._adds_refused = 0

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
    ) -> "BookieStorage":
        """Replay what was there and begin new journals.

        DataDirectoryInUse, DiskFull, Damaged, OSError. Later failures end the role: `on_failed` is told once.
        """
        opening = await Opening.open(disk, settings, index_factory)
        storage = cls(opening, bookie=bookie, clock=clock, on_failed=on_failed)
        try:
            for path, header in zip(settings.journal_directories, opening.next_files, strict=True):
                await storage._begin_journal(disk, current(path), header)
        except BaseException:
            for journal in storage._journals:
                await journal.close()
            await opening.abandon()
            raise
        storage._tasks.start(storage._checkpoint_at_intervals(), "checkpoints")
        return storage

    async def _begin_journal(self, disk: Disk, directory: str, header: FileHeader) -> None:
        journal = await Journal.open(
            disk,
            directory,
            self.bookie,
            header,
            self._settings,
            on_pressure=self._on_pressure,
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
            or self._with_care
            or not state.open_to_adds
            or state.master_key != master_key
            or not METADATA_BYTES <= len(entry) <= self._entry_bytes_max
            or _ids_of(entry) != (ledger_id, entry_id)
        ):
            self._add_with_care(HeldAdd(0.0, ledger_id, entry_id, entry, master_key, listener, recovery))
            return
        # Cache before journal: what the journal acknowledges can be read.
        held = self._caches.active.put(ledger_id, entry_id, entry)
        if entry_id > state.last_entry_id:
            state.last_entry_id = entry_id
        journals = self._journals
        journals[ledger_id % len(journals)].append_entry(entry, entry_id, listener)
        if held >= self._half_bytes_max:
            self._on_cache_full()

    def _add_with_care(self, add: HeldAdd) -> None:
        """Every add that is not plainly fine: refused, held until there is room, or taken after all."""
        if self._failure is not None or self._closing:
            self._refuse(add, ReturnCode.IO_ERROR)
        elif not self._is_well_formed(add):
            self._refuse(add, ReturnCode.BAD_REQUEST)
        elif self._table.is_deleted(add.ledger_id):
            self._refuse(add, ReturnCode.FENCED)
        elif self._read_only and not add.recovery:
            self._refuse(add, ReturnCode.READ_ONLY)
        elif add.ledger_id not in self._states:
            self._hold_until_known(add)
        elif self._cache_full or self._journals_full or self._held:
            self._hold(add)
        else:
            self._take(add)

    def _take(self, add: HeldAdd) -> None:
        state = self._states[add.ledger_id]
        code = state.refusal(add.master_key, recovery=add.recovery)
        if code != ReturnCode.OK:
            self._refuse(add, code)
            return
        held = self._caches.active.put(add.ledger_id, add.entry_id, add.entry)
        state.last_entry_id = max(state.last_entry_id, add.entry_id)
        self._journal_of(add.ledger_id).append_entry(add.entry, add.entry_id, add.listener)
        if held >= self._half_bytes_max:
            self._on_cache_full()

    def _is_well_formed(self, add: HeldAdd) -> bool:
        return (
            add.ledger_id >= 0
            and add.entry_id >= 0
            and METADATA_BYTES <= len(add.entry) <= self._entry_bytes_max
            and _ids_of(add.entry) == (add.ledger_id, add.entry_id)
        )

    def _refuse(self, add: HeldAdd, code: int) -> None:
        self._adds_refused += 1
        if not self._refused:
            self._loop.call_soon(self._tell_refused)
        runs = self._refused.get(code)
        if runs is None:
            runs = self._refused[code] = AddRuns()
        runs.add(add.listener, add.entry_id)

    def _tell_refused(self) -> None:
        refused, self._refused = self._refused, {}
        for code, runs in refused.items():
            runs.tell(self.bookie, code)

    # --- adds that wait ---------------------------------------------------------------------

    def _hold_until_known(self, add: HeldAdd) -> None:
        is_first = not self._held.waits_for(add.ledger_id)
        if not self._held.hold_unknown(add):
            self._refuse(add, ReturnCode.TOO_MANY_REQUESTS)
        elif is_first:
            self._tasks.start(self._learn(add.ledger_id), f"ledger {add.ledger_id}")

    async def _learn(self, ledger_id: int) -> None:
        """Read a ledger's state, or begin the ledger, then look at its adds again."""
        try:
            state = await self._state(ledger_id)
        except (OSError, EntryUnknown):
            _log.exception("the state of ledger %d cannot be read", ledger_id)
            for add in self._held.take_known(ledger_id):
                self._refuse(add, ReturnCode.IO_ERROR)
            return
        adds = self._held.take_known(ledger_id)
        if state is None and self._failure is None and not self._table.is_deleted(ledger_id):
            self._begin_ledger(ledger_id, adds[0].master_key)
        for add in adds:
            self._add_with_care(add)

    def _hold(self, add: HeldAdd) -> None:
        if not self._held.hold(add._replace(since=self._loop.time())):
            self._refuse(add, ReturnCode.TOO_MANY_REQUESTS)
        elif self._held_timer is None:
            self._held_timer = self._loop.call_later(self._settings.held_adds_wait_max_ms / 1000, self._refuse_overdue)

    def _refuse_overdue(self) -> None:
        self._held_timer = None
        wait_max_s = self._settings.held_adds_wait_max_ms / 1000
        for add in self._held.take_older(self._loop.time() - wait_max_s + 0.001):
            self._refuse(add, ReturnCode.TOO_MANY_REQUESTS)
        since = self._held.oldest_since()
        if since is not None:
            self._held_timer = self._loop.call_at(since + wait_max_s, self._refuse_overdue)
        self._review_care()

    def _admit_held(self) -> None:
        """There may be room again."""
        while not (self._cache_full or self._journals_full):
            add = self._held.take()
            if add is None:
                break
            if self._failure is not None or self._closing:
                self._refuse(add, ReturnCode.IO_ERROR)
            elif add.ledger_id not in self._states:
                self._hold_until_known(add)
            else:
                self._take(add)
        self._review_care()

    def _on_pressure(self, is_full: bool) -> None:
        self._journals_full += 1 if is_full else -1
        self._review_care()
        if not is_full:
            self._admit_held()

    def _review_care(self) -> None:
        self._with_care = bool(
            self._failure is not None
            or self._closing
            or self._read_only
            or self._cache_full
            or self._journals_full
            or self._held
        )

    # --- ledgers ----------------------------------------------------------------------------

    async def _state(self, ledger_id: int) -> LedgerState | None:
        """A ledger's state, from memory or index; None when this bookie does not know the ledger."""
        state = self._states.get(ledger_id)
        if state is not None or self._table.is_deleted(ledger_id):
            return state
        data = await self._directory_of(ledger_id).index.ledger(ledger_id)
        state = self._states.get(ledger_id)
        if state is None and data is not None and not self._table.is_deleted(ledger_id):
            state = decode_state(ledger_id, data)
            self._table.keep(state)
        return state

    def _begin_ledger(self, ledger_id: int, master_key: bytes) -> LedgerState:
        self._journal_of(ledger_id).append(RecordKind.LEDGER, _LEDGER_ID.pack(ledger_id) + master_key)
        return self._table.begin(ledger_id, master_key)

    async def fence(self, ledger_id: int, master_key: bytes) -> None:
        """Take no more ordinary adds of a ledger; returns when that is durable. Also for a ledger not seen before."""
        self._check_usable()
        state = await self._state(ledger_id)
        self._check_usable()
        if self._table.is_deleted(ledger_id):
            raise NoSuchLedger(f"ledger {ledger_id} was deleted")
        if state is None:
            state = self._begin_ledger(ledger_id, master_key)
        elif not state.fits_key(master_key):
            raise WrongMasterKey(f"the master key does not fit ledger {ledger_id}")
        journal = self._journal_of(ledger_id)
        if state.fence():
            self._table.note_change(state)
            journal.append(RecordKind.FENCED, _LEDGER_ID.pack(ledger_id))
        if not state.fence_durable:
            # Also for whoever finds the flag set: it counts when its record is synced, not before.
            await journal.durable()
            state.fence_durable = True

    def _journal_of(self, ledger_id: int) -> Journal:
        return self._journals[ledger_id % len(self._journals)]

    def _directory_of(self, ledger_id: int) -> LedgerDirectory:
        return self._directories[ledger_id % len(self._directories)]

    # --- reads ------------------------------------------------------------------------------

    async def read(self, ledger_id: int, entry_id: int, fence_key: bytes | None = None) -> bytes:
        """One packed entry; entry -1 is the last one here. With fence_key the ledger is fenced durably first.

        NoSuchLedger, NoSuchEntry: proofs of absence. EntryUnknown: no answer. WrongMasterKey, StorageFailed.
        """
        if fence_key is not None:
            await self.fence(ledger_id, fence_key)
        entry = self._caches.find(ledger_id, entry_id)
        if entry is not None:
            return entry
        self._check_usable()
        state = await self._known(ledger_id)
        if entry_id == LAST_ADD_CONFIRMED:
            last = await self._last_entry_id(ledger_id)
            if last is None:
                raise self._absent(state, f"ledger {ledger_id} has no entry here")
            entry_id = last
        entry = await self._reader.read(ledger_id, entry_id)
        if entry is None:
            raise self._absent(state, f"entry {ledger_id}:{entry_id} is not here")
        return entry

    async def read_batch(self, ledger_id: int, first: int, count_max: int, bytes_max: int) -> list[bytes]:
        """Consecutive packed entries from first on, at least one, whatever its size; errors as in `read`."""
        entries = [await self.read(ledger_id, first)]
        total = len(entries[0])
        while len(entries) < count_max:
            try:
                entry = await self.read(ledger_id, first + len(entries))
            except (NoSuchEntry, EntryUnknown):
                break
            total += len(entry)
            if total > bytes_max:
                break
            entries.append(entry)
        return entries

    async def last_confirmed(self, ledger_id: int, fence_key: bytes | None = None) -> tuple[int, bytes | None]:
        """The last add confirmed as far as this bookie knows, and the last entry that it holds."""
        if fence_key is not None:
            await self.fence(ledger_id, fence_key)
        self._check_usable()
        state = await self._known(ledger_id)
        last = await self._last_entry_id(ledger_id)
        if last is None:
            if state.limbo:
                raise EntryUnknown(f"ledger {ledger_id} may have lost entries here")
            return state.explicit_lac, None
        entry = await self._reader.read(ledger_id, last)
        if entry is None:
            raise EntryUnknown(f"entry {ledger_id}:{last} was here and cannot be found")
        return max(state.explicit_lac, last_add_confirmed_of(entry)), entry

    async def write_last_confirmed(self, ledger_id: int, entry_id: int, body: bytes, master_key: bytes) -> None:
        """Keep the explicit last add confirmed of an idle writer; returns when it is durable."""
        self._check_usable()
        state = await self._state(ledger_id)
        self._check_usable()
        if self._table.is_deleted(ledger_id):
            raise LedgerFenced(f"ledger {ledger_id} was deleted")
        if state is None:
            state = self._begin_ledger(ledger_id, master_key)
        elif not state.fits_key(master_key):
            raise WrongMasterKey(f"the master key does not fit ledger {ledger_id}")
        journal = self._journal_of(ledger_id)
        if state.raise_explicit(entry_id, body):
            self._table.note_change(state)
            journal.append(RecordKind.LAST_CONFIRMED, _IDS.pack(ledger_id, entry_id) + body)
        await journal.durable()

    async def explicit_last_confirmed(self, ledger_id: int) -> bytes | None:
        """The body that the writer's last explicit confirmation carried."""
        state = await self._known(ledger_id)
        return state.explicit_body or None

    async def entry_ids(self, ledger_id: int) -> list[int]:
        """The ids of the entries held of a ledger, rising; EntryUnknown when some may have been lost."""
        self._check_usable()
        state = await self._known(ledger_id)
        if state.limbo:
            raise EntryUnknown(f"ledger {ledger_id} may have lost entries here")
        return await self._reader.entry_ids(ledger_id)

    async def _known(self, ledger_id: int) -> LedgerState:
        state = await self._state(ledger_id)
        if state is None:
            raise NoSuchLedger(f"ledger {ledger_id} is not on this bookie")
        return state

    async def _last_entry_id(self, ledger_id: int) -> int | None:
        return await self._reader.last_entry_id(ledger_id)

    def _absent(self, state: LedgerState, sentence: str) -> NoSuchEntry | EntryUnknown:
        return EntryUnknown(f"{sentence}, but may have been lost") if state.limbo else NoSuchEntry(sentence)

    # --- checkpoints ------------------------------------------------------------------------

    def _on_cache_full(self) -> None:
        """The active half is full: swap, or hold adds back while the other half is still being written."""
        if self._checkpoint_task is None:
            self._begin_checkpoint()
        elif not self._cache_full:
            self._cache_full = True
            self._review_care()

    def _begin_checkpoint(self) -> asyncio.Task[None]:
        """Swap the halves now, while every entry in them lies before the journals' places; write in the background."""
        if self._caches.flushing is None:
            self._caches.swap()
            self._places = [journal.place() for journal in self._journals]
        self._checkpoint_task = self._tasks.start(self._checkpoint(), "checkpoint")
        return self._checkpoint_task

    async def _checkpoint(self) -> None:
        try:
            await self._checkpoints.run(self._journals, self._places)
        except DiskFull as error:
            _log.error("%s: this bookie is read-only until there is room", error)
            self._set_read_only(True)
        except StorageFailed as error:
            self._fail(error)
        except OSError as error:
            failure = StorageFailed(f"entry logs, index or mark could not be written: {error}; restart to replay")
            failure.__cause__ = error
            self._fail(failure)
        finally:
            self._checkpoint_task = None
        is_full = self._caches.active.bytes_held >= self._half_bytes_max
        if is_full and self._failure is None and self._caches.flushing is None and not self._closing:
            self._begin_checkpoint()
            is_full = False
        self._cache_full = is_full
        self._review_care()
        self._admit_held()

    async def checkpoint(self) -> None:
        """Write out everything that came before this call, and move the marks."""
        while self._checkpoint_task is not None:
            await asyncio.wait((self._checkpoint_task,))
        await asyncio.shield(self._begin_checkpoint())
        self._check_usable()

    async def _checkpoint_at_intervals(self) -> None:
        while True:
            await asyncio.sleep(self._settings.flush_interval_ms / 1000)
            if self._checkpoint_task is None and self._has_news():
                self._begin_checkpoint()

    def _has_news(self) -> bool:
        caches = self._caches
        return bool(caches.active.entries or caches.flushing is not None or self._table.changed)

    # --- life -------------------------------------------------------------------------------

    def _set_read_only(self, read_only: bool) -> None:
        self._read_only = read_only
        self._review_care()

    def _check_usable(self) -> None:
        if self._failure is not None:
            raise self._failure
        if self._closing:
            raise StorageFailed("this bookie is closed")

    def _on_crash(self, name: str, error: BaseException) -> None:
        failure = StorageFailed(f"{name} died of {error!r}")
        failure.__cause__ = error
        self._fail(failure)

    def _fail(self, failure: StorageFailed) -> None:
        """Durability cannot be promised any more: refuse everybody, once and for all."""
        if self._failure is not None:
            return
        self._failure = failure
        self._review_care()
        for add in self._held.take_all():
            self._refuse(add, ReturnCode.IO_ERROR)
        self._on_failed(failure)

    async def close(self) -> None:
        """Answer what waits, write everything out, let go of the directories."""
        if self._closing:
            return
        self._closing = True
        self._review_care()
        for add in self._held.take_all():
            self._refuse(add, ReturnCode.IO_ERROR)
        if self._held_timer is not None:
            self._held_timer.cancel()
        while self._checkpoint_task is not None:
            await asyncio.wait((self._checkpoint_task,))
        if self._failure is None and self._has_news():
            await self._begin_checkpoint()
        await self._tasks.close()
        for journal in self._journals:
            await journal.close()
        for directory in self._directories:
            await directory.close(finish=self._failure is None)
        for lock in self._locks:
            await lock.release()
