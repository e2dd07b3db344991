# SPDX-License-Identifier: Apache-2.0
"""One connection's reads that memory can answer: a few in each turn of the loop, in slices while adds wait for a sync.

Owns the reads held back, how many this turn has had, and how much was given since the last sync. A reader that catches
up would otherwise keep the loop and the interpreter busy while others need them: whoever asks for a thousand at once
gets them in as many turns as that takes, with others in between; beside adds it gets a slice between one sync and the
next, and after a short while another one even when a sync takes long. What memory lacks is the connection's to read.
Carries.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

from magnetar.bookie.adds_under_way import AddsUnderWay
from magnetar.errors import MagnetarError
from magnetar.wire.bookkeeper import v2

# An add may wait for a turn at each of its stations: beside adds a turn is worth a tenth of a millisecond.
_TURN_READS: Final = 32
_TURN_READS_BESIDE_ADDS: Final = 8
_TURN_BYTES: Final = 256 * 1024
_SLICE_BYTES: Final = 16 * 1024
_HELD_MAX_S: Final = 0.002


class _Storage(Protocol):
    adds: AddsUnderWay

    def at_hand(self, ledger_id: int, entry_id: int) -> bytes | None: ...


class MemoryReads:
    """Invariant: reads are looked up in the order they came; while some are held, so are those behind them, and the end
    of a turn, a sync or a timer is on its way.
    """

    __slots__ = (
        "_adds", "_answer", "_asked_to_wake", "_at_hand", "_behind", "_behind_count", "_count", "_given_bytes", "_held",
        "_held_max", "_loop", "_otherwise", "_syncs", "_timer", "_turn_bytes", "_turn_given", "_turn_max",
        "_turn_reads",
    )  # fmt: skip

    def __init__(
        self, storage: _Storage, *, held_max: int,
        answer: Callable[[v2.ReadRequest, bytes], bool], otherwise: Callable[[v2.ReadRequest], bool],
        count: Callable[[int, int], None],
    ) -> None:  # fmt: skip
        """`answer` says whether the client takes this much now; who is not answered is for `otherwise`, which says
        whether it is being read now: then `on_read` is called at the end of that.
        """
        self._loop = asyncio.get_running_loop()
        self._adds = storage.adds
        self._at_hand = storage.at_hand
        self._answer = answer
        self._otherwise = otherwise
        self._count = count
        self._held: deque[v2.ReadRequest] = deque()
        self._held_max = held_max
        # By ledger that is being read for this client: those of it that came later, and how many they are together.
        self._behind: dict[int, deque[v2.ReadRequest]] = {}
        self._behind_count = 0
        # Of the present turn of the loop; its end is on its way when there were any.
        self._turn_reads = 0
        self._turn_given = 0
        self._turn_bytes = 0
        self._turn_max = _TURN_READS
        self._given_bytes = 0
        # The count of syncs when the present slice was begun.
        self._syncs = 0
        self._timer: asyncio.TimerHandle | None = None
        self._asked_to_wake = False

    def ask(self, request: v2.ReadRequest) -> None:
        if len(self._held) + self._behind_count >= self._held_max:
            self._otherwise(request)
        elif not self._held and self._may_go():
            self._serve(request)
        else:
            self._held.append(request)
            self._hold()

    def on_read(self, ledger_id: int) -> None:
        """What one of a ledger was read for is in memory now, and what came with it."""
        behind = self._behind.pop(ledger_id, None)
        if not behind:
            return
        self._behind_count -= len(behind)
        # All of them came before those of this ledger that are held.
        self._held.extendleft(reversed(behind))
        if self._timer is None:
            self._go_on()

    def close(self) -> None:
        self._held.clear()
        self._behind.clear()
        self._behind_count = 0
        self._cancel()

    def _is_turn_over(self) -> bool:
        return self._turn_reads >= self._turn_max or self._turn_bytes >= _TURN_BYTES

    def _may_go(self) -> bool:
        if self._is_turn_over():
            return False
        if self._given_bytes < _SLICE_BYTES:
            return True
        if self._adds.syncs() != self._syncs or not self._adds.are_waiting():
            self._given_bytes = 0
            return True
        return False

    def _serve(self, request: v2.ReadRequest) -> None:
        behind = self._behind.get(request.ledger_id)
        if behind is not None:
            behind.append(request)
            self._behind_count += 1
            return
        if not self._turn_reads:
            self._loop.call_soon(self._end_turn)
            self._turn_max = _TURN_READS_BESIDE_ADDS if self._adds.are_recent() else _TURN_READS
        self._turn_reads += 1
        try:
            entry = self._at_hand(request.ledger_id, request.entry_id)
        except MagnetarError:
            entry = None
        if entry is None or not self._answer(request, entry):
            if self._otherwise(request):
                self._behind[request.ledger_id] = deque()
        else:
            if not self._given_bytes:
                self._syncs = self._adds.syncs()
            self._given_bytes += len(entry)
            self._turn_bytes += len(entry)
            self._turn_given += 1

    def _end_turn(self) -> None:
        if self._turn_given:
            self._count(self._turn_given, self._turn_bytes)
        self._turn_reads = self._turn_given = self._turn_bytes = 0
        if self._timer is None:
            self._go_on()

    def _hold(self) -> None:
        """Have somebody come back for those who are held: the next turn, or the next sync and the timer."""
        if self._timer is not None or self._is_turn_over():
            return
        self._timer = self._loop.call_later(_HELD_MAX_S, self._next_slice)
        if not self._asked_to_wake:
            self._asked_to_wake = True
            self._adds.call_after_sync(self._on_synced)

    def _on_synced(self) -> None:
        self._asked_to_wake = False
        if self._timer is not None:
            self._next_slice()

    def _next_slice(self) -> None:
        self._cancel()
        self._given_bytes = 0
        self._go_on()

    def _go_on(self) -> None:
        while self._held and self._may_go():
            self._serve(self._held.popleft())
        if self._held:
            self._hold()

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
