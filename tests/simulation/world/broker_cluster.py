# SPDX-License-Identifier: Apache-2.0
"""The brokers of a cluster in a world: production brokers on machines of their own, over a simulated storage cluster.

Each is assembled as its command assembles it, without HTTP. Operators unload and split bundles at any of them. What
topics tell as stored is witnessed: which process told it, of which ledger, how far.
Assembles.
"""

import asyncio
import contextlib
from collections.abc import Iterator, Mapping
from contextvars import Context, copy_context
from dataclasses import replace
from functools import partial
from random import Random
from unittest.mock import patch

from magnetar.broker.broker import Broker
from magnetar.broker.ownership.cluster import Clustering
from magnetar.broker.ownership.splitting import RANGE
from magnetar.broker.topic import Topic
from magnetar.client.client import Client
from magnetar.config.balance import BalanceSettings
from magnetar.config.key import BROKER
from magnetar.config.load import Settings, load_settings
from magnetar.errors import MagnetarError
from magnetar.ledger.ledgers import Ledgers
from magnetar.managed_ledger.managed_ledgers import ManagedLedgers
from magnetar.metadata.format_level import FormatLevel
from magnetar.names import NamespaceName, TopicName
from magnetar.runtime.chance import stream
from magnetar.runtime.host import HostReading
from magnetar.runtime.tasks import Tasks
from tests.simulation.world.checkers.violation import Violation
from tests.simulation.world.messaging import until_open
from tests.simulation.world.node import Node
from tests.simulation.world.process import current_process
from tests.simulation.world.storage_cluster import StorageCluster
from tests.simulation.world.world import World

PORT = 6650
NAMESPACE = NamespaceName("public", "default")
_BUNDLES_MAX = 8
_AUDIT_S = 300.0
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

    # --- operators ------------------------------------------------------------------------------------------

    async def operate(self) -> None:
        """For ever: orders to any broker, carried out by its own process."""
        random = stream(self.world.seed, "operator")
        while True:
            await asyncio.sleep(random.expovariate(0.5))
            node = random.choice(self.nodes)
            serving = self.serving.get(node.name)
            if serving is not None and node.is_running():
                broker, context = serving
                self.world.loop.create_task(self._order(broker, random), context=context)

    async def _order(self, broker: Broker, random: Random) -> None:
        cluster = broker.cluster
        assert cluster is not None
        try:
            bundles = (await broker.bundles.of(NAMESPACE)).all()
            bundle = random.choice(bundles)
            if random.random() < 0.2 and len(bundles) < _BUNDLES_MAX:
                await cluster.split(bundle, RANGE, unload=random.random() < 0.5)
            else:
                names = [f"{node.name}:8080" for node in self.nodes]
                await cluster.unload(bundle, random.choice((*names, "")))
        except MagnetarError:
            return

    # --- after calm -----------------------------------------------------------------------------------------

    async def audit(self, topics: list[str]) -> None:
        done = asyncio.Event()

        async def look(node: Node) -> None:
            for topic in topics:
                await self._check_look_ups(node, TopicName.parse(topic))
            await self._check_told(await self.storage.client(node))
            done.set()
            await asyncio.get_running_loop().create_future()

        self.world.node("auditor").start(look)
        async with asyncio.timeout(_AUDIT_S):
            await done.wait()

    async def _check_look_ups(self, node: Node, topic: TopicName) -> None:
        found = {broker.name: await self._look_up(node, broker, topic) for broker in self.nodes}
        if len(set(found.values())) > 1:
            self.world.check([Violation("look-ups agree", f"brokers do not agree on who has {topic}: {found}")])

    async def _look_up(self, node: Node, asked: Node, topic: TopicName) -> str:
        """Where the topic is, says one broker."""
        client = Client(f"pulsar://{asked.name}:{PORT}", clock=node.clock, random=node.random(f"{asked.name} {topic}"))
        way = await until_open(lambda: client.core.lookup.locate(topic))
        await client.close()
        return str(way.broker)

    async def _check_told(self, ledgers: Ledgers) -> None:
        """I7: what was told as stored lies in its ledger, which one process alone has written."""
        for ledger_id, by_process in self.told.items():
            if len(by_process) > 1:
                sentence = f"entries of ledger {ledger_id} were told as stored by {', '.join(by_process)}"
                self.world.check([Violation("I7 one-owner", sentence)])
            reader = await until_open(partial(ledgers.open, ledger_id, password=b""))
            last_entry = max(by_process.values())
            if reader.last_entry < last_entry:
                sentence = f"ledger {ledger_id} ends at {reader.last_entry}; {by_process} was told as stored"
                self.world.check([Violation("I7 one-owner", sentence)])
            reader.close()


@contextlib.contextmanager
def witnessed(cluster: BrokerCluster) -> Iterator[None]:
    """While a cluster runs: what topics learn as stored is noted before anyone else hears of it."""
    on_persisted = Topic.on_persisted

    def on_persisted_and_told(self: Topic, ledger_id: int, first_entry: int, last_entry: int) -> None:
        cluster.on_told(ledger_id, last_entry)
        on_persisted(self, ledger_id, first_entry, last_entry)

    with patch.object(Topic, "on_persisted", on_persisted_and_told):
        yield
