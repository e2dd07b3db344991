# SPDX-License-Identifier: Apache-2.0
"""Space kept back for a start on a full disk: a file in each directory that is given up when nothing else is left.

Owns those files. What the journal holds must be written out before a bookie serves, and a disk that somebody filled to
the last byte has no room for it: without a reserve the bookie could not even serve reads. Never decides whether a
disk is full for clients: the disk watch does.
Carries.
"""

import logging
from collections.abc import Sequence
from typing import Final

from magnetar.config.bookie import BookieSettings
from magnetar.runtime.disk import Disk, DiskUsage

FILE_NAME: Final = "reserve"
_PIECE: Final = bytes(1024 * 1024)

_log = logging.getLogger(__name__)


class Reserve:
    def __init__(self, disk: Disk, settings: BookieSettings) -> None:
        self._disk = disk
        self._bytes = settings.disk_reserve_bytes
        self._usage_low = settings.disk_usage_low
        self._directories: Sequence[str] = list(
            dict.fromkeys((*settings.journal_directories, *settings.ledger_directories))
        )

    async def give_up(self) -> None:
        """Before a start: where less is free than the reserve was meant to keep, it is freed."""
        for directory in self._directories if self._bytes else ():
            path = f"{directory}/{FILE_NAME}"
            if (await self._disk.usage(directory)).free_bytes < self._bytes and await self._disk.exists(path):
                await self._disk.remove(path)
                _log.error("the disk of %s is full: its reserve is given up, so that this bookie can start", directory)

    async def usage(self, directory: str) -> DiskUsage:
        """How full a disk is; what is missing of the reserve is not free for entries."""
        usage = await self._disk.usage(directory)
        if not self._bytes or await self._disk.exists(f"{directory}/{FILE_NAME}"):
            return usage
        return usage._replace(free_bytes=max(0, usage.free_bytes - self._bytes))

    async def keep(self) -> None:
        """Take it where it is missing and there is plenty of room."""
        for directory in self._directories if self._bytes else ():
            path = f"{directory}/{FILE_NAME}"
            usage = await self.usage(directory)
            is_roomy = usage.free_bytes > (1 - self._usage_low) * usage.total_bytes
            if is_roomy and not await self._disk.exists(path):
                await self._fill(path)

    async def _fill(self, path: str) -> None:
        file = await self._disk.open(path, create=True, truncate=True)
        try:
            for offset in range(0, self._bytes, len(_PIECE)):
                await file.write(offset, (_PIECE[: self._bytes - offset],))
        except OSError as error:
            # Somebody was faster; entries do not depend on it.
            _log.warning("the reserve %s cannot be kept now: %s", path, error)
            await self._disk.remove(path)
        finally:
            await file.close()
