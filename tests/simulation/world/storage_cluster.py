# SPDX-License-Identifier: Apache-2.0
"""A storage cluster in a world: bookies on simulated disks, ledger clients, and a metadata store with sessions.

Bookies are the production ones, whole: cookie, boots, storage, server and listing, and the auditor and replication
workers in the same process if asked. Only two names are exchanged for the time of a run (`simulated`): how a port is
taken, and the class of the storage, which gets a witness. Clients run the production ledger client over its TCP
channels.
Assembles.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, TypeVar
from unittest.mock import patch

from magnetar.bookie import bookie as bookie_role
from magnetar.bookie.bookie import Bookie, BookieParts
from magnetar.bookie.cookie_check import Cookies
from magnetar.bookie.ledger_questions import LedgerQuestions
from magnetar.bookie.plain_index import PlainLedgerIndex
from magnetar.config.bookie import BookieSettings
from magnetar.config.bookie_server import BookieServerSettings
from magnetar.config.ledger import ChannelSettings, LedgerSettings, RepairSettings
from magnetar.config.metadata import MetadataSettings
from magnetar.errors import MetadataError, NoRecord
from magnetar.ledger.auto_recovery import AutoRecovery
from magnetar.ledger.bookies import Bookies
from magnetar.ledger.catalog import LedgerCatalog
from magnetar.ledger.channel import BookieChannel
from magnetar.ledger.ledgers import Ledgers
from magnetar.ledger.own_copies import OwnCopies
from magnetar.ledger.paths import COOKIES
from magnetar.ledger.placement import RandomPlacement
from magnetar.ledger.repair_list import RepairList
from magnetar.ledger.segments import segment_index
from magnetar.ledger.tcp_channel import TcpChannels
from magnetar.runtime.chance import stream
from magnetar.runtime.metrics import Metrics
from magnetar.runtime.simulated_disk import SimulatedDisk
from magnetar.runtime.simulated_faults import Latency
from magnetar.runtime.tasks import Tasks
from magnetar.wire.bookkeeper.registry import BOOTS
from tests.simulation.world.checkers.ledgers import LedgerRecords
from tests.simulation.world.checkers.violation import Violation
from tests.simulation.world.hasty_channel import hasty
from tests.simulation.world.metadata_model import MetadataFaults, MetadataModel, ModelStore
from tests.simulation.world.network import SimSocket
from tests.simulation.world.node import Node
from tests.simulation.world.sessions import Sessions
from tests.simulation.world.watched_storage import WatchedStorage, Witness
from tests.simulation.world.world import World

Answer = TypeVar("Answer")

PORT = 3181
_SESSION_TIMEOUT_MS = 4_000
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
    limbo_check_interval_ms=500,
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
# Often enough that some virtual seconds see every kind of audit.
REPAIRS = RepairSettings(
    lost_bookie_delay_ms=1_000,
    check_all_ledgers_interval_ms=3_000,
    check_bookies_interval_ms=2_000,
    verified_percentage=100,
    open_fragment_grace_ms=2_000,
    copied_entries_in_flight_max=4,
    retry_delay_ms=500,
    retry_delay_max_ms=4_000,
)


class StorageCluster:
    def __init__(
        self,
        world: World,
        bookies: int,
        *,
        bookie_settings: BookieSettings = SMALL_BOOKIE,
        ledger_settings: LedgerSettings = _LEDGER,
        channel_settings: ChannelSettings = _CHANNEL,
        repairs: RepairSettings | None = None,
    ) -> None:
        self.world = world
        self.bookie_settings = bookie_settings
        self.ledger_settings = ledger_settings
        self.channel_settings = channel_settings
        # None: nobody restores lost copies.
        self.repairs = repairs
        self.nodes = [world.node(f"bookie-{number}") for number in range(1, bookies + 1)]
        # Which fences each bookie has acknowledged, in any life.
        self.fences: dict[str, dict[int, None]] = {f"{node.name}:{PORT}": {} for node in self.nodes}
        # The bookies that have acknowledged an entry to its writer, not to a recovery.
        self._told_writer: dict[tuple[int, int], list[str]] = {}
        # What each bookie has acknowledged to anybody, in any life.
        self._acknowledged: dict[tuple[str, int, int], None] = {}
        self.records = LedgerRecords(self.fences, lambda *entry: self._told_writer.get(entry, []))
        self.metadata = MetadataModel(
            stream(world.seed, "metadata"),
            clock=world.node("metadata").clock,
            settings=MetadataSettings(session_timeout_ms=_SESSION_TIMEOUT_MS),
            faults=MetadataFaults(delay_least_ms=0.3, delay_tail_ms=0.3, watch_delay_tail_ms=1.0),
        )
        self.metadata.on_stored = self.records.on_stored
        self.metadata.on_removed = self.records.on_removed
        # How often fences get lost and recovery reads are slow, beside what the network does.
        self.haste = 0.0
        self.sessions = Sessions(self.metadata)
        # The storage of each bookie that runs now, by the node's name.
        self.storages: dict[str, WatchedStorage] = {}
        # Nodes whose disk was damaged at rest: only these may find losses.
        self.damaged: dict[str, None] = {}
        # Nodes whose disks were emptied and nobody has told the metadata, and those put back to an earlier life.
        self.emptied: dict[str, None] = {}
        self.rolled_back: dict[str, None] = {}

    async def start(self) -> None:
        store = self.metadata.open_session()
        await LedgerCatalog(store, self.world.random, self.ledger_settings).prepare()
        await store.close()
        for node in self.nodes:
            faults = node.disk.kernel.faults
            faults.write_latency, faults.sync_latency = Latency(0.05, 0.05), Latency(0.3, 1.0)
            node.start(self._run_bookie)

    # --- a bookie ------------------------------------------------------------------------------------------

    async def _run_bookie(self, node: Node) -> None:
        self.storages.pop(node.name, None)
        failed: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()

        def on_failed(error: BaseException) -> None:
            if not failed.done():
                failed.set_result(error)

        store = self.sessions.open()
        catalog = LedgerCatalog(store, node.random(f"catalog-{node.lives}"), self.ledger_settings)

        async def existing() -> list[int]:
            return [ledger_id async for ledger_id in catalog.ledger_ids()]

        tasks = Tasks(f"{node.name} repairs", lambda name, error: on_failed(error))
        client = await self.ledgers(node, store, tasks) if self.repairs is not None else None
        complete = None
        if client is not None and self.repairs is not None:
            own_locks = RepairList(store, node.clock, f"{node.name}-own-copies-{node.lives}")
            complete = OwnCopies(client[0].parts, own_locks, self.repairs).complete
        parts = BookieParts(
            disk=node.disk,
            store=store,
            clock=node.clock,
            metrics=Metrics(),
            index_factory=lambda directory: PlainLedgerIndex.open(node.disk, directory),
            questions=LedgerQuestions(existing, catalog.exists, complete=complete),
            fresh_instance_id="simulated",
            on_failed=on_failed,
        )
        ports = BookieServerSettings(
            bind_address="0.0.0.0",
            advertised_address=node.name,
            port=PORT,
            http_enabled=False,
            registration_check_interval_ms=300,
        )
        bookie = await Bookie.open(parts, self.bookie_settings, ports)
        if client is not None and self.repairs is not None:
            owner = f"{bookie.bookie_id}"
            await AutoRecovery(store, *client, node.clock, self.repairs, owner).start(tasks)
        raise await failed

    async def open_storage(self, disk: SimulatedDisk, settings: BookieSettings, **given: Any) -> WatchedStorage:
        """In place of the production class's own `open`: the same storage, watched."""
        node = next(node for node in self.nodes if node.disk is disk)
        storage = await WatchedStorage.open(disk, settings, **given)
        assert isinstance(storage, WatchedStorage)
        self._check_honest(node, storage, given["cookies"])
        fences = self.fences[storage.bookie]
        storage.watch(
            Witness(
                node,
                "journal/",
                fences,
                on_held=lambda *entry: self._on_held(node, *entry),
                must_hold=lambda *entry: self._must_hold(storage.bookie, *entry),
            )
        )
        self.storages[node.name] = storage
        return storage

    def _check_honest(self, node: Node, storage: WatchedStorage, cookies: Cookies) -> None:
        """I14: a bookie that lost something refuses to start, or doubts; one that did not does neither."""
        sentence = ""
        if storage.damage and node.name not in self.damaged:
            sentence = f"{node.name} found losses that were none: {storage.damage}"
        if node.name in self.emptied and cookies.registered is not None:
            sentence = f"{node.name} is registered and started with empty disks"
        # A start that was cut short may have noticed, and counted itself when its doubts were durable.
        has_noticed = bool(storage.damage) or storage.boots - 1 > cookies.boots
        if node.name in self.rolled_back and not has_noticed:
            sentence = f"{node.name} did not notice that its disks are those of an earlier life"
        if sentence:
            self.world.check([Violation("I14 honest", sentence)])
        self.rolled_back.pop(node.name, None)
        self.emptied.pop(node.name, None)

    def noted_boots(self, node: Node) -> int:
        """The lives of a bookie that the metadata knows of."""
        held = self.metadata.tree.get(f"{BOOTS}/{node.name}:{PORT}")
        return 0 if held is None else int(held.value)

    async def forget_cookie(self, node: Node) -> None:
        """What an operator does who lets a bookie begin again with empty disks."""
        store = self.metadata.open_session()
        with contextlib.suppress(NoRecord):
            await patiently(lambda: store.delete(f"{COOKIES}/{node.name}:{PORT}"))
        await store.close()

    def _must_hold(self, bookie: str, ledger_id: int, entry_id: int) -> bool:
        """Whether the bookie acknowledged an entry in any life, and the record says that it is there."""
        record = self.records.known.get(ledger_id)
        if record is None or (bookie, ledger_id, entry_id) not in self._acknowledged:
            return False
        if entry_id < 0 or (record.is_closed and entry_id > record.last_entry):
            return False
        segment = record.segments[segment_index(record.segments, entry_id)]
        return bookie in [segment.ensemble[member] for member in record.quorum.write_set(entry_id)]

    def _on_held(self, node: Node, ledger_id: int, entry_id: int, recovery: bool) -> None:
        self.world.atlas.stored((ledger_id, entry_id), node.name)
        self._acknowledged[f"{node.name}:{PORT}", ledger_id, entry_id] = None
        if not recovery:
            self._told_writer.setdefault((ledger_id, entry_id), []).append(f"{node.name}:{PORT}")

    # --- a client -------------------------------------------------------------------------------------------

    async def client(self, node: Node) -> Ledgers:
        """A ledger client in the node's process, with a session of its own."""

        def on_crash(name: str, error: BaseException) -> None:
            self.world.check([Violation("R19 no silent death", f"{node.name}: {name} died of {error!r}")])

        tasks = Tasks(node.name, on_crash)
        ledgers, _ = await self.ledgers(node, self.sessions.open(), tasks)
        return ledgers

    async def ledgers(self, node: Node, store: ModelStore, tasks: Tasks) -> tuple[Ledgers, Bookies]:
        bookies = await patiently(lambda: Bookies.open(store, tasks))
        random = node.random(f"ledgers-{node.lives}")
        channels: Callable[[str], BookieChannel] = TcpChannels(bookies.address, tasks, self.channel_settings)
        if self.haste:
            channels = hasty(channels, self.world, node.random(f"haste-{node.lives}"), self.haste)
        placement = RandomPlacement(lambda: bookies.writable, random)
        return Ledgers(store, channels, placement, node.clock, random, tasks, self.ledger_settings), bookies


class _WatchedClass:
    """Stands where the production code names its storage's class."""

    def __init__(self, cluster: StorageCluster) -> None:
        self.open = cluster.open_storage


@contextlib.contextmanager
def simulated(cluster: StorageCluster) -> Iterator[None]:
    """While a cluster runs: ports are the simulated network's, and storages are watched."""

    def take_port(address: str, port: int, flag: str) -> SimSocket:
        return SimSocket((address, port))

    with (
        patch.object(bookie_role, "take_port", take_port),
        patch.object(bookie_role, "BookieStorage", _WatchedClass(cluster)),
    ):
        yield


async def patiently(ask: Callable[[], Awaitable[Answer]]) -> Answer:
    """Until the metadata store answers."""
    while True:
        with contextlib.suppress(MetadataError):
            return await ask()
        await asyncio.sleep(_RETRY_S)
