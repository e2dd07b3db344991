# SPDX-License-Identifier: Apache-2.0
"""A bounded amount of something, with a queue in front: places of a producer, bytes of a client.

Whoever came first gets room first, whatever its size. Room may be overdrawn by one taker, so that one message that is
larger than everything can still pass; nothing more is given until the debt is paid.
Carries.
"""

import asyncio
from collections import deque


class Room:
    __slots__ = ("_amount_max", "_waiters", "used")

    def __init__(self, amount_max: int) -> None:
        """0 means no bound."""
        self._amount_max = amount_max
        self._waiters: deque[tuple[asyncio.Future[None], int]] = deque()
        self.used = 0

    def try_take(self, amount: int) -> bool:
        if self._waiters or (self._amount_max and self.used >= self._amount_max):
            return False
        self.used += amount
        return True

    async def take(self, amount: int) -> None:
        """Wait for room. A cancelled taker has taken nothing."""
        if self.try_take(amount):
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        place = (waiter, amount)
        self._waiters.append(place)
        try:
            await waiter
        except asyncio.CancelledError:
            # Granted and cancelled in the same turn: the room goes to the next.
            if waiter.done() and not waiter.cancelled():
                self.used -= amount
            raise
        finally:
            # Only now, so that nobody overtakes one who was granted room and has not run yet.
            self._waiters.remove(place)
            self._grant()

    def give(self, amount: int) -> None:
        """Return what was taken."""
        assert self.used >= amount, f"{amount} returned, {self.used} taken"
        self.used -= amount
        self._grant()

    def _grant(self) -> None:
        for waiter, amount in self._waiters:
            if waiter.done():
                continue
            if self.used >= self._amount_max:
                return
            self.used += amount
            waiter.set_result(None)

    def fail(self, error: Exception) -> None:
        """The owner is closed: nobody need wait any more."""
        for waiter, _ in self._waiters:
            if not waiter.done():
                waiter.set_exception(error)
