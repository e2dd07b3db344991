# SPDX-License-Identifier: Apache-2.0
"""The real disk: system calls on a few threads, and one writer thread per synced log.

Nothing is retried and no error is translated, except that of a lock which is held. Carries.
"""

import asyncio
import errno
import fcntl
import os
import shutil
from collections.abc import Callable
from functools import partial

from magnetar.errors import DataDirectoryInUse
from magnetar.runtime import native_log
from magnetar.runtime.blocking_calls import BlockingCalls
from magnetar.runtime.disk import DEFAULT_LIMITS, Buffer, Disk, DiskLock, DiskUsage, File, GroupLimits, SyncedLog
from magnetar.runtime.log_file import LogFile, sync_directory, write_fully
from magnetar.runtime.real_file import RealFile
from magnetar.runtime.real_log import ThreadedLog


class RealDisk(Disk):
    def __init__(self, root: str, *, threads: int = 4) -> None:
        self._root = os.path.abspath(root)
        self._calls = BlockingCalls(threads, name="disk")
        # Dicts for their order: what is still open is closed with the disk.
        self._files: dict[RealFile, None] = {}
        self._logs: dict[ThreadedLog, None] = {}
        self._replacing: dict[str, asyncio.Future[None]] = {}

    async def open(self, path: str, *, create: bool = False, truncate: bool = False) -> File:
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0) | (os.O_TRUNC if truncate else 0)
        full_path = self._full_path(path)
        opening = self._calls.start(os.open, full_path, flags, 0o640)
        try:
            fd = await asyncio.shield(opening)
        except asyncio.CancelledError:
            opening.add_done_callback(_close_unwanted)
            raise
        file = RealFile(path, fd, self._calls, self._files.pop)
        self._files[file] = None
        return file

    async def open_synced_log(
        self,
        path: str,
        *,
        on_synced: Callable[[int], None],
        on_failed: Callable[[OSError], None],
        limits: GroupLimits = DEFAULT_LIMITS,
        preallocate_bytes: int = 0,
        sync: bool = True,
    ) -> SyncedLog:
        def open_next(next_path: str, spare: str | None) -> LogFile:
            return LogFile(
                self._full_path(next_path),
                preallocate_bytes=preallocate_bytes,
                sync=sync,
                spare=None if spare is None else self._full_path(spare),
            )

        opening = self._calls.start(open_next, path, None)
        try:
            file = await asyncio.shield(opening)
        except asyncio.CancelledError:
            opening.add_done_callback(_abandon_unwanted)
            raise
        native = native_log.load() if sync and not limits.delay_max_ms else None
        begin = ThreadedLog if native is None else partial(native_log.NativeLog, native)
        log = begin(
            file,
            open_next=open_next,
            on_synced=on_synced,
            on_failed=on_failed,
            on_ended=self._logs.pop,
            limits=limits,
            name=f"log {os.path.dirname(path)}",
        )
        self._logs[log] = None
        return log

    async def read_file(self, path: str, *, bytes_max: int) -> bytes:
        return await self._calls.run(_read_file, self._full_path(path), bytes_max)

    async def replace_file(self, path: str, data: Buffer) -> None:
        full_path = self._full_path(path)
        while (other := self._replacing.get(full_path)) is not None:
            await asyncio.wait((other,))
        replacing = self._calls.start(_replace_file, full_path, data)
        self._replacing[full_path] = replacing
        replacing.add_done_callback(lambda _: self._replacing.pop(full_path))
        await asyncio.shield(replacing)

    async def rename(self, source: str, target: str) -> None:
        await self._calls.run(os.replace, self._full_path(source), self._full_path(target))

    async def remove(self, path: str) -> None:
        await self._calls.run(os.unlink, self._full_path(path))

    async def list(self, path: str) -> list[str]:
        return sorted(await self._calls.run(os.listdir, self._full_path(path)))

    async def exists(self, path: str) -> bool:
        return await self._calls.run(os.path.exists, self._full_path(path))

    async def file_size(self, path: str) -> int:
        return (await self._calls.run(os.stat, self._full_path(path))).st_size

    async def make_directory(self, path: str) -> None:
        await self._calls.run(_make_directory, self._full_path(path))

    async def remove_directory(self, path: str) -> None:
        await self._calls.run(_remove_directory, self._full_path(path))

    async def sync_directory(self, path: str) -> None:
        await self._calls.run(sync_directory, self._full_path(path))

    async def usage(self, path: str) -> DiskUsage:
        figures = await self._calls.run(os.statvfs, self._full_path(path))
        return DiskUsage(figures.f_blocks * figures.f_frsize, figures.f_bavail * figures.f_frsize)

    async def lock(self, path: str) -> DiskLock:
        locking = self._calls.start(_lock, self._full_path(path))
        try:
            return RealLock(await asyncio.shield(locking), self._calls)
        except asyncio.CancelledError:
            locking.add_done_callback(_close_unwanted)
            raise

    async def machine_life(self) -> str:
        return await self._calls.run(_machine_life)

    async def close(self) -> None:
        for log in list(self._logs):
            await log.close()
        for file in list(self._files):
            await file.close()
        await self._calls.close()

    def _full_path(self, path: str) -> str:
        return os.path.join(self._root, path)


