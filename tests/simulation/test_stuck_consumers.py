# SPDX-License-Identifier: Apache-2.0
"""A hundred consumers whose process stands still: the broker keeps little for them, and serves everybody else.

A whole standalone and the real client. The sizes are those of real life divided by a hundred and sixty: messages of
32 KiB, a read for dispatch takes one of them, as one of 5 MiB does by default.
"""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Final

import pytest

from magnetar.client.client import Client
from magnetar.client.consumer import Consumer
from magnetar.client.options import ConsumerType
from magnetar.config.load import Settings, load_settings
from magnetar.standalone.standalone import Standalone
from tests.simulation.world.messaging import new_client, until_open
from tests.simulation.world.node import Node
from tests.simulation.world.world import World

TOPIC: Final = "persistent://public/default/t"
URL: Final = "pulsar://broker:6650"
STUCK: Final = 100
MESSAGES: Final = 240
MESSAGE_BYTES: Final = 32 * 1024
# What a network keeps for one who does not read, before the broker has to.
WINDOW_BYTES: Final = 8 * 1024
WRITE_MARK_BYTES: Final = 8 * 1024
TEN_MINUTES_S: Final = 600.0
# The mark, and the round that went beyond it: one message and what is around it.
UNSENT_BYTES_MAX: Final = WRITE_MARK_BYTES + MESSAGE_BYTES + 1024


class StuckStory:
    def __init__(self, world: World) -> None:
        self.world = world
        self.broker = world.node("broker")
        self.stuck_machine = world.node("stuck")
        self.reading_machine = world.node("reading")
        self.sender = world.node("sender")
        # What came, by who it came to: each of the stuck, the one beside them, the one of another subscription.
        self.received: dict[str, list[bytes]] = {}
        self.unsent_most = 0
        self._sent = 0
        self._changed = asyncio.Event()
        world.network.links.settings.window_bytes = WINDOW_BYTES

    async def run(self) -> None:
        self.broker.start(self._serve)
        self.stuck_machine.start(self._subscribe_many)
        await self._until(lambda: len(self.received) == STUCK)
        self.stuck_machine.pause()
        self.reading_machine.start(self._subscribe_two)
        self.sender.start(self._send)
        await self._until(lambda: self._sent == len(self.received.get("other", ())) == MESSAGES)
        for _ in range(60):
            await asyncio.sleep(TEN_MINUTES_S / 60)
            self._look()
        assert self._count_of_stuck() == 0
        assert len(self.received["beside"]) >= MESSAGES / 2, "what the stuck were not sent went to the one who reads"
        self.stuck_machine.resume()
        await self._until(lambda: len(self.received["beside"]) + self._count_of_stuck() == 2 * MESSAGES)
        alone, other = self.received.pop("stuck-0"), self.received.pop("other")
        assert alone == other, "the one that has its subscription to itself gets all that it was not sent before"
        assert sorted(body for bodies in self.received.values() for body in bodies) == other, "each message once"
        assert all(self.received.values())
        await asyncio.sleep(1)
        assert not self._unsent()

    # --- what the broker keeps ----------------------------------------------------------------------------------

    def _unsent(self) -> list[int]:
        ends = [end for each in self.world.network.connections() for end in (each, each.peer) if end is not None]
        sizes = [end.get_write_buffer_size() for end in ends if end.way[0] == "broker"]
        return [size for size in sizes if size]

    def _look(self) -> None:
        unsent = self._unsent()
        assert len(unsent) == STUCK, "each of them has something to read"
        self.unsent_most = max(self.unsent_most, *unsent)

    async def _until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(TEN_MINUTES_S):
            while not holds():
                self._changed.clear()
                await self._changed.wait()

    def _count_of_stuck(self) -> int:
        return sum(len(bodies) for name, bodies in self.received.items() if name.startswith("stuck"))

    # --- the machines -------------------------------------------------------------------------------------------

    async def _serve(self, node: Node) -> None:
        failed: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()
        standalone = await Standalone.open(
            node.disk, _settings(), clock=node.clock, random=node.random("standalone"), on_failed=failed.set_result
        )
        await standalone.start()
        raise await failed

    async def _subscribe_many(self, node: Node) -> None:
        consumers = [await self._consumer(node, "alone" if not number else "s") for number in range(STUCK)]
        await asyncio.gather(*(self._receive(f"stuck-{number}", each) for number, each in enumerate(consumers)))

    async def _subscribe_two(self, node: Node) -> None:
        both = [(name, await self._consumer(node, of)) for name, of in (("beside", "s"), ("other", "other"))]
        await asyncio.gather(*(self._receive(name, consumer) for name, consumer in both))

    async def _consumer(self, node: Node, subscription: str) -> Consumer[bytes]:
        client = Client(
            URL,
            clock=node.clock,
            random=node.random(f"client of {subscription}"),
            keep_alive_interval_seconds=10 * TEN_MINUTES_S,
        )
        return await until_open(lambda: client.subscribe(TOPIC, subscription, consumer_type=ConsumerType.Shared))

    async def _receive(self, name: str, consumer: Consumer[bytes]) -> None:
        bodies = self.received.setdefault(name, [])
        self._changed.set()
        while True:
            message = await consumer.receive()
            bodies.append(message.data()[:8])
            self._changed.set()
            await consumer.acknowledge(message)

    async def _send(self, node: Node) -> None:
        await self._until(lambda: len(self.received) == STUCK + 2)
        client = new_client(URL, node)
        producer = await until_open(lambda: client.create_producer(TOPIC, send_timeout_millis=0))
        for number in range(MESSAGES):
            await producer.send(b"%08d" % number + b"x" * (MESSAGE_BYTES - 8))
            self._sent += 1
        await asyncio.get_running_loop().create_future()


def _settings() -> Settings:
    given = {"--port": "6650", "--http-port": "0", "bindAddress": "0.0.0.0", "advertisedAddress": "broker"}
    settings = load_settings((), {}, given)
    broker = replace(
        settings.broker,
        connection_write_bytes_max=WRITE_MARK_BYTES,
        dispatch_read_bytes_max=MESSAGE_BYTES,
        # Whatever goes on does so by itself, not because somebody looked.
        liveness_check_interval_ms=100 * int(TEN_MINUTES_S) * 1000,
    )
    return replace(settings, broker=broker)


@pytest.mark.feature("B-30")
def test_consumers_that_never_read_cost_the_broker_one_round_each_and_others_nothing() -> None:
    """F102: for ten minutes; when they read again, the rest comes."""
    stories: list[StuckStory] = []

    async def story(world: World) -> None:
        stories.append(StuckStory(world))
        await stories[0].run()

    verdict = World(7).run("stuck-consumers", story)
    assert not verdict.violations, verdict.violations[0]
    assert WRITE_MARK_BYTES < stories[0].unsent_most <= UNSENT_BYTES_MAX
