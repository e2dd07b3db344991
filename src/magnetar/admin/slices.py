# SPDX-License-Identifier: Apache-2.0
"""Long walks in small steps: after every slice the loop runs what waits, so that no handler holds it.

Carries.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import TypeVar

Item = TypeVar("Item")


async def sliced(items: Iterable[Item], slice_items_max: int) -> AsyncIterator[Item]:
    """Every item in order, with a pause for others after each slice."""
    for count, item in enumerate(items, 1):
        yield item
        if count % slice_items_max == 0:
            await asyncio.sleep(0)
