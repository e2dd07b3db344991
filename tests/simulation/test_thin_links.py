# SPDX-License-Identifier: Apache-2.0
"""A link of one kilobyte a second, on which a client's bytes come one by one, and whose window is closed for a minute.

At its end is a client of a standalone, or one of four bookies. Windows and the broker's mark are a fraction of those of
real life, and a read for dispatch takes a few messages; keep-alive and deadlines are what they are by default.
"""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Final

import pytest

from magnetar.client.client import Client
from magnetar.client.consumer import Consumer
from magnetar.client.options import InitialPosition
from magnetar.config.ledger import ChannelSettings
from magnetar.config.load import Settings, load_settings
from magnetar.standalone.standalone import Standalone
from tests.simulation.test_slow_syncs import PACKED_BYTES, PAUSE_S, SteadyLoad
from tests.simulation.world.links import Links, LinkSettings, Way
from tests.simulation.world.messaging import until_open
from tests.simulation.world.node import Node
from tests.simulation.world.process import current_process
from tests.simulation.world.world import World

TOPIC: Final = "persistent://public/default/t"
UPWARD: Final = "persistent://public/default/upward"
URL: Final = "pulsar://broker:6650"
BYTES_PER_S: Final = 1000.0
CLOSED_S: Final = 60.0
MESSAGES: Final = 150
MESSAGE_BYTES: Final = 1024
UPWARD_MESSAGES: Final = 20
WINDOW_BYTES: Final = 8 * 1024
WRITE_MARK_BYTES: Final = 16 * 1024
READ_BYTES: Final = 4 * 1024
# The mark, and the round that went beyond it with what is around each message.
UNSENT_BYTES_MAX: Final = WRITE_MARK_BYTES + READ_BYTES + 2 * MESSAGE_BYTES
# What was added until the bookie was given up, with what is around each entry.
UNANSWERED_BYTES_MAX: Final = int(2 * PACKED_BYTES * ChannelSettings().request_timeout_ms / 1000 / PAUSE_S)
# Nobody else waits longer than for a sync and two ways.
OTHERS_WAIT_S: Final = 0.5
PATIENCE_S: Final = 1200.0


class ThinLinks(Links):
    """Every way to and from one machine carries a kilobyte a second; what that machine sends travels byte by byte."""

    def __init__(self, random: Random, settings: LinkSettings, thin: str) -> None:
        super().__init__(random, settings)
        self._thin = thin
        self._own_free_at: dict[Way, float] = {}
        self.bytes_carried = 0

    def arrival(self, way: Way, now: float, length: int) -> float:
        when = super().arrival(way, now, length)
        if self._thin not in way or way[0] == way[1]:
            return when
        self.bytes_carried += length
        self._own_free_at[way] = max(now, self._own_free_at.get(way, 0.0)) + length / BYTES_PER_S
        return max(when, self._own_free_at[way])

    def piece(self, length: int) -> int:
        sender = current_process.get()
        return 1 if sender is not None and sender.name == self._thin else super().piece(length)


def thin_link(world: World, machine: str) -> ThinLinks:
    links = world.network.links
    links.settings.window_bytes = WINDOW_BYTES
    world.network.links = ThinLinks(Random(world.seed), links.settings, machine)
    return world.network.links


