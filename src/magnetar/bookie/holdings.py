# SPDX-License-Identifier: Apache-2.0
"""What a bookie holds, for people and for `fsck`: its files by kind, its ledgers with the number of their entries.

Carries.
"""

from collections.abc import Mapping, Sequence

from magnetar.bookie.entry_log_format import log_name
from magnetar.bookie.entry_reader import EntryReader
from magnetar.bookie.journal import Journal
from magnetar.bookie.ledger_directory import LedgerDirectory
from magnetar.bookie.ledger_state import LedgerState
from magnetar.bookie.write_cache import WriteCaches
from magnetar.runtime.disk import Disk


class Holdings:
    def __init__(
        self,
        disk: Disk,
        journals: Sequence[Journal],
        directories: Sequence[LedgerDirectory],
        states: Mapping[int, LedgerState],
        caches: WriteCaches,
        reader: EntryReader,
    ) -> None:
        self._disk = disk
        self._journals = journals
        self._directories = directories
        self._states = states
        self._caches = caches
        self._reader = reader

    async def files(self) -> dict[str, list[str]]:
        """The names of the files that hold entries, by what they are."""
        found: dict[str, list[str]] = {"journal": [], "entrylog": [], "index": []}
        for journal in self._journals:
            found["journal"] += [name for name in await self._disk.list(journal.directory) if name.endswith(".txn")]
        for directory in self._directories:
            found["entrylog"] += [log_name(log_id) for log_id in directory.logs.log_ids()]
            found["index"] += await self._disk.list(f"{directory.path}/index")
        return found

    async def ledgers(self, after: int, count_max: int) -> dict[int, int]:
        """Ledgers here with an id above this one, rising, with the number of their entries; a page of them."""
        ids = dict.fromkeys((*self._states, *self._caches.ledger_ids()))
        for directory in self._directories:
            ids |= dict.fromkeys(await directory.index.ledger_ids())
        page = sorted(ledger_id for ledger_id in ids if ledger_id > after)[:count_max]
        return {ledger_id: len(await self._reader.entry_ids(ledger_id)) for ledger_id in page}
