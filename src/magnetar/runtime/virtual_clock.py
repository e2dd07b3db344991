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


class VirtualTimer:
    __slots__ = ("callback", "due_ms")

    def __init__(self, due_ms: float, callback: Callable[[], object]) -> None:
        self.due_ms = due_ms
        self.callback: Callable[[], object] | None = callback

    def cancel(self) -> None:
        self.callback = None


class VirtualClock(WallClock):
    """`start_ms` is the time that it shows first. Belongs to one loop at a time."""

    trusted_s_max = math.inf

    def __init__(self, start_ms: int) -> None:
        self._start_ms = start_ms
        # Since the start: a float of milliseconds since 1970 would be too coarse to add small delays to.
        self._now_ms = 0.0
        self._order = count()
        self._timers: list[tuple[float, int, VirtualTimer]] = []
        self._paused: list[tuple[float, int, asyncio.Future[None]]] = []
        # Upkeep that runs: woken by this clock, and neither ended nor pausing again.
        self._working: dict[asyncio.Task[object], None] = {}
        self._moving = False
        self.fired = 0
        self.on_timer_set: Callable[[], object] | None = None

    def now_ms(self) -> int:
        return self._start_ms + int(self._now_ms)

    def elapsed_s(self) -> float:
        return self._now_ms / 1000

    def call_later(self, delay_s: float, callback: Callable[[], object]) -> VirtualTimer:
        if len(self._timers) >= TIMERS_MAX:
            raise TooManyRequests(f"{TIMERS_MAX} timers wait on this clock already")
        due_ms = self._now_ms
        if delay_s > 0:
            due_ms = max(due_ms + delay_s * 1000, math.nextafter(due_ms, math.inf))
        timer = VirtualTimer(due_ms, callback)
        heapq.heappush(self._timers, (timer.due_ms, next(self._order), timer))
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
        heapq.heappush(self._paused, (self._now_ms + interval_s * 1000, next(self._order), woken))
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
    def next_due_ms(self) -> float | None:
        """When the next timer is due, in milliseconds since the start. Upkeep follows time and never drives it."""
        while self._timers and self._timers[0][2].callback is None:
            heapq.heappop(self._timers)
        return self._timers[0][0] if self._timers else None

    @property
    def elapsed_ms(self) -> float:
        return self._now_ms

    async def advance(self, delta_ms: float, settle: Settle) -> None:
        """Move on, and return when everything that became due on the way has been done."""
        if delta_ms < 0:
            raise ValueError("time does not go back")
        if self._moving:
            raise TooManyRequests("the clock is being moved already: wait for that first")
        self._moving = True
        until_ms = self._now_ms + delta_ms
        try:
            await settle()
            while self._now_ms < until_ms:
                due_ms = self.next_due_ms
                await self._step(until_ms if due_ms is None else min(due_ms, until_ms), settle)
        finally:
            self._moving = False

    async def _step(self, to_ms: float, settle: Settle) -> None:
        self._now_ms = max(self._now_ms, to_ms)
        while True:
            if self._wake_upkeep():
                await settle()
            if not self._fire():
                return
            await settle()

    def _wake_upkeep(self) -> bool:
        woken = False
        while self._paused and self._paused[0][0] <= self._now_ms:
            waiter = heapq.heappop(self._paused)[2]
            if not waiter.done():
                waiter.set_result(None)
                woken = True
        return woken

    def _fire(self) -> bool:
        """Call what is due now; false if nothing was."""
        fired = self.fired
        while (due_ms := self.next_due_ms) is not None and due_ms <= self._now_ms:
            timer = heapq.heappop(self._timers)[2]
            callback, timer.callback = timer.callback, None
            if callback is not None:
                self.fired += 1
                callback()
        return self.fired > fired
