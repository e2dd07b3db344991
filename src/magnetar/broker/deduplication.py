# SPDX-License-Identifier: Apache-2.0
"""Which messages of a topic are stored already, by the sequence ids of their producers.

Owns, per producer name, the highest sequence id that was appended and the highest that is persisted. A message is told
as stored only on the word of the second: what was appended and fails is sent again and must then be taken. All chunks
of a message share its sequence id, which counts when the last of them is persisted. Never stores anything itself.

What a replicator brings has the names of producers who never come here. While such a replicator is away no name is
forgotten for its age: what was stored without its receipt comes again, however late. It is kept with the snapshot as a
name without a sequence id.

Rules, for a message or batch with the ids lowest..highest: at or below what is persisted, it is a duplicate; at or
below what was appended, its outcome is pending; above, it is new; anything between is refused, because a part of it
would be stored twice or lost.

Invariants: persisted <= appended; the appends that wait are those that the topic waits for, in their order.
Decides.
"""

from collections import deque
from collections.abc import Mapping
from enum import Enum
from typing import Final, NamedTuple

from magnetar.broker.producer import REPLICATOR_PREFIX
from magnetar.errors import BadSequence

NO_SEQUENCE: Final = -1
_INT64_END: Final = 2**63
_UINT64: Final = 2**64


class Verdict(Enum):
    NEW = "store it"
    DUPLICATE = "stored before"
    PENDING = "being stored: its outcome answers this one too"


class Chunk(NamedTuple):
    """Which part of a large message an entry is."""

    uuid: str
    number: int
    chunks: int

    @property
    def is_last(self) -> bool:
        return self.number >= self.chunks - 1


class Identity(NamedTuple):
    """By what a message is known: whose it is, the sequence ids of its batch, and which chunk it is, if it is one."""

    name: str
    lowest: int
    highest: int
    chunk: Chunk | None = None


class _Known:
    """What is known of one producer name."""

    __slots__ = ("appended", "chunk_sequence", "chunk_uuid", "name", "next_chunk", "pending", "persisted")

    def __init__(self, name: str, sequence_id: int = NO_SEQUENCE) -> None:
        self.name = name
        self.appended = sequence_id
        self.persisted = sequence_id
        self.pending = 0
        self.chunk_uuid = ""
        self.chunk_sequence = NO_SEQUENCE
        self.next_chunk = 0


def signed(sequence_id: int) -> int:
    """Sequence ids travel unsigned and are compared, and kept, as signed numbers."""
    return sequence_id - _UINT64 if sequence_id >= _INT64_END else sequence_id


