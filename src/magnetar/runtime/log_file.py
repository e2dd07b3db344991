# SPDX-License-Identifier: Apache-2.0
"""The file that a log's writer thread has open: grows ahead in steps, takes whole groups, syncs each.

Every call blocks, so only that thread makes them. It never retries a failed write or sync: after an error the file can
only be abandoned. Carries.
"""

import errno
import os
from collections.abc import Sequence
from typing import Protocol

from magnetar.runtime.disk import PAGE_BYTES, Buffer

_IOV_MAX = os.sysconf("SC_IOV_MAX")
# Write and sync in one system call: one wait for the interpreter lock less per group than write plus fdatasync.
_WRITE_AND_SYNC: int | None = getattr(os, "RWF_DSYNC", None)
_ZEROS = bytes(PAGE_BYTES)
_ENDLESS = 2**62
_NO_ROOM_AHEAD = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EOPNOTSUPP, errno.EINVAL))


class Groups(Protocol):
    """What is queued for a log; `native/_groups.pyx`."""

    def write_groups(self, fd: int, offset: int, until: int, fills_pages: bool, /) -> tuple[int, int]: ...


def _rename_spare(spare: str, path: str) -> None:
    # Nobody else makes names in the directory of a log.
    if os.path.lexists(path):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
    os.rename(spare, path)


def sync_directory(path: str) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def write_fully(fd: int, buffers: Sequence[Buffer], offset: int) -> int:
    """Write all the buffers from offset, in as many calls as it takes; returns the bytes written."""
    rest = [memoryview(buffer).cast("B") for buffer in buffers if len(buffer)]
    done = 0
    first = 0
    while first < len(rest):
        written = os.pwritev(fd, rest[first : first + _IOV_MAX], offset + done)
        if written == 0:
            raise OSError(errno.EIO, "the system wrote nothing and gave no reason")
        done += written
        while first < len(rest) and written >= len(rest[first]):
            written -= len(rest[first])
            first += 1
        if written:
            rest[first] = rest[first][written:]
    return done


class LogFile:
    __slots__ = ("_allocated", "_fd", "_fills_pages", "_path", "_preallocate_bytes", "_sync", "_written")

    def __init__(self, path: str, *, preallocate_bytes: int, sync: bool, spare: str | None = None) -> None:
        """A new file, or the spare, if it is there, under a new name; never a file that has this name already."""
        self._path = path
        self._preallocate_bytes = preallocate_bytes
        self._sync = sync
        self._written = 0
        if spare is not None and not os.path.lexists(spare):
            spare = None
        # Over bytes of an earlier life: a page that is written in part would be read first.
        self._fills_pages = spare is not None
        if spare is not None:
            _rename_spare(spare, path)
        self._fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT | os.O_EXCL if spare is None else 0), 0o640)
        try:
            self._allocated = os.fstat(self._fd).st_size
            if sync:
                sync_directory(os.path.dirname(path))
        except BaseException:
            self.abandon()
            raise

    def append(self, buffers: list[Buffer], length: int) -> None:
        """Write the buffers behind what is there, and sync them."""
        if self._written + length > self._allocated and self._preallocate_bytes:
            self._allocate(self._written + length)
        padding = -(self._written + length) % PAGE_BYTES if self._fills_pages else 0
        if padding:
            buffers = [*buffers, _ZEROS[:padding]]
        if len(buffers) > _IOV_MAX or self._append_at_once(buffers) != length + padding:
            self._append_in_parts(buffers, length + padding)
        self._written += length
        self._allocated = max(self._allocated, self._written + padding)

    def append_groups(self, pieces: Groups) -> int:
        """Write and sync what is queued, group by group, until there is something else to do; returns what."""
        until = self._allocated if self._preallocate_bytes else _ENDLESS
        why, self._written = pieces.write_groups(self._fd, self._written, until, self._fills_pages)
        written = -(-self._written // PAGE_BYTES) * PAGE_BYTES if self._fills_pages else self._written
        self._allocated = max(self._allocated, written)
        return why

    def finish(self) -> None:
        """Cut off what was allocated and not used, and close."""
        try:
            if self._allocated > self._written:
                os.ftruncate(self._fd, self._written)
        finally:
            self.abandon()

    def abandon(self) -> None:
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            os.close(fd)

    def _append_at_once(self, buffers: list[Buffer]) -> int:
        if not self._sync:
            return os.pwritev(self._fd, buffers, self._written)
        if _WRITE_AND_SYNC is not None:
            return os.pwritev(self._fd, buffers, self._written, _WRITE_AND_SYNC)
        written = os.pwritev(self._fd, buffers, self._written)
        os.fdatasync(self._fd)
        return written

    def _append_in_parts(self, buffers: list[Buffer], length: int) -> None:
        """For more buffers than one call takes, and after a short write: from the group's start, then one sync."""
        written = write_fully(self._fd, buffers, self._written)
        if written != length:
            raise ValueError(f"{written} bytes were appended to {self._path} as {length}")
        if self._sync:
            os.fdatasync(self._fd)

    def _allocate(self, end: int) -> None:
        step = self._preallocate_bytes
        target = -(-end // step) * step
        try:
            os.posix_fallocate(self._fd, self._allocated, target - self._allocated)
        except OSError as error:
            # Allocating ahead is a favour to later syncs. The write itself decides whether there is room.
            if error.errno not in _NO_ROOM_AHEAD:
                raise
            self._preallocate_bytes = 0
        self._allocated = target
