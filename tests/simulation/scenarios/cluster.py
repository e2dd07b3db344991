# SPDX-License-Identifier: Apache-2.0
"""A whole cluster: two to five brokers, three to five bookies, a metadata store with sessions, and the real client.

Every broker and bookie is the production one on a machine of its own; between every two machines the network may be
cut, slow or closed in one direction. Sessions end, disks are slow or fail, clocks drift, processes die and stand still,
while operators unload and split bundles and clients send, receive and acknowledge.

Two brokers may believe that they have a topic: only one can write it. What any of them told as stored is in the
ledger when it is closed, and no ledger has two writers. No acknowledged message is lost, order holds, with
deduplication nothing lies there twice, and after calm every broker says the same about who has a topic.
"""

import asyncio
from functools import partial
from random import Random

from magnetar.broker.broker import Broker
from magnetar.broker.ownership.splitting import RANGE
from magnetar.client.client import Client
from magnetar.errors import MagnetarError
from magnetar.ledger.ledgers import Ledgers
from magnetar.names import NamespaceName, TopicName
from magnetar.runtime.chance import stream
from tests.simulation.world.broker_cluster import PORT, BrokerCluster, witnessed
from tests.simulation.world.checkers.violation import Violation
from tests.simulation.world.messaging import Messaging, until_open
from tests.simulation.world.metadata_weather import MetadataWeather
from tests.simulation.world.node import Node
from tests.simulation.world.planted_bugs import bookie_settings, planted
from tests.simulation.world.registry import scenario
from tests.simulation.world.storage_cluster import StorageCluster, simulated
from tests.simulation.world.world import World

NAMESPACE = NamespaceName("public", "default")
_SECONDS = 8.0
# How long clients go on after the storm: what is acknowledged then must be saved.
_AFTER_S = 15.0
_CALM_S = 300.0
_SENDS_MAX = 60
_BUNDLES_MAX = 8


@scenario("cluster")
async def cluster(world: World) -> None:
    story = ClusterStory(world)
    with planted(world.planted), simulated(story.storage), witnessed(story.brokers):
        await story.run()


class ClusterStory:
    def __init__(self, world: World) -> None:
        self.world = world
        random = world.random
        bookies = random.choice((3, 3, 4, 5))
        self.storage = StorageCluster(world, bookies, bookie_settings=bookie_settings(world.planted))
        write_quorum, ack_quorum = random.choice(((2, 2), (3, 2), (3, 3)))
        given = {
            "managedLedgerDefaultEnsembleSize": str(write_quorum),
            "managedLedgerDefaultWriteQuorum": str(write_quorum),
            "managedLedgerDefaultAckQuorum": str(ack_quorum),
        }
        self.brokers = BrokerCluster(world, self.storage, random.choice((2, 2, 3, 5)), given)
        topics = [f"persistent://{NAMESPACE}/t-{number}" for number in range(random.choice((1, 2, 3)))]
        self.messaging = Messaging(world, self.brokers.url, topics, sends_max=_SENDS_MAX)
        given["brokerDeduplicationEnabled"] = str(self.messaging.deduplicates).lower()
        self.messaging.undisturbed = self._undisturbed
        clients = [*self.messaging.producers, *self.messaging.consumers]
        # Brokers are struck as often as bookies and clients together.
        world.nemesis.targets = [*self.brokers.nodes * 2, *self.storage.nodes, *clients]
        self.weather = MetadataWeather(world, self.storage.sessions, stream(world.seed, "weather"))
        self.operators_random = stream(world.seed, "operator")
        self.healed_s: float | None = None
        self.stopping = False

    async def run(self) -> None:
        world = self.world
        async with asyncio.TaskGroup() as group:
            keeping = group.create_task(self.storage.sessions.keep())
            await self.storage.start()
            self.brokers.start()
            self.messaging.start()
            operating = group.create_task(self._operate())
            await world.nemesis.run(_SECONDS)
            world.nemesis.heal()
            self.weather.heal()
            self.healed_s = world.loop.time()
            await asyncio.sleep(_AFTER_S)
            self.stopping = True
            operating.cancel()
            await self.messaging.stop()
            await self._look()
            keeping.cancel()
        world.check(self.messaging.violations() + self.storage.records.violations)

    def _undisturbed(self) -> object:
        """Before the first fault, and from some time after the last one on."""
        if not self.world.faults.total():
            return "before"
        return "after" if self.healed_s is not None and self.world.loop.time() - self.healed_s > 5.0 else None

    # --- operators ------------------------------------------------------------------------------------------

    async def _operate(self) -> None:
        """Orders to any broker, carried out by its own process."""
        random = self.operators_random
        while not self.stopping:
            await asyncio.sleep(random.expovariate(0.5))
            node = random.choice(self.brokers.nodes)
            serving = self.brokers.serving.get(node.name)
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
                names = [f"{node.name}:8080" for node in self.brokers.nodes]
                await cluster.unload(bundle, random.choice((*names, "")))
        except MagnetarError:
            return

    # --- after calm -----------------------------------------------------------------------------------------

    async def _look(self) -> None:
        done = asyncio.Event()

        async def look(node: Node) -> None:
            await self._look_up_everywhere(node)
            await self._check_told(await self.storage.client(node))
            done.set()
            await asyncio.get_running_loop().create_future()

        self.world.node("auditor").start(look)
        async with asyncio.timeout(_CALM_S):
            await done.wait()

    async def _look_up_everywhere(self, node: Node) -> None:
        for topic in self.messaging.topics:
            found = {
                broker.name: await self._look_up(node, broker, TopicName.parse(topic)) for broker in self.brokers.nodes
            }
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
        for ledger_id, by_process in self.brokers.told.items():
            if len(by_process) > 1:
                sentence = f"entries of ledger {ledger_id} were told as stored by {', '.join(by_process)}"
                self.world.check([Violation("I7 one-owner", sentence)])
            reader = await until_open(partial(ledgers.open, ledger_id, password=b""))
            last_entry = max(by_process.values())
            if reader.last_entry < last_entry:
                sentence = f"ledger {ledger_id} ends at {reader.last_entry}; {by_process} was told as stored"
                self.world.check([Violation("I7 one-owner", sentence)])
            reader.close()
