# SPDX-License-Identifier: Apache-2.0
"""Entries of a Key_Shared subscription that wait to go out, one queue per key hash, in the order of their positions.

Also knows which hashes can be served: `ready` for each consumer, or `draining` while another consumer still holds
earlier entries of the hash. A hash is moved between the two by its owner, KeySharedDispatcher.

Invariant: a hash with queued entries is in exactly one of ready (of one consumer, or of none) and draining.
Decides.
"""

from bisect import bisect_left
from collections.abc import Iterator

from magnetar.broker.consumer import Consumer
from magnetar.ids import Position


class KeyQueues:
    __slots__ = ("_queues", "_ready", "_where", "count", "draining")

    def __init__(self) -> None:
        self._queues: dict[int, list[Position]] = {}
        # Hashes by the consumer that gets them; in the order in which they are served, one after another.
        self._ready: dict[Consumer | None, dict[int, None]] = {}
        self._where: dict[int, Consumer | None] = {}
        self.draining: dict[int, None] = {}
        self.count = 0

    def __contains__(self, slot: int) -> bool:
        return slot in self._queues

    def first(self, slot: int) -> Position | None:
        queue = self._queues.get(slot)
        return queue[0] if queue else None

    def head(self, slot: int, count_max: int) -> list[Position]:
        return self._queues[slot][:count_max]

    def holds(self, slot: int, position: Position) -> bool:
        queue = self._queues.get(slot)
        if not queue:
            return False
        index = bisect_left(queue, position)
        return index < len(queue) and queue[index] == position

    def add(self, slot: int, position: Position) -> bool:
        """True when the hash had no queue before: its owner must place it."""
        queue = self._queues.get(slot)
        if queue is None:
            self._queues[slot] = [position]
            self.count += 1
            return True
        if position > queue[-1]:
            queue.append(position)
        else:
            index = bisect_left(queue, position)
            if queue[index] == position:
                return False
            queue.insert(index, position)
        self.count += 1
        return False

    def discard(self, slot: int, position: Position) -> bool:
        """True when it was there."""
        queue = self._queues.get(slot)
        if not queue:
            return False
        index = bisect_left(queue, position)
        if index == len(queue) or queue[index] != position:
            return False
        del queue[index]
        self.count -= 1
        if not queue:
            del self._queues[slot]
            self._unplace(slot)
        return True

    def place(self, slot: int, target: Consumer | None, *, is_draining: bool) -> None:
        """A hash with queued entries waits for this consumer; behind another one when it is draining."""
        self._unplace(slot)
        if is_draining:
            self.draining[slot] = None
        else:
            self._ready.setdefault(target, {})[slot] = None
            self._where[slot] = target

    def ready(self, consumer: Consumer | None) -> list[int]:
        return list(self._ready.get(consumer, ()))

    def serve_later(self, slot: int) -> None:
        """The hash had its turn: others of its consumer come before it now."""
        target = self._where.get(slot)
        hashes = self._ready.get(target)
        if hashes is not None and slot in hashes:
            del hashes[slot]
            hashes[slot] = None

    def slots(self) -> list[int]:
        return list(self._queues)

    def positions(self) -> Iterator[tuple[Position, int]]:
        for slot, queue in self._queues.items():
            for position in queue:
                yield position, slot

    def clear(self) -> None:
        self._queues.clear()
        self._ready.clear()
        self._where.clear()
        self.draining.clear()
        self.count = 0

    def check(self) -> None:
        assert self.count == sum(map(len, self._queues.values()))
        assert all(queue and queue == sorted(set(queue)) for queue in self._queues.values())
        assert set(self._where) | set(self.draining) == set(self._queues)
        assert set(self._where).isdisjoint(self.draining)
        assert {slot for hashes in self._ready.values() for slot in hashes} == set(self._where)

    def _unplace(self, slot: int) -> None:
        self.draining.pop(slot, None)
        if slot in self._where:
            target = self._where.pop(slot)
            hashes = self._ready[target]
            del hashes[slot]
            if not hashes:
                del self._ready[target]
