# SPDX-License-Identifier: Apache-2.0
"""When a bookie goes read-only for lack of space, and when it comes back.

Owns the two marks: above the high one adds are refused, and only below the low one everywhere are they taken again, so
that a bookie at the mark does not flap.
Decides.
"""

from collections.abc import Iterable

from magnetar.runtime.disk import DiskUsage


class DiskWatch:
    __slots__ = ("_usage_low", "_usage_max", "is_full")

    def __init__(self, *, usage_max: float, usage_low: float) -> None:
        self._usage_max = usage_max
        self._usage_low = min(usage_low, usage_max)
        self.is_full = False

    def on_usage(self, usages: Iterable[DiskUsage]) -> bool:
        """What every directory's disk says now; returns whether the bookie has to be read-only."""
        share = max((used_share(usage) for usage in usages), default=0.0)
        if share >= self._usage_max:
            self.is_full = True
        elif share < self._usage_low or self._usage_low == self._usage_max:
            self.is_full = False
        return self.is_full


def used_share(usage: DiskUsage) -> float:
    return 1.0 - usage.free_bytes / usage.total_bytes if usage.total_bytes else 1.0
