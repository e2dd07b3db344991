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

    __slots__ = ("_loop", "_since_s")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._since_s = self._loop.time()

    async def others(self) -> None:
        await asyncio.sleep(min(_PAUSE_S_MAX, self._loop.time() - self._since_s))
        self._since_s = self._loop.time()


async def sliced(items: Iterable[Item], slice_items_max: int) -> AsyncIterator[Item]:
    """Every item in order, with a pause for others after each slice."""
    turns = Turns()
    for count, item in enumerate(items, 1):
        yield item
        if count % slice_items_max == 0:
            await turns.others()
