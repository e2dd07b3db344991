# SPDX-License-Identifier: Apache-2.0
"""The simulated disk: files in memory that can be lost, torn, flipped, slow or full.

Without faults it is a disk in memory, for fixtures; it runs on any loop, with timers and futures only. `kernel` is the
handle for tests: faults, kill, power loss, damage, and what is durable.

    disk = SimulatedDisk(random)
    disk.kernel.faults.sync_latency = Latency(1.0, 2.0)
    ...
    disk.kernel.lose_power()        # what was open is dead; the same disk is then opened by the next process

Carries.
"""

import asyncio
import errno
from collections.abc import Callable
from random import Random

from magnetar.errors import DataDirectoryInUse
from magnetar.runtime.disk import (
    DEFAULT_LIMITS,
    Buffer,
    Disk,
    DiskLock,
    DiskUsage,
    File,
    GroupLimits,
    SyncedLog,
)
from magnetar.runtime.simulated_faults import Call, DiskFaults
from magnetar.runtime.simulated_file import Process, SimulatedFile
from magnetar.runtime.simulated_kernel import SimulatedKernel
from magnetar.runtime.simulated_log import SimulatedLog
from magnetar.runtime.simulated_names import Directory, split_path
from magnetar.runtime.simulated_pages import Pages


class SimulatedDisk(Disk):
    def __init__(
        self,
        random: Random | None = None,
        *,
        faults: DiskFaults | None = None,
        capacity_bytes: int = 1 << 40,
    ) -> None:
        self.kernel = SimulatedKernel(random or Random(0), faults or DiskFaults(), capacity_bytes)
        self._logs: list[SimulatedLog] = []
        # By generation too: the replacement of a dead process never ends, and nobody waits for it.
        self._replacing: dict[tuple[int, str], asyncio.Future[None]] = {}

    @property
    def is_busy(self) -> bool:
        """Whether something that was asked for has not happened yet."""
        return any(log.queued_bytes() > 0 and not log.has_ended() for log in self._logs)

    async def open(self, path: str, *, create: bool = False, truncate: bool = False) -> File:
        await self._call(Call.NAME, path)
        if self.kernel.names.find(path) is None and create:
            self.kernel.create(path)
        pages = self.kernel.names.file(path)
        if truncate and len(pages):
            self.kernel.resize(pages, 0)
        return SimulatedFile(path, pages, self.kernel)

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
        await self._call(Call.NAME, path)
        if self.kernel.names.find(path) is not None:
            raise FileExistsError(errno.EEXIST, "the file exists", path)
        pages = self.kernel.create(path)
        if sync:
            await self.sync_directory(_parent(path))
        log = SimulatedLog(
            path,
            pages,
            self.kernel,
            on_synced=on_synced,
            on_failed=on_failed,
            limits=limits,
            preallocate_bytes=preallocate_bytes,
            sync=sync,
        )
        self._logs = [other for other in self._logs if not other.has_ended()]
        self._logs.append(log)
        return log

    async def read_file(self, path: str, *, bytes_max: int) -> bytes:
        await self._call(Call.READ, path)
        content = bytes(self.kernel.names.file(path).visible)
        if len(content) > bytes_max:
            raise OSError(errno.EFBIG, f"larger than {bytes_max} bytes", path)
        return content

    async def replace_file(self, path: str, data: Buffer) -> None:
        temporary = path + ".tmp"
        key = (self.kernel.generation, path)
        while (other := self._replacing.get(key)) is not None:
            await asyncio.wait((other,))
        replacing: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._replacing[key] = replacing
        try:
            file = await self.open(temporary, create=True, truncate=True)
            await file.write(0, (data,))
            await file.sync()
            await self.rename(temporary, path)
            await self.sync_directory(_parent(path))
        finally:
            del self._replacing[key]
            replacing.set_result(None)

    async def rename(self, source: str, target: str) -> None:
        await self._call(Call.NAME, target)
        self.kernel.rename(source, target)

    async def remove(self, path: str) -> None:
        await self._call(Call.NAME, path)
        self.kernel.remove(path)

    async def list(self, path: str) -> list[str]:
        await self._call(Call.NAME, path)
        return sorted(self.kernel.names.directory(path).visible)

    async def exists(self, path: str) -> bool:
        await self._call(Call.NAME, path)
        return self.kernel.names.find(path) is not None

    async def file_size(self, path: str) -> int:
        await self._call(Call.NAME, path)
        return len(self.kernel.names.file(path))

    async def make_directory(self, path: str) -> None:
        parts = split_path(path)
        for count in range(1, len(parts) + 1):
            part = "/".join(parts[:count])
            await self._call(Call.NAME, part)
            node = self.kernel.names.find(part)
            if node is None:
                self.kernel.names.add(part, Directory())
            elif isinstance(node, Pages):
                raise FileExistsError(errno.EEXIST, "a file is there", part)
            if not self.kernel.names.is_durable(part):
                await self.sync_directory(_parent(part))

    async def remove_directory(self, path: str) -> None:
        await self._call(Call.NAME, path)
        if self.kernel.names.find(path) is not None:
            self.kernel.remove_tree(path)

    async def sync_directory(self, path: str) -> None:
        await self._call(Call.SYNC_DIRECTORY, path)
        self.kernel.names.sync(path)

    async def usage(self, path: str) -> DiskUsage:
        await self._call(Call.NAME, path)
        if self.kernel.names.find(path) is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        return DiskUsage(self.kernel.capacity_bytes, self.kernel.free_bytes())

    async def lock(self, path: str) -> DiskLock:
        await self._call(Call.NAME, path)
        if path in self.kernel.locks:
            raise DataDirectoryInUse(
                f"{_parent(path) or '.'} is in use by another process; stop it, or choose another data directory."
            )
        if self.kernel.names.find(path) is None:
            self.kernel.create(path)
        self.kernel.locks[path] = self.kernel.generation
        return SimulatedLock(path, self.kernel)

    async def machine_life(self) -> str:
        return str(self.kernel.machine_life)

    async def close(self) -> None:
        logs, self._logs = self._logs, []
        for log in logs:
            await log.close()

    async def _call(self, call: Call, path: str) -> None:
        await Process(self.kernel).call(call, path)


class SimulatedLock(DiskLock):
    def __init__(self, path: str, kernel: SimulatedKernel) -> None:
        self._path = path
        self._kernel = kernel
        self._process = Process(kernel)
        self._held = True

    async def release(self) -> None:
        if self._held and not self._process.is_dead():
            del self._kernel.locks[self._path]
        self._held = False


def _parent(path: str) -> str:
    return path.rpartition("/")[0]
