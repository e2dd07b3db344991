# SPDX-License-Identifier: Apache-2.0
"""A storage cluster in a world: bookies on simulated disks, ledger clients, and a metadata store with sessions.

Bookies run the production storage behind BookKeeper's protocol on the simulated network; clients run the production
ledger client over its TCP channels. Sessions belong to processes: a process that dies or stands still stops talking to
the store, and its session ends after the timeout.
Assembles.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeVar

from magnetar.bookie.ledger_questions import LedgerQuestions
from magnetar.bookie.plain_index import PlainLedgerIndex
from magnetar.config.bookie import BookieSettings
from magnetar.config.ledger import ChannelSettings, LedgerSettings
from magnetar.config.metadata import MetadataSettings
from magnetar.errors import MetadataError, StorageFailed
from magnetar.ledger.bookies import Bookies
from magnetar.ledger.catalog import LedgerCatalog
from magnetar.ledger.channel import BookieChannel
from magnetar.ledger.ledgers import Ledgers
from magnetar.ledger.paths import AVAILABLE
from magnetar.ledger.placement import RandomPlacement
from magnetar.ledger.tcp_channel import TcpChannels
from magnetar.metadata.store import SessionEvent
from magnetar.runtime.chance import stream
from magnetar.runtime.simulated_faults import Latency
from magnetar.runtime.tasks import Tasks
from tests.simulation.world.checkers.ledgers import LedgerRecords
from tests.simulation.world.checkers.violation import Violation
from tests.simulation.world.hasty_channel import hasty
from tests.simulation.world.metadata_model import MetadataFaults, MetadataModel, ModelStore
from tests.simulation.world.node import Node
from tests.simulation.world.process import SimProcess, current_process
from tests.simulation.world.storage_server import serve_storage
from tests.simulation.world.watched_storage import WatchedStorage, Witness
from tests.simulation.world.world import World

Answer = TypeVar("Answer")

PORT = 3181
_SESSION_TIMEOUT_MS = 4_000
_HEARTBEAT_S = 0.1
_RETRY_S = 0.2
# Small enough that some dozens of entries meet every limit: cache halves, rolled journals, rolled entry logs.
SMALL_BOOKIE = BookieSettings(
    entry_bytes_max=64 * 1024,
    journal_file_bytes_max=8192,
    journal_preallocate_bytes=4096,
    journal_backups_max=1,
    write_cache_bytes_max=8192,
    held_adds_bytes_max=256 * 1024,
    held_adds_wait_max_ms=1_000,
    flush_interval_ms=2_000,
    entry_log_bytes_max=8192,
    entry_log_write_bytes=1024,
    read_cache_bytes_max=4096,
    read_ahead_entries_max=8,
    garbage_interval_ms=3_000,
    minor_compaction_interval_ms=6_000,
    major_compaction_interval_ms=12_000,
    scrub_interval_ms=5_000,
    disk_check_interval_ms=1_000,
)
_CHANNEL = ChannelSettings(
    connect_timeout_ms=1_000, request_timeout_ms=2_500, reconnect_delay_ms=50, reconnect_delay_max_ms=500
)
_LEDGER = LedgerSettings(
    add_timeout_ms=2_000,
    read_timeout_ms=1_500,
    ensemble_change_timeout_ms=4_000,
    recovery_read_timeout_ms=2_000,
    metadata_retry_delay_ms=50,
    metadata_retries_max=6,
)


@dataclass(slots=True)
class Session:
    """One process's way to the metadata store, and why nothing passes on it now."""

    store: ModelStore
    process: SimProcess
    reasons: dict[str, None] = field(default_factory=dict)

    def block(self, reason: str) -> None:
        if not self.reasons:
            self.store.cut()
        self.reasons[reason] = None

    def unblock(self, reason: str) -> None:
        if reason in self.reasons:
            del self.reasons[reason]
            if not self.reasons:
                self.store.heal()


