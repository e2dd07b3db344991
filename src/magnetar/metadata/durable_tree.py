# SPDX-License-Identifier: Apache-2.0
"""A tree of records that survives the process: every change is in a synced log before anyone hears of it.

Owns the directory and the order of changes. Changes are decided on the tree at once, appended to the log, and
answered, shown and announced when the log says how far it is synced; many share one sync. Whatever was read or told
is therefore durable. A failed write or sync ends it: waiters and later calls get StorageFailed. Knows sessions as
numbers; who may use one, and for how long, is the business of the stores on top.
Carries.
"""

import asyncio
import errno
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, NamedTuple

from magnetar.config.metadata import MetadataSettings
from magnetar.errors import CannotStart, SessionLost, StorageFailed, TooManyRequests
from magnetar.metadata.embedded_format import FileHeader, FileKind
from magnetar.metadata.embedded_log import EmbeddedLog
from magnetar.metadata.embedded_recovery import Recovered, log_path, recover, snapshot_path, sort_files
from magnetar.metadata.embedded_snapshot import write_snapshot
from magnetar.metadata.paths import ROOT, parent_of
from magnetar.metadata.store import Change, Record, Stored
from magnetar.metadata.tree import Effect, RecordTree, Removed, Written, changes_of
from magnetar.runtime.clock import WallClock
from magnetar.runtime.disk import Disk, DiskLock
from magnetar.runtime.tasks import Tasks

# A session with this timeout lives as long as the process that opened it.
PROCESS_BOUND: Final = 0
# Each orderly restart leaves a small log; so many, and the start writes a snapshot instead of reading them again.
LOGS_MAX: Final = 16
_DISK_FULL: Final = (errno.ENOSPC, errno.EDQUOT)

_log = logging.getLogger(__name__)


class _Pending(NamedTuple):
    """A transaction on its way to the disk."""

    sequence: int
    synced: asyncio.Future[None]
    touched: list[str]
    changes: list[Change]


