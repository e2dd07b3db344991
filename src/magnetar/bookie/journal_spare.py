# SPDX-License-Identifier: Apache-2.0
"""The spare of one journal: a file whose blocks are all written, so that syncs of what is written over them are cheap.

Owns at most one such file and the way it is made: filled with zeros at a bounded rate, while the journal itself writes
more slowly than that, or an old journal that nobody needs any more. Takes little of the space that is free, and gives
up quietly when the disk does not let it: a journal goes on without. Never writes to a file that the journal has taken.
Carries.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from magnetar.config.bookie import BookieSettings
from magnetar.runtime.disk import Disk
from magnetar.runtime.tasks import Tasks

# A spare takes no more than this part of what is free: it must not be what fills a small disk.
_FREE_SHARE: Final = 16
_PIECE_BYTES: Final = 256 * 1024
_SUFFIX: Final = ".spare"

_log = logging.getLogger(__name__)


class JournalSpare:
    """Invariant: no name is used twice in a life, so a file that was taken is never met again."""

    __slots__ = (
        "_bytes_per_second_max",
        "_directory",
        "_disk",
        "_is_filling",
        "_is_renaming",
        "_made",
        "_path",
        "_position",
        "_tasks",
        "bytes",
    )

    def __init__(
        self, disk: Disk, directory: str, settings: BookieSettings, *, position: Callable[[], int],
        on_crash: Callable[[str, BaseException], None],
    ) -> None:  # fmt: skip
        """`position` says how much the journal has written in its life."""
        self._disk = disk
        self._directory = directory
        # Its size; 0: there is none. Without syncs nothing waits for the file system.
        self.bytes = min(settings.journal_spare_bytes, settings.journal_file_bytes_max) if settings.journal_sync else 0
        self._bytes_per_second_max = settings.journal_spare_bytes_per_second_max
        self._position = position
        self._tasks = Tasks(f"spare of {directory}", on_crash)
        self._made = 0
        self._is_filling = False
        self._is_renaming = False
        self._path: str | None = None

    @property
    def is_ready(self) -> bool:
        return self._path is not None

    def take(self) -> str | None:
        """The spare's path, from now on the caller's; None when there is none."""
        path, self._path = self._path, None
        return path

    def prepare(self) -> None:
        """See to it that there is a spare before long."""
        if self.bytes and not self._is_filling and self._path is None and not self._tasks.is_closed:
            self._is_filling = True
            self._tasks.start(self._fill(), "filling")

    async def offer(self, path: str) -> bool:
        """Make this file the spare, if one is wanted and it is large enough. False: it is still the caller's."""
        if not self.bytes or self._is_renaming or self._path is not None or self._tasks.is_closed:
            return False
        self._is_renaming = True
        try:
            if await self._disk.file_size(path) < self.bytes or not await self._has_room():
                return False
            spare = self._next_path()
            await self._disk.rename(path, spare)
            self._path = spare
            return True
        finally:
            self._is_renaming = False

    async def clear(self) -> None:
        """Remove what an earlier life has left."""
        for name in await self._disk.list(self._directory):
            if name.endswith(_SUFFIX):
                await self._disk.remove(f"{self._directory}/{name}")

    async def close(self) -> None:
        await self._tasks.close()
        self._path = None
        with suppress(OSError):
            await self.clear()

    def _next_path(self) -> str:
        self._made += 1
        return f"{self._directory}/{self._made:x}{_SUFFIX}"

    async def _has_room(self) -> bool:
        return self.bytes <= (await self._disk.usage(self._directory)).free_bytes // _FREE_SHARE

    async def _fill(self) -> None:
        path = self._next_path()
        try:
            if not await self._has_room():
                return
            await self._write_zeros(path)
            if self._is_wanted():
                self._path = path
            else:
                await self._disk.remove(path)
        except OSError as error:
            _log.warning("%s was not made, and the journal does without: %s", path, error)
            with suppress(OSError):
                await self._disk.remove(path)
        finally:
            self._is_filling = False

    def _is_wanted(self) -> bool:
        """An old journal may have become the spare while zeros were written: under a load that leaves them no time."""
        return self._path is None and not self._is_renaming

    async def _write_zeros(self, path: str) -> None:
        zeros = bytes(min(_PIECE_BYTES, self.bytes))
        file = await self._disk.open(path, create=True, truncate=True)
        try:
            for offset in range(0, self.bytes, len(zeros)):
                if not self._is_wanted():
                    break
                await file.write(offset, (zeros[: self.bytes - offset],))
                # Piece by piece: a sync of the journal may wait for one of them, never for all.
                await file.sync()
                await self._pause(len(zeros))
        finally:
            await file.close()

    async def _pause(self, written: int) -> None:
        """As long as the rate asks for, and until the journal writes no faster than that: it would not wait for us."""
        is_busy = True
        while is_busy and self._is_wanted():
            before = self._position()
            await asyncio.sleep(written / self._bytes_per_second_max)
            is_busy = self._position() - before > written
