# SPDX-License-Identifier: Apache-2.0
"""Which consumer of a Failover subscription is active where no partition index says so, as Pulsar chooses it.

Every consumer has a hundred points on a ring of hashes, by its name; the topic's name falls on the ring too, and the
next point is the active one's. So the active roles of many topics spread over the consumers, and one who comes or goes
changes few of them.
Decides.
"""

from bisect import bisect_left
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from magnetar.broker.consumer import Consumer
from magnetar.wire.key_hash import murmur3_32

POINTS: Final = 100


@lru_cache(maxsize=10_000)
def _points(name: str) -> list[int]:
    return sorted(murmur3_32(f"{name}{number}".encode()) for number in range(POINTS))


class ActiveRing:
    __slots__ = ("_place",)

    def __init__(self, topic: str) -> None:
        self._place = murmur3_32(topic.encode())

    def choose(self, peers: Sequence[Consumer]) -> Consumer:
        """One of these, of which there is at least one; where two have the same point the later one has it."""
        return min(reversed(peers), key=self._distance)

    def _distance(self, consumer: Consumer) -> tuple[bool, int]:
        """How far the consumer's next point is; those that lie before the topic come behind all others."""
        points = _points(consumer.name)
        index = bisect_left(points, self._place)
        return (index == len(points), points[index % len(points)])
