# SPDX-License-Identifier: Apache-2.0
"""The brokers of a cluster in a world: production brokers on machines of their own, over a simulated storage cluster.

Each is assembled as its command assembles it, without HTTP. What its topics tell as stored is witnessed: which process
told it, of which ledger, how far.
Assembles.
"""

import asyncio
import contextlib
from collections.abc import Iterator, Mapping
from contextvars import Context, copy_context
from dataclasses import replace
from unittest.mock import patch

from magnetar.broker.broker import Broker
from magnetar.broker.ownership.cluster import Clustering
from magnetar.broker.topic import Topic
from magnetar.config.balance import BalanceSettings
from magnetar.config.key import BROKER
from magnetar.config.load import Settings, load_settings
from magnetar.managed_ledger.managed_ledgers import ManagedLedgers
from magnetar.metadata.format_level import FormatLevel
from magnetar.runtime.host import HostReading
from magnetar.runtime.tasks import Tasks
from tests.simulation.world.node import Node
from tests.simulation.world.process import current_process
from tests.simulation.world.storage_cluster import StorageCluster
from tests.simulation.world.world import World

PORT = 6650
BALANCE = BalanceSettings(
    claim_timeout_ms=2_000,
    handover_timeout_ms=5_000,
    unload_timeout_ms=10_000,
    report_interval_min_ms=1_000,
    shedding_interval_ms=5_000,
    split_interval_ms=5_000,
    shedding_grace_ms=10_000,
)


class BrokerCluster:
    def __init__(self, world: World, storage: StorageCluster, brokers: int, given: Mapping[str, str]) -> None:
        self.world = world
        self.storage = storage
        self.nodes = [world.node(f"broker-{number}") for number in range(1, brokers + 1)]
        # Those that serve, by their node's name, and what makes a task one of their process.
        self.serving: dict[str, tuple[Broker, Context]] = {}
        # How far each process told the entries of a ledger as stored, by ledger and process.
        self.told: dict[int, dict[str, int]] = {}
        self._given = given

    @property
    def url(self) -> str:
        return "pulsar://" + ",".join(f"{node.name}:{PORT}" for node in self.nodes)

    def start(self) -> None:
        for node in self.nodes:
            node.start(self._run_broker)

    def settings(self, node: Node) -> Settings:
        given = {
            "--port": str(PORT),
            "--http-port": "8080",
            "bindAddress": "0.0.0.0",
            "advertisedAddress": node.name,
            "clusterName": "simulated",
            "defaultRetentionTimeInMinutes": "-1",
            "defaultRetentionSizeInMB": "-1",
            "managedLedgerMaxEntriesPerLedger": "20",
            "managedLedgerMinLedgerRolloverTimeMinutes": "0",
            **self._given,
        }
        settings = load_settings((), {}, given, role=BROKER)
        return replace(settings, balance=BALANCE, metadata=self.storage.metadata.settings)

    async def _run_broker(self, node: Node) -> None:
        self.serving.pop(node.name, None)
        failed: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()

        def on_crash(name: str, error: BaseException) -> None:
            if not failed.done():
                failed.set_result(error)

        settings = self.settings(node)
        store = self.storage.sessions.open()
        tasks = Tasks(node.name, on_crash)
        ledgers, _ = await self.storage.ledgers(node, store, tasks)
        level = FormatLevel(store, settings.metadata.format_level_max)
        broker = Broker(
            settings.broker,
            store,
            ManagedLedgers(
                store, ledgers, node.clock, tasks, settings.managed_ledger, format_level=lambda: level.current
            ),
            node.clock,
            on_crash,
            settings.security,
            Clustering(settings.balance, settings.metadata, node.name, lambda: HostReading(1), format_level=level),
        )
        await broker.start()
        self.serving[node.name] = broker, copy_context()
        raise await failed

    def on_told(self, ledger_id: int, last_entry: int) -> None:
        process = current_process.get()
        assert process is not None
        by_process = self.told.setdefault(ledger_id, {})
        by_process[f"{process.name}/{self.world.nodes[process.name].lives}"] = last_entry


@contextlib.contextmanager
def witnessed(cluster: BrokerCluster) -> Iterator[None]:
    """While a cluster runs: what topics learn as stored is noted before anyone else hears of it."""
    on_persisted = Topic.on_persisted

    def on_persisted_and_told(self: Topic, ledger_id: int, first_entry: int, last_entry: int) -> None:
        cluster.on_told(ledger_id, last_entry)
        on_persisted(self, ledger_id, first_entry, last_entry)

    with patch.object(Topic, "on_persisted", on_persisted_and_told):
        yield
