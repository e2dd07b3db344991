# SPDX-License-Identifier: Apache-2.0
"""Three bookies that do not sync their journals, one of which loses its power: the two stories of BookKeeper's BP-46.

The bookies' storages and the ledger client are the production ones, on simulated disks; between them is a way that each
client has, or has not. What the power takes is drawn from the seed.
"""

import asyncio
from dataclasses import replace
from random import Random

import pytest

from magnetar.bookie.ledger_index import LedgerIndex
from magnetar.bookie.ledger_questions import LedgerQuestions
from magnetar.bookie.plain_index import PlainLedgerIndex
from magnetar.bookie.storage import BookieStorage
from magnetar.errors import BookieUnavailable, LedgerFenced
from magnetar.ledger.channel import AddListener, BookieChannel, LastConfirmed
from magnetar.ledger.ledgers import Ledgers
from magnetar.ledger.placement import RandomPlacement
from magnetar.ledger.writer import LedgerWriter
from magnetar.metadata.memory import MemoryTree
from magnetar.runtime.clock import SystemClock
from magnetar.runtime.simulated_disk import SimulatedDisk
from magnetar.runtime.tasks import Tasks
from magnetar.wire.bookkeeper.digest import DigestType
from tests.simulation.world.storage_cluster import SMALL_BOOKIE
from tests.unit.ledger.cluster import PASSWORD, QUICK, Confirmations

SETTINGS = replace(SMALL_BOOKIE, journal_sync=False, flush_interval_ms=60_000)
NAMES = ("b1", "b2", "b3")
SEEDS = range(8)


class Bookies:
    """The disks, and the storage that each bookie has in its present life."""

    def __init__(self, seed: int) -> None:
        self.disks = {name: SimulatedDisk(Random(f"{seed} {name}")) for name in NAMES}
        self.storages: dict[str, BookieStorage] = {}
        self.existing: list[int] = []
        self.tree = MemoryTree()
        self._tasks: list[Tasks] = []

    async def start(self, name: str) -> None:
        disk = self.disks[name]

        async def index_in(directory: str) -> LedgerIndex:
            return await PlainLedgerIndex.open(disk, directory)

        async def existing() -> list[int]:
            return self.existing

        async def exists(ledger_id: int) -> bool:
            return ledger_id in self.existing

        async def complete(bookie: str, ledger_id: int) -> bytes | None:
            return None

        self.storages[name] = await BookieStorage.open(
            disk,
            SETTINGS,
            bookie=name,
            clock=SystemClock(),
            index_factory=index_in,
            on_failed=lambda failure: None,
            questions=LedgerQuestions(existing, exists, complete=complete),
        )

    async def lose_power(self, name: str) -> None:
        self.disks[name].kernel.lose_power()
        await self.start(name)

    def client(self, name: str, *, cut_off: set[str]) -> Ledgers:
        tasks = Tasks(name, lambda task, error: None)
        self._tasks.append(tasks)
        return Ledgers(
            self.tree.open_session(),
            lambda bookie: Way(bookie, self.storages, cut_off),
            RandomPlacement(lambda: NAMES, Random(0)),
            SystemClock(),
            Random(0),
            tasks,
            QUICK,
        )

    async def close(self) -> None:
        for tasks in self._tasks:
            await tasks.close()
        for storage in self.storages.values():
            await storage.close()


