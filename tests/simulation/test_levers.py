# SPDX-License-Identifier: Apache-2.0
"""Four levers of reliability, each moved by itself: waiting for receipts, copies, syncing the journal, acking by hand.

Two accidents: the power fails everywhere, against which the journal is synced; a bookie is gone for good, against which
there are copies. Whatever the other levers are set to, each keeps its own promise, and no other lever makes up for it.
"""

import asyncio
from dataclasses import replace
from itertools import product
from typing import NamedTuple

import pytest

from magnetar.client.consumer import Consumer
from magnetar.client.options import ConsumerType, InitialPosition
from magnetar.client.producer import Producer
from magnetar.errors import MagnetarError
from magnetar.ids import EARLIEST_MESSAGE
from tests.simulation.world.broker_cluster import NAMESPACE, BrokerCluster
from tests.simulation.world.messaging import new_client, until_open
from tests.simulation.world.node import Node
from tests.simulation.world.storage_cluster import SMALL_BOOKIE, StorageCluster, simulated
from tests.simulation.world.world import World

TOPIC = f"persistent://{NAMESPACE}/levers"
EARLY = [f"early-{number}" for number in range(10)]
LATE = [f"late-{number}" for number in range(20)]
# Of one who does not wait: as many receipts have come when the accident happens.
RECEIPTS_BEFORE = 5
# Virtual time: longer than a cursor's flush interval; as long as a reader waits for what may be lost.
SAVED_AFTER_S = 5.0
QUIET_MS = 30_000
LOST_AFTER_S = 120.0


class Levers(NamedTuple):
    waits: bool
    copies: int
    syncs: bool
    acks: bool


MATRIX = [Levers(*each) for each in product((True, False), (1, 2), (True, False), (True, False))]


class LeverStory:
    def __init__(self, world: World, levers: Levers) -> None:
        self.world = world
        self.levers = levers
        settings = replace(SMALL_BOOKIE, journal_sync=levers.syncs)
        self.storage = StorageCluster(world, 3, bookie_settings=settings)
        copies = str(levers.copies)
        quorums = {f"managedLedgerDefault{name}": copies for name in ("EnsembleSize", "WriteQuorum", "AckQuorum")}
        self.brokers = BrokerCluster(world, self.storage, 1, quorums)
        self.application = world.node("application")
        self.strikes = asyncio.Event()
        # Which messages have a receipt, and which ledger has the last of them.
        self.promised: list[str] = []
        self.ledger_id = -1
        self.kept: list[str] = []
        self.owed: list[str] = []

    async def run(self, accident: str) -> None:
        with simulated(self.storage):
            async with asyncio.TaskGroup() as group:
                keeping = group.create_task(self.storage.sessions.keep())
                await self.storage.start()
                self.brokers.start()
                self.application.start(self._work)
                await self.strikes.wait()
                self.application.kill()
                getattr(self, f"_{accident}")()
                await self._look()
                keeping.cancel()

    # --- accidents ----------------------------------------------------------------------------------------------

    def _power_fails(self) -> None:
        for node in (*self.storage.nodes, *self.brokers.nodes):
            node.lose_power()
        for node in (*self.storage.nodes, *self.brokers.nodes):
            node.come_back()

    def _bookie_goes(self) -> None:
        """One that has a copy of the last message; the broker dies, too, so that nothing comes from its memory."""
        name = self.storage.records.known[self.ledger_id].segments[-1].ensemble[0].partition(":")[0]
        self.world.nodes[name].kill()
        for node in self.brokers.nodes:
            node.kill()
            node.come_back()

    # --- the application ----------------------------------------------------------------------------------------

    async def _work(self, node: Node) -> None:
        client = new_client(self.brokers.url, node)
        consumer = await until_open(
            lambda: client.subscribe(
                TOPIC, "s", consumer_type=ConsumerType.Shared, initial_position=InitialPosition.Earliest
            )
        )
        producer = await until_open(lambda: client.create_producer(TOPIC, send_timeout_millis=0))
        for name in EARLY:
            await self._send(producer, name)
        await self._take(consumer)
        if self.levers.waits:
            for name in LATE:
                await self._send(producer, name)
            self.strikes.set()
        else:
            for name in LATE:
                node.world.loop.create_task(self._send(producer, name))
        await asyncio.get_running_loop().create_future()

    async def _send(self, producer: Producer[bytes], name: str) -> None:
        message_id = await producer.send(name.encode())
        self.promised.append(name)
        self.ledger_id = message_id.ledger_id
        if not self.levers.waits and len(self.promised) == len(EARLY) + RECEIPTS_BEFORE:
            self.strikes.set()

    async def _take(self, consumer: Consumer[bytes]) -> None:
        for _ in EARLY:
            message = await consumer.receive()
            if self.levers.acks:
                await consumer.acknowledge(message)
        await asyncio.sleep(SAVED_AFTER_S)

    # --- afterwards ---------------------------------------------------------------------------------------------

    async def _look(self) -> None:
        done = asyncio.Event()

        async def look(node: Node) -> None:
            client = new_client(self.brokers.url, node)
            reader = await until_open(lambda: client.create_reader(TOPIC, EARLIEST_MESSAGE))
            while await reader.has_message_available():
                self.kept.append((await reader.read_next()).data().decode())
            await reader.close()
            consumer = await until_open(lambda: client.subscribe(TOPIC, "s", consumer_type=ConsumerType.Shared))
            while True:
                try:
                    self.owed.append((await consumer.receive(timeout_millis=QUIET_MS)).data().decode())
                except MagnetarError:
                    break
            done.set()
            await asyncio.get_running_loop().create_future()

        self.world.node("onlooker").start(look)
        try:
            async with asyncio.timeout(LOST_AFTER_S):
                await done.wait()
        except TimeoutError:
            self.world.record("the topic does not come back")


def told(levers: Levers, accident: str) -> LeverStory:
    stories: list[LeverStory] = []

    async def story(world: World) -> None:
        stories.append(LeverStory(world, levers))
        await stories[0].run(accident)

    verdict = World(7).run("levers", story)
    # That acknowledging before the sync is dangerous is what one setting of the lever says.
    broken = [each for each in verdict.violations if levers.syncs or not each.promise.startswith("R1")]
    assert not broken, broken[0]
    return stories[0]


@pytest.mark.feature("F-PLAT-15")
@pytest.mark.parametrize(
    ("levers", "accident"),
    [(levers, "power_fails") for levers in MATRIX if levers.syncs]
    + [(levers, "bookie_goes") for levers in MATRIX if levers.copies == 2],
)
def test_what_a_lever_is_against_costs_nothing_whatever_the_others_are_set_to(levers: Levers, accident: str) -> None:
    story = told(levers, accident)
    assert set(story.promised) <= set(story.kept), "a receipt was given for a message that is lost"
    assert len(story.promised) >= len(EARLY) + (len(LATE) if levers.waits else RECEIPTS_BEFORE)
    acked = set(EARLY) if levers.acks else set()
    assert sorted(story.owed) == sorted(set(story.kept) - acked)


@pytest.mark.feature("F-PLAT-15")
@pytest.mark.parametrize(
    ("levers", "accident"),
    [(Levers(True, 2, False, True), "power_fails"), (Levers(True, 1, True, True), "bookie_goes")],
)
def test_no_other_lever_makes_up_for_one_that_is_not_used(levers: Levers, accident: str) -> None:
    story = told(levers, accident)
    assert len(story.promised) == len(EARLY) + len(LATE)
    assert set(story.promised) - set(story.kept), "the accident is none"
