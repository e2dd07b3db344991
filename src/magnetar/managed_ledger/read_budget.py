# SPDX-License-Identifier: Apache-2.0
"""How many bytes may be on their way from bookies at once, for all managed ledgers of a process.

A read takes its share before it is sent and gives it back when its answer is there; reads that find the budget used
up wait in the order in which they came. One read always goes, however large, when nothing else is on its way.
Carries.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class ReadBudget:
    __slots__ = ("_waiting", "bytes_max", "used_bytes")

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.used_bytes = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @property
    def waiting(self) -> int:
        """Reads that wait for their share."""
        return len(self._waiting)

    @asynccontextmanager
    async def share(self, size_bytes: int) -> AsyncIterator[None]:
        size_bytes = max(1, min(size_bytes, self.bytes_max))
        if self._waiting or not self._fits(size_bytes):
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append((size_bytes, turn))
            try:
                await turn
            except asyncio.CancelledError:
                # The share may have been given in the same moment: then it goes to the next.
                if turn.done() and not turn.cancelled():
                    self._give_back(size_bytes)
                else:
                    self._waiting.remove((size_bytes, turn))
                raise
        else:
            self.used_bytes += size_bytes
        try:
            yield
        finally:
            self._give_back(size_bytes)

    def _fits(self, size_bytes: int) -> bool:
        return self.used_bytes + size_bytes <= self.bytes_max

    def _give_back(self, size_bytes: int) -> None:
        self.used_bytes -= size_bytes
        while self._waiting and self._fits(self._waiting[0][0]):
            granted, turn = self._waiting.popleft()
            if not turn.done():
                self.used_bytes += granted
                turn.set_result(None)
