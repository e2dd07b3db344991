# SPDX-License-Identifier: Apache-2.0
"""How bytes travel between hosts: delay, tail, bandwidth, chunk sizes, and which ways are closed.

A way is a directed pair of host names. Closing one way is a partition in one direction: what is under way waits, as TCP
would send it again, and arrives after the way opens. Slowing one is a clog.
"""

from dataclasses import dataclass
from random import Random

Way = tuple[str, str]


@dataclass(slots=True)
class LinkSettings:
    least_ms: float = 0.2
    tail_ms: float = 0.3
    bytes_per_s: float = 100e6
    # Bytes that may be under way or unread before the sender has to keep the rest.
    window_bytes: int = 128 * 1024
    # Chance that a piece of a stream is cut at a random place, and that a reader gets no more than one piece at a time:
    # together they make frames arrive split.
    split_chance: float = 0.2
    connect_patience_s: float = 20.0


class Links:
    def __init__(self, random: Random, settings: LinkSettings) -> None:
        self.settings = settings
        self._random = random
        self._closed: dict[Way, None] = {}
        self._clogged_until: dict[Way, float] = {}
        self._free_at: dict[Way, float] = {}

    def is_open(self, way: Way) -> bool:
        return way not in self._closed

    def close(self, way: Way) -> None:
        self._closed[way] = None

    def open(self, way: Way) -> None:
        self._closed.pop(way, None)

    def closed(self) -> list[Way]:
        return list(self._closed)

    def clog(self, way: Way, until_s: float) -> None:
        self._clogged_until[way] = max(until_s, self._clogged_until.get(way, 0.0))

    def unclog(self) -> None:
        self._clogged_until.clear()

    def arrival(self, way: Way, now: float, length: int) -> float:
        """When a piece that is sent now is there."""
        settings = self.settings
        if way[0] == way[1]:
            return now + 20e-6
        sent = max(now, self._free_at.get(way, 0.0)) + length / settings.bytes_per_s
        self._free_at[way] = sent
        delay_ms = settings.least_ms + (self._random.expovariate(1 / settings.tail_ms) if settings.tail_ms else 0.0)
        return max(sent, self._clogged_until.get(way, 0.0)) + delay_ms / 1000

    def splits(self) -> bool:
        return self._random.random() < self.settings.split_chance

    def piece(self, length: int) -> int:
        """How many of the bytes that could be sent travel together."""
        if length > 1 and self.splits():
            return min(length, int(2 ** self._random.uniform(0.0, length.bit_length())))
        return length
