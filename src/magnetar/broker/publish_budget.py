# SPDX-License-Identifier: Apache-2.0
"""How many bytes are on their way into storage, for one connection and for the whole process.

Owns the counts and says when a connection must stop reading and when it may go on. It stops at its own mark or at the
process's, and goes on at half of its own, once the process is below its mark again. Well before that, from the pace on,
each connection that has bytes on their way stops at a fair share of the pace: what waits for the disk stays little, and
who is stuck takes nothing from the others (0380). Never touches a socket: whoever asks pauses and resumes.

Invariant: the process count is the sum of the connections' counts.
Decides.
"""

from collections.abc import Callable
from typing import Final

# What a message on its way costs beside its own bytes; without it, a flood of tiny ones would pass every mark.
MESSAGE_OVERHEAD_BYTES: Final = 512
# However many publish: what one read of a socket may bring.
SHARE_BYTES_MIN: Final = 256 * 1024


class PublishBudget:
    """The process's share; every connection takes a `ConnectionBudget` from it."""

    __slots__ = ("_asked_share_bytes", "_waiting", "active", "bytes_max", "bytes_pending", "pace_bytes")

    def __init__(self, bytes_max: int, pace_bytes: int | None = None) -> None:
        self.bytes_max = bytes_max
        self.pace_bytes = bytes_max if pace_bytes is None else min(pace_bytes, bytes_max)
        self.bytes_pending = 0
        # Connections that have bytes on their way.
        self.active = 0
        self._waiting: dict[ConnectionBudget, None] = {}
        # The least share with which somebody who waits was told to wait on.
        self._asked_share_bytes = bytes_max

    def connection(self, bytes_max: int, on_resume: Callable[[], None]) -> "ConnectionBudget":
        return ConnectionBudget(self, bytes_max, on_resume)

    @property
    def share_bytes(self) -> int:
        """What each connection may have on its way while all together are above the pace."""
        return max(SHARE_BYTES_MIN, self.pace_bytes // max(1, self.active))

    def wait(self, budget: "ConnectionBudget") -> None:
        """It stops, or has asked and waits on."""
        self._waiting[budget] = None
        self._asked_share_bytes = min(self._asked_share_bytes, self.share_bytes)

    def forget(self, budget: "ConnectionBudget") -> None:
        self._waiting.pop(budget, None)

    def resume_waiting(self) -> None:
        """Let connections go on while the process is below its mark, oldest first."""
        self._asked_share_bytes = self.bytes_max
        for budget in list(self._waiting):
            if self.bytes_pending >= self.bytes_max:
                return
            budget.try_to_resume()

    def on_given_back(self, budget: "ConnectionBudget", size: int) -> None:
        """This many bytes fewer are on their way: this connection may go on, and with a mark passed the others."""
        before = self.bytes_pending
        after = self.bytes_pending = before - size
        if self._waiting:
            is_mark_passed = before >= self.bytes_max > after or before >= self.pace_bytes > after
            if is_mark_passed or (not budget.bytes_pending and self._has_share_grown()):
                self.resume_waiting()
            elif budget.paused:
                budget.try_to_resume()

    def _has_share_grown(self) -> bool:
        """By a quarter or more: whoever waits may have come below half of it without giving anything back."""
        return self.share_bytes * 4 >= self._asked_share_bytes * 5


class ConnectionBudget:
    __slots__ = ("_on_resume", "_process", "bytes_max", "bytes_pending", "paused")

    def __init__(self, process: PublishBudget, bytes_max: int, on_resume: Callable[[], None]) -> None:
        self._process = process
        self._on_resume = on_resume
        self.bytes_max = bytes_max
        self.bytes_pending = 0
        self.paused = False

    def take(self, size: int) -> bool:
        """Count bytes that go down; True when the connection must stop reading now."""
        process = self._process
        if not self.bytes_pending:
            process.active += 1
        pending = self.bytes_pending = self.bytes_pending + size
        process.bytes_pending += size
        if self.paused or (pending < self.bytes_max and process.bytes_pending < process.pace_bytes):
            return False
        if pending < self.bytes_max and process.bytes_pending < process.bytes_max and pending < process.share_bytes:
            return False
        self.paused = True
        process.wait(self)
        return True

    def give_back(self, size: int) -> None:
        """Count bytes that are stored or refused; may resume this connection and others."""
        self.bytes_pending -= size
        assert self.bytes_pending >= 0, "more bytes given back than taken"
        if size and not self.bytes_pending:
            self._process.active -= 1
        self._process.on_given_back(self, size)

    def try_to_resume(self) -> None:
        """Go on reading, where the connection waits and may: at half of what stopped it."""
        process = self._process
        if self not in process._waiting or process.bytes_pending >= process.bytes_max:
            return
        is_paced = process.bytes_pending >= process.pace_bytes
        mark = min(self.bytes_max, process.share_bytes) if is_paced else self.bytes_max
        if self.bytes_pending <= mark // 2:
            process.forget(self)
            self.paused = False
            self._on_resume()
        else:
            process.wait(self)

    def close(self) -> None:
        """The connection is gone; what it still has on its way is counted until it is stored."""
        self._process.forget(self)
        self.paused = True
