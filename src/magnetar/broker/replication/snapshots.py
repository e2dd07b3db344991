# SPDX-License-Identifier: Apache-2.0
"""Places of one topic in several clusters that belong together, and how they are found.

A snapshot says: whoever has consumed everything up to `here` has consumed everything up to `there` in the others. This
cluster asks with a marker; each other answers with the end of its log at that moment, by a marker behind it. What came
from there before that end lies before its answer here, and what went there from here lies before the question. With
more than two clusters a second round makes sure of what those two got from the third; the places are the first round's.

Invariants: kept snapshots rise in `here`, and there are never more than allowed.
Decides.
"""

from collections.abc import Collection
from typing import NamedTuple

from magnetar.ids import Position


class Snapshot(NamedTuple):
    here: Position
    there: dict[str, Position]


class SnapshotRound:
    """One snapshot while it is being taken."""

    def __init__(self, snapshot_id: str, clusters: Collection[str], started_ms: int) -> None:
        self.snapshot_id = snapshot_id
        self.started_ms = started_ms
        self._clusters = tuple(clusters)
        self._missing = set(clusters)
        self._places: dict[str, Position] = {}
        self._rounds_left = 1 if len(self._clusters) > 1 else 0

    def on_response(self, cluster: str, place: Position, here: Position) -> "Snapshot | bool":
        """A cluster answered with its place, by a marker that lies here. The snapshot when that was the last answer;
        True when all must be asked once more, False while others are missing.
        """
        if cluster not in self._clusters:
            return False
        self._places.setdefault(cluster, place)
        self._missing.discard(cluster)
        if self._missing:
            return False
        if self._rounds_left:
            self._rounds_left -= 1
            self._missing = set(self._clusters)
            return True
        return Snapshot(here, dict(self._places))


class KeptSnapshots:
    """Those that a subscription may still pass, oldest first."""

    def __init__(self, count_max: int) -> None:
        self._count_max = max(2, count_max)
        self._kept: list[Snapshot] = []

    def add(self, snapshot: Snapshot) -> None:
        """When there are too many, every second of the older ones goes: a slow subscription still meets some."""
        if self._kept and snapshot.here <= self._kept[-1].here:
            return
        self._kept.append(snapshot)
        if len(self._kept) > self._count_max:
            self._kept = [*self._kept[:-1:2], self._kept[-1]]

    def passed(self, mark_delete: Position) -> Snapshot | None:
        """The latest one that a subscription has consumed everything of."""
        found = None
        for snapshot in self._kept:
            if snapshot.here > mark_delete:
                break
            found = snapshot
        return found

    def forget_before(self, mark_delete: Position) -> None:
        """Every subscription has come so far: only the latest that all have passed may still be asked for."""
        passed = [snapshot for snapshot in self._kept if snapshot.here <= mark_delete]
        if len(passed) > 1:
            del self._kept[: len(passed) - 1]

    def __len__(self) -> int:
        return len(self._kept)
