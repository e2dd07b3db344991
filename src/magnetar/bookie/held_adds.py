# SPDX-License-Identifier: Apache-2.0
"""Adds that wait for room: in order, bounded in bytes and in time.

Owns what came while the write cache or the journal's queue was full, or while a ledger's state was being read. Takes an
add or says that there is no room; never decides whether the add itself is allowed.
Decides.
"""

from collections import deque
from itertools import islice
from typing import NamedTuple

from magnetar.bookie.add_runs import AddListener, AddSource
from magnetar.wire.bookkeeper.plain_adds import PlainAdds


class HeldAdd(NamedTuple):
    since: float
    ledger_id: int
    entry_id: int
    entry: bytes
    master_key: bytes
    listener: AddListener
    recovery: bool

    @property
    def entry_count(self) -> int:
        return 1

    @property
    def entry_bytes(self) -> int:
        return len(self.entry)


class HeldBatch(NamedTuple):
    """Adds that came together, not looked at yet."""

    since: float
    adds: PlainAdds
    source: AddSource
    entry_bytes: int

    @property
    def entry_count(self) -> int:
        return len(self.adds.entries)


class HeldAdds:
    """Invariant: bytes_held and count are of both queues' entries and never exceed bytes_max and count_max."""

    __slots__ = ("_bytes_max", "_count_max", "_queue", "_unknown", "bytes_held", "count")

    def __init__(self, bytes_max: int, count_max: int) -> None:
        self._bytes_max = bytes_max
        self._count_max = count_max
        self.count = 0
        self._queue: deque[HeldAdd | HeldBatch] = deque()
        # By ledger: adds that wait until the ledger's state has been read.
        self._unknown: dict[int, deque[HeldAdd]] = {}
        self.bytes_held = 0

    def __len__(self) -> int:
        return len(self._queue)

    def has_room(self, add: HeldAdd | HeldBatch) -> bool:
        return self.count + add.entry_count <= self._count_max and self.bytes_held + add.entry_bytes <= self._bytes_max

    def hold(self, add: HeldAdd | HeldBatch) -> bool:
        """False when there is no room."""
        if not self.has_room(add):
            return False
        self._queue.append(add)
        self._took(add)
        return True

    def hold_unknown(self, add: HeldAdd) -> bool:
        """Hold an add of a ledger whose state is not known yet; False when there is no room."""
        if not self.has_room(add):
            return False
        self._unknown.setdefault(add.ledger_id, deque()).append(add)
        self._took(add)
        return True

    def unknown(self, count_max: int) -> list[int]:
        """Ledgers whose adds wait, the longest waiting first."""
        return list(islice(self._unknown, count_max))

    def take(self) -> HeldAdd | HeldBatch | None:
        if not self._queue:
            return None
        add = self._queue.popleft()
        self.bytes_held -= add.entry_bytes
        self.count -= add.entry_count
        return add

    def take_known(self, ledger_id: int) -> list[HeldAdd]:
        """The ledger's state is known now: its adds, in order."""
        adds = list(self._unknown.pop(ledger_id, ()))
        self.bytes_held -= sum(len(add.entry) for add in adds)
        self.count -= len(adds)
        return adds

    def take_all(self) -> list[HeldAdd | HeldBatch]:
        adds = list(self._queue)
        self._queue.clear()
        for ledger_id in sorted(self._unknown):
            adds += self.take_known(ledger_id)
        self.bytes_held = self.count = 0
        return adds

    def oldest_since(self) -> float | None:
        return self._queue[0].since if self._queue else None

    def _took(self, add: HeldAdd | HeldBatch) -> None:
        self.bytes_held += add.entry_bytes
        self.count += add.entry_count