class ThinStory:
    def __init__(self, world: World) -> None:
        self.world = world
        self.links = thin_link(world, "thin")
        self.broker, self.thin, self.wide = world.node("broker"), world.node("thin"), world.node("wide")
        self.received: dict[str, list[bytes]] = {}
        self.waited_most_s = 0.0
        self.unsent_most = 0
        # Every connection that there was between the broker and the thin machine.
        self.connections: dict[object, None] = {}
        self._sent_at: list[float] = []
        self._changed = asyncio.Event()

    async def run(self) -> None:
        self.broker.start(self._serve)
        self.thin.start(self._at_the_thin_end)
        await self._until(lambda: "thin" in self.received)
        self.wide.start(self._at_the_wide_end)
        await self._until(lambda: len(self.received["thin"]) >= 10)
        self.thin.pause()
        await asyncio.sleep(CLOSED_S)
        held = len(self.received["thin"])
        assert self._window_is_closed()
        self.thin.resume()
        await self._until(lambda: len(self.received["wide"]) == MESSAGES)
        assert held <= len(self.received["thin"]) < MESSAGES, "the others were ready long before"
        await self._until(lambda: len(self.received["thin"]) == MESSAGES)
        await self._until(lambda: len(self.received["upward"]) == UPWARD_MESSAGES)
        assert self.received["thin"] == self.received["wide"] == [_body(number) for number in range(MESSAGES)]
        assert self.received["upward"] == [_body(number) for number in range(UPWARD_MESSAGES)]

    def _window_is_closed(self) -> bool:
        self._look()
        return self.unsent_most > WRITE_MARK_BYTES

    def _look(self) -> None:
        for each in self.world.network.connections():
            for end in (each, each.peer):
                if end is not None and end.way == ("broker", "thin"):
                    self.connections[end] = None
                    self.unsent_most = max(self.unsent_most, end.get_write_buffer_size())

    async def _until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not holds():
                self._look()
                self._changed.clear()
                await self._changed.wait()

    # --- the machines -------------------------------------------------------------------------------------------

    async def _serve(self, node: Node) -> None:
        failed: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()
        standalone = await Standalone.open(
            node.disk, _settings(), clock=node.clock, random=node.random("standalone"), on_failed=failed.set_result
        )
        await standalone.start()
        raise await failed

    async def _at_the_thin_end(self, node: Node) -> None:
        """Consumes what comes, and sends a little itself."""
        client = _client(node)
        consumer = await until_open(lambda: client.subscribe(TOPIC, "thin"))
        producer = await until_open(lambda: client.create_producer(UPWARD, send_timeout_millis=0))

        async def send() -> None:
            for number in range(UPWARD_MESSAGES):
                await producer.send(_body(number))

        sending = asyncio.get_running_loop().create_task(send())
        await self._receive("thin", consumer)
        await sending

    async def _at_the_wide_end(self, node: Node) -> None:
        client = _client(node)
        earliest = InitialPosition.Earliest
        consumer = await until_open(lambda: client.subscribe(TOPIC, "wide"))
        upward = await until_open(lambda: client.subscribe(UPWARD, "wide", initial_position=earliest))
        producer = await until_open(lambda: client.create_producer(TOPIC, send_timeout_millis=0))

        async def send() -> None:
            for number in range(MESSAGES):
                self._sent_at.append(asyncio.get_running_loop().time())
                await producer.send(_body(number))
                await asyncio.sleep(1)

        tasks = [self._receive("wide", consumer), self._receive("upward", upward), send()]
        await asyncio.gather(*tasks)

    async def _receive(self, name: str, consumer: Consumer[bytes]) -> None:
        bodies = self.received.setdefault(name, [])
        self._changed.set()
        while True:
            message = await consumer.receive()
            if name == "wide":
                waited_s = asyncio.get_running_loop().time() - self._sent_at[len(bodies)]
                self.waited_most_s = max(self.waited_most_s, waited_s)
            bodies.append(message.data())
            self._changed.set()
            await consumer.acknowledge(message)


def _body(number: int) -> bytes:
    return b"%08d" % number + b"x" * (MESSAGE_BYTES - 8)


def _client(node: Node) -> Client:
    return Client(URL, clock=node.clock, random=node.random("client"))


def _settings() -> Settings:
    given = {"--port": "6650", "--http-port": "0", "bindAddress": "0.0.0.0", "advertisedAddress": "broker"}
    settings = load_settings((), {}, given)
    broker = replace(settings.broker, connection_write_bytes_max=WRITE_MARK_BYTES, dispatch_read_bytes_max=READ_BYTES)
    return replace(settings, broker=broker)


@pytest.mark.parametrize("seed", [1, 2])
def test_a_client_at_the_end_of_a_thin_link_is_served_in_its_time_and_holds_up_nobody(seed: int) -> None:
    """F123: its one connection lives, with the keep-alive of real life; all it is sent comes once and in order."""
    stories: list[ThinStory] = []

    async def story(world: World) -> None:
        stories.append(ThinStory(world))
        await stories[0].run()

    verdict = World(seed).run("thin link", story)
    assert not verdict.violations, verdict.violations[0]
    (thin,) = stories
    assert len(thin.connections) == 1, "no keep-alive has cut it"
    assert WRITE_MARK_BYTES < thin.unsent_most <= UNSENT_BYTES_MAX
    assert thin.waited_most_s < OTHERS_WAIT_S
    assert thin.links.bytes_carried > MESSAGES * MESSAGE_BYTES


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("window", ["thin", "closed"])
def test_a_bookie_at_the_end_of_a_thin_link_is_replaced_once_and_holds_up_nobody(seed: int, window: str) -> None:
    """F123: of two minutes of adds, none waits for the bookie whose link carries less, or for a minute nothing."""
    loads: list[SteadyLoad] = []
    unsent: list[int] = []

    async def story(world: World) -> None:
        def strike(bookie: Node) -> None:
            if window == "thin":
                thin_link(world, bookie.name)
            else:
                world.network.links.settings.window_bytes = WINDOW_BYTES
                bookie.pause()
                world.loop.call_later(CLOSED_S, bookie.resume)
            world.loop.create_task(watch(bookie.name))

        async def watch(bookie: str) -> None:
            while True:
                ends = [end for each in world.network.connections() for end in (each, each.peer)]
                unsent.extend(
                    end.get_write_buffer_size() for end in ends if end is not None and end.way == ("writer", bookie)
                )
                await asyncio.sleep(0.1)

        loads.append(SteadyLoad(world, strike))
        await loads[0].run()

    verdict = World(seed).run("thin link of a bookie", story)
    assert not verdict.violations, verdict.violations[0]
    loads[0].check()
    assert 0 < max(unsent) <= UNANSWERED_BYTES_MAX
    assert unsent[-1] < max(unsent), "nothing more is sent to who was given up"
