# SPDX-License-Identifier: Apache-2.0
"""The embedded metadata store, unchanged, on a machine that crashes: what a put answered is there in the next life.

Each key gets rising numbers. After every start a key must hold a number that was asked for, and not one before the last
that was answered. One more is counted up by rivals, who each replace the version that they have read: no step of it is
taken by two, and none that was answered is lost.
"""

import asyncio

from magnetar.errors import BadVersion
from magnetar.metadata.embedded import EmbeddedStore
from magnetar.metadata.store import MUST_NOT_EXIST
from magnetar.runtime.simulated_faults import Latency
from tests.simulation.world.checkers.violation import Violation
from tests.simulation.world.node import Node
from tests.simulation.world.planted_bugs import planted
from tests.simulation.world.registry import scenario
from tests.simulation.world.world import World

_KEYS = 4
_RIVALS = 2
_SECONDS = 15.0


@scenario("embedded-metadata")
async def embedded_metadata(world: World) -> None:
    with planted(world.planted):
        await _told(world)


async def _told(world: World) -> None:
    node = world.node("metadata")
    world.node("elsewhere")
    faults = node.disk.kernel.faults
    faults.write_latency, faults.sync_latency = Latency(0.05, 0.1), Latency(0.5, 2.0)
    keys = [_Key(world, f"/keys/{number}") for number in range(world.at_most("keys", _KEYS))]
    counter = _Counter(world)
    node.start(lambda node: _live(node, keys, counter))
    world.nemesis.targets = [node]
    await world.nemesis.run(_SECONDS)
    world.nemesis.heal()
    lives = node.lives
    async with asyncio.timeout(60):
        for key in keys:
            await key.answered_after(key.answered)
    world.record(f"{lives} lives")


class _Key:
    """What was asked for and what was answered, over all lives of the store."""

    def __init__(self, world: World, path: str) -> None:
        self._world = world
        self.path = path
        self.asked = -1
        self.answered = -1
        self._news = asyncio.Event()

    async def answered_after(self, number: int) -> None:
        while self.answered <= number:
            self._news.clear()
            await self._news.wait()

    def look(self, value: bytes | None) -> None:
        found = -1 if value is None else int(value)
        if not self.answered <= found <= self.asked:
            sentence = f"{self.path} holds {found}; answered up to {self.answered}, asked up to {self.asked}"
            self._world.check([Violation("I1 acked-readable", sentence)])
        self.answered = max(self.answered, found)

    async def write(self, store: EmbeddedStore, pause_s: float) -> None:
        self.asked += 1
        number = self.asked
        operation = self._world.history.invoke("writer", "put", (self.path, number))
        try:
            await store.put(self.path, b"%d" % number)
        except BaseException as error:
            self._world.history.info(operation, type(error).__name__)
            raise
        self._world.history.ok(operation)
        self.answered = number
        self._news.set()
        await asyncio.sleep(pause_s)


class _Counter:
    """A number that rivals count up; each step is one's alone."""

    PATH = "/counter"

    def __init__(self, world: World) -> None:
        self._world = world
        self._last = 0

    async def count(self, store: EmbeddedStore, pause_s: float) -> None:
        record = await store.get(self.PATH)
        number, version = (int(record.value), record.version) if record is not None else (0, MUST_NOT_EXIST)
        if number < self._last:
            self._break(f"it holds {number}, and {self._last} was answered")
        await asyncio.sleep(pause_s)
        try:
            await store.put(self.PATH, b"%d" % (number + 1), expected_version=version)
        except BadVersion:
            return
        if number + 1 <= self._last:
            self._break(f"the step to {number + 1} was answered twice")
        self._last = max(self._last, number + 1)

    def _break(self, sentence: str) -> None:
        self._world.check([Violation("I18 monotonic", f"{self.PATH}: {sentence}")])


async def _live(node: Node, keys: list[_Key], counter: _Counter) -> None:
    random = node.random(f"pauses-{node.lives}")
    store = await EmbeddedStore.open(node.disk, "metadata", clock=node.clock)
    for key in keys:
        record = await store.get(key.path)
        key.look(record.value if record is not None else None)

    async def write_for_ever(key: _Key) -> None:
        while True:
            await key.write(store, 0.02 * random.random())

    async def count_for_ever(number: int) -> None:
        pauses = node.random(f"rival-{number}-{node.lives}")
        while True:
            await counter.count(store, 0.02 * pauses.random())

    async with asyncio.TaskGroup() as group:
        for key in keys:
            group.create_task(write_for_ever(key))
        for number in range(_RIVALS):
            group.create_task(count_for_ever(number))
