# SPDX-License-Identifier: Apache-2.0
"""One journal: what is appended becomes durable in groups, and whoever waits is told up to the synced position.

Owns the records between append and sync, and the files of one journal directory while it is open. What comes in one
turn of the loop is handed to the log as one piece. Never reads a journal (`journal_replay.py` does), never answers an
add before the sync that covers it, and never goes on after a failed write or sync.
Carries.
"""

import asyncio
import errno
import logging
from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

from magnetar.bookie.add_runs import AddListener, AddRuns, Run
from magnetar.bookie.counts import BookieCounts
from magnetar.bookie.journal_format import (
    CHECKSUM,
    FILE_HEADER_BYTES,
    RECORD_HEADER,
    RECORD_MAGIC,
    RECORD_OVERHEAD_BYTES,
    FileHeader,
    RecordKind,
    checksum_seed,
    encode_file_header,
    file_id_of,
    file_name,
)
from magnetar.bookie.journal_spare import JournalSpare
from magnetar.bookie.records import LARGE_ENTRY_BYTES, journal_records
from magnetar.config.bookie import BookieSettings
from magnetar.errors import StorageFailed
from magnetar.runtime.disk import Disk, GroupLimits, LogStats, SyncedLog
from magnetar.runtime.turn_end import turn_end
from magnetar.wire.bookkeeper.codes import ReturnCode
from magnetar.wire.crc32c import extend

# A turn of the loop that appends more than this hands it over in several pieces, so that the writer starts early.
_PIECE_BYTES: Final = 512 * 1024
# A journal without a spare wants one when it has written this part of its size.
_UNPREPARED_SHARE: Final = 64

_log = logging.getLogger(__name__)
_header_pack = RECORD_HEADER.pack
_checksum_pack = CHECKSUM.pack
_ENTRY = int(RecordKind.ENTRY)


class JournalPlace(NamedTuple):
    file_id: int
    offset: int
    position: int


class _Group(NamedTuple):
    """A piece handed to the log, and who waits for it."""

    position: int
    runs: AddRuns
    waiters: list[asyncio.Future[None]]
    since: float
    records: int


