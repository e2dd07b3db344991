# SPDX-License-Identifier: Apache-2.0
"""An archive's directory: its log, its staged files and the way from there to where they belong.

A file becomes visible in two steps: the log's record decides that it belongs to the archive, then it is moved. Whoever
comes next moves what a crash left unmoved; files that no record names are never visible.
Carries.
"""

import asyncio
import re
from collections.abc import Coroutine, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from magnetar.errors import BadSetting, CannotStart, DamagedRecord, DataDirectoryInUse
from magnetar.runtime.loop_thread import LoopThread
from magnetar.runtime.real_disk import RealDisk
from magnetar.spark.archive.record import RECORD_BYTES_MAX, ArchiveRecord, check_chain, record_number

# Readers of Parquet directories pass over names that begin so.
LOG: Final = "_magnetar"
STAGING: Final = "_staging"
LOCK: Final = f"{LOG}/lock"
DAY: Final = "__day"
_PLACED: Final = re.compile(r"\d{8}-\d{5}\.parquet")

Result = TypeVar("Result")


def local_path(path: str) -> str:
    """Raises BadSetting for what is no directory that this machine can reach as one."""
    plain = path.removeprefix("file://")
    if "://" in plain or not plain:
        raise BadSetting(f"the archive {path!r} should be a directory: a local one, or a mounted one")
    return str(Path(plain).absolute())


async def read_log(disk: RealDisk, topic: str | None) -> list[ArchiveRecord]:
    """All records, checked to follow each other and to know every file that is in place. Raises DamagedRecord."""
    # Looked at first: an archiver at work puts the record before the file.
    last_file = await _last_in_place(disk)
    names = [name for name in await disk.list(LOG) if name.endswith(".json")] if await disk.exists(LOG) else []
    found = [
        ArchiveRecord.decode(await disk.read_file(f"{LOG}/{name}", bytes_max=RECORD_BYTES_MAX), name) for name in names
    ]
    check_chain(found, topic)
    if last_file >= record_number(len(found)):
        raise DamagedRecord(f"{last_file}: the archive has this file, and its log has no record {last_file[:8]}")
    return found


async def _last_in_place(disk: RealDisk) -> str:
    """The name that comes last, which is a file of the last record that has any; empty where there is none."""
    days = [name for name in await disk.list(".") if name.startswith(f"{DAY}=")] if await disk.exists(".") else []
    return max([name for day in days for name in await disk.list(day) if _PLACED.fullmatch(name)], default="")


def log_of(path: str, topic: str | None = None) -> list[ArchiveRecord]:
    """The log of an archive that others may write at the same time."""

    async def read() -> list[ArchiveRecord]:
        disk = RealDisk(local_path(path))
        try:
            return await read_log(disk, topic)
        finally:
            await disk.close()

    return asyncio.run(read())


class ArchiveDirectory:
    """Held by one archiver at a time, from `with` to its end."""

    def __init__(self, path: str) -> None:
        self.path = local_path(path)
        self._thread = LoopThread("archive")
        self._disk = RealDisk(self.path)

    def _run(self, coroutine: Coroutine[Any, Any, Result]) -> Result:
        return self._thread.run(coroutine)

    def __enter__(self) -> Self:
        try:
            self._run(self._disk.make_directory(LOG))
            self._lock = self._run(self._disk.lock(LOCK))
        except DataDirectoryInUse:
            self._close()
            raise CannotStart(f"Another archiver is at work in {self.path}; wait for it") from None
        except OSError as error:
            self._close()
            raise CannotStart(f"The archive {self.path} cannot be used: {error.strerror}") from None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._run(self._lock.release())
        self._close()

    def _close(self) -> None:
        self._run(self._disk.close())
        self._thread.close()

    def records(self, topic: str) -> list[ArchiveRecord]:
        return self._run(read_log(self._disk, topic))

    def staging_of(self, sequence: int) -> str:
        return f"{STAGING}/{sequence:08d}"

    def staged(self, sequence: int) -> list[str]:
        """Staged files, durable from then on; sorted."""
        return self._run(self._staged(self.staging_of(sequence)))

    async def _staged(self, staging: str) -> list[str]:
        found = []
        for day in await self._disk.list(staging):
            if not day.startswith(f"{DAY}="):
                continue
            names = await self._disk.list(f"{staging}/{day}")
            found += [f"{staging}/{day}/{name}" for name in names if name.endswith(".parquet")]
            await self._disk.sync_directory(f"{staging}/{day}")
        for path in found:
            file = await self._disk.open(path)
            try:
                await file.sync()
            finally:
                await file.close()
        return found

    def decide(self, record: ArchiveRecord) -> None:
        """From here on the record's files are the archive's."""
        self._run(self._disk.replace_file(f"{LOG}/{record.name}", record.encode()))

    def publish(self, record: ArchiveRecord) -> None:
        """Move a record's files to their places; those that are there already stay."""
        self._run(self._publish(record))

    async def _publish(self, record: ArchiveRecord) -> None:
        folders: dict[str, None] = {}
        for one in record.files:
            folder = one.path.rpartition("/")[0]
            if folder not in folders:
                await self._disk.make_directory(folder)
                folders[folder] = None
            if await self._disk.exists(one.staged):
                await self._disk.rename(one.staged, one.path)
            elif not await self._disk.exists(one.path):
                raise DamagedRecord(f"{one.path}: the archive's log names this file, and it is not there")
        for folder in folders:
            await self._disk.sync_directory(folder)

    def forget_staged(self) -> None:
        self._run(self._disk.remove_directory(STAGING))


def places(record: Sequence[ArchiveRecord]) -> list[tuple[str, str]]:
    """Of every file: where it belongs, and where it is if it was not moved yet."""
    return [(file.path, file.staged) for one in record for file in one.files]