class Deduplication:
    __slots__ = ("_inactive", "_known", "_names_max", "_replicators", "_skipped", "_waiting")

    def __init__(self, names_max: int, *, appends_before: int = 0) -> None:
        self._names_max = names_max
        self._known: dict[str, _Known] = {}
        # Names without a connected producer, by when they were last seen, oldest first.
        self._inactive: dict[str, int] = {}
        # Those who have brought messages of other clusters, and whether they are connected.
        self._replicators: dict[str, bool] = {}
        # Per append that is not persisted: whose it is, and the sequence id that it will prove (None: nothing).
        self._waiting: deque[tuple[_Known | None, int | None]] = deque()
        # Appends from before we were there; their outcome comes first and says nothing.
        self._skipped = appends_before

    # --- publishing -------------------------------------------------------------------------------

    def judge(self, name: str, lowest: int, highest: int, chunk: Chunk | None = None) -> Verdict:
        """What to do with a message. BadSequence when a part of its ids was appended and a part was not."""
        known = self._known.get(name)
        if known is None:
            return Verdict.NEW
        if highest <= known.persisted:
            return Verdict.DUPLICATE
        if highest <= known.appended:
            return Verdict.PENDING
        if chunk is not None:
            repeated = known.chunk_uuid == chunk.uuid and known.chunk_sequence == highest
            return Verdict.PENDING if repeated and chunk.number < known.next_chunk else Verdict.NEW
        if lowest <= known.appended:
            raise BadSequence(
                f"Sequence ids {lowest}..{highest} of producer '{name}' are stored in part: up to {known.appended}"
            )
        return Verdict.NEW

    def on_appended(self, identity: Identity | None) -> None:
        """A message that was judged new is on its way to storage; None for a marker, which has no sequence id."""
        if identity is None:
            self._waiting.append((None, None))
            return
        name, _, highest, chunk = identity
        known = self._known.get(name) or self._learn(name)
        known.pending += 1
        is_counted = self._raise_appended(known, highest, chunk)
        self._waiting.append((known, highest if is_counted else None))

    def on_persisted(self, count: int) -> None:
        """The oldest waiting appends of the topic are stored."""
        skipped = min(count, self._skipped)
        self._skipped -= skipped
        for _ in range(count - skipped):
            known, sequence_id = self._waiting.popleft()
            if known is not None:
                known.pending -= 1
                if sequence_id is not None:
                    known.persisted = max(known.persisted, sequence_id)

    def last_sequence_id(self, name: str) -> int:
        """The highest persisted sequence id of a producer; -1 when there is none."""
        known = self._known.get(name)
        return NO_SEQUENCE if known is None else known.persisted

    def is_settled(self, name: str) -> bool:
        """True when nothing of this producer is on its way."""
        known = self._known.get(name)
        return known is None or known.pending == 0

    # --- recovery and snapshots -------------------------------------------------------------------

    def restore(self, snapshot: Mapping[str, int], now_ms: int) -> None:
        for name, sequence_id in snapshot.items():
            self._known[name] = _Known(name, sequence_id)
            if name.startswith(REPLICATOR_PREFIX):
                self._replicators[name] = False
            else:
                self._inactive[name] = now_ms

    def replay(self, identity: Identity, now_ms: int) -> None:
        """An entry that is stored behind the snapshot."""
        name, _, highest, chunk = identity
        known = self._known.get(name) or self._learn(name)
        if self._raise_appended(known, highest, chunk):
            known.persisted = max(known.persisted, highest)
        self._inactive.setdefault(name, now_ms)

    def snapshot(self) -> dict[str, int]:
        return {
            name: known.persisted
            for name, known in self._known.items()
            if known.persisted > NO_SEQUENCE or name in self._replicators
        }

    # --- who is there -----------------------------------------------------------------------------

    def on_producer_added(self, name: str, now_ms: int) -> None:
        if name in self._replicators:
            self._replicators[name] = True
            # It begins with what has no receipt: until that came again, nobody's age counts.
            self._inactive = dict.fromkeys(self._inactive, now_ms)
        self._inactive.pop(name, None)

    def on_brought(self, name: str, replicator: str, now_ms: int) -> None:
        """A message of this producer came by a replicator that is connected."""
        if replicator not in self._replicators:
            self.on_replicator(replicator)
        self._replicators[replicator] = True
        self.on_producer_removed(name, now_ms)

    def on_replicator(self, name: str) -> None:
        """One of its messages lies here; it is away until it is added."""
        if name not in self._replicators:
            self._replicators[name] = False
            self._known.setdefault(name, _Known(name))

    def on_producer_removed(self, name: str, now_ms: int) -> None:
        if name in self._replicators:
            self._replicators[name] = False
        elif name in self._known:
            self._inactive.pop(name, None)
            self._inactive[name] = now_ms

    def forget_inactive(self, before_ms: int) -> int:
        """Forget producers that were last seen before a time, unless a replicator is away; returns how many."""
        if not all(self._replicators.values()):
            return 0
        gone = [
            name for name, seen_ms in self._inactive.items() if seen_ms < before_ms and not self._known[name].pending
        ]
        for name in gone:
            self._forget(name)
        return len(gone)

    def __len__(self) -> int:
        return len(self._known)

    # --- inside -------------------------------------------------------------------------------------

    def _learn(self, name: str) -> _Known:
        if len(self._known) >= self._names_max:
            oldest = next((name for name in self._inactive if not self._known[name].pending), None)
            if oldest is not None:
                self._forget(oldest)
        known = self._known[name] = _Known(name)
        return known

    def _forget(self, name: str) -> None:
        del self._inactive[name]
        del self._known[name]

    @staticmethod
    def _raise_appended(known: _Known, highest: int, chunk: Chunk | None) -> bool:
        """Count an entry as appended; True when its sequence id is complete with it."""
        if chunk is not None and not chunk.is_last:
            known.chunk_uuid = chunk.uuid
            known.chunk_sequence = highest
            known.next_chunk = chunk.number + 1
            return False
        known.chunk_uuid = ""
        known.appended = max(known.appended, highest)
        return True
