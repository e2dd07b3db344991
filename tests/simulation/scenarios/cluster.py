# SPDX-License-Identifier: Apache-2.0
"""A whole cluster: two to five brokers, three to five bookies, a metadata store with sessions, and the real client.

Every broker and bookie is the production one on a machine of its own; between every two machines the network may be
cut, slow or closed in one direction. Sessions end, disks are slow or fail, clocks drift, processes die and stand still,
while operators unload and split bundles and clients send, receive and acknowledge.

Two brokers may believe that they have a topic: only one can write it. What any of them told as stored is in the
ledger when it is closed, and no ledger has two writers. No acknowledged message is lost, order holds, with
deduplication nothing lies there twice, no two owners of a cursor save apart, and after calm every broker says the same
about who has a topic.
"""

import asyncio

from magnetar.runtime.chance import stream
from tests.simulation.world.broker_cluster import NAMESPACE, BrokerCluster, witnessed
from tests.simulation.world.messaging import Messaging
from tests.simulation.world.metadata_weather import MetadataWeather
from tests.simulation.world.planted_bugs import bookie_settings, planted
from tests.simulation.world.registry import scenario
from tests.simulation.world.storage_cluster import StorageCluster, simulated
from tests.simulation.world.witnessed_cursors import witnessed_cursors
from tests.simulation.world.world import World

_SECONDS = 8.0
# How long clients go on after the storm: what is acknowledged then must be saved.
_AFTER_S = 15.0
_SENDS_MAX = 150
# Messages come all through the storm.
_PAUSE_S = 0.3


@scenario("cluster")
async def cluster(world: World) -> None:
    story = ClusterStory(world)
    messaging = story.messaging
    with (
        planted(world.planted),
        simulated(story.storage),
        witnessed(story.brokers),
        witnessed_cursors(world.history, messaging.topics, messaging.subscriptions),
    ):
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
        topics_count = world.at_most("topics", random.choice((1, 2, 3)))
        topics = [f"persistent://{NAMESPACE}/t-{number}" for number in range(topics_count)]
        self.messaging = Messaging(world, self.brokers.url, topics, sends_max=_SENDS_MAX, pause_s=_PAUSE_S)
        given["brokerDeduplicationEnabled"] = str(self.messaging.deduplicates).lower()
        # Now and then what is known is saved within a story.
        given["brokerDeduplicationEntriesInterval"] = stream(world.seed, "deduplication").choice(("5", "1000"))
        self.messaging.undisturbed = self._undisturbed
        clients = [*self.messaging.producers, *self.messaging.consumers]
        # Brokers are struck as often as bookies and clients together.
        world.nemesis.targets = [*self.brokers.nodes * 2, *self.storage.nodes, *clients]
        self.weather = MetadataWeather(world, self.storage.sessions, stream(world.seed, "weather"))
        self.healed_s: float | None = None

    async def run(self) -> None:
        world = self.world
        async with asyncio.TaskGroup() as group:
            keeping = group.create_task(self.storage.sessions.keep())
            await self.storage.start()
            self.brokers.start()
            self.messaging.start()
            operating = group.create_task(self.brokers.operate())
            await world.nemesis.run(_SECONDS)
            world.nemesis.heal()
            self.weather.heal()
            self.healed_s = world.loop.time()
            await asyncio.sleep(_AFTER_S)
            operating.cancel()
            await self.messaging.stop()
            await self.messaging.look()
            await self.brokers.audit(self.messaging.topics)
            keeping.cancel()
        world.check(self.messaging.violations() + self.storage.records.violations)

    def _undisturbed(self) -> object:
        """Before the first fault, and from some time after the last one on."""
        if not self.world.faults.total():
            return "before"
        return "after" if self.healed_s is not None and self.world.loop.time() - self.healed_s > 5.0 else None
