# SPDX-License-Identifier: Apache-2.0
"""Which entry logs may go, and which are worth compacting.

Owns, for each log that is complete, how many bytes each ledger has in it and how many it had at first. A log without a
living ledger may go whole; one with little left is rewritten. Counts only: what the index says about a single entry
decides at compaction.
Decides.
"""

from collections.abc import Iterable, Mapping


class Garbage:
    """Invariant: a ledger told as gone has no bytes in any log; a log's living bytes never exceed its first sum."""

    __slots__ = ("_damaged", "_living", "_total")

    def __init__(self) -> None:
        self._living: dict[int, dict[int, int]] = {}
        self._total: dict[int, int] = {}
        # Logs that could not be read to their end: never removed, never tried again before a restart.
        self._damaged: dict[int, None] = {}

    def on_log(self, log_id: int, bytes_by_ledger: Mapping[int, int], *, is_alive: Iterable[int]) -> None:
        """A complete log, and those of all ledgers that are alive."""
        alive = frozenset(is_alive)
        self._total[log_id] = sum(bytes_by_ledger.values())
        self._living[log_id] = {ledger_id: size for ledger_id, size in bytes_by_ledger.items() if ledger_id in alive}

    def on_ledger_gone(self, ledger_id: int) -> None:
        for living in self._living.values():
            living.pop(ledger_id, None)

    def on_log_removed(self, log_id: int) -> None:
        self._living.pop(log_id, None)
        self._total.pop(log_id, None)

    def on_log_damaged(self, log_id: int) -> None:
        self._damaged[log_id] = None

    def unknown(self, log_ids: Iterable[int]) -> list[int]:
        """Which of these logs have not been told of."""
        return [log_id for log_id in log_ids if log_id not in self._living and log_id not in self._damaged]

    def living_share(self, log_id: int) -> float:
        total = self._total[log_id]
        return sum(self._living[log_id].values()) / total if total else 0.0

    def removable(self) -> list[int]:
        """Logs in which nothing is alive."""
        return [log_id for log_id in sorted(self._living) if not self._living[log_id] and log_id not in self._damaged]

    def compactable(self, share_max: float) -> list[int]:
        """Logs with something, but less than this share, alive; the emptiest first, because they free the most."""
        found = [
            (self.living_share(log_id), log_id)
            for log_id, living in self._living.items()
            if living and log_id not in self._damaged
        ]
        return [log_id for share, log_id in sorted(found) if share < share_max]

    def damaged(self) -> list[int]:
        return sorted(self._damaged)
