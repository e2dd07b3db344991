# SPDX-License-Identifier: Apache-2.0
"""How often entries were asked for again, for those that were: what clients see as the redelivery count.

Bounded: beyond `entries_max` the oldest positions lose their count, which costs a dead letter some more turns.
Decides.
"""

from collections.abc import Iterable
from types import MappingProxyType
from typing import Final, cast

from sortedcontainers import SortedDict

from magnetar.ids import Position

# What a dispatcher has whose entries nobody asked for again: a sorted dict of its own would be most of its memory.
_NONE: Final = cast("SortedDict[Position, int]", MappingProxyType({}))


class RedeliveryCounts:
    __slots__ = ("_counts", "_entries_max")

    def __init__(self, entries_max: int = 100_000) -> None:
        self._entries_max = entries_max
        self._counts = _NONE

    def __len__(self) -> int:
        return len(self._counts)

    def of(self, position: Position) -> int:
        count: int = self._counts.get(position, 0)
        return count

    def raise_all(self, positions: Iterable[Position]) -> None:
        if self._counts is _NONE:
            self._counts = SortedDict()
        counts = self._counts
        for position in positions:
            counts[position] = counts.get(position, 0) + 1
        while len(counts) > self._entries_max:
            counts.popitem(0)

    def forget(self, position: Position) -> None:
        if self._counts:
            self._counts.pop(position, None)

    def forget_through(self, position: Position) -> None:
        counts = self._counts
        while counts and counts.peekitem(0)[0] <= position:
            counts.popitem(0)

    def clear(self) -> None:
        self._counts = _NONE
