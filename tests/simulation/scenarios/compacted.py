# SPDX-License-Identifier: Apache-2.0
"""Compaction on a standalone that crashes: a compacted reader finds the latest value of each key.

Producers give their keys rising numbers all through the storm, while the topic is compacted again and again. A reader
of the compacted topic, after calm and after the storm alike, must find of each key a number that was sent, and not one
before the last whose sender got a receipt.
"""

import asyncio

from magnetar.client.client import Client
from magnetar.errors import MagnetarError, NotSupported
from magnetar.ids import EARLIEST_MESSAGE
from magnetar.names import TopicName
from magnetar.runtime.chance import stream
from magnetar.standalone.standalone import Standalone
from tests.simulation.world.checkers.messages import Sent
from tests.simulation.world.checkers.violation import Violation
from tests.simulation.world.messaging import new_client, until_open
from tests.simulation.world.node import Node
from tests.simulation.world.planted_bugs import planted
from tests.simulation.world.registry import scenario
from tests.simulation.world.standalone_machine import URL, StandaloneMachine
from tests.simulation.world.world import World

_TOPIC = "persistent://public/default/compacted"
_SECONDS = 8.0
_SENDS_MAX = 150
_KEYS = 4
_COMPACTIONS_PER_S = 5.0
_CALM_S = 120.0


@scenario("compacted")
async def compacted(world: World) -> None:
    with planted(world.planted):
        await CompactedStory(world).run()


class CompactedStory:
    def __init__(self, world: World) -> None:
        self.world = world
        self.history = world.history
        self.machine = StandaloneMachine(world, {"managedLedgerMaxEntriesPerLedger": "10"})
        self.sends_max = world.at_most("messages", _SENDS_MAX)
        self.producers = [world.node(f"producer-{number}") for number in range(2)]
        self.sent = 0
        # By key: the last number that was sent, and the last whose sender got a receipt.
        self.asked: dict[str, int] = {}
        self.answered: dict[str, int] = {}
        self.stopping = False

    async def run(self) -> None:
        world = self.world
        self.machine.start()
        for node in self.producers:
            node.start(self._produce)
        world.nemesis.targets = [*[self.machine.node] * 3, *self.producers]
        async with asyncio.TaskGroup() as group:
            operating = group.create_task(self._operate())
            await world.nemesis.run(_SECONDS)
            world.nemesis.heal()
            self.stopping = True
            await asyncio.sleep(1.0)
            operating.cancel()
        await self._look()
        await self.machine.end_once_more()
        await self._look()

    async def _operate(self) -> None:
        random = stream(self.world.seed, "operator")
        while True:
            await asyncio.sleep(random.expovariate(_COMPACTIONS_PER_S))
            self.machine.order(_compact)

    async def _produce(self, node: Node) -> None:
        random, name = node.random(f"sends-{node.lives}"), f"{node.name}/{node.lives}"
        client = new_client(URL, node)
        producer = await until_open(
            lambda: client.create_producer(_TOPIC, producer_name=name, send_timeout_millis=0, batching_enabled=False)
        )
        sequence = 0
        while not self.stopping and self.sent < self.sends_max:
            self.sent += 1
            # A life has keys of its own: what an earlier one sent may still be on its way.
            key = f"{name}:{random.randrange(_KEYS)}"
            number = self.asked[key] = self.asked.get(key, -1) + 1
            operation = self.history.invoke(name, "send", Sent(_TOPIC, name, sequence, f"{key}={number}"))
            sequence += 1
            try:
                await producer.send(b"%d" % number, partition_key=key)
                self.history.ok(operation)
                self.answered[key] = number
            except MagnetarError as error:
                self.history.info(operation, type(error).__name__)
            await asyncio.sleep(0.1 * random.random())
        await asyncio.get_running_loop().create_future()

    async def _look(self) -> None:
        done = asyncio.Event()
        answered = dict(self.answered)

        async def look(node: Node) -> None:
            found = await self._latest(new_client(URL, node))
            for key, number in answered.items():
                if not number <= found.get(key, -1) <= self.asked[key]:
                    sentence = f"{key} is {found.get(key)}; answered up to {number}, asked up to {self.asked[key]}"
                    self.world.check([Violation("I22 latest of each key", sentence)])
            done.set()
            await asyncio.get_running_loop().create_future()

        self.world.node(f"onlooker-{len(self.world.nodes)}").start(look)
        async with asyncio.timeout(_CALM_S):
            await done.wait()

    async def _latest(self, client: Client) -> dict[str, int]:
        """As a reader of the compacted topic sees it."""
        reader = await until_open(lambda: client.create_reader(_TOPIC, EARLIEST_MESSAGE, is_read_compacted=True))
        found: dict[str, int] = {}
        while await reader.has_message_available():
            message = await reader.read_next()
            found[message.partition_key()] = int(message.data())
        await client.close()
        return found


async def _compact(standalone: Standalone) -> None:
    try:
        topic = await standalone.broker.topics.load(TopicName.parse(_TOPIC), create=False)
        topic.compaction.start()
    except (NotSupported, MagnetarError):
        return
