# SPDX-License-Identifier: Apache-2.0
"""Delayed messages on a standalone that crashes: each comes, and none before its time.

Producers ask for delays of some seconds; the limits are so small that a few delayed entries make a bucket, and buckets
are merged. Consumers of a shared subscription take what comes, acknowledge most of it, and die and come back. Clocks
are right here: what a wrong one does is no promise.
"""

import asyncio

from magnetar.client.options import ConsumerType, InitialPosition
from magnetar.errors import MagnetarError
from magnetar.runtime.chance import stream
from tests.simulation.world.checkers.messages import Sent
from tests.simulation.world.checkers.violation import Violation
from tests.simulation.world.history import Operation, Outcome
from tests.simulation.world.messaging import new_client, until_open
from tests.simulation.world.node import Node
from tests.simulation.world.planted_bugs import planted
from tests.simulation.world.registry import scenario
from tests.simulation.world.standalone_machine import URL, StandaloneMachine
from tests.simulation.world.world import World

_TOPIC = "persistent://public/default/delayed"
_SECONDS = 8.0
_SENDS_MAX = 80
_DELAY_MS_MAX = 15_000
_TICK_MS = 100
# Longer than any delay: who was not delivered until then never is.
_CALM_S = 120.0
_LOOKS_MAX = 240
# A consumer asks for what it did not acknowledge when nothing came for so long.
_UNACKNOWLEDGED_MS = 2_000


@scenario("delayed")
async def delayed(world: World) -> None:
    with planted(world.planted):
        await DelayedStory(world).run()


class DelayedStory:
    def __init__(self, world: World) -> None:
        self.world = world
        self.history = world.history
        random = stream(world.seed, "delays")
        given = {
            "delayedDeliveryMinIndexCountPerBucket": str(random.choice((4, 8))),
            "delayedDeliveryMaxIndexesPerBucketSnapshotSegment": str(random.choice((2, 5))),
            "delayedDeliveryMaxNumBuckets": str(random.choice((2, 20))),
            "delayedDeliveryTickTimeMillis": str(_TICK_MS),
            "managedLedgerMaxEntriesPerLedger": "5",
        }
        self.machine = StandaloneMachine(world, given)
        self.sends_max = world.at_most("messages", _SENDS_MAX)
        self.producers = [world.node(f"producer-{number}") for number in range(2)]
        self.consumers = [world.node(f"consumer-{number}") for number in range(world.at_most("consumers", 2))]
        self.due_ms: dict[str, int] = {}
        self.delivered: dict[str, None] = {}
        self.stopping = False

    async def run(self) -> None:
        world = self.world
        self.machine.start()
        for node in self.producers:
            node.start(self._produce)
        for node in self.consumers:
            node.start(self._consume)
        world.nemesis.forbid("clock-jump", "clock-drift")
        world.nemesis.targets = [*[self.machine.node] * 3, *self.producers, *self.consumers]
        await world.nemesis.run(_SECONDS)
        world.nemesis.heal()
        self.stopping = True
        await self.machine.end_once_more()
        await self._check_all_came()

    async def _check_all_came(self) -> None:
        for _ in range(_LOOKS_MAX):
            if not self._missing():
                return
            await asyncio.sleep(_CALM_S / _LOOKS_MAX)
        for send in self._missing():
            sentence = f"{send.value.payload} was acknowledged and never delivered"
            self.world.check([Violation("I20 delivered", sentence, (send,))])

    def _missing(self) -> list[Operation]:
        sent = (send for send in self.history.of_kind("send") if send.outcome is Outcome.OK)
        return [send for send in sent if send.value.payload not in self.delivered]

    async def _produce(self, node: Node) -> None:
        random, name = node.random(f"sends-{node.lives}"), f"{node.name}/{node.lives}"
        client = new_client(URL, node)
        # Nobody is there before the subscription: what is sent earlier would be nobody's.
        producer = await until_open(
            lambda: client.create_producer(
                _TOPIC, producer_name=name, send_timeout_millis=0, initial_subscription_name="s"
            )
        )
        sequence = 0
        while not self.stopping and len(self.due_ms) < self.sends_max:
            payload = f"{name}:{sequence}"
            now_ms = node.clock.now_ms()
            due_ms = self.due_ms[payload] = now_ms + (random.randrange(_DELAY_MS_MAX) if random.random() < 0.8 else 0)
            operation = self.history.invoke(name, "send", Sent(_TOPIC, name, sequence, payload))
            try:
                # One without a delay is sent without a time.
                await producer.send(payload.encode(), deliver_at=due_ms if due_ms > now_ms else None)
                self.history.ok(operation)
            except MagnetarError as error:
                self.history.info(operation, type(error).__name__)
            sequence += 1
            await asyncio.sleep(0.15 * random.random())
        await asyncio.get_running_loop().create_future()

    async def _consume(self, node: Node) -> None:
        random, name = node.random(f"acks-{node.lives}"), f"{node.name}/{node.lives}"
        client = new_client(URL, node)
        consumer = await until_open(
            lambda: client.subscribe(
                _TOPIC, "s", consumer_type=ConsumerType.Shared, initial_position=InitialPosition.Earliest
            )
        )
        while True:
            try:
                message = await consumer.receive(timeout_millis=_UNACKNOWLEDGED_MS)
            except MagnetarError:
                consumer.redeliver_unacknowledged_messages()
                continue
            payload = message.data().decode()
            self.history.ok(self.history.invoke(name, "receive", payload))
            self.delivered[payload] = None
            early_ms = self.due_ms[payload] - node.clock.now_ms()
            if early_ms > _TICK_MS:
                sentence = f"{payload} came {early_ms} ms before its time"
                self.world.check([Violation("I21 not before its time", sentence)])
            if random.random() < 0.8:
                try:
                    await consumer.acknowledge(message)
                except MagnetarError:
                    continue
