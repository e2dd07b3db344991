# SPDX-License-Identifier: Apache-2.0
"""Steps that must not overlap, one after another in the order they were asked for.

For owners whose steps wait for a disk: without turns a second step would begin in the middle of the first.
Carries.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

Result = TypeVar("Result")


class Turns:
    __slots__ = ("_last",)

    def __init__(self) -> None:
        self._last: asyncio.Future[None] | None = None

    async def take(self, step: Callable[[], Awaitable[Result]]) -> Result:
        """Run a step when all that were asked for before have ended, well or badly."""
        previous = self._last
        mine: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._last = mine
        try:
            if previous is not None and not previous.done():
                await asyncio.wait((previous,))
            return await step()
        finally:
            if previous is not None and not previous.done():
                # Given up while waiting: whoever is next waits for the one before us.
                previous.add_done_callback(lambda _: mine.set_result(None))
            else:
                mine.set_result(None)
