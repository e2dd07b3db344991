# SPDX-License-Identifier: Apache-2.0
"""Message time: what people and records see, and what becomes due by it. Publish time, TTL, delay, retention, back-off.

Whoever compares times with `now_ms` also waits by this clock, so that a test may move both together. Deadlines of
input and output, keep-alive and the grouping of writes are the loop's: they stay real when message time is not.
Carries.
"""

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Protocol


class Timer(Protocol):
    def cancel(self) -> None: ...


class WallClock(ABC):
    """Unless a clock says otherwise, its timers are the running loop's."""

    # People set clocks: who waits for a time looks again at least this often.
    trusted_s_max = 60.0

    @abstractmethod
    def now_ms(self) -> int:
        """Milliseconds since 1970-01-01 UTC."""

    def elapsed_s(self) -> float:
        """Seconds since some moment; never goes back."""
        return asyncio.get_running_loop().time()

    def call_later(self, delay_s: float, callback: Callable[[], object]) -> Timer:
        """Call once when this much time has passed."""
        return asyncio.get_running_loop().call_later(delay_s, callback)

    async def pause(self, interval_s: float) -> None:
        """Between two rounds of upkeep. Only for what comes round and round: rounds that were missed are one."""
        await asyncio.sleep(interval_s)


class SystemClock(WallClock):
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def hold(self, interval_s: float) -> None:
        """Between two looks of a command that has no loop; an interrupt ends it at once."""
        time.sleep(interval_s)
