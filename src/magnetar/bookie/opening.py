# SPDX-License-Identifier: Apache-2.0
"""Opening a bookie's directories: lock them, read the journals back, make all of it safe.

Owns the order of a start. Nothing is served before what the journals held is in entry logs and index, and durable
there: so a restart after a failed sync never rests on pages that were only remembered, and a new journal's first file
says that everything older is safe. Does not begin the new journals: the storage does, when it can answer for them.
Carries.
"""

import logging
from collections.abc import Awaitable, Callable
from struct import Struct
from typing import Final

from magnetar.bookie.checkpoint import DELETED_NOTE, UNSURE_NOTE, Checkpoints
from magnetar.bookie.cookie_check import COOKIE_BYTES_MAX, COOKIE_FILE_NAME, Cookies, unstamped
from magnetar.bookie.entry_log import EntryLogs
from magnetar.bookie.journal_format import FileHeader, JournalRecord, RecordKind
from magnetar.bookie.journal_replay import JournalReplay
from magnetar.bookie.last_mark import LastMark
from magnetar.bookie.ledger_directory import LedgerDirectory
from magnetar.bookie.ledger_index import LedgerIndex
from magnetar.bookie.ledger_questions import LedgerQuestions
from magnetar.bookie.ledger_state import LedgerState, decode_state
from magnetar.bookie.ledger_table import LedgerTable
from magnetar.bookie.losses import doubt_everything, rebuild_index, settle
from magnetar.bookie.reserve import Reserve
from magnetar.bookie.unsynced_lives import UnsyncedLives
from magnetar.bookie.write_cache import WriteCaches
from magnetar.config.bookie import BookieSettings
from magnetar.errors import Damaged
from magnetar.runtime.disk import Disk, DiskLock
from magnetar.wire.bookkeeper import cookie

_IDS: Final = Struct(">qq")
_LEDGER_ID: Final = Struct(">q")
_KINDS: Final = frozenset(RecordKind)
# What a record may carry beside an entry of the largest size: an id, a key.
_PAYLOAD_MARGIN_BYTES: Final = 64 * 1024

_log = logging.getLogger(__name__)

IndexFactory = Callable[[str], Awaitable[LedgerIndex]]
"""Opens the index in a directory, which exists."""


def current(directory: str) -> str:
    """Where a journal or ledger directory keeps its files, as in BookKeeper."""
    return f"{directory}/current"


async def unstamp(disk: Disk, settings: BookieSettings) -> None:
    """Take the cookies out of all directories, once these are closed: they belong to no bookie."""
    for path in _stamped(settings):
        file = f"{current(path)}/{COOKIE_FILE_NAME}"
        if await disk.exists(file):
            await disk.remove(file)
            await disk.sync_directory(current(path))


def _stamped(settings: BookieSettings) -> tuple[str, ...]:
    """The directories that carry the cookie, each once."""
    return tuple(dict.fromkeys((*settings.journal_directories, *settings.ledger_directories)))


