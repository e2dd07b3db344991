# SPDX-License-Identifier: Apache-2.0
"""Whether adds wait for a sync, for those who let them go first.

Owns nothing: the journals know. Decides.
"""

from collections.abc import Callable, Sequence

from magnetar.bookie.journal import Journal


class AddsUnderWay:
    __slots__ = ("_journals",)

    def __init__(self, journals: Sequence[Journal]) -> None:
        self._journals = journals

    def are_waiting(self) -> bool:
        return any(journal.is_busy for journal in self._journals)

    def syncs(self) -> int:
        return sum(journal.syncs for journal in self._journals)

    def call_after_sync(self, callback: Callable[[], None]) -> None:
        """Call back on the loop after the next sync for which somebody waits now; never when nobody does."""
        for journal in self._journals:
            if journal.is_busy:
                journal.after_sync.append(callback)
                return
