# SPDX-License-Identifier: Apache-2.0
"""How many bytes are on their way into storage, for one connection and for the whole process.

Owns the two counts and says when a connection must stop reading and when it may go on. A connection stops at its
own mark or at the process's; it goes on at half of its own mark, once the process is below its mark again. Never
touches a socket: whoever asks pauses and resumes.

Invariant: the process count is the sum of the connections' counts.
Decides.
"""

from collections.abc import Callable
from typing import Final

# What a message on its way costs beside its own bytes; without it, a flood of tiny ones would pass every mark.
MESSAGE_OVERHEAD_BYTES: Final = 512


class PublishBudget:
    """The process's share; every connection takes a `ConnectionBudget` from it."""

    __slots__ = ("_waiting", "bytes_max", "bytes_pending")

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.bytes_pending = 0
        self._waiting: dict[ConnectionBudget, None] = {}

    def connection(self, bytes_max: int, on_resume: Callable[[], None]) -> "ConnectionBudget":
        return ConnectionBudget(self, bytes_max, on_resume)

    def wait(self, budget: "ConnectionBudget") -> None:
        self._waiting[budget] = None

    def forget(self, budget: "ConnectionBudget") -> None:
        self._waiting.pop(budget, None)

    def resume_waiting(self) -> None:
        """Let connections go on while the process is below its mark, oldest first."""
        for budget in list(self._waiting):
            if self.bytes_pending >= self.bytes_max:
                return
            if budget.may_resume():
                del self._waiting[budget]
                budget.resume()


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
        self.bytes_pending += size
        process = self._process
        process.bytes_pending += size
        if self.paused or (self.bytes_pending < self.bytes_max and process.bytes_pending < process.bytes_max):
            return False
        self.paused = True
        process.wait(self)
        return True

    def give_back(self, size: int) -> None:
        """Count bytes that are stored or refused; may resume this connection and others."""
        self.bytes_pending -= size
        process = self._process
        process.bytes_pending -= size
        assert self.bytes_pending >= 0, "more bytes given back than taken"
        if process._waiting:
            process.resume_waiting()

    def may_resume(self) -> bool:
        return self.bytes_pending <= self.bytes_max // 2

    def resume(self) -> None:
        self.paused = False
        self._on_resume()

    def close(self) -> None:
        """The connection is gone; what it still has on its way is counted until it is stored."""
        self._process.forget(self)
        self.paused = True
