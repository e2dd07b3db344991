# SPDX-License-Identifier: Apache-2.0
"""Disk: the only way to files, directories and the threads that wait for them.

The real one (`real_disk.py`) owns the journal writer threads and a small pool for everything else; the simulated one
(`simulated_disk.py`) keeps pages in memory and can lose, tear and flip them. Paths are strings; a relative path is
relative to the disk's root. Every operation raises OSError as the system would; nothing is retried here.

Both pass the suite in tests/contracts/test_disk.py.
Decides.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

Buffer = bytes | bytearray | memoryview

PAGE_BYTES: Final = 4096
"""Whoever writes whole pages spares the system reading them first."""


class DiskUsage(NamedTuple):
    total_bytes: int
    free_bytes: int


class GroupLimits(NamedTuple):
    """When a synced log ends a group: whichever is reached first. A group also ends when the queue is empty."""

    bytes_max: int = 4 * 1024 * 1024
    buffers_max: int = 1024
    # How long a group may wait for company once its first buffer is taken; 0 syncs as soon as the queue is empty.
    delay_max_ms: float = 0.0


DEFAULT_LIMITS = GroupLimits()


class LogStats(NamedTuple):
    """What a synced log has done since it was opened."""

    groups: int
    synced_bytes: int
    sync_seconds: float
    # Why groups ended: they were full, they had waited long enough, or nothing more was queued.
    ended_full: int = 0
    ended_waiting: int = 0
    ended_empty: int = 0


class File(ABC):
    """One open file. Reads and writes may be issued concurrently; their order is the caller's business."""

    path: str

    @abstractmethod
    def size(self) -> int:
        """Bytes in the file, as this process has written them."""

    @abstractmethod
    async def read(self, offset: int, length: int) -> bytes:
        """Bytes from offset; shorter only at the end of the file."""

    @abstractmethod
    def at_hand(self, offset: int, length: int) -> bytes:
        """Those of them that can be had at once, from offset on; none where one must wait, or where `read` has to say
        what is wrong.
        """

    @abstractmethod
    async def write(self, offset: int, buffers: Sequence[Buffer], *, early: bool = False) -> None:
        """Write all the buffers one after another from offset, or raise.

        Early: the disk may begin with them at once, so that a later sync waits for less. A wish.
        """

    @abstractmethod
    async def sync(self) -> None:
        """Make what was written durable. After an error the file cannot be trusted: every later sync raises it too."""

    @abstractmethod
    async def let_go(self, offset: int, length: int) -> None:
        """What was synced of this need not be kept in memory. A wish: reads stay what they are."""

    @abstractmethod
    async def truncate(self, length: int) -> None: ...

    @abstractmethod
    async def close(self) -> None:
        """Wait for what is under way, then close; what comes after raises OSError(EBADF)."""


class SyncedLog(ABC):
    """A log file that groups what is appended, syncs each group, and says one number: how far.

    `append` never waits; its buffers must not change until they are synced. Positions count all bytes appended since
    the log was opened, across rolls. `on_synced(position)` runs on the loop, at most once per group, with a rising
    number: everything before it is durable, and so is the file's name. `on_failed(error)` runs once, after the last
    `on_synced`; from then on append raises that error. A failed write or sync is never tried again.

    A finished file (rolled or closed) ends with its last byte; after a crash a pre-allocated one can end in zeros, and
    one that was a spare in whatever the spare held.
    """

    @abstractmethod
    def append(self, buffers: Sequence[Buffer], length: int) -> int:
        """Queue buffers of `length` bytes together; returns the position after them."""

    @abstractmethod
    def roll(self, path: str, spare: str | None = None) -> None:
        """Finish the present file behind what is queued, and go on in a new one at path.

        The new one is the spare, if one is named and there: it gets the other name and is written over from its
        beginning. Every group in it is followed by zeros up to the end of a page; the next one begins among them.
        """

    @abstractmethod
    def queued_bytes(self) -> int:
        """Bytes appended and not yet synced: the caller's measure for back-pressure."""

    @abstractmethod
    def stats(self) -> LogStats: ...

    @abstractmethod
    async def close(self) -> None:
        """Write and sync what is queued, tell it, then end the writer; harmless after a failure or a second time."""


class DiskLock(ABC):
    @abstractmethod
    async def release(self) -> None: ...


class Disk(ABC):
    @abstractmethod
    async def open(self, path: str, *, create: bool = False, truncate: bool = False) -> File:
        """Open for reading and writing. With create a missing file is made; sync_directory makes its name durable."""

    @abstractmethod
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
        """Make a new file (FileExistsError if it is there) and the writer that owns it."""

    @abstractmethod
    async def read_file(self, path: str, *, bytes_max: int) -> bytes:
        """A whole small file; OSError(EFBIG) when it is larger than bytes_max."""

    @abstractmethod
    async def replace_file(self, path: str, data: Buffer) -> None:
        """Old or new, never between: temporary file, sync, rename, directory sync.

        A crash can leave `path.tmp` behind; the next replacement of the same path overwrites it.
        """

    @abstractmethod
    async def rename(self, source: str, target: str) -> None:
        """Replace target, if any, at once in view; durable after sync_directory of both directories."""

    @abstractmethod
    async def remove(self, path: str) -> None:
        """Remove a file's name; durable after sync_directory."""

    @abstractmethod
    async def list(self, path: str) -> list[str]:
        """Names in a directory, sorted."""

    @abstractmethod
    async def exists(self, path: str) -> bool: ...

    @abstractmethod
    async def file_size(self, path: str) -> int: ...

    @abstractmethod
    async def make_directory(self, path: str) -> None:
        """Make it and its parents, durably; nothing happens when it is there."""

    @abstractmethod
    async def remove_directory(self, path: str) -> None:
        """Remove a directory with all that is in it; nothing happens when it is absent."""

    @abstractmethod
    async def sync_directory(self, path: str) -> None: ...

    @abstractmethod
    async def usage(self, path: str) -> DiskUsage: ...

    @abstractmethod
    async def lock(self, path: str) -> DiskLock:
        """Hold a lock file for this process's life; DataDirectoryInUse when another process holds it."""

    @abstractmethod
    async def machine_life(self) -> str:
        """The name of the machine's present life: while it is the same, what was written is there, synced or not.

        Empty where lives have no names.
        """

    @abstractmethod
    async def close(self) -> None:
        """Close the logs and files that are still open, and end every thread."""
