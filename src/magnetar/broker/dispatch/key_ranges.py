# SPDX-License-Identifier: Apache-2.0
"""Who owns which part of the circle of key hashes: three ways to divide it among the consumers of Key_Shared.

Consistent hashing gives each consumer many small parts, so that one who comes or goes moves few keys of everyone; range
splitting halves the largest part; sticky consumers bring their own.

Invariant: parts never overlap; but for sticky ones they cover the whole circle while there is a consumer.
Decides.
"""

from abc import ABC, abstractmethod
from bisect import bisect_left, insort
from itertools import pairwise

from magnetar.broker.consumer import Consumer
from magnetar.broker.entry_facts import HASH_SLOTS
from magnetar.errors import ConsumerAssignRefused
from magnetar.wire.key_hash import murmur3_32

Ranges = dict[Consumer, list[tuple[int, int]]]


class KeyRanges(ABC):
    @abstractmethod
    def add(self, consumer: Consumer) -> None:
        """Raises ConsumerAssignRefused when its part cannot be given; then nothing changed."""

    @abstractmethod
    def remove(self, consumer: Consumer) -> None: ...

    @abstractmethod
    def consumer(self, slot: int) -> Consumer | None:
        """The owner of a hash; None when nobody is."""

    @abstractmethod
    def ranges(self) -> Ranges:
        """Each consumer's parts, both ends included, in order."""


class ConsistentHashing(KeyRanges):
    """Points of all consumers on the circle; a hash belongs to the first point at or after it."""

    def __init__(self, points_per_consumer: int) -> None:
        self._points_per_consumer = points_per_consumer
        self._points: list[int] = []
        # Consumers whose points fall together share the list; its first one owns the part.
        self._owners: dict[int, list[Consumer]] = {}
        self._places: dict[Consumer, list[int]] = {}
        self._numbers: dict[Consumer, int] = {}

    def add(self, consumer: Consumer) -> None:
        taken = {number for other, number in self._numbers.items() if other.name == consumer.name}
        number = next(free for free in range(len(taken) + 1) if free not in taken)
        self._numbers[consumer] = number
        places = self._places[consumer] = []
        for index in range(self._points_per_consumer):
            point = murmur3_32(f"{consumer.name}\0{number}\0{index}".encode()) % HASH_SLOTS
            if point in places:
                continue
            places.append(point)
            owners = self._owners.get(point)
            if owners is None:
                self._owners[point] = [consumer]
                insort(self._points, point)
            else:
                owners.append(consumer)

    def remove(self, consumer: Consumer) -> None:
        del self._numbers[consumer]
        for point in self._places.pop(consumer):
            owners = self._owners[point]
            owners.remove(consumer)
            if not owners:
                del self._owners[point]
                del self._points[bisect_left(self._points, point)]

    def consumer(self, slot: int) -> Consumer | None:
        points = self._points
        if not points:
            return None
        index = bisect_left(points, slot)
        return self._owners[points[index] if index < len(points) else points[0]][0]

    def ranges(self) -> Ranges:
        found: Ranges = {consumer: [] for consumer in self._places}
        start = 0
        for point in self._points:
            _extend(found[self._owners[point][0]], start, point)
            start = point + 1
        if self._points and start < HASH_SLOTS:
            _extend(found[self._owners[self._points[0]][0]], start, HASH_SLOTS - 1)
        return found


class RangeSplitting(KeyRanges):
    """One part per consumer: a newcomer takes the lower half of the largest, a leaver's part goes to its neighbour."""

    def __init__(self) -> None:
        # The last hash of each part, and who owns it; parts follow one another.
        self._ends: list[int] = []
        self._owners: list[Consumer] = []

    def add(self, consumer: Consumer) -> None:
        if not self._ends:
            self._ends.append(HASH_SLOTS - 1)
            self._owners.append(consumer)
            return
        index, start, end = self._largest()
        if start == end:
            raise ConsumerAssignRefused(f"All {HASH_SLOTS} hashes are given out already")
        self._ends.insert(index, start + (end - start) // 2)
        self._owners.insert(index, consumer)

    def remove(self, consumer: Consumer) -> None:
        index = self._owners.index(consumer)
        del self._owners[index]
        # Its part joins the next one; the last part joins the one before.
        del self._ends[index if index < len(self._ends) - 1 else index - 1 if index else 0]

    def consumer(self, slot: int) -> Consumer | None:
        return self._owners[bisect_left(self._ends, slot)] if self._owners else None

    def ranges(self) -> Ranges:
        found: Ranges = {}
        start = 0
        for end, owner in zip(self._ends, self._owners, strict=True):
            found[owner] = [(start, end)]
            start = end + 1
        return found

    def _largest(self) -> tuple[int, int, int]:
        parts = [(index, *self.ranges()[owner][0]) for index, owner in enumerate(self._owners)]
        return max(parts, key=lambda part: (part[2] - part[1], -part[0]))


class StickyRanges(KeyRanges):
    """Each consumer names its own parts; hashes that nobody named wait for someone who does."""

    def __init__(self) -> None:
        self._parts: list[tuple[int, int, Consumer]] = []
        self._starts: list[int] = []

    def add(self, consumer: Consumer) -> None:
        if not consumer.key_ranges:
            raise ConsumerAssignRefused("Ranges for KeyShared policy must not be empty.")
        own = sorted(consumer.key_ranges)
        taken = [(start, end) for start, end, _ in self._parts]
        for start, end in own:
            if not 0 <= start <= end < HASH_SLOTS:
                raise ConsumerAssignRefused(f"Range [{start}, {end}] is not within [0, {HASH_SLOTS - 1}].")
        for (start, end), (following, last) in pairwise(sorted(taken + own)):
            if following <= end:
                raise ConsumerAssignRefused(f"Range [{following}, {last}] overlaps with range [{start}, {end}].")
        self._parts += [(start, end, consumer) for start, end in own]
        self._sort()

    def remove(self, consumer: Consumer) -> None:
        self._parts = [part for part in self._parts if part[2] is not consumer]
        self._sort()

    def consumer(self, slot: int) -> Consumer | None:
        index = bisect_left(self._starts, slot + 1) - 1
        if index < 0:
            return None
        _, end, consumer = self._parts[index]
        return consumer if slot <= end else None

    def ranges(self) -> Ranges:
        found: Ranges = {}
        for start, end, consumer in self._parts:
            found.setdefault(consumer, []).append((start, end))
        return found

    def _sort(self) -> None:
        self._parts.sort(key=lambda part: part[0])
        self._starts = [part[0] for part in self._parts]


def _extend(parts: list[tuple[int, int]], start: int, end: int) -> None:
    if parts and parts[-1][1] == start - 1:
        parts[-1] = (parts[-1][0], end)
    else:
        parts.append((start, end))
