# SPDX-License-Identifier: Apache-2.0
"""Bookies to avoid for a while, because they failed too often within an interval.

With a ratio below 1 only that share of clients sets a bookie aside, so that they do not all leave it and come back
together. Never forbids: who chooses may fall back on the quarantined when no other is left. Time is passed in.
Decides.
"""

from collections.abc import Callable

from magnetar.config.ledger import PlacementSettings


class Quarantine:
    __slots__ = ("_chance", "_errors", "_settings", "_until_ms")

    def __init__(self, settings: PlacementSettings, chance: Callable[[], float]) -> None:
        self._settings = settings
        self._chance = chance
        # Bookie → (start of its interval, failures in it); bookie → end of its quarantine.
        self._errors: dict[str, tuple[float, int]] = {}
        self._until_ms: dict[str, float] = {}

    def on_failed(self, bookie: str, now_ms: float) -> None:
        if not self._settings.quarantine:
            return
        start_ms, errors = self._errors.get(bookie, (now_ms, 0))
        if now_ms - start_ms >= self._settings.quarantine_interval_ms:
            start_ms, errors = now_ms, 0
        errors += 1
        if errors <= self._settings.quarantine_errors_max:
            self._errors[bookie] = (start_ms, errors)
            return
        self._errors.pop(bookie, None)
        if bookie not in self.bookies(now_ms) and self._chance() < self._settings.quarantine_ratio:
            self._until_ms[bookie] = now_ms + self._settings.quarantine_ms

    def bookies(self, now_ms: float) -> list[str]:
        """Those set aside now."""
        over = [bookie for bookie, until_ms in self._until_ms.items() if until_ms <= now_ms]
        for bookie in over:
            del self._until_ms[bookie]
        return list(self._until_ms)

    def forget_absent(self, known: frozenset[str]) -> None:
        """Keep state only of bookies that exist: both tables stay as small as the cluster."""
        for table in (self._errors, self._until_ms):
            for bookie in [bookie for bookie in table if bookie not in known]:
                del table[bookie]
