# SPDX-License-Identifier: Apache-2.0
"""Readers that wait until a ledger's last add confirmed may have moved.

Owns who waits for which ledger, within a bound. Says only that it is worth looking again; what the number is, is the
storage's to say.
Carries.
"""

import asyncio

from magnetar.errors import TooManyRequests


class ConfirmationWaits:
    """False while nobody waits, so that an add has nothing to do."""

    __slots__ = ("_count", "_waiters", "_waits_max")

    def __init__(self, waits_max: int) -> None:
        self._waits_max = waits_max
        self._count = 0
        self._waiters: dict[int, dict[asyncio.Future[None], None]] = {}

    def __bool__(self) -> bool:
        return bool(self._waiters)

    def wake(self, ledger_id: int) -> None:
        for waiter in self._waiters.pop(ledger_id, ()):
            if not waiter.done():
                waiter.set_result(None)

    def wake_all(self) -> None:
        for ledger_id in list(self._waiters):
            self.wake(ledger_id)

    async def wait(self, ledger_id: int) -> None:
        """Returns after the next change of the ledger. TooManyRequests when too many wait already."""
        if self._count >= self._waits_max:
            raise TooManyRequests(f"{self._waits_max} readers wait for confirmations already")
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.setdefault(ledger_id, {})[waiter] = None
        self._count += 1
        try:
            await waiter
        finally:
            self._count -= 1
            others = self._waiters.get(ledger_id)
            if others is not None and others.pop(waiter, self) is None and not others:
                del self._waiters[ledger_id]
