# SPDX-License-Identifier: Apache-2.0
"""When the next message is due, at a rate; and how late everything was, as percentiles.

Latencies are counted from the moment a message was due, not from when it could be sent: who falls behind its schedule
shows it. That is what is meant by without coordinated omission.
Decides.
"""

from typing import Final

# Between two powers of two there are so many buckets: a value is known to half a percent.
_STEPS_BITS: Final = 7
_STEPS: Final = 1 << _STEPS_BITS


class Pace:
    """The schedule of a rate that starts at a time. A rate of zero has none: everything is due at once."""

    __slots__ = ("_interval_s", "_sent", "_start_s")

    def __init__(self, rate: float, start_s: float) -> None:
        self._interval_s = 1 / rate if rate > 0 else 0.0
        self._start_s = start_s
        self._sent = 0

    def next_due_s(self, now_s: float) -> float:
        """When the next one is due; without a rate that is now."""
        if not self._interval_s:
            return now_s
        due_s = self._start_s + self._sent * self._interval_s
        self._sent += 1
        return due_s


class Latencies:
    """A histogram of bounded size for any number of latencies: log-linear, in microseconds."""

    __slots__ = ("_counts", "count", "max_us", "sum_us")

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}
        self.count = 0
        self.sum_us = 0
        self.max_us = 0

    def add(self, microseconds: int) -> None:
        value = max(microseconds, 0)
        bucket = _bucket(value)
        self._counts[bucket] = self._counts.get(bucket, 0) + 1
        self.count += 1
        self.sum_us += value
        self.max_us = max(self.max_us, value)

    def merge(self, other: "Latencies") -> None:
        for bucket, count in other._counts.items():
            self._counts[bucket] = self._counts.get(bucket, 0) + count
        self.count += other.count
        self.sum_us += other.sum_us
        self.max_us = max(self.max_us, other.max_us)

    def percentile_us(self, percent: float) -> int:
        """At least so many percent are not above this; zero when there are none."""
        wanted = self.count * percent / 100
        seen = 0
        for bucket in sorted(self._counts):
            seen += self._counts[bucket]
            if seen >= wanted:
                return min(_upper_us(bucket), self.max_us)
        return self.max_us

    @property
    def mean_us(self) -> float:
        return self.sum_us / self.count if self.count else 0.0


def _bucket(value: int) -> int:
    """Values below the number of steps have a bucket each; above, each doubling has so many."""
    if value < _STEPS:
        return value
    shift = value.bit_length() - _STEPS_BITS - 1
    return (shift + 1) * _STEPS + (value >> shift) - _STEPS


def _upper_us(bucket: int) -> int:
    if bucket < _STEPS:
        return bucket
    shift = bucket // _STEPS - 1
    return ((bucket % _STEPS + _STEPS + 1) << shift) - 1