class RealLock(DiskLock):
    """Held by the open descriptor: the kernel lets go of it with the process, however that ends."""

    def __init__(self, fd: int, calls: BlockingCalls) -> None:
        self._fd = fd
        self._calls = calls

    async def release(self) -> None:
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            await self._calls.run(_unlock, fd)


def _close_unwanted(opening: asyncio.Future[int]) -> None:
    """The task that asked was cancelled, and nobody else knows this descriptor."""
    if opening.exception() is None:
        os.close(opening.result())


def _abandon_unwanted(opening: asyncio.Future[LogFile]) -> None:
    if opening.exception() is None:
        opening.result().abandon()


def _read_file(path: str, bytes_max: int) -> bytes:
    with open(path, "rb", buffering=0) as file:
        if os.fstat(file.fileno()).st_size > bytes_max:
            raise OSError(errno.EFBIG, f"larger than {bytes_max} bytes", path)
        data = file.read()
    if len(data) > bytes_max:
        raise OSError(errno.EFBIG, f"larger than {bytes_max} bytes", path)
    return data


def _machine_life() -> str:
    """As Linux names it, anew at every boot; a container has its host's."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read(64).strip()
    except OSError:
        return ""


def _replace_file(path: str, data: Buffer) -> None:
    temporary = path + ".tmp"
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o640)
    try:
        write_fully(fd, (data,), 0)
        os.fsync(fd)
    finally:
        os.close(fd)
    os.replace(temporary, path)
    sync_directory(os.path.dirname(path))


def _make_directory(path: str) -> None:
    if os.path.isdir(path):
        return
    parent = os.path.dirname(path)
    _make_directory(parent)
    try:
        os.mkdir(path, 0o750)
    except FileExistsError:
        if not os.path.isdir(path):
            raise
    sync_directory(parent)


def _remove_directory(path: str) -> None:
    try:
        shutil.rmtree(path)
    except FileNotFoundError:
        if os.path.lexists(path):
            raise


def _lock(path: str) -> int:
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
    except BlockingIOError as error:
        holder = os.pread(fd, 32, 0).decode("ascii", "replace").strip() or "unknown"
        os.close(fd)
        raise DataDirectoryInUse(
            f"{os.path.dirname(path)} is in use by the process {holder}; stop it, or choose another data directory."
        ) from error
    except BaseException:
        os.close(fd)
        raise
    return fd


def _unlock(fd: int) -> None:
    try:
        os.ftruncate(fd, 0)
    finally:
        os.close(fd)
