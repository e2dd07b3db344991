# SPDX-License-Identifier: Apache-2.0
"""When to run a full garbage collection: when the process has nothing better to do, or when memory has grown too far.

Told the time, the CPU share and the resident memory at each tick; answers yes or no. Never collects by itself.
Decides.
"""

from typing import Final

from magnetar.config.runtime import RuntimeSettings

# A process that used less than this share of a core since the last tick was idle.
IDLE_CPU_SHARE: Final = 0.05


class CollectionPolicy:
    """Owns when the last full collection was, and since when the process is idle."""

    __slots__ = ("_collected_at_s", "_growth_bytes", "_idle_s", "_idle_since_s", "_interval_s", "_mark_bytes")

    def __init__(self, settings: RuntimeSettings, now_s: float, resident_bytes: int) -> None:
        self._idle_s = settings.collect_idle_ms / 1000
        self._interval_s = settings.collect_interval_ms / 1000
        self._growth_bytes = settings.collect_growth_bytes
        self._idle_since_s: float | None = None
        self._collected_at_s = now_s
        self._mark_bytes = resident_bytes + settings.collect_growth_bytes

    def is_due(self, now_s: float, cpu_share: float, resident_bytes: int) -> bool:
        """Whether to collect now; the caller then reports with `on_collected`."""
        if cpu_share >= IDLE_CPU_SHARE:
            self._idle_since_s = None
        elif self._idle_since_s is None:
            self._idle_since_s = now_s
        if resident_bytes >= self._mark_bytes:
            return True
        is_idle = self._idle_since_s is not None and now_s - self._idle_since_s >= self._idle_s
        return is_idle and now_s - self._collected_at_s >= self._interval_s

    def on_collected(self, now_s: float, resident_bytes: int) -> None:
        self._collected_at_s = now_s
        # Counted from what is left, so that a heap that is simply large is not collected again and again.
        self._mark_bytes = resident_bytes + self._growth_bytes
