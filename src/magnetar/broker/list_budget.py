# SPDX-License-Identifier: Apache-2.0
"""How many bytes of topic lists are made and sent at one time, over all clients and administration.

Lists may be long, and a client that reads slowly keeps its list in memory. Who wants one takes, before it is made, what
the last list of that namespace was; once it is made, what it is. Who finds no room waits in turn, for so long. A list
larger than everything goes alone.
Carries.
"""

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from magnetar.config.broker import BrokerSettings
from magnetar.errors import TooManyRequests

# What a name costs beside its text while a list is made.
NAME_BYTES: Final = 200
_KNOWN_MAX: Final = 10_000


class ListHold:
    """One list's share."""

    __slots__ = ("_budget", "_namespace", "size")

    def __init__(self, budget: "ListBudget", namespace: str, size: int) -> None:
        self._budget = budget
        self._namespace = namespace
        self.size = size

    def made(self, names: list[str]) -> None:
        """The list is known now; it may be larger than was thought."""
        size = sum(map(len, names)) + NAME_BYTES * len(names)
        self._budget.learn(self._namespace, size)
        self._budget.held_bytes += size - self.size
        self.size = size


class ListBudget:
    def __init__(self, settings: BrokerSettings) -> None:
        self._bytes_max = settings.list_bytes_max
        self._wait_s = settings.list_wait_ms / 1000
        self._waiting_max = settings.list_waiting_max
        self.held_bytes = 0
        # The sizes of former lists, those used last at the end.
        self._known: OrderedDict[str, int] = OrderedDict()
        self._waiting: deque[tuple[asyncio.Future[None], int]] = deque()

    @asynccontextmanager
    async def holding(self, namespace: object) -> AsyncIterator[ListHold]:
        """TooManyRequests when there is no room in time, or too many wait."""
        name = str(namespace)
        hold = ListHold(self, name, self._known.get(name, 0))
        await self._take(hold.size)
        try:
            yield hold
        finally:
            self.held_bytes -= hold.size
            self._let_in()

    def learn(self, namespace: str, size: int) -> None:
        self._known[namespace] = size
        self._known.move_to_end(namespace)
        if len(self._known) > _KNOWN_MAX:
            self._known.popitem(last=False)

    async def _take(self, size: int) -> None:
        if not self._waiting and self._fits(size):
            self.held_bytes += size
            return
        if len(self._waiting) >= self._waiting_max:
            raise TooManyRequests(f"{len(self._waiting)} lists of topics wait already; try again later")
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((turn, size))
        try:
            async with asyncio.timeout(self._wait_s):
                await turn
        except BaseException as error:
            if turn.done() and not turn.cancelled():
                self.held_bytes -= size
            elif (turn, size) in self._waiting:
                self._waiting.remove((turn, size))
            self._let_in()
            if isinstance(error, TimeoutError):
                raise TooManyRequests("Too many large lists of topics are being sent; try again later") from None
            raise

    def _fits(self, size: int) -> bool:
        return self.held_bytes == 0 or self.held_bytes + size <= self._bytes_max

    def _let_in(self) -> None:
        while self._waiting and self._fits(self._waiting[0][1]):
            turn, size = self._waiting.popleft()
            if not turn.done():
                self.held_bytes += size
                turn.set_result(None)
