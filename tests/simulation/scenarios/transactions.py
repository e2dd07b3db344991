# SPDX-License-Identifier: Apache-2.0
"""Transactions in a whole cluster: inputs become outputs on two topics, exactly once, in any weather.

Copiers take an input, send its output to both targets and acknowledge the input in one transaction; what fails is done
again. Coordinators and participants are different brokers, which die, stand still, lose their sessions, and have their
bundles moved, at every step of a commit. After calm every input that was acknowledged to its sender has one output on
each target, no transaction is left open in front of a reader, and none counts in part.
"""

import asyncio
from collections.abc import Mapping
from random import Random
from types import MappingProxyType

from magnetar.client.client import Client
from magnetar.client.options import ConsumerType, InitialPosition
from magnetar.errors import MagnetarError
from magnetar.ids import EARLIEST_MESSAGE
from magnetar.runtime.chance import stream
from tests.simulation.world.broker_cluster import NAMESPACE, BrokerCluster, witnessed
from tests.simulation.world.checkers.messages import Sent
from tests.simulation.world.checkers.violation import Violation
from tests.simulation.world.history import Outcome
from tests.simulation.world.messaging import new_client, until_open
from tests.simulation.world.metadata_weather import MetadataWeather
from tests.simulation.world.node import Node
from tests.simulation.world.planted_bugs import bookie_settings, planted
from tests.simulation.world.registry import scenario
from tests.simulation.world.storage_cluster import StorageCluster, simulated
from tests.simulation.world.world import World

SOURCE = f"persistent://{NAMESPACE}/source"
TARGETS = [f"persistent://{NAMESPACE}/target-{letter}" for letter in "ab"]
_SECONDS = 10.0
_INPUTS = 16
_TIMEOUT_MS = 3_000
# How long after calm inputs may take to become outputs, and how long it is watched that no more come.
_CALM_S = 300.0
_QUIET_S = 20.0
_NO_MORE: Mapping[str, str] = MappingProxyType({})


@scenario("transactions")
async def transactions(world: World) -> None:
    story = TransactionStory(world)
    with planted(world.planted), simulated(story.storage), witnessed(story.brokers):
        await story.run()


