# SPDX-License-Identifier: Apache-2.0
"""Whether adds wait for a sync, or came a moment ago, for those who let them go first.

Owns when somebody was last seen to add; the journals know the rest. Carries.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from magnetar.bookie.journal import Journal

# Whoever adds one at a time is back within this.
_RECENT_S: Final = 0.02


class AddsUnderWay:
    __slots__ = ("_journals", "_recent_until", "_seen_syncs", "_time")

    def __init__(self, journals: Sequence[Journal], time: Callable[[], float]) -> None:
        self._journals = journals
        self._time = time
        self._seen_syncs = 0
        self._recent_until = 0.0

    def are_waiting(self) -> bool:
        return any(journal.is_busy for journal in self._journals)

    def are_recent(self) -> bool:
        """Whether one waits now, or did since the last question or a moment ago."""
        syncs = self.syncs()
        if syncs != self._seen_syncs or self.are_waiting():
            self._seen_syncs = syncs
            self._recent_until = self._time() + _RECENT_S
            return True
        return self._time() < self._recent_until

    async def let_pass(self, limit_s: float) -> None:
        """Wait while adds wait for a sync: until it has ended, or for so long at most."""
        if not self.are_waiting():
            return
        loop = asyncio.get_running_loop()
        ended = loop.create_future()

        def end() -> None:
            if not ended.done():
                ended.set_result(None)

        timer = loop.call_later(limit_s, end)
        self.call_after_sync(end)
        try:
            await ended
        finally:
            timer.cancel()

    def syncs(self) -> int:
        return sum(journal.syncs for journal in self._journals)

    def call_after_sync(self, callback: Callable[[], None]) -> None:
        """Call back on the loop after the next sync for which somebody waits now; never when nobody does."""
        for journal in self._journals:
            if journal.is_busy:
                journal.after_sync.append(callback)
                return