class Opening:
    """What a start brings together, step by step; `open` returns when all of it is safe."""

    def __init__(self, disk: Disk, settings: BookieSettings, questions: LedgerQuestions | None) -> None:
        self.disk = disk
        self.settings = settings
        self.caches = WriteCaches()
        self.table = LedgerTable(idle_max=settings.idle_ledgers_max)
        self.directories: list[LedgerDirectory] = []
        self.checkpoints = Checkpoints(disk, settings, self.directories, self.caches, self.table)
        self.locks: list[DiskLock] = []
        # For each journal directory, the header of the file that continues it.
        self.next_files: list[FileHeader] = []
        self.records_replayed = 0
        self.boots = 0
        # One sentence for each loss that was found.
        self.damage: list[str] = []
        self._marks: list[LastMark | None] = []
        self.questions = questions
        journals = [current(path) for path in settings.journal_directories]
        self.unsynced = UnsyncedLives(disk, journals, syncs=settings.journal_sync)

    @classmethod
    async def open(
        cls,
        disk: Disk,
        settings: BookieSettings,
        index_factory: IndexFactory,
        questions: LedgerQuestions | None = None,
        cookies: Cookies | None = None,
    ) -> "Opening":
        opening = cls(disk, settings, questions)
        try:
            await opening._lock()
            await Reserve(disk, settings).give_up()
            if cookies is not None:
                await opening._check_cookies(cookies)
            await opening._open_directories(index_factory)
            opening._marks = [
                await opening.checkpoints.read_mark(current(path)) for path in settings.journal_directories
            ]
            await opening._check_indexes()
            await opening._check_boots(cookies)
            await opening._check_unsynced()
            await opening._replay_journals()
            await opening._make_safe()
            # Last: until the doubt is durable, a disk that was rolled back must be found out again.
            await opening.checkpoints.count_boots(opening.boots)
            await opening.unsynced.begin()
        except BaseException:
            await opening.abandon()
            raise
        return opening

    async def abandon(self) -> None:
        """Let go of everything without writing."""
        for directory in self.directories:
            await directory.close(finish=False)
        for lock in self.locks:
            await lock.release()

    async def _lock(self) -> None:
        for path in _stamped(self.settings):
            await self.disk.make_directory(current(path))
            self.locks.append(await self.disk.lock(f"{path}/lock"))

    async def _check_cookies(self, cookies: Cookies) -> None:
        """BadCookie when a directory is lost, swapped or somebody else's; a new bookie's directories are stamped."""
        found: dict[str, cookie.Cookie | None] = {}
        for path in _stamped(self.settings):
            file = f"{current(path)}/{COOKIE_FILE_NAME}"
            exists = await self.disk.exists(file)
            found[path] = cookie.decode(await self.disk.read_file(file, bytes_max=COOKIE_BYTES_MAX)) if exists else None
        for path in unstamped(cookies, found):
            await self.disk.replace_file(f"{current(path)}/{COOKIE_FILE_NAME}", cookie.encode(cookies.expected))

    async def _open_directories(self, index_factory: IndexFactory) -> None:
        for path in self.settings.ledger_directories:
            logs = await EntryLogs.open(self.disk, current(path), self.settings)
            index = await self._open_index(f"{current(path)}/index", index_factory)
            self.directories.append(LedgerDirectory(current(path), logs, index))

    async def _open_index(self, path: str, index_factory: IndexFactory) -> LedgerIndex:
        await self.disk.make_directory(path)
        try:
            return await index_factory(path)
        except Damaged as error:
            # An empty index in its place has taken part in no checkpoint: it is found out and rebuilt.
            self.damage.append(str(error))
            await self.disk.remove_directory(path)
            await self.disk.make_directory(path)
            return await index_factory(path)

    async def _check_indexes(self) -> None:
        """An index that knows less than the last mark says has lost something, and is rebuilt from the entry logs."""
        for directory in self.directories:
            number = await self.checkpoints.index_number(directory)
            is_bare = number == 0 and not self.checkpoints.has_marks() and bool(directory.logs.log_ids())
            if number < self.checkpoints.mark_number() or is_bare:
                entries = await rebuild_index(directory)
                self.damage.append(f"the index in {directory.path} was lost; {entries} entries were found again")
            deleted = await directory.index.note(DELETED_NOTE)
            if deleted is not None:
                self.table.load_deleted(deleted)
            if await directory.index.note(UNSURE_NOTE) == b"1":
                self.table.doubt()

    async def _check_boots(self, cookies: Cookies | None) -> None:
        known = await self.checkpoints.boots()
        self.boots = max(known, cookies.boots if cookies is not None else 0) + 1
        if cookies is not None and known < cookies.boots and not self.damage:
            self.damage.append(f"the disks know of {known} starts and the metadata of {cookies.boots}: rolled back")

    async def _check_unsynced(self) -> None:
        losses = await self.unsynced.losses()
        if self.questions is not None and self.questions.complete is not None:
            self.damage += losses
            return
        # Who stands alone would doubt for ever: nobody has another copy, and this is what was asked for.
        for sentence in losses:
            _log.error("%s, and no other bookie has it", sentence)

    async def _replay_journals(self) -> None:
        for path, mark in zip(self.settings.journal_directories, self._marks, strict=True):
            replay = JournalReplay(
                self.disk,
                current(path),
                mark,
                payload_bytes_max=self.settings.entry_bytes_max + _PAYLOAD_MARGIN_BYTES,
            )
            async for record in replay.records():
                await self._apply(record)
            self.next_files.append(replay.next_file())
            self.damage += replay.damage
            if mark is None and not replay.found_files and await self._any_checkpoint():
                self.damage.append(f"the journal in {current(path)} is gone")

    async def _any_checkpoint(self) -> bool:
        return any([await self.checkpoints.index_number(directory) for directory in self.directories])

    async def _make_safe(self) -> None:
        """What was replayed, and what has to be doubted, goes to entry logs and index before anything is served."""
        if self.damage:
            for sentence in self.damage:
                _log.error("%s", sentence)
            count = await doubt_everything(self.table, self.directories)
            _log.error("%d ledgers are fenced and in limbo: they are served, but an absence is never claimed", count)
        if self.table.unsure and self.questions is not None:
            await settle(self.table, self.directories, await self.questions.existing())
        if self.caches.active.entries or self.table.has_changes():
            await self._write_out()
        if self.records_replayed:
            _log.info("%d journal records were replayed", self.records_replayed)

    async def _apply(self, record: JournalRecord) -> None:
        """One record, again or for the first time: the outcome is the same."""
        payload = record.payload
        self.records_replayed += 1
        if record.kind == RecordKind.SEAL:
            return
        if record.kind not in _KINDS:
            raise Damaged(f"a journal record has kind {record.kind}: it was written by a newer version of Magnetar")
        (ledger_id,) = _LEDGER_ID.unpack_from(payload)
        if self.table.is_deleted(ledger_id):
            return
        if record.kind == RecordKind.ENTRY:
            ledger_id, entry_id = _IDS.unpack_from(payload)
            await self._state(ledger_id)
            held = self.caches.active.put(ledger_id, entry_id, payload)
            if held >= self.settings.write_cache_bytes_max // 2:
                await self._write_out()
            return
        if record.kind == RecordKind.LEDGER:
            await self._state(ledger_id, payload[_LEDGER_ID.size :])
            return
        state = await self._state(ledger_id)
        if record.kind == RecordKind.FENCED:
            state.fence()
            state.fence_durable = True
        elif record.kind == RecordKind.LAST_CONFIRMED:
            _, entry_id = _IDS.unpack_from(payload)
            state.raise_explicit(entry_id, payload[_IDS.size :])
        self.table.note_change(state)

    async def _state(self, ledger_id: int, master_key: bytes = b"") -> LedgerState:
        state = self.table.states.get(ledger_id)
        if state is not None:
            return state
        data = await self.directories[ledger_id % len(self.directories)].index.ledger(ledger_id)
        if data is None:
            return self.table.begin(ledger_id, master_key)
        state = decode_state(ledger_id, data)
        self.table.keep(state)
        return state

    async def _write_out(self) -> None:
        self.caches.swap()
        await self.checkpoints.write_out()
        self.table.forget_idle({})