class DurableTree:
    """Open with `await DurableTree.open(...)`; several sessions may use it until `close`."""

    def __init__(
        self,
        disk: Disk,
        directory: str,
        *,
        clock: WallClock,
        settings: MetadataSettings,
        lock: DiskLock,
        found: Recovered,
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._clock = clock
        self._settings = settings
        self._lock = lock
        self._tree = found.tree
        self._store_id = found.store_id
        self._snapshot_bytes = found.snapshot_bytes
        # Bytes in finished logs that the next snapshot will replace.
        self._finished_bytes = found.log_bytes
        self._log = EmbeddedLog(
            directory,
            FileHeader(FileKind.LOG, found.generation, found.store_id, found.sequence + 1),
            mark_delay_ms=settings.mark_delay_ms,
            on_synced=self._on_synced,
            on_failed=self._fail,
        )
        self._pending: deque[_Pending] = deque()
        # The last transaction that touched a path, while it is not durable.
        self._unsynced: dict[str, asyncio.Future[None]] = {}
        self._change_listeners: list[Callable[[list[Change]], None]] = []
        self._failure_listeners: list[Callable[[StorageFailed], None]] = []
        self._failure: StorageFailed | None = None
        self._closed = False
        self._compacting = False
        self._tasks = Tasks(f"metadata {directory}", lambda name, error: self._fail(error), tasks_max=2)

    @classmethod
    async def open(cls, disk: Disk, directory: str, *, clock: WallClock, settings: MetadataSettings) -> "DurableTree":
        """Recover what is in the directory, or begin a new store there.

        Damaged names file and offset; NotSupported: a newer version wrote it; DataDirectoryInUse; CannotStart.
        """
        try:
            await disk.make_directory(directory)
            lock = await disk.lock(f"{directory}/lock")
        except OSError as error:
            raise CannotStart(f"the metadata directory {directory} cannot be used: {error}") from error
        try:
            return await cls._open_locked(disk, directory, clock, settings, lock)
        except (OSError, StorageFailed) as error:
            await lock.release()
            raise CannotStart(f"the metadata store in {directory} cannot be opened: {error}") from error
        except BaseException:
            await lock.release()
            raise

    @classmethod
    async def _open_locked(
        cls, disk: Disk, directory: str, clock: WallClock, settings: MetadataSettings, lock: DiskLock
    ) -> "DurableTree":
        files = sort_files(await disk.list(directory))
        if files.snapshots or files.logs:
            found = await recover(disk, directory, files, settings)
        else:
            found = Recovered(RecordTree(settings), clock.now_ms(), 0, 0, False, 0, 0)
        found = found._replace(generation=found.generation + 1)
        tree = cls(disk, directory, clock=clock, settings=settings, lock=lock, found=found)
        if not found.closed_in_order or len(files.logs) > LOGS_MAX or found.log_bytes > settings.log_bytes_max:
            # A fresh snapshot also replaces files whose end is torn, or was read from a cache that a failed sync left
            # behind; nothing depends on them after this.
            tree._snapshot_bytes = await tree._snapshot(found.generation, found.sequence)()
            tree._finished_bytes = 0
        await tree._log.start(disk)
        try:
            await tree._end_process_sessions()
            await tree._remove_older()
        except BaseException:
            await tree._log.abandon()
            raise
        return tree

    # --- operations ---------------------------------------------------------------------------

    async def get(self, path: str, *, session: int) -> Record | None:
        self._check_session(session)
        held = self._tree.get(path)
        await self._until_synced(path)
        return held.record() if held is not None else None

    async def children(self, path: str, *, session: int) -> list[str]:
        self._check_session(session)
        names = self._tree.children(path)
        await self._until_synced(path)
        return names

    async def put(
        self,
        path: str,
        value: bytes,
        *,
        session: int,
        expected_version: int | None = None,
        ephemeral: bool = False,
        sequential: bool = False,
    ) -> Stored:
        self._check_room()
        stored, effects = self._tree.put(
            path,
            value,
            session=session,
            now_ms=self._clock.now_ms(),
            expected_version=expected_version,
            ephemeral=ephemeral,
            sequential=sequential,
        )
        await asyncio.shield(self._append(effects))
        return stored

    async def delete(self, path: str, *, session: int, expected_version: int | None = None) -> None:
        self._check_room()
        effects = self._tree.delete(path, session=session, expected_version=expected_version)
        await asyncio.shield(self._append(effects))

    async def open_session(self, timeout_ms: int) -> int:
        self._check_room()
        session, effects = self._tree.open_session(timeout_ms)
        await asyncio.shield(self._append(effects))
        return session

    async def close_session(self, session: int) -> None:
        """End a session and its ephemeral records, durably; nothing happens when it is not open."""
        self._check_usable()
        effects = self._tree.close_session(session)
        if effects:
            await asyncio.shield(self._append(effects))

    def sessions(self) -> dict[int, int]:
        """Open sessions and their timeouts in milliseconds."""
        return dict(self._tree.sessions)

    def session_timeout_ms(self, session: int) -> int | None:
        """An open session's timeout, or None when it is not open."""
        return self._tree.sessions.get(session)

    @property
    def store_id(self) -> int:
        """Tells this store from one made anew in the same place."""
        return self._store_id

    def watch_changes(self, listener: Callable[[list[Change]], None]) -> Callable[[], None]:
        """Tell every change in order, once it is durable; returns the call that ends it."""
        self._change_listeners.append(listener)
        return lambda: self._change_listeners.remove(listener)

    def watch_failure(self, listener: Callable[[StorageFailed], None]) -> Callable[[], None]:
        """Tell, once, that nothing can be stored any more; returns the call that ends it."""
        self._failure_listeners.append(listener)
        return lambda: self._failure_listeners.remove(listener)

    async def close(self) -> None:
        """Write what is queued, say in the log that this end is orderly, and let go of the directory."""
        if self._closed:
            return
        self._closed = True
        await self._tasks.close()
        try:
            if self._pending:
                await asyncio.shield(self._pending[-1].synced)
            await self._log.close()
        except (OSError, StorageFailed) as error:
            self._fail(error)
            await self._log.abandon()
        finally:
            await self._lock.release()

    async def abandon(self) -> None:
        """Let go of the directory as it is, as a crash would: what was not answered may be lost."""
        self._closed = True
        await self._tasks.close()
        await self._log.abandon()
        await self._lock.release()

    # --- what the log says --------------------------------------------------------------------

    def _on_synced(self, sequence: int) -> None:
        changes: list[Change] = []
        while self._pending and self._pending[0].sequence <= sequence:
            done = self._pending.popleft()
            for path in done.touched:
                if self._unsynced.get(path) is done.synced:
                    del self._unsynced[path]
            done.synced.set_result(None)
            changes.extend(done.changes)
        if changes:
            for listener in tuple(self._change_listeners):
                listener(changes)

    def _fail(self, error: BaseException) -> None:
        if self._failure is not None:
            return
        self._failure = StorageFailed(
            f"the metadata store in {self._directory} could not be written: {error}; "
            "what was not confirmed may be lost; repair the disk, then start again"
        )
        pending, self._pending = self._pending, deque()
        self._unsynced.clear()
        for waiting in pending:
            waiting.synced.set_exception(self._failure)
            waiting.synced.exception()  # nobody may be waiting any more: not worth a warning
        for listener in tuple(self._failure_listeners):
            listener(self._failure)

    # --- leaves -------------------------------------------------------------------------------

    def _check_usable(self) -> None:
        if self._failure is not None:
            raise self._failure
        if self._closed:
            raise SessionLost("this metadata store was closed")

    def _check_session(self, session: int) -> None:
        self._check_usable()
        if session not in self._tree.sessions:
            raise SessionLost(f"metadata session {session} has ended")

    def _check_room(self) -> None:
        self._check_usable()
        if len(self._pending) >= self._settings.operations_pending_max:
            raise TooManyRequests(f"{len(self._pending)} metadata changes wait for the disk, no more are taken now")
        if self._pending and self._log.queued_bytes() >= self._settings.pending_bytes_max:
            raise TooManyRequests("too many bytes of metadata changes wait for the disk, no more are taken now")

    def _append(self, effects: list[Effect]) -> asyncio.Future[None]:
        """Send decided effects to the log; the future ends when they are durable."""
        try:
            sequence = self._log.append(effects)
            self._roll_when_full()
        except OSError as error:
            self._fail(error)
            self._check_usable()
        synced: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        touched = [path for effect in effects for path in _touched(effect)]
        for path in touched:
            self._unsynced[path] = synced
        self._pending.append(_Pending(sequence, synced, touched, changes_of(effects)))
        return synced

    async def _until_synced(self, path: str) -> None:
        """What was read is durable once the last change that touched it is."""
        synced = self._unsynced.get(path)
        if synced is not None:
            await asyncio.shield(synced)

    async def _end_process_sessions(self) -> None:
        """Sessions of the process that held the directory before ended with it."""
        effects: list[Effect] = []
        for session, timeout_ms in self.sessions().items():
            if timeout_ms == PROCESS_BOUND:
                effects.extend(self._tree.close_session(session))
        await asyncio.shield(self._append(effects))

    # --- snapshots ----------------------------------------------------------------------------

    def _roll_when_full(self) -> None:
        if self._log.file_bytes < self._settings.log_bytes_max:
            return
        self._finished_bytes += self._log.file_bytes
        sequence = self._log.roll()
        if not self._compacting and not self._closed and self._finished_bytes >= self._snapshot_bytes:
            self._compacting = True
            # The contents are taken now: exactly what the finished logs lead to.
            snapshot = self._snapshot(self._log.generation, sequence)
            self._tasks.start(self._compact(snapshot, self._finished_bytes), "snapshot")

    def _snapshot(self, generation: int, sequence: int) -> Callable[[], Awaitable[int]]:
        return partial(
            write_snapshot,
            self._disk,
            self._directory,
            self._tree.contents(),
            generation=generation,
            store_id=self._store_id,
            sequence=sequence,
            next_session=self._tree.next_session,
        )

    async def _compact(self, snapshot: Callable[[], Awaitable[int]], replaced_bytes: int) -> None:
        try:
            self._snapshot_bytes = await snapshot()
            self._finished_bytes -= replaced_bytes
            # The log's writer has left the old files when something in the new one is durable.
            await asyncio.shield(self._append([]))
            await self._remove_older()
        except OSError as error:
            if error.errno not in _DISK_FULL:
                raise
            _log.warning("no space for a snapshot of the metadata in %s: its logs stay", self._directory)
        finally:
            self._compacting = False

    async def _remove_older(self) -> None:
        """Remove what the newest snapshot replaces."""
        files = sort_files(await self._disk.list(self._directory))
        newest = files.snapshots[-1]
        for path in (
            *(f"{self._directory}/{name}" for name in files.partial),
            *(log_path(self._directory, generation) for generation in files.logs if generation < newest),
            *(snapshot_path(self._directory, generation) for generation in files.snapshots[:-1]),
        ):
            await self._disk.remove(path)


def _touched(effect: Effect) -> tuple[str, ...]:
    """Paths whose record or list of children an effect changes."""
    if not isinstance(effect, Written | Removed):
        return ()
    return (effect.path,) if effect.path == ROOT else (effect.path, parent_of(effect.path))