class Journal:
    """Invariant: groups rise by position; nothing in them is durable yet; `synced` never exceeds what the log told."""

    __slots__ = (
        "_answers_per_turn_max", "_base", "_batch", "_batch_bytes", "_batch_records", "_bookie",
        "_counts", "_disk", "_failure", "_file_bytes_max", "_file_id",
        "_file_position", "_groups", "_is_full", "_is_prepared", "_log", "_loop", "_offset", "_on_failed",
        "_on_pressure", "_own", "_piece_records_max", "_queue_bytes_max", "_runs", "_seal_delay_s",
        "_seal_timer", "_sealed_at", "_seed", "_spare", "_spare_wanted_at", "_told", "_turn_end", "_untold", "_waiters",
        "after_sync", "directory", "synced", "syncs",
    )  # fmt: skip

    def __init__(
        self, disk: Disk, directory: str, bookie: str, first: FileHeader, settings: BookieSettings,
        counts: BookieCounts, *, on_pressure: Callable[[bool], None], on_failed: Callable[[StorageFailed], None],
    ) -> None:  # fmt: skip
        self._loop = asyncio.get_running_loop()
        self._turn_end = turn_end()
        self._disk = disk
        self.directory = directory
        self._bookie = bookie
        self._counts = counts
        self._own = counts.journal()
        # What the log had done when the last group was told.
        self._told = LogStats(0, 0, 0.0)
        # Records that one piece may hold; a group of a counted size is one piece.
        self._piece_records_max = settings.journal_group_entries_max or _PIECE_BYTES
        self._queue_bytes_max = settings.journal_queue_bytes_max
        self._is_full = False
        self._seal_delay_s = settings.journal_seal_delay_ms / 1000
        self._on_pressure = on_pressure
        self._on_failed = on_failed
        self._log: SyncedLog | None = None
        self._failure: StorageFailed | None = None
        self._spare = JournalSpare(
            disk, directory, settings, position=lambda: self.place().position, on_crash=self._on_spare_crashed
        )
        # The position of the log's first byte in this journal's life.
        self._base = first.first_position
        self.synced = first.first_position
        self.syncs = 0
        # Called once each, on the loop, after those whose entries the next sync covers are answered.
        self.after_sync: list[Callable[[], None]] = []
        # Where there are spares every file is as large as one, so that it can be the next.
        self._file_bytes_max = self._spare.bytes or settings.journal_file_bytes_max
        self._begin_file(first, is_prepared=False)
        self._batch: list[bytes] = []
        self._batch_bytes = 0
        self._batch_records = 0
        self._runs = AddRuns()
        self._waiters: list[asyncio.Future[None]] = []
        self._groups: deque[_Group] = deque()
        self._answers_per_turn_max = settings.journal_answers_per_turn_max
        # Whose entries are durable and who has not heard of it yet, oldest first.
        self._untold: deque[Run] = deque()
        self._seal_timer: asyncio.TimerHandle | None = None
        self._sealed_at = -1

    @classmethod
    async def open(
        cls, disk: Disk, directory: str, bookie: str, first: FileHeader, settings: BookieSettings,
        counts: BookieCounts, *, on_pressure: Callable[[bool], None], on_failed: Callable[[StorageFailed], None],
    ) -> "Journal":  # fmt: skip
        """Begin a new file; returns when its header is durable.

        `on_pressure` is told True when more than `journal_queue_bytes_max` wait for a sync, and False at half of it.
        """
        journal = cls(disk, directory, bookie, first, settings, counts, on_pressure=on_pressure, on_failed=on_failed)
        if not settings.journal_sync:
            _log.warning(
                "journal_sync is off: entries are acknowledged before they are durable, and power loss loses them"
            )
        await journal._spare.clear()
        journal._log = await disk.open_synced_log(
            journal._path(first.file_id),
            on_synced=journal._on_synced,
            on_failed=journal._on_log_failed,
            limits=_limits(settings),
            preallocate_bytes=settings.journal_preallocate_bytes,
            sync=settings.journal_sync,
        )
        journal._append_file_header(first)
        try:
            await journal.durable()
        except BaseException:
            await journal._log.close()
            raise
        return journal

    # --- appending --------------------------------------------------------------------------

    def append_entry(self, entry: bytes, entry_id: int, listener: AddListener) -> None:
        """Append a packed entry; the listener is told when it is durable, or that it will not be."""
        length = len(entry)
        head = _header_pack(RECORD_MAGIC, self._offset, self.synced, _ENTRY, length)
        batch = self._batch
        if not batch:
            self._turn_end.call(self._submit)
        if length < LARGE_ENTRY_BYTES:
            head += entry
            batch.append(head)
            batch.append(_checksum_pack(extend(self._seed, head)))
        else:
            batch += (head, entry, _checksum_pack(extend(extend(self._seed, head), entry)))
        self._runs.add(listener, entry_id)
        length += RECORD_OVERHEAD_BYTES
        self._offset += length
        self._batch_bytes += length
        self._batch_records += 1
        if self._batch_bytes >= _PIECE_BYTES or self._batch_records >= self._piece_records_max:
            self._submit()

    def append_entries(self, entries: list[bytes], first: int, listener: AddListener) -> None:
        """The same for entries that the listener knows by consecutive numbers, from this one on."""
        while entries:
            room = self._piece_records_max - self._batch_records
            if room <= 0:
                # Records that nobody waits for have filled the piece.
                self._submit()
                continue
            self._append_piece(entries[:room] if room < len(entries) else entries, first, listener)
            entries = entries[room:]
            first += room

    def _append_piece(self, entries: list[bytes], first: int, listener: AddListener) -> None:
        if max(map(len, entries)) >= LARGE_ENTRY_BYTES:
            for entry_id, entry in enumerate(entries, first):
                self.append_entry(entry, entry_id, listener)
            return
        if not self._batch:
            self._turn_end.call(self._submit)
        records = journal_records(self._seed, self._offset, self.synced, entries)
        self._batch.append(records)
        self._runs.add_all(listener, first, first + len(entries) - 1)
        self._offset += len(records)
        self._batch_bytes += len(records)
        self._batch_records += len(entries)
        if self._batch_bytes >= _PIECE_BYTES or self._batch_records >= self._piece_records_max:
            self._submit()

    def append(self, kind: RecordKind, payload: bytes) -> None:
        """Append a record that nobody waits for by itself: what follows it is durable only together with it."""
        head = _header_pack(RECORD_MAGIC, self._offset, self.synced, kind, len(payload)) + payload
        if not self._batch:
            self._turn_end.call(self._submit)
        self._batch.append(head)
        self._batch.append(_checksum_pack(extend(self._seed, head)))
        self._batch_records += 1
        length = len(head) + CHECKSUM.size
        self._offset += length
        self._batch_bytes += length

    def durable(self) -> asyncio.Future[None]:
        """Done when everything appended so far is durable; StorageFailed when it will not be."""
        future: asyncio.Future[None] = self._loop.create_future()
        if self._failure is not None:
            future.set_exception(self._failure)
        elif self._batch:
            self._waiters.append(future)
        elif self._groups:
            self._groups[-1].waiters.append(future)
        else:
            future.set_result(None)
        return future

    # --- questions --------------------------------------------------------------------------

    @property
    def is_busy(self) -> bool:
        """Whether something waits for a sync."""
        return bool(self._groups or self._batch)

    @property
    def oldest_waiting(self) -> int | None:
        """Where the oldest piece ends that was handed over and is not synced; None when there is none."""
        return self._groups[0].position if self._groups else None

    def queued_bytes(self) -> int:
        assert self._log is not None
        return self._log.queued_bytes() + self._batch_bytes

    def place(self) -> JournalPlace:
        """Where the next record will be."""
        return JournalPlace(self._file_id, self._offset, self._file_position + self._offset)

    # --- files ------------------------------------------------------------------------------

    async def reclaim(self, file_id: int, backups_max: int) -> list[int]:
        """Remove the files before this one, but for the newest few; returns the ids removed. One may be the spare."""
        ids = [found for name in await self._disk.list(self.directory) if (found := file_id_of(name)) is not None]
        old = sorted(found for found in ids if found < file_id)
        removed = old[: max(0, len(old) - backups_max)]
        for found in removed:
            if not await self._spare.offer(self._path(found)):
                await self._disk.remove(self._path(found))
        # A backup serves no restart, a spare every sync.
        for found in old[len(removed) :]:
            if await self._spare.offer(self._path(found)):
                removed.append(found)
                break
        return removed

    def give_up(self, why: str) -> None:
        """The log does not say any more how far it is: as if it had failed."""
        self._on_log_failed(OSError(errno.ETIMEDOUT, why))

    async def close(self) -> None:
        """Make everything durable, seal, and end the writer."""
        self._cancel_seal()
        if self._log is None:
            return
        if self._failure is None and self._sealed_at != self._offset:
            self.append(RecordKind.SEAL, b"")
        self._submit()
        await self._log.close()
        self._tell_all()
        self._cancel_seal()
        await self._spare.close()

    # --- leaves -----------------------------------------------------------------------------

    def _path(self, file_id: int) -> str:
        return f"{self.directory}/{file_name(file_id)}"

    def _begin_file(self, header: FileHeader, *, is_prepared: bool) -> None:
        self._is_prepared = is_prepared
        # Whoever writes little needs none.
        self._spare_wanted_at = self._file_bytes_max // (2 if is_prepared else _UNPREPARED_SHARE)
        self._file_id = header.file_id
        self._file_position = header.first_position
        self._seed = checksum_seed(header.file_id)
        self._offset = FILE_HEADER_BYTES

    def _append_file_header(self, header: FileHeader) -> None:
        assert self._log is not None
        data = encode_file_header(header)
        self._groups.append(_Group(self._log.append((data,), len(data)), AddRuns(), [], self._loop.time(), 0))

    def _submit(self) -> None:
        """Hand over what was appended since the last time, as one piece."""
        if not self._batch:
            return
        # Everything is taken first: whatever fails below, none of it is told with a later piece.
        buffers, self._batch = self._batch, []
        size, self._batch_bytes = self._batch_bytes, 0
        records, self._batch_records = self._batch_records, 0
        runs, self._runs = self._runs, AddRuns()
        waiters, self._waiters = self._waiters, []
        since = self._loop.time()
        if self._failure is not None:
            self._refuse(_Group(0, runs, waiters, since, 0))
            return
        try:
            position = self._hand_over(buffers, size)
        except Exception as error:
            # Without this piece nothing behind it could be replayed, whatever kept it out.
            self._groups.append(_Group(0, runs, waiters, since, 0))
            self._on_log_failed(error if isinstance(error, OSError) else OSError(errno.EIO, repr(error)))
            return
        self._groups.append(_Group(position, runs, waiters, since, records))
        own = self._own
        own.records_queued += records
        own.queue_peak.note(own.records_queued)
        assert self._log is not None
        if self._offset >= self._file_bytes_max or self._is_better_left():
            self._roll()
        elif self._offset >= self._spare_wanted_at:
            self._spare_wanted_at = self._file_bytes_max
            self._spare.prepare()
        if not self._is_full and self._log.queued_bytes() > self._queue_bytes_max:
            self._is_full = True
            self._on_pressure(True)

    def _hand_over(self, buffers: list[bytes], size: int) -> int:
        assert self._log is not None
        if size < len(buffers) * LARGE_ENTRY_BYTES // 4:
            buffers = [b"".join(buffers)]
        assert sum(map(len, buffers)) == size, "a piece is as long as its records say"
        return self._log.append(buffers, size)

    def _is_better_left(self) -> bool:
        """A file on blocks that nobody wrote before, once there is a spare; unless it is soon one itself."""
        return not self._is_prepared and self._spare.is_ready and self._offset < self._file_bytes_max // 2

    def _roll(self) -> None:
        assert self._log is not None
        header = FileHeader(self._file_id + 1, self._file_position + self._offset, session_start=False)
        spare = self._spare.take()
        self._log.roll(self._path(header.file_id), spare)
        self._begin_file(header, is_prepared=spare is not None)
        self._append_file_header(header)

    def _on_synced(self, position: int) -> None:
        self.synced = self._base + position
        self.syncs += 1
        groups = self._groups
        if groups and groups[0].position <= position:
            _, runs, waiters, since, records = groups.popleft()
            while groups and groups[0].position <= position:
                group = groups.popleft()
                runs.join(group.runs)
                waiters += group.waiters
                records += group.records
            self._count_synced(since, records)
            is_telling = bool(self._untold)
            self._untold += runs.take()
            if not is_telling:
                self._tell_some()
            self._counts.settle_adds((self._loop.time() - since) * 1000)
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(None)
        if not groups and self._seal_timer is None and self._sealed_at != self._offset:
            self._seal_timer = self._loop.call_later(self._seal_delay_s, self._seal, self._offset)
        if self.after_sync:
            callbacks, self.after_sync = self.after_sync, []
            for callback in callbacks:
                self._loop.call_soon(callback)
        if self._is_full and self.queued_bytes() <= self._queue_bytes_max // 2:
            self._is_full = False
            self._on_pressure(False)

    def _tell_some(self) -> None:
        """Answer those whose entries are durable, in order; after so many entries, others have their turn."""
        untold = self._untold
        left = self._answers_per_turn_max
        try:
            while untold and left > 0:
                run = untold[0]
                listener, first, last = run
                if last - first < left:
                    untold.popleft()
                else:
                    last = first + left - 1
                    run[1] = last + 1
                listener.on_added(self._bookie, first, last, ReturnCode.OK)
                left -= last - first + 1
        finally:
            # Also where a listener failed: the others are told.
            if untold:
                self._loop.call_soon(self._tell_rest)

    def _tell_rest(self) -> None:
        if self._untold:
            self._tell_some()

    def _tell_all(self) -> None:
        while self._untold:
            self._tell_some()

    def _count_synced(self, since: float, records: int) -> None:
        assert self._log is not None
        own, told = self._own, self._told
        stats = self._told = self._log.stats()
        groups = stats.groups - told.groups or 1
        sync_ms = (stats.sync_seconds - told.sync_seconds) * 1000 / groups
        own.synced.ok.observe(sync_ms, groups)
        written = stats.synced_bytes - told.synced_bytes
        own.bytes_written += written
        self._counts.bytes_added += max(0, written - records * RECORD_OVERHEAD_BYTES)
        own.group_bytes.observe(written / groups, groups)
        own.group_entries.observe(records / groups, groups)
        own.records_queued -= records
        if records:
            took_ms = (self._loop.time() - since) * 1000
            own.added.ok.observe(took_ms, records)
            own.queue.observe(max(0.0, took_ms - sync_ms), records)

    def log_stats(self) -> LogStats:
        assert self._log is not None
        return self._log.stats()

    def groups_waiting(self) -> int:
        return len(self._groups)

    async def flush_pages(self) -> None:
        """Without sync, ask the system to write what it holds of the present file: a power loss costs less then."""
        file = await self._disk.open(self._path(self._file_id))
        try:
            await file.sync()
        finally:
            await file.close()

    def _seal(self, rested_at: int) -> None:
        """A journal at rest says so, so that a later broken record before it is known to have been durable."""
        self._seal_timer = None
        if self._failure is not None or self._groups or self._batch:
            return
        if self._offset == rested_at:
            self.append(RecordKind.SEAL, b"")
            self._sealed_at = self._offset
        elif self._sealed_at != self._offset:
            self._seal_timer = self._loop.call_later(self._seal_delay_s, self._seal, self._offset)

    def _cancel_seal(self) -> None:
        if self._seal_timer is not None:
            self._seal_timer.cancel()
            self._seal_timer = None

    def _on_spare_crashed(self, name: str, error: BaseException) -> None:
        self._on_log_failed(OSError(errno.EIO, f"{name} died of {error!r}"))

    def _on_log_failed(self, error: OSError) -> None:
        if self._failure is not None:
            return
        self._cancel_seal()
        failure = StorageFailed(f"the journal in {self.directory} could not be written: {error}; restart to replay it")
        failure.__cause__ = error
        self._failure = failure
        groups, self._groups = self._groups, deque()
        # In order: first those whose entries are durable, then those whose entries never will be.
        self._tell_all()
        for group in groups:
            self._refuse(group)
        self._submit()
        self._on_failed(failure)

    def _refuse(self, group: _Group) -> None:
        self._own.records_queued -= group.records
        self._own.added.failed.observe(0, group.records)
        group.runs.tell(self._bookie, ReturnCode.IO_ERROR)
        for waiter in group.waiters:
            if not waiter.done():
                waiter.set_exception(self._failure or StorageFailed("the journal failed"))


def _limits(settings: BookieSettings) -> GroupLimits:
    """A group of a counted number of entries is one piece, which the journal makes of that size."""
    pieces = GroupLimits(bytes_max=settings.journal_group_bytes_max, delay_max_ms=settings.journal_group_delay_max_ms)
    return pieces._replace(buffers_max=1) if settings.journal_group_entries_max else pieces
