# SPDX-License-Identifier: Apache-2.0
"""Brokers for tests of managed ledgers: real ledgers over model bookies, a shared metadata tree, a clock that we set.

Assembles.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TypeVar

from magnetar.config.managed_ledger import ManagedLedgerSettings
from magnetar.errors import MagnetarError
from magnetar.ids import EARLIEST, Position
from magnetar.managed_ledger.managed_ledger import ManagedLedger
from magnetar.managed_ledger.managed_ledgers import ManagedLedgers
from magnetar.runtime.clock import WallClock
from magnetar.runtime.tasks import Tasks
from tests.unit.ledger.cluster import QUICK, Cluster
from tests.unit.ledger.faulty_store import Fault, FaultyStore

NAME = "public/default/persistent/topic"

Result = TypeVar("Result")

SETTINGS = ManagedLedgerSettings(
    rollover_age_min_ms=0,
    rollover_age_max_ms=0,
    append_timeout_ms=5_000,
    retry_delay_ms=1,
    retry_delay_max_ms=10,
    cursor_flush_interval_ms=1,
    retention_ms=-1,
    retention_bytes=-1,
)


class ManualClock(WallClock):
    def __init__(self) -> None:
        self.time_ms = 1_000_000

    def now_ms(self) -> int:
        return self.time_ms


class Publisher:
    """A listener that appends numbered bodies and keeps what it is told of them, in order."""

    def __init__(self) -> None:
        self.ledger: ManagedLedger
        self.waiting: deque[bytes] = deque()
        self.persisted: dict[Position, bytes] = {}
        self.failures: list[MagnetarError] = []
        self.failed: list[bytes] = []
        # How far acks are known to be saved, for tests that check what may be trimmed.
        self.acked = EARLIEST
        self._told = asyncio.Event()
        self._inside = False

    def append(self, body: bytes) -> None:
        self._inside = True
        try:
            self.ledger.append((body[:1], body[1:]))
        finally:
            self._inside = False
        self.waiting.append(body)

    def append_many(self, count: int, prefix: str = "m") -> list[bytes]:
        bodies = [f"{prefix}-{index}".encode() for index in range(count)]
        for body in bodies:
            self.append(body)
        return bodies

    def on_persisted(self, ledger_id: int, first_entry: int, last_entry: int) -> None:
        assert not self._inside, "told from inside append"
        assert not self.failures, "told after everything had failed"
        for entry_id in range(first_entry, last_entry + 1):
            position = Position(ledger_id, entry_id)
            assert not self.persisted or position > max(self.persisted), "positions rise"
            self.persisted[position] = self.waiting.popleft()
        self._told.set()

    def on_append_failed(self, count: int, error: MagnetarError) -> None:
        assert not self._inside, "told from inside append"
        self.failures.append(error)
        for _ in range(count):
            self.failed.append(self.waiting.popleft())
        self._told.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(20):
            while not condition():
                self._told.clear()
                await self._told.wait()

    async def outcome(self) -> None:
        """Wait until everything was persisted, or has failed."""
        await self.until(lambda: not self.waiting or bool(self.failures))

    async def rest(self) -> None:
        """Wait until nothing is on its way."""
        await self.until(lambda: not self.waiting)


class Owner:
    """One broker process."""

    def __init__(
        self,
        world: "World",
        name: str,
        settings: ManagedLedgerSettings,
        fault: Fault = lambda operation, path: None,
        *,
        store: FaultyStore | None = None,
    ) -> None:
        self.world = world
        self.store = store or FaultyStore(world.cluster.tree.open_session(), fault)
        self.client = world.cluster.client(name, store=self.store)
        self.tasks = Tasks(f"{name} logs", lambda task, error: world.cluster.crashes.append(f"{task}: {error!r}"))
        self.logs = ManagedLedgers(self.store, self.client.ledgers, world.clock, self.tasks, settings)
        self.publisher = Publisher()

    async def open(self, *, create: bool = True) -> ManagedLedger:
        self.publisher.ledger = await self.logs.open(NAME, self.publisher, create=create)
        return self.publisher.ledger

    async def die(self) -> None:
        """End as by kill -9: nothing is saved, nothing that was sent is answered."""
        await self.tasks.close()
        await self.client.die()

    async def close(self) -> None:
        await self.logs.close()
        await self.tasks.close()
        await self.client.die()


class World:
    def __init__(self, bookies: int = 1, **settings: object) -> None:
        self.cluster = Cluster(bookies, settings=QUICK)
        self.clock = ManualClock()
        self.settings = replace(SETTINGS, **settings)  # type: ignore[arg-type]
        self._owners = 0

    def owner(self, fault: Fault = lambda operation, path: None, **settings: object) -> Owner:
        self._owners += 1
        return Owner(self, f"owner{self._owners}", replace(self.settings, **settings), fault)  # type: ignore[arg-type]

    def check(self) -> None:
        assert not self.cluster.crashes, self.cluster.crashes

    async def existing_ledgers(self) -> set[int]:
        """Every ledger on record, whoever it belongs to."""
        catalog = self.cluster.client("auditor").ledgers.catalog
        return {ledger_id async for ledger_id in catalog.ledger_ids()}


async def patiently(call: Callable[[], Awaitable[Result]]) -> Result:
    """Call again while the weather is bad."""
    for _ in range(100):
        try:
            return await call()
        except MagnetarError as error:
            if not error.retryable:
                raise
    raise AssertionError("the weather does not get better")


async def read_all(ledger: ManagedLedger, start: Position = EARLIEST, entries_max: int = 7) -> dict[Position, bytes]:
    """Every entry of a log, read in small steps."""
    found: dict[Position, bytes] = {}
    position = start
    while True:
        entries = await ledger.read(position, entries_max=entries_max, bytes_max=1 << 20)
        if not entries:
            return found
        for entry in entries:
            assert entry.position not in found
            found[entry.position] = bytes(entry.body)
        position = Position(entries[-1].ledger_id, entries[-1].entry_id + 1)
