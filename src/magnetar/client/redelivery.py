# SPDX-License-Identifier: Apache-2.0
"""What has to be delivered again, and when: messages refused by the application, and those it forgot to acknowledge.

One queue of due times serves both; the owner asks for the next and sets one timer. An entry has one place in it: what
comes later replaces what was there.
Decides.
"""

import heapq

from magnetar.ids import Position


class DueEntries:
    """Entries by the time at which something is to happen to them."""

    __slots__ = ("_due", "_heap")

    def __init__(self) -> None:
        self._due: dict[Position, float] = {}
        self._heap: list[tuple[float, Position]] = []

    def __len__(self) -> int:
        return len(self._due)

    def __contains__(self, position: Position) -> bool:
        return position in self._due

    def add(self, position: Position, due_s: float) -> None:
        self._due[position] = due_s
        heapq.heappush(self._heap, (due_s, position))
        # Places that were replaced or removed stay in the heap until they come up; not too many of them.
        if len(self._heap) > 2 * len(self._due) + 1_000:
            self._heap = [(due, place) for place, due in self._due.items()]
            heapq.heapify(self._heap)

    def remove(self, position: Position) -> bool:
        return self._due.pop(position, None) is not None

    def remove_up_to(self, position: Position) -> int:
        """Forget everything that a cumulative acknowledgement covers."""
        covered = [place for place in self._due if place <= position]
        for place in covered:
            del self._due[place]
        return len(covered)

    def clear(self) -> None:
        self._due.clear()
        self._heap.clear()

    @property
    def next_due_s(self) -> float | None:
        while self._heap:
            due, position = self._heap[0]
            if self._due.get(position) == due:
                return due
            heapq.heappop(self._heap)
        return None

    def take_due(self, now_s: float) -> list[Position]:
        """All whose time has come, in order of their times."""
        found: list[Position] = []
        while (due := self.next_due_s) is not None and due <= now_s:
            _, position = heapq.heappop(self._heap)
            del self._due[position]
            found.append(position)
        return found
