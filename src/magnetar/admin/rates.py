# SPDX-License-Identifier: Apache-2.0
"""Rates out of counters: what changed between the last two looks, by time.

Owns one look at every topic, producer, subscription and consumer that is loaded. Whoever was there at one look only
has no rate yet.
Decides.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple


class Rate(NamedTuple):
    """Per second."""

    messages_per_s: float = 0.0
    bytes_per_s: float = 0.0
    redelivered_per_s: float = 0.0
    acked_per_s: float = 0.0
    expired_per_s: float = 0.0
    chunks_per_s: float = 0.0
    dropped_per_s: float = 0.0


class Counted(NamedTuple):
    """Someone who counts, by identity, and what was counted so far, in the order of Rate."""

    who: object
    messages: int
    bytes: int
    redelivered: int = 0
    acked: int = 0
    expired: int = 0
    chunks: int = 0
    dropped: int = 0


NO_RATE = Rate()


class Rates:
    __slots__ = ("_counts", "_looked_ms", "_rates")

    def __init__(self) -> None:
        self._counts: dict[int, Counted] = {}
        self._rates: dict[int, tuple[object, Rate]] = {}
        self._looked_ms = 0

    def of(self, who: object) -> Rate:
        found = self._rates.get(id(who))
        # An id may be used again; the object itself is kept as long as its id is.
        return found[1] if found is not None and found[0] is who else NO_RATE

    def look(self, counted: Iterable[Counted], now_ms: int) -> None:
        """Take the next look; rates are those since the one before."""
        for _ in self.looking(counted, now_ms):
            pass

    def looking(self, counted: Iterable[Counted], now_ms: int) -> Iterator[None]:
        """The same step by step; what was known holds until the last step."""
        elapsed_s = (now_ms - self._looked_ms) / 1000
        counts: dict[int, Counted] = {}
        rates: dict[int, tuple[object, Rate]] = {}
        for each in counted:
            key = id(each.who)
            counts[key] = each
            last = self._counts.get(key)
            if last is not None and last.who is each.who and elapsed_s > 0 and each[1:] != last[1:]:
                # A counter that fell was started anew: it has no rate until the next look.
                per_s = (max(0, now - then) / elapsed_s for now, then in zip(each[1:], last[1:], strict=True))
                rates[key] = (each.who, Rate(*per_s))
            yield
        self._counts, self._rates, self._looked_ms = counts, rates, now_ms
