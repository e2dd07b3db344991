# SPDX-License-Identifier: Apache-2.0
"""A whole standalone, unchanged, on a machine that crashes, with the real client on the other side of a bad network.

Producers send all through the storm, consumers of one to four subscription types receive and acknowledge with receipts;
broker, producers and consumers die and come back, and connections are cut. With deduplication on, no message may lie
there twice. After calm, and most often one more death of the broker, a reader sees every message that was acknowledged
to its sender, and each subscription still owes exactly what nobody acknowledged, which is what the broker counts.
"""

import asyncio

from magnetar.admin.backlog import backlog_messages
from magnetar.names import TopicName
from magnetar.runtime.chance import stream
from magnetar.standalone.standalone import Standalone
from tests.simulation.world.messaging import Messaging
from tests.simulation.world.planted_bugs import planted
from tests.simulation.world.registry import scenario
from tests.simulation.world.standalone_machine import URL, StandaloneMachine
from tests.simulation.world.witnessed_cursors import witnessed_cursors
from tests.simulation.world.world import World

_TOPIC = "persistent://public/default/t"
_SECONDS = 8.0
_SENDS_MAX = 120
# Messages come all through the storm.
_PAUSE_S = 0.25
_AUDIENCES_MAX = 4
_COUNTED_MAX = 10_000


@scenario("broker")
async def broker(world: World) -> None:
    story = BrokerStory(world)
    messaging = story.messaging
    with planted(world.planted), witnessed_cursors(world.history, messaging.topics, messaging.subscriptions):
        await story.run()


class BrokerStory:
    def __init__(self, world: World) -> None:
        self.world = world
        # Before its clients: nodes are numbered in this order.
        world.node("broker")
        self.messaging = Messaging(
            world, URL, [_TOPIC], sends_max=_SENDS_MAX, pause_s=_PAUSE_S, audiences_max=_AUDIENCES_MAX
        )
        given = {
            "brokerDeduplicationEnabled": str(self.messaging.deduplicates).lower(),
            # Now and then what is known is saved within a story.
            "brokerDeduplicationEntriesInterval": stream(world.seed, "deduplication").choice(("5", "1000")),
        }
        self.machine = StandaloneMachine(world, given)
        self.messaging.undisturbed = self._undisturbed
        self.messaging.backlog = self._backlog

    async def run(self) -> None:
        world, messaging = self.world, self.messaging
        self.machine.start()
        messaging.start()
        # The machine that keeps everything is struck as often as all the others together.
        world.nemesis.targets = [*[self.machine.node] * 4, *messaging.producers, *messaging.consumers]
        await world.nemesis.run(_SECONDS)
        world.nemesis.heal()
        await messaging.stop()
        await self.machine.end_once_more()
        await messaging.look()
        world.check(messaging.violations())

    def _undisturbed(self) -> object:
        """What keeps a machine from saving in time: its deaths, and the faults that make it stand still."""
        node = self.machine.node
        if not node.is_running() or node.is_paused():
            return None
        return [node.lives, *(self.world.faults[kind] for kind in ("pause", "full-disk", "slow-disk"))]

    async def _backlog(self, topic: str, subscription: str) -> int:
        """As the admin interface counts it; asked by a task of the broker's own process."""
        counted: asyncio.Future[int | None] = asyncio.get_running_loop().create_future()

        async def count(standalone: Standalone) -> None:
            loaded = await standalone.broker.topics.load(TopicName.parse(topic), create=False)
            counted.set_result(await backlog_messages(loaded.subscriptions[subscription], _COUNTED_MAX))

        self.machine.order(count)
        messages = await counted
        assert messages is not None, "not counted"
        return messages