class Way(BookieChannel):
    """One client's way to a bookie, whichever life that has; to one that is cut off nothing arrives."""

    def __init__(self, bookie: str, storages: dict[str, BookieStorage], cut_off: set[str]) -> None:
        self.bookie = bookie
        self._storages = storages
        self._cut_off = cut_off

    def _there(self) -> BookieStorage:
        if self.bookie in self._cut_off:
            raise BookieUnavailable(f"{self.bookie} cannot be reached")
        return self._storages[self.bookie]

    def add(
        self,
        ledger_id: int,
        entry_id: int,
        entry: bytes,
        master_key: bytes,
        listener: AddListener,
        recovery: bool = False,
    ) -> None:
        if self.bookie not in self._cut_off:
            self._there().add(ledger_id, entry_id, entry, master_key, listener, recovery)

    async def read(self, ledger_id: int, entry_id: int, *, fence_key: bytes | None = None) -> bytes:
        return await self._there().read(ledger_id, entry_id, fence_key)

    async def read_batch(self, ledger_id: int, first: int, count_max: int, bytes_max: int) -> list[bytes]:
        return await self._there().read_batch(ledger_id, first, count_max, bytes_max)

    async def last_confirmed(self, ledger_id: int, *, fence_key: bytes | None = None) -> LastConfirmed:
        return LastConfirmed(*await self._there().last_confirmed(ledger_id, fence_key))

    async def write_last_confirmed(self, ledger_id: int, entry_id: int, body: bytes, master_key: bytes) -> None:
        await self._there().write_last_confirmed(ledger_id, entry_id, body, master_key)

    async def entry_ids(self, ledger_id: int) -> list[int]:
        return await self._there().entry_ids(ledger_id)

    def close(self) -> None:
        """The storages have their own ends."""


async def three_bookies(seed: int) -> Bookies:
    bookies = Bookies(seed)
    for name in NAMES:
        await bookies.start(name)
    return bookies


async def ledger_of(writing: Ledgers, bookies: Bookies) -> tuple[LedgerWriter, Confirmations]:
    """A ledger 3/3/2 whose first entry is confirmed."""
    listener = Confirmations()
    writer = await writing.create(
        ensemble_size=3,
        write_quorum=3,
        ack_quorum=2,
        digest=DigestType.CRC32C,
        password=PASSWORD,
        custom_metadata={},
        listener=listener,
    )
    bookies.existing.append(writer.ledger_id)
    writer.append([b"e0"])
    await listener.until_confirmed(0)
    return writer, listener


@pytest.mark.feature("F-REC-13")
@pytest.mark.parametrize("seed", SEEDS)
def test_a_writer_does_not_go_on_past_a_fence_that_the_power_took(seed: int) -> None:
    """F30: b1 and b2 are fenced, the ledger is closed; b2 loses its fence, b3 never had one, b1 is silent."""

    async def scenario() -> None:
        bookies = await three_bookies(seed)
        cut_off: set[str] = set()
        writer, listener = await ledger_of(bookies.client("w1", cut_off=cut_off), bookies)
        reader = await bookies.client("r1", cut_off={"b3"}).open(writer.ledger_id, password=PASSWORD)
        assert reader.last_entry == 0
        await bookies.lose_power("b2")
        cut_off.add("b1")
        writer.append([b"e1"])
        assert isinstance(await listener.until_failed(), LedgerFenced)
        assert listener.last == reader.last_entry
        await bookies.close()

    asyncio.run(scenario())


@pytest.mark.feature("F-REC-13")
@pytest.mark.parametrize("seed", SEEDS)
def test_a_recovery_does_not_close_before_an_entry_that_the_power_took(seed: int) -> None:
    """F30: b1 and b2 acknowledged the entry; b1 loses it, b2 cannot be reached, b3 never had it."""

    async def scenario() -> None:
        bookies = await three_bookies(seed)
        writer, _ = await ledger_of(bookies.client("w1", cut_off={"b3"}), bookies)
        await bookies.lose_power("b1")
        cut_off = {"b2"}
        recovering = bookies.client("r1", cut_off=cut_off)
        try:
            reader = await recovering.open(writer.ledger_id, password=PASSWORD)
        except BookieUnavailable:
            # The power took it: recovery waits for who has it.
            cut_off.clear()
            reader = await recovering.open(writer.ledger_id, password=PASSWORD)
        assert reader.last_entry == 0
        assert [bytes(body) for body in await reader.read(0, 0, bytes_max=100)] == [b"e0"]
        await bookies.close()

    asyncio.run(scenario())