class StorageCluster:
    def __init__(
        self,
        world: World,
        bookies: int,
        *,
        bookie_settings: BookieSettings = SMALL_BOOKIE,
        ledger_settings: LedgerSettings = _LEDGER,
        channel_settings: ChannelSettings = _CHANNEL,
    ) -> None:
        self.world = world
        self.bookie_settings = bookie_settings
        self.ledger_settings = ledger_settings
        self.channel_settings = channel_settings
        self.nodes = [world.node(f"bookie-{number}") for number in range(1, bookies + 1)]
        # Which fences each bookie has acknowledged, in any life.
        self.fences: dict[str, dict[int, None]] = {f"{node.name}:{PORT}": {} for node in self.nodes}
        # The bookies that have acknowledged an entry to its writer, not to a recovery.
        self._told_writer: dict[tuple[int, int], list[str]] = {}
        self.records = LedgerRecords(self.fences, lambda *entry: self._told_writer.get(entry, []))
        self.metadata = MetadataModel(
            stream(world.seed, "metadata"),
            clock=world.node("metadata").clock,
            settings=MetadataSettings(session_timeout_ms=_SESSION_TIMEOUT_MS),
            faults=MetadataFaults(delay_least_ms=0.3, delay_tail_ms=0.3, watch_delay_tail_ms=1.0),
        )
        self.metadata.on_stored = self.records.on_stored
        # How often fences get lost and recovery reads are slow, beside what the network does.
        self.haste = 0.0
        self.sessions: list[Session] = []
        # The storage of each bookie that runs now, by the node's name.
        self.storages: dict[str, WatchedStorage] = {}
        # Nodes whose disk was damaged at rest: only these may find losses.
        self.damaged: dict[str, None] = {}

    async def start(self) -> None:
        store = self.metadata.open_session()
        await LedgerCatalog(store, self.world.random, self.ledger_settings).prepare()
        await store.close()
        for node in self.nodes:
            faults = node.disk.kernel.faults
            faults.write_latency, faults.sync_latency = Latency(0.05, 0.05), Latency(0.3, 1.0)
            node.start(self._run_bookie)

    async def keep_sessions(self) -> None:
        """For ever: what the heartbeats of processes come to."""
        while True:
            for session in list(self.sessions):
                process = session.process
                if process.dead:
                    session.block("dead")
                    self.sessions.remove(session)
                elif process.paused:
                    session.block("paused")
                else:
                    session.unblock("paused")
            await asyncio.sleep(_HEARTBEAT_S)

    def session(self) -> ModelStore:
        """A session for the process that asks."""
        process = current_process.get()
        assert process is not None, "only processes have sessions"
        store = self.metadata.open_session()
        self.sessions.append(Session(store, process))
        return store

    # --- a bookie ------------------------------------------------------------------------------------------

    async def _run_bookie(self, node: Node) -> None:
        failed: asyncio.Future[StorageFailed] = asyncio.get_running_loop().create_future()

        def on_failed(error: StorageFailed) -> None:
            if not failed.done():
                failed.set_result(error)

        store = self.session()
        catalog = LedgerCatalog(store, node.random(f"catalog-{node.lives}"), self.ledger_settings)

        async def existing() -> list[int]:
            return [ledger_id async for ledger_id in catalog.ledger_ids()]

        storage = await WatchedStorage.open(
            node.disk,
            self.bookie_settings,
            bookie=f"{node.name}:{PORT}",
            clock=node.clock,
            index_factory=lambda directory: PlainLedgerIndex.open(node.disk, directory),
            on_failed=on_failed,
            questions=LedgerQuestions(existing, catalog.exists),
        )
        assert isinstance(storage, WatchedStorage)
        if storage.damage and node.name not in self.damaged:
            self.world.check([Violation("I14 honest", f"{node.name} found losses that were none: {storage.damage}")])
        fences = self.fences[storage.bookie]
        storage.watch(Witness(node, "journal/", fences, lambda *entry: self._on_held(node, *entry)))
        self.storages[node.name] = storage
        await serve_storage(storage, PORT)
        tasks = Tasks(node.name, lambda name, error: on_failed(StorageFailed(f"{name}: {error!r}")))
        tasks.start(self._stay_registered(store, f"{AVAILABLE}/{node.name}:{PORT}"), "registration")
        raise await failed

    def _on_held(self, node: Node, ledger_id: int, entry_id: int, recovery: bool) -> None:
        self.world.atlas.stored((ledger_id, entry_id), node.name)
        if not recovery:
            self._told_writer.setdefault((ledger_id, entry_id), []).append(f"{node.name}:{PORT}")

    async def _stay_registered(self, store: ModelStore, path: str) -> None:
        """Ephemeral, and put again by whoever comes back: the record of an earlier life is not ours."""
        changed = asyncio.Event()
        store.watch_session(lambda event: changed.set() if event is not SessionEvent.DISCONNECTED else None)
        while True:
            changed.clear()
            try:
                if await store.exists(path):
                    await store.delete(path)
                await store.put(path, b"", ephemeral=True)
            except MetadataError:
                await asyncio.sleep(_RETRY_S)
                continue
            await changed.wait()

    # --- a client -------------------------------------------------------------------------------------------

    async def client(self, node: Node) -> Ledgers:
        """A ledger client in the node's process, with a session of its own."""

        def on_crash(name: str, error: BaseException) -> None:
            self.world.check([Violation("R19 no silent death", f"{node.name}: {name} died of {error!r}")])

        tasks = Tasks(node.name, on_crash)
        store = self.session()
        bookies = await patiently(lambda: Bookies.open(store, tasks))
        random = node.random(f"ledgers-{node.lives}")
        channels: Callable[[str], BookieChannel] = TcpChannels(bookies.address, tasks, self.channel_settings)
        if self.haste:
            channels = hasty(channels, self.world, node.random(f"haste-{node.lives}"), self.haste)
        placement = RandomPlacement(lambda: bookies.writable, random)
        return Ledgers(store, channels, placement, node.clock, random, tasks, self.ledger_settings)


async def patiently(ask: Callable[[], Awaitable[Answer]]) -> Answer:
    """Until the metadata store answers."""
    while True:
        with contextlib.suppress(MetadataError):
            return await ask()
        await asyncio.sleep(_RETRY_S)
