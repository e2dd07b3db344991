# SPDX-License-Identifier: Apache-2.0
"""A bookie's directories while it does not run: rebuild the index, read everything again.

Takes the same locks as a running bookie, so that the two never meet. A rebuilt index knows places, and neither keys nor
fences: its ledgers are in limbo afterwards, fenced, and never deny an entry.
Carries.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from magnetar.bookie.checkpoint import BOOTS_NOTE, CHECKPOINT_NOTE, DELETED_NOTE
from magnetar.bookie.entry_log import EntryLogs
from magnetar.bookie.ledger_directory import LedgerDirectory
from magnetar.bookie.losses import rebuild_index
from magnetar.bookie.opening import IndexFactory, current
from magnetar.bookie.scrubber import DamagedEntry, Scrubber
from magnetar.config.bookie import BookieSettings
from magnetar.errors import CannotStart, Damaged
from magnetar.runtime.disk import Disk

# What an index remembers beside ledgers and places, and the entry logs do not hold.
_KEPT_NOTES = (CHECKPOINT_NOTE, DELETED_NOTE, BOOTS_NOTE)


async def rebuild_indexes(disk: Disk, settings: BookieSettings, index_factory: IndexFactory) -> dict[str, int]:
    """Rebuild the index of each ledger directory from its entry logs; the entries found in each."""
    found: dict[str, int] = {}
    for path in settings.ledger_directories:
        async with _opened(disk, settings, path, index_factory) as directory:
            notes = {name: await directory.index.note(name) for name in _KEPT_NOTES}
            found[path] = await rebuild_index(directory)
            for name, value in notes.items():
                if value is not None:
                    await directory.index.put_note(name, value)
            await directory.index.sync()
    return found


async def check_directories(
    disk: Disk, settings: BookieSettings, index_factory: IndexFactory
) -> tuple[int, list[DamagedEntry]]:
    """Read every entry that an index names; how many, and those that are damaged."""
    damaged: list[DamagedEntry] = []
    checked = 0
    for path in settings.ledger_directories:
        async with _opened(disk, settings, path, index_factory) as directory:
            scrubber = Scrubber(directory, bytes_per_second_max=0)
            damaged += await scrubber.run()
            checked += scrubber.entries_checked
    return checked, damaged


@asynccontextmanager
async def _opened(
    disk: Disk, settings: BookieSettings, path: str, index_factory: IndexFactory
) -> AsyncIterator[LedgerDirectory]:
    if not await disk.exists(current(path)):
        raise CannotStart(f"{current(path)} does not exist: is this the data directory of a bookie?")
    lock = await disk.lock(f"{path}/lock")
    try:
        index_path = f"{current(path)}/index"
        await disk.make_directory(index_path)
        try:
            index = await index_factory(index_path)
        except Damaged:
            await disk.remove_directory(index_path)
            await disk.make_directory(index_path)
            index = await index_factory(index_path)
        directory = LedgerDirectory(current(path), await EntryLogs.open(disk, current(path), settings), index)
        try:
            yield directory
        finally:
            await directory.close(finish=False)
    finally:
        await lock.release()
