# SPDX-License-Identifier: Apache-2.0
"""A small cluster for tests of the ledger client: model bookies, a metadata tree in memory, several clients.

Assembles.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from magnetar.config.ledger import LedgerSettings
from magnetar.errors import MagnetarError
from magnetar.ledger.channel import BookieChannel
from magnetar.ledger.ledgers import Ledgers
from magnetar.ledger.placement import Placement, RandomPlacement
from magnetar.ledger.reader import LedgerReader
from magnetar.ledger.writer import LedgerWriter
from magnetar.metadata.memory import MemoryTree
from magnetar.metadata.store import MetadataStore
from magnetar.runtime.clock import SystemClock
from magnetar.runtime.tasks import Tasks
from magnetar.wire.bookkeeper.digest import DigestType
from tests.simulation.world.model_bookie import ModelBookie, ModelChannel

PASSWORD = b"secret"
# Deadlines so long that a busy machine does not reach them; a test that waits for one sets its own.
QUICK = LedgerSettings(
    add_timeout_ms=10_000,
    read_timeout_ms=10_000,
    recovery_read_timeout_ms=10_000,
    ensemble_change_timeout_ms=10_000,
    metadata_retry_delay_ms=1,
)
# For a client that must get through, whatever the settings of the others.
PATIENT: dict[str, Any] = {"add_timeout_ms": 10_000, "read_timeout_ms": 10_000, "recovery_read_timeout_ms": 10_000}


class Confirmations:
    """A writer's listener that keeps what it was told, and lets a test wait for it."""

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.errors: list[MagnetarError] = []
        self._told = asyncio.Event()

    def on_confirmed(self, writer: LedgerWriter, entry_id: int) -> None:
        assert not self.errors, "confirmed after it failed"
        assert not self.numbers or entry_id > self.numbers[-1], "the number rises"
        self.numbers.append(entry_id)
        self._told.set()

    def on_failed(self, writer: LedgerWriter, error: MagnetarError) -> None:
        assert not self.errors, "failed twice"
        self.errors.append(error)
        self._told.set()

    @property
    def last(self) -> int:
        return self.numbers[-1] if self.numbers else -1

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(20):
            while not condition():
                self._told.clear()
                await self._told.wait()

    async def until_confirmed(self, entry_id: int) -> None:
        await self.until(lambda: self.last >= entry_id or bool(self.errors))
        assert self.last >= entry_id, self.errors

    async def until_failed(self) -> MagnetarError:
        await self.until(lambda: bool(self.errors))
        return self.errors[0]


@dataclass
class ModelClient:
    """One client process: its own metadata session, channels and tasks."""

    ledgers: Ledgers
    store: MetadataStore
    tasks: Tasks
    channels: dict[str, ModelChannel]

    async def create(
        self, ensemble_size: int = 3, write_quorum: int = 3, ack_quorum: int = 2, digest: DigestType = DigestType.CRC32C
    ) -> tuple[LedgerWriter, Confirmations]:
        listener = Confirmations()
        writer = await self.ledgers.create(
            ensemble_size=ensemble_size,
            write_quorum=write_quorum,
            ack_quorum=ack_quorum,
            digest=digest,
            password=PASSWORD,
            custom_metadata={"component": b"test"},
            listener=listener,
        )
        return writer, listener

    async def open(self, ledger_id: int) -> LedgerReader:
        return await self.ledgers.open(ledger_id, password=PASSWORD)

    def channel(self, bookie: str) -> ModelChannel:
        """This client's way to a bookie, made now if it was not used yet."""
        made = self.ledgers.channels(bookie)
        assert isinstance(made, ModelChannel)
        return made

    async def die(self) -> None:
        """Nothing that this client sent is answered to it any more."""
        for channel in self.channels.values():
            channel.close()
        await self.tasks.close()


class Cluster:
    def __init__(self, bookies: int, *, seed: int = 0, settings: LedgerSettings = QUICK) -> None:
        self.random = Random(seed)
        self.bookies = {f"b{i}": ModelBookie(f"b{i}") for i in range(1, bookies + 1)}
        self.tree = MemoryTree()
        self.settings = settings
        self.crashes: list[str] = []

    def writable(self) -> Sequence[str]:
        return [name for name, bookie in self.bookies.items() if bookie.is_up and not bookie.read_only]

    def client(
        self,
        name: str = "client",
        *,
        placement: Placement | None = None,
        store: MetadataStore | None = None,
        **changes: object,
    ) -> ModelClient:
        channels: dict[str, ModelChannel] = {}

        def channel(bookie: str) -> BookieChannel:
            if bookie not in channels:
                channels[bookie] = self.bookies[bookie].channel(name)
            return channels[bookie]

        store = store or self.tree.open_session()
        tasks = Tasks(name, lambda task, error: self.crashes.append(f"{task}: {error!r}"))
        ledgers = Ledgers(
            store,
            channel,
            placement or RandomPlacement(self.writable, self.random),
            SystemClock(),
            Random(self.random.random()),
            tasks,
            replace(self.settings, **changes),  # type: ignore[arg-type]
        )
        return ModelClient(ledgers, store, tasks, channels)

    def holders(self, ledger_id: int, entry_id: int) -> list[str]:
        return [
            name
            for name, bookie in self.bookies.items()
            if ledger_id in bookie.ledgers and entry_id in bookie.ledgers[ledger_id].entries
        ]


async def bodies(reader: LedgerReader) -> list[bytes]:
    """Every entry's body, in order."""
    found: list[bytes] = []
    while len(found) <= reader.last_entry:
        found.extend(map(bytes, await reader.read(len(found), reader.last_entry, bytes_max=1 << 20)))
    return found


async def settle() -> None:
    """Let everything run that needs no time."""
    for _ in range(50):
        await asyncio.sleep(0)
