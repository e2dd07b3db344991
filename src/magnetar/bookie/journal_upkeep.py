# SPDX-License-Identifier: Apache-2.0
"""What is done about the journals from time to time: pages written where nobody syncs, and a look whether syncs return.

Owns the rule of when a journal stands still: the same piece is the oldest that waits at so many looks in a row. Looks
are counted and not seconds, so that a process that stood still itself accuses nobody when it goes on. Such a journal
fails, as after a failed sync: whoever waits is refused, and the role ends.
Carries.
"""

import asyncio
from collections.abc import Sequence
from typing import Final

from magnetar.bookie.journal import Journal
from magnetar.config.bookie import BookieSettings
from magnetar.runtime.tasks import Tasks

_LOOKS: Final = 6


class JournalUpkeep:
    def __init__(self, journals: Sequence[Journal], settings: BookieSettings) -> None:
        self._journals = journals
        self._syncs = settings.journal_sync
        self._page_flush_interval_s = settings.journal_page_flush_interval_ms / 1000
        self._stall_max_s = settings.journal_stall_max_ms / 1000
        # By journal: the piece that was the oldest at the last look, and at how many looks before it.
        self._seen: dict[str, tuple[int, int]] = {}

    def start(self, tasks: Tasks) -> None:
        if not self._syncs:
            tasks.start(self._flush_pages(), "journal pages")
        if self._stall_max_s:
            tasks.start(self._watch(), "journal watch")

    async def _flush_pages(self) -> None:
        while True:
            await asyncio.sleep(self._page_flush_interval_s)
            for journal in self._journals:
                await journal.flush_pages()

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(self._stall_max_s / _LOOKS)
            for journal in self._journals:
                self._look(journal)

    def _look(self, journal: Journal) -> None:
        oldest = journal.oldest_waiting
        if oldest is None:
            self._seen.pop(journal.directory, None)
            return
        before, looks = self._seen.get(journal.directory, (-1, 0))
        looks = looks + 1 if oldest == before else 0
        self._seen[journal.directory] = (oldest, looks)
        if looks == _LOOKS:
            journal.give_up(f"a write or sync has not returned for {self._stall_max_s:g} s")
