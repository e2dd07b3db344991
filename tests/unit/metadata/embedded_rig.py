# SPDX-License-Identifier: Apache-2.0
"""What the tests of the embedded store share: opening one on a simulated disk, looking into it, and a crash.

Twin is the stupid double of the store; Life is one process that changes records until the n-th call to the disk kills
it.
"""

import asyncio
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

from magnetar.config.metadata import MetadataSettings
from magnetar.metadata.embedded import EmbeddedStore
from magnetar.runtime.clock import WallClock
from magnetar.runtime.simulated_disk import SimulatedDisk
from magnetar.runtime.simulated_faults import DiskCall

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


Operation = tuple[str, str, bytes]


class Twin:
    """A dict, and the state after each change that the store began."""

    def __init__(self) -> None:
        self.records: dict[str, tuple[bytes, int]] = {}
        self.states: list[dict[str, tuple[bytes, int]]] = [{}]
        self.answered = 0

    def put(self, name: str, value: bytes) -> int:
        version = self.records[name][1] + 1 if name in self.records else 0
        self.records[name] = (value, version)
        return self._done()

    def delete(self, name: str) -> int:
        del self.records[name]
        return self._done()

    def _done(self) -> int:
        self.states.append(dict(self.records))
        return len(self.states) - 1

    def on_recovered(self, found: dict[str, tuple[bytes, int]]) -> None:
        """It must be the state after some change that is not before the last one answered."""
        candidates = [number for number, state in enumerate(self.states) if state == found]
        assert candidates, f"{found} is none of the states {self.states}"
        assert candidates[-1] >= self.answered, f"change {self.answered} was answered, {candidates[-1]} recovered"
        self.records = dict(found)
        self.states, self.answered = [dict(found)], 0


class Life:
    """One process from start to crash: batches of concurrent changes until the n-th call to the disk."""

    def __init__(self, disk: SimulatedDisk, twin: Twin, crash_after: int, power_loss: bool) -> None:
        self.disk = disk
        self.twin = twin
        self.crash_at = disk.kernel.calls + crash_after
        self.power_loss = power_loss
        self.crashed = asyncio.Event()

    def on_call(self, call: DiskCall) -> None:
        if call.number == self.crash_at:
            if self.power_loss:
                self.disk.kernel.lose_power()
            else:
                self.disk.kernel.kill()
            self.crashed.set()

    async def change(self, store: EmbeddedStore, operation: Operation) -> None:
        verb, name, value = operation
        if verb == "delete" and name not in self.twin.records:
            return
        number = self.twin.put(name, value) if verb == "put" else self.twin.delete(name)
        if verb == "put":
            await store.put(f"/{name}", value)
        else:
            await store.delete(f"/{name}")
        self.twin.answered = max(self.twin.answered, number)

    async def live(self, batches: list[list[Operation]]) -> None:
        store = await opened(self.disk, MetadataSettings(log_bytes_max=600, mark_delay_ms=0))
        self.twin.on_recovered(await contents(store))
        for batch in batches:
            await asyncio.gather(*(self.change(store, operation) for operation in batch))
            await asyncio.sleep(0)
        await store.close()

    async def run(self, batches: list[list[Operation]]) -> None:
        self.disk.kernel.faults.on_call = self.on_call
        living = asyncio.ensure_future(self.live(batches))
        watching = asyncio.ensure_future(self.crashed.wait())
        await asyncio.wait((living, watching), return_when=asyncio.FIRST_COMPLETED)
        watching.cancel()
        # Calls of a dead process never return: what it still does in its last moments is of no effect.
        while not living.done():
            living.cancel()
            await asyncio.wait((living,), timeout=0)
        self.disk.kernel.faults.on_call = None
        if not self.crashed.is_set():
            living.result()
        self.disk.kernel.kill()
