# SPDX-License-Identifier: Apache-2.0
"""What the tests of the embedded store share: opening one on a simulated disk, and looking at what is there."""

import asyncio
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

from magnetar.config.metadata import MetadataSettings
from magnetar.metadata.embedded import EmbeddedStore
from magnetar.runtime.clock import WallClock
from magnetar.runtime.simulated_disk import SimulatedDisk

# No mark comes by itself: each test says when the log is marked.
QUIET = MetadataSettings(mark_delay_ms=3_600_000)


class FixedClock(WallClock):
    def now_ms(self) -> int:
        return 1_700_000_000_000


async def opened(disk: SimulatedDisk, settings: MetadataSettings = QUIET) -> EmbeddedStore:
    return await EmbeddedStore.open(disk, "md", clock=FixedClock(), settings=settings)


def on_disk(check: Callable[[SimulatedDisk], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(check(SimulatedDisk(Random(7))))


async def contents(store: EmbeddedStore) -> dict[str, tuple[bytes, int]]:
    found = {}
    for name in await store.children("/"):
        record = await store.get(f"/{name}")
        assert record is not None
        found[name] = (record.value, record.version)
    return found


def files(disk: SimulatedDisk) -> dict[str, bytes]:
    return {path: data for path, data in disk.kernel.image().files.items() if not path.endswith("lock")}