class TransactionStory:
    def __init__(
        self,
        world: World,
        *,
        inputs: int = _INPUTS,
        copiers: int = 2,
        is_calm: bool = False,
        settings: Mapping[str, str] = _NO_MORE,
    ) -> None:
        """Calm: nobody strikes, and no bundle is moved."""
        self.world = world
        self.inputs = world.at_most("inputs", inputs)
        self.is_calm = is_calm
        self.history = world.history
        random = world.random
        self.storage = StorageCluster(world, 3, bookie_settings=bookie_settings(world.planted))
        given = {
            "transactionCoordinatorEnabled": "true",
            # Inputs lie there once, so that two outputs are one too many.
            "brokerDeduplicationEnabled": "true",
            "managedLedgerDefaultEnsembleSize": "3",
            "managedLedgerDefaultWriteQuorum": "3",
            "managedLedgerDefaultAckQuorum": "2",
            **_ways_of_writing(stream(world.seed, "ways of writing")),
            **settings,
        }
        self.brokers = BrokerCluster(world, self.storage, random.choice((2, 3)), given)
        world.network.links.settings.tail_ms = random.choice((0.3, 10.0, 50.0))
        self.sender = world.node("sender")
        self.copiers = [world.node(f"copier-{number}") for number in range(world.at_most("copiers", copiers))]
        # Brokers are struck as often as bookies and clients together.
        world.nemesis.targets = [*self.brokers.nodes * 2, *self.storage.nodes, *self.copiers]
        self.weather = MetadataWeather(world, self.storage.sessions, stream(world.seed, "weather"))
        self.sent = asyncio.Event()
        self.stopping = False

    async def run(self) -> None:
        world = self.world
        async with asyncio.TaskGroup() as group:
            keeping = group.create_task(self.storage.sessions.keep())
            await self.storage.start()
            self.brokers.start()
            self.sender.start(self._send)
            for node in self.copiers:
                node.start(self._copy)
            if not self.is_calm:
                operating = group.create_task(self.brokers.operate())
                await world.nemesis.run(_SECONDS)
                world.nemesis.heal()
                self.weather.heal()
                operating.cancel()
            await self._look()
            await self.brokers.audit([SOURCE, *TARGETS])
            keeping.cancel()

    async def _send(self, node: Node) -> None:
        client = new_client(self.brokers.url, node)
        name = f"{node.name}/{node.lives}"
        producer = await until_open(
            lambda: client.create_producer(
                SOURCE, producer_name=name, send_timeout_millis=0, initial_subscription_name="s"
            )
        )
        for number in range(self.inputs):
            payload = f"{name}:{number}"
            operation = self.history.invoke(name, "send", Sent(SOURCE, name, number, payload))
            try:
                await producer.send(payload.encode())
                self.history.ok(operation)
            except MagnetarError as error:
                self.history.info(operation, type(error).__name__)
        self.sent.set()
        await asyncio.get_running_loop().create_future()

    async def _copy(self, node: Node) -> None:
        client = new_client(self.brokers.url, node)
        consumer = await until_open(
            lambda: client.subscribe(
                SOURCE, "s", consumer_type=ConsumerType.Shared, initial_position=InitialPosition.Earliest
            )
        )
        producers = [
            await until_open(lambda target=target: client.create_producer(target, send_timeout_millis=0))  # type: ignore[misc]
            for target in TARGETS
        ]
        while not self.stopping:
            try:
                message = await consumer.receive(timeout_millis=500)
                async with client.transaction(timeout_ms=_TIMEOUT_MS) as txn:
                    for producer in producers:
                        await producer.send(message.data(), txn=txn)
                    await consumer.acknowledge(message, txn=txn)
            except MagnetarError:
                consumer.redeliver_unacknowledged_messages()
        await asyncio.get_running_loop().create_future()

    # --- after calm -----------------------------------------------------------------------------------------

    async def _look(self) -> None:
        done = asyncio.Event()

        async def look(node: Node) -> None:
            client = new_client(self.brokers.url, node)
            await self.sent.wait()
            inputs = [send.value.payload for send in self.history.of_kind("send") if send.outcome is Outcome.OK]
            until = self.world.loop.time() + _CALM_S
            while self.world.loop.time() < until:
                if self._is_whole(inputs, await self._outputs(client)):
                    break
                await asyncio.sleep(1.0)
            await asyncio.sleep(_QUIET_S)
            self._check(inputs, await self._outputs(client))
            done.set()
            await asyncio.get_running_loop().create_future()

        self.world.node("onlooker").start(look)
        async with asyncio.timeout(2 * _CALM_S):
            await done.wait()
        self.stopping = True

    @staticmethod
    def _is_whole(inputs: list[str], outputs: dict[str, list[str]]) -> bool:
        return all(set(found) >= set(inputs) for found in outputs.values())

    def _check(self, inputs: list[str], outputs: dict[str, list[str]]) -> None:
        for topic, found in outputs.items():
            missing = sorted(set(inputs) - set(found))
            if missing:
                self.world.check([Violation("I19 exactly once", f"{topic} has no output of {missing}")])
            twice = sorted({payload for payload in found if found.count(payload) > 1})
            if twice:
                self.world.check([Violation("I19 exactly once", f"{topic} has {twice} more than once")])
        first, second = (set(found) for found in outputs.values())
        if first != second:
            sentence = f"transactions count in part: {sorted(first ^ second)} are on one target only"
            self.world.check([Violation("I19 exactly once", sentence)])

    async def _outputs(self, client: Client) -> dict[str, list[str]]:
        return {target: await self._scan(client, target) for target in TARGETS}

    async def _scan(self, client: Client, topic: str) -> list[str]:
        reader = await until_open(lambda: client.create_reader(topic, EARLIEST_MESSAGE))
        found = []
        while await reader.has_message_available():
            found.append((await reader.read_next()).data().decode())
        await reader.close()
        return found


def _ways_of_writing(random: Random) -> dict[str, str]:
    """Records alone or in batches, aborted transactions in the snapshot or in segments: one as often as the other."""
    return {
        "transactionLogBatchedWriteEnabled": random.choice(("true", "false")),
        "transactionLogBatchedWriteMaxDelayInMillis": random.choice(("1", "20")),
        "transactionPendingAckBatchedWriteEnabled": random.choice(("true", "false")),
        "transactionPendingAckBatchedWriteMaxDelayInMillis": random.choice(("1", "20")),
        "transactionBufferSegmentedSnapshotEnabled": random.choice(("true", "false")),
        "transactionBufferSnapshotSegmentSize": "32",
        "transactionBufferSnapshotMaxTransactionCount": random.choice(("2", "1000")),
    }
