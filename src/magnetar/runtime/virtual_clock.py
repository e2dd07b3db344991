# SPDX-License-Identifier: Apache-2.0
"""A clock that stands still until it is moved: message time in tests.

Owns a heap of timers and the rounds of upkeep that wait. Moving goes from timer to timer in the order of their times;
before each, the upkeep that has become due meanwhile runs once, however many rounds were missed. Who moves the clock
brings the function that waits until what was set off has been done; this module never guesses that.
Carries.
"""

import asyncio
import heapq
import math
from collections.abc import Awaitable, Callable
from itertools import count
from typing import Final

from magnetar.errors import TooManyRequests
from magnetar.runtime.clock import WallClock

Settle = Callable[[], Awaitable[None]]

TIMERS_MAX: Final = 1_000_000

NS_PER_MS: Final = 1_000_000
NS_PER_S: Final = 1_000_000_000


class VirtualTimer:
    __slots__ = ("callback", "due_ns")

    def __init__(self, due_ns: int, callback: Callable[[], object]) -> None:
        self.due_ns = due_ns
        self.callback: Callable[[], object] | None = callback

    def cancel(self) -> None:
        self.callback = None


class VirtualClock(WallClock):
    """`start_ms` is the time that it shows first. Belongs to one loop at a time."""

    trusted_s_max = math.inf

    def __init__(self, start_ms: int) -> None:
        self._start_ms = start_ms
        # Since the start, and whole: 1.001 seconds are 1001 milliseconds, which floats would not add up to.
        self._now_ns = 0
        self._order = count()
        self._timers: list[tuple[int, int, VirtualTimer]] = []
        self._paused: list[tuple[int, int, asyncio.Future[None]]] = []
        # Upkeep that runs: woken by this clock, and neither ended nor pausing again.
        self._working: dict[asyncio.Task[object], None] = {}
        self._moving = False
        self.fired = 0
        self.on_timer_set: Callable[[], object] | None = None

    def now_ms(self) -> int:
        return self._start_ms + self._now_ns // NS_PER_MS

    def elapsed_s(self) -> float:
        return self._now_ns / NS_PER_S

    def call_later(self, delay_s: float, callback: Callable[[], object]) -> VirtualTimer:
        if len(self._timers) >= TIMERS_MAX:
            raise TooManyRequests(f"{TIMERS_MAX} timers wait on this clock already")
        due_ns = self._now_ns
        if delay_s > 0:
            due_ns += max(round(delay_s * NS_PER_S), 1)
        timer = VirtualTimer(due_ns, callback)
        heapq.heappush(self._timers, (timer.due_ns, next(self._order), timer))
        if delay_s <= 0:
            asyncio.get_running_loop().call_soon(self._fire)
        elif self.on_timer_set is not None:
            self.on_timer_set()
        return timer

    async def sleep(self, delay_s: float) -> None:
        """Until the clock has been moved this far."""
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def wake() -> None:
            if not woken.done():
                woken.set_result(None)

        timer = self.call_later(delay_s, wake)
        try:
            await woken
        finally:
            timer.cancel()

    async def pause(self, interval_s: float) -> None:
        task = asyncio.current_task()
        assert task is not None, "upkeep runs in a task"
        if task in self._working:
            del self._working[task]
        else:
            task.add_done_callback(lambda done: self._working.pop(done, None))
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._paused, (self._now_ns + round(interval_s * NS_PER_S), next(self._order), woken))
        await woken
        self._working[task] = None

    # --- moving --------------------------------------------------------------------------------

    @property
    def is_working(self) -> bool:
        """Whether upkeep that this clock woke is still at it."""
        return bool(self._working)

    def working(self) -> list[str]:
        return [task.get_name() for task in self._working]

    @property
    def ms_to_next_timer(self) -> float | None:
        """Upkeep follows time and never drives it, so that timers alone count."""
        due_ns = self._next_due_ns()
        return None if due_ns is None else max(due_ns - self._now_ns, 0) / NS_PER_MS

    async def advance(self, delta_ms: float, settle: Settle) -> None:
        """Move on, and return when everything that became due on the way has been done."""
        if delta_ms < 0:
            raise ValueError("time does not go back")
        if self._moving:
            raise TooManyRequests("the clock is being moved already: wait for that first")
        self._moving = True
        until_ns = self._now_ns + round(delta_ms * NS_PER_MS)
        try:
            await settle()
            while self._now_ns < until_ns:
                due_ns = self._next_due_ns()
                await self._step(until_ns if due_ns is None else min(due_ns, until_ns), settle)
        finally:
            self._moving = False

    async def _step(self, to_ns: int, settle: Settle) -> None:
        self._now_ns = max(self._now_ns, to_ns)
        while True:
            if self._wake_upkeep():
                await settle()
            if not self._fire():
                return
            await settle()

    def _wake_upkeep(self) -> bool:
        woken = False
        while self._paused and self._paused[0][0] <= self._now_ns:
            waiter = heapq.heappop(self._paused)[2]
            if not waiter.done():
                waiter.set_result(None)
                woken = True
        return woken

    def _fire(self) -> bool:
        """Call what is due now; false if nothing was."""
        fired = self.fired
        while (due_ns := self._next_due_ns()) is not None and due_ns <= self._now_ns:
            timer = heapq.heappop(self._timers)[2]
            callback, timer.callback = timer.callback, None
            if callback is not None:
                self.fired += 1
                callback()
        return self.fired > fired

    def _next_due_ns(self) -> int | None:
        while self._timers and self._timers[0][2].callback is None:
            heapq.heappop(self._timers)
        return self._timers[0][0] if self._timers else None
