# SPDX-License-Identifier: Apache-2.0
"""A ledger client in the test's own process, over bookies that are processes of their own."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from magnetar.config.ledger import ChannelSettings, LedgerSettings
from magnetar.errors import MagnetarError
from magnetar.ledger.bookies import Bookies
from magnetar.ledger.ledgers import Ledgers
from magnetar.ledger.placement import RandomPlacement
from magnetar.ledger.tcp_channel import TcpChannels
from magnetar.ledger.writer import LedgerWriter
from magnetar.metadata.remote import RemoteStore
from magnetar.runtime.chance import stream
from magnetar.runtime.clock import SystemClock
from magnetar.runtime.tasks import Tasks
from magnetar.wire.bookkeeper.digest import DigestType
from tests.cluster import Cluster

PASSWORD = b"secret"
_PATIENCE_S = 60.0


class Told:
    """What a writer's listener was told."""

    def __init__(self) -> None:
        self.confirmed = -1
        self.error: MagnetarError | None = None
        self._news = asyncio.Event()

    def on_confirmed(self, writer: LedgerWriter, entry_id: int) -> None:
        self.confirmed = entry_id
        self._news.set()

    def on_failed(self, writer: LedgerWriter, error: MagnetarError) -> None:
        self.error = error
        self._news.set()

    async def until(self, entry_id: int) -> None:
        """Until the entry is confirmed, or nothing more will be."""
        async with asyncio.timeout(_PATIENCE_S):
            while self.confirmed < entry_id and self.error is None:
                self._news.clear()
                await self._news.wait()


def body_of(entry_id: int) -> bytes:
    return b"entry %d " % entry_id * 20


@asynccontextmanager
async def ledgers_of(cluster: Cluster, settings: LedgerSettings | None = None) -> AsyncIterator[Ledgers]:
    host, port = cluster.metadata_url.removeprefix("remote:").rsplit(":", 1)
    store = await RemoteStore.open(host, int(port))
    tasks = Tasks("test", lambda name, error: None)
    bookies = await Bookies.open(store, tasks)
    channels = TcpChannels(bookies.address, tasks, ChannelSettings(request_timeout_ms=2_000, reconnect_delay_ms=50))
    random = stream(1, "faults")
    placement = RandomPlacement(lambda: bookies.writable, random)
    quick = LedgerSettings(add_timeout_ms=2_000, read_timeout_ms=2_000, recovery_read_timeout_ms=2_000)
    try:
        yield Ledgers(store, channels, placement, SystemClock(), random, tasks, settings or quick)
    finally:
        bookies.close()
        channels.close()
        await tasks.close()
        await store.close()


async def created(ledgers: Ledgers, told: Told, *, size: int = 3, write: int = 3, ack: int = 2) -> LedgerWriter:
    return await ledgers.create(
        ensemble_size=size,
        write_quorum=write,
        ack_quorum=ack,
        digest=DigestType.CRC32C,
        password=PASSWORD,
        custom_metadata={},
        listener=told,
    )


async def append(writer: LedgerWriter, told: Told, count: int) -> None:
    """So many more entries, all confirmed when it returns."""
    first = writer.last_add_pushed + 1
    for entry_id in range(first, first + count):
        writer.append([body_of(entry_id)])
    await told.until(first + count - 1)
    assert told.error is None, told.error


async def recovered(ledgers: Ledgers, ledger_id: int) -> int:
    """The last entry after recovery; every entry up to it is what was written. Tried again until bookies answer."""
    async with asyncio.timeout(_PATIENCE_S):
        while True:
            try:
                reader = await ledgers.open(ledger_id, password=PASSWORD)
                break
            except MagnetarError:
                await asyncio.sleep(0.1)
    entry_id = 0
    while entry_id <= reader.last_entry:
        for body in await reader.read(entry_id, reader.last_entry, bytes_max=1 << 20):
            assert bytes(body) == body_of(entry_id)
            entry_id += 1
    return reader.last_entry


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(_PATIENCE_S):
        while not await condition():  # noqa: ASYNC110 - other processes bring it about
            await asyncio.sleep(0.05)
