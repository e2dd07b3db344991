# SPDX-License-Identifier: Apache-2.0
"""Whether an earlier life of this bookie acknowledged without a sync, and the machine has ended since.

Owns the file that says so beside each journal (docs/formats/journal.md): there before the first such acknowledgement,
gone after a clean stop. A killed process loses nothing, because the machine keeps its pages; a machine that ended may
have lost any of them without a trace, entries and fences. Never says which.
Carries.
"""

from collections.abc import Sequence
from typing import Final

from magnetar.runtime.disk import Disk

FILE_NAME: Final = "unsynced"
_NAME_BYTES_MAX: Final = 256


class UnsyncedLives:
    def __init__(self, disk: Disk, directories: Sequence[str], *, syncs: bool) -> None:
        self._disk = disk
        self._directories = directories
        self._syncs = syncs

    async def losses(self) -> list[str]:
        """One sentence for each journal whose last records may be gone without a trace."""
        present = await self._disk.machine_life()
        return [
            f"the machine ended while the journal in {directory} was not synced (journal_sync is off): what was "
            "acknowledged last may be lost"
            for directory in self._directories
            if await self._disk.exists(f"{directory}/{FILE_NAME}") and await self._life_in(directory) != present
        ]

    async def begin(self) -> None:
        """What the journals held is safe elsewhere; say of this life, durably, whether it syncs."""
        if not self._syncs:
            present = (await self._disk.machine_life()).encode()
            for directory in self._directories:
                await self._disk.replace_file(f"{directory}/{FILE_NAME}", present)
        else:
            await self.end()

    async def end(self) -> None:
        """Everything that was acknowledged is safe elsewhere."""
        for directory in self._directories:
            path = f"{directory}/{FILE_NAME}"
            if await self._disk.exists(path):
                await self._disk.remove(path)
                await self._disk.sync_directory(directory)

    async def _life_in(self, directory: str) -> str | None:
        """None, which is never the present one, for a machine that has no name for its lives."""
        data = await self._disk.read_file(f"{directory}/{FILE_NAME}", bytes_max=_NAME_BYTES_MAX)
        return data.decode("ascii", "replace") or None
