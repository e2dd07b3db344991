# SPDX-License-Identifier: Apache-2.0
"""One process that is a whole cluster: embedded metadata, one bookie, one broker.

Opens them from the bottom up and closes them from the top down; a part that dies takes the process with it. The same
parts make a cluster of many processes; here they are joined by plain calls.
Assembles.
"""

from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from random import Random

from magnetar.admin.server import AdminServer, WebPorts, take_ports
from magnetar.bookie.bookie_metrics import Limits, describe
from magnetar.bookie.opening import IndexFactory
from magnetar.bookie.storage import BookieStorage
from magnetar.broker.broker import Broker
from magnetar.broker.ownership.level_keeper import LevelKeeper
from magnetar.config.bookie import BookieSettings
from magnetar.config.load import Settings
from magnetar.errors import BookieUnavailable
from magnetar.ledger.channel import BookieChannel
from magnetar.ledger.ledgers import Ledgers
from magnetar.ledger.placement import RandomPlacement
from magnetar.managed_ledger.managed_ledgers import ManagedLedgers
from magnetar.metadata.format_level import Announced, FormatLevel
from magnetar.metadata.measured import measured_store
from magnetar.metadata.store import MetadataStore
from magnetar.runtime.clock import WallClock
from magnetar.runtime.disk import Disk
from magnetar.runtime.metrics import Metrics
from magnetar.standalone.door_ports import NO_DOORS, DoorPorts
from magnetar.standalone.ground import BOOKIE, Ground, open_ground, room_for_brokers
from magnetar.standalone.local_channel import LocalBookieChannel
from magnetar.websocket.opening import opener as websocket_opener


class Standalone:
    """Usable when `open` returns. `on_failed` is told once when the process cannot go on."""

    def __init__(
        self,
        broker: Broker,
        store: MetadataStore,
        storage: BookieStorage,
        closing: AsyncExitStack,
        doors: dict[str, str],
    ) -> None:
        self.broker = broker
        self.store = store
        self.storage = storage
        self._closing = closing
        self.admin: AdminServer | None = None
        self._ports: WebPorts | None = None
        # Where storage and metadata are served to other processes, where that was asked for.
        self.doors = doors

    @classmethod
    async def open(
        cls,
        disk: Disk,
        settings: Settings,
        *,
        clock: WallClock,
        random: Random,
        on_failed: Callable[[BaseException], None],
        metrics: Metrics | None = None,
        index_factory: IndexFactory | None = None,
        doors: DoorPorts = NO_DOORS,
    ) -> "Standalone":
        """With metrics there is an HTTP server as well; without, the broker serves its clients alone."""
        ports = None
        async with AsyncExitStack() as opened:
            if metrics is not None:
                ports, settings = opened.enter_context(take_ports(settings))
            ground = await open_ground(
                opened, disk, settings, clock=clock, random=random, on_failed=on_failed, index_factory=index_factory
            )
            store, storage, tasks = ground.store, ground.storage, ground.tasks
            measured = measured_store(store, metrics)
            ledgers = Ledgers(
                measured,
                _only(LocalBookieChannel(storage)),
                RandomPlacement(lambda: () if storage.is_read_only else (BOOKIE,), random),
                clock,
                random,
                tasks,
                settings.ledger,
            )
            if metrics is not None:
                _describe_bookie(metrics, storage, room_for_brokers(settings))
            level = ground.format_level
            keeper = LevelKeeper(level, _alone(level), lambda: True, lambda: settings.balance.format_level_delay_ms)
            tasks.start(keeper.run(), "format level keeper")
            managed_ledgers = ManagedLedgers(
                measured, ledgers, clock, tasks, settings.managed_ledger, format_level=lambda: level.current
            )
            broker = Broker(
                settings.broker, measured, managed_ledgers, clock, lambda _, error: on_failed(error), settings.security
            )
            urls = {} if doors == NO_DOORS else await _open_doors(opened, doors, disk, ground, settings)
            standalone = cls(broker, store, storage, opened.pop_all(), urls)
            if metrics is not None:
                standalone.admin = AdminServer(
                    broker,
                    measured,
                    broker.policies,
                    clock,
                    metrics,
                    settings.admin,
                    tasks,
                    websocket_opener(broker, settings.websocket, clock, metrics),
                )
                standalone._ports = ports
            return standalone

    async def start(self, *, listens: bool = True) -> str:
        """Serve clients; returns the service URL. Without listening they come through `broker.new_connection`."""
        url = await self.broker.start(listens=listens)
        self._closing.push_async_callback(self.broker.stop)
        if self.admin is not None and self._ports is not None:
            self.admin.start(self._ports)
            self._closing.push_async_callback(self.admin.stop)
        return url

    @property
    def web_url(self) -> str:
        """Where HTTP is served, if it is."""
        own = self.broker.ownership.own
        return "" if own is None else own.web_url or own.web_url_tls

    async def stop(self) -> None:
        """Clients first, then everything that they wait for, down to the disk."""
        await self._closing.aclose()


async def _open_doors(
    opened: AsyncExitStack, ports: DoorPorts, disk: Disk, ground: Ground, settings: Settings
) -> dict[str, str]:
    """Most standalones have none: a bookie's and a metadata server's protocols are imported by those that do."""
    from magnetar.standalone.doors import open_doors

    return await open_doors(opened, ports, disk, ground.storage, ground.store, settings, ground.tasks)


class _NoServer:
    """Nobody connects to a bookie inside."""

    connections = 0


def _describe_bookie(metrics: Metrics, storage: BookieStorage, settings: BookieSettings) -> None:
    limits = Limits(
        write_cache_bytes=settings.write_cache_bytes_max,
        journal_queue_bytes=settings.journal_queue_bytes_max,
        read_ahead_entries=settings.read_ahead_entries_max,
        held_adds=settings.held_adds_max,
        reads=settings.reads_max,
    )
    describe(metrics, storage, _NoServer(), limits)


def _alone(level: FormatLevel) -> Announced:
    """The one member of this cluster can read what it can read."""

    async def announced() -> Mapping[str, int]:
        return {"standalone": level.highest}

    return announced


def _only(channel: BookieChannel) -> Callable[[str], BookieChannel]:
    def find(bookie: str) -> BookieChannel:
        if bookie != channel.bookie:
            raise BookieUnavailable(f"Bookie {bookie} is not part of this standalone; its data was written elsewhere")
        return channel

    return find
