# SPDX-License-Identifier: Apache-2.0
"""Long walks in small steps: after every slice the loop runs what waits, so that no handler holds it.

A walk takes at most half of the loop's time: it pauses for as long as its last slice took.
Carries.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import Final, TypeVar

Item = TypeVar("Item")

# A slice that was interrupted, or looked at something large, does not make the walk stop for long.
_PAUSE_S_MAX: Final = 0.005


class Turns:
    """One walk's way of letting others have their turn."""

    __slots__ = ("_items", "_items_max", "_loop", "_since_s")

    def __init__(self, items_max: int = 1) -> None:
        self._loop = asyncio.get_running_loop()
        self._since_s = self._loop.time()
        self._items_max = items_max
        self._items = 0

    async def after(self, items: int = 1) -> None:
        """So many items are done; a walk of several kinds counts them all."""
        self._items += items
        if self._items >= self._items_max:
            self._items = 0
            await self.others()

    async def others(self) -> None:
        await asyncio.sleep(min(_PAUSE_S_MAX, self._loop.time() - self._since_s))
        self._since_s = self._loop.time()


async def sliced(items: Iterable[Item], slice_items_max: int) -> AsyncIterator[Item]:
    """Every item in order, with a pause for others after each slice."""
    turns = Turns(slice_items_max)
    for item in items:
        yield item
        await turns.after()
