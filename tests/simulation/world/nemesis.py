# SPDX-License-Identifier: Apache-2.0
"""The nemesis: which faults this seed has, how often, and when they stop.

Swarm testing: each seed first draws which kinds of fault are on and how hard, because a run with everything on hides
what a run with two kinds finds. Two phases: `run(seconds)` injects while the workload goes on (safety); `heal()` ends
all faults and brings every node back, after which everything must come to an end (liveness).

A scenario adds faults of its own with `add(kind, strike, least, most)`: `strike()` injects one and returns whether it
could; `least` and `most` are events per virtual second.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from contextvars import Context
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from magnetar.runtime.chance import stream
from magnetar.runtime.simulated_faults import DiskCall, DiskFaults
from tests.simulation.world.node import Node

if TYPE_CHECKING:
    from tests.simulation.world.world import World

_ON_CHANCE = 0.5


class Kind(NamedTuple):
    strike: Callable[[], bool]
    least_per_s: float
    most_per_s: float


class Nemesis:
    def __init__(self, world: "World") -> None:
        self._world = world
        self._random = stream(world.seed, "nemesis")
        self._healing = False
        # What a full disk had room for before it was made full.
        self._capacities: dict[str, int] = {}
        # Only these nodes are struck; the scenario adds them.
        self.targets: list[Node] = []
        self.kinds: dict[str, Kind] = {
            "cut": Kind(self._cut, 0.02, 2.0),
            "half-open": Kind(self._half_open, 0.01, 0.2),
            "clog": Kind(self._clog, 0.02, 0.5),
            "partition": Kind(self._partition, 0.01, 0.3),
            "pause": Kind(self._pause, 0.01, 0.2),
            "kill": Kind(self._kill, 0.02, 0.5),
            "power-loss": Kind(self._lose_power, 0.02, 0.5),
            "slow-disk": Kind(self._slow_disk, 0.02, 0.5),
            "failing-reads": Kind(self._failing_reads, 0.01, 0.2),
            "failing-writes": Kind(self._failing_writes, 0.01, 0.1),
            "failing-syncs": Kind(self._failing_syncs, 0.01, 0.1),
            "short-writes": Kind(self._short_writes, 0.02, 0.3),
            "full-disk": Kind(self._full_disk, 0.01, 0.1),
            "clock-jump": Kind(self._clock_jump, 0.01, 0.2),
            "clock-drift": Kind(self._clock_drift, 0.01, 0.2),
        }
        self.rates: dict[str, float] = {}
        # Kinds that are drawn and then do not strike, and how many of the others may: for smaller stories.
        self.without: frozenset[str] = frozenset()
        self.strikes_max: int | None = None
        self.struck: Counter[str] = Counter()

    def add(self, kind: str, strike: Callable[[], bool], least_per_s: float, most_per_s: float) -> None:
        self.kinds[kind] = Kind(strike, least_per_s, most_per_s)

    def forbid(self, *kinds: str) -> None:
        for kind in kinds:
            del self.kinds[kind]

    def draw_swarm(self) -> None:
        """Which kinds are on in this run, and how often each strikes per virtual second."""
        for name, kind in self.kinds.items():
            if self._random.random() < _ON_CHANCE:
                ratio = kind.most_per_s / kind.least_per_s
                self.rates[name] = kind.least_per_s * ratio ** self._random.random()

    async def run(self, seconds: float) -> None:
        """Strike now and then, for so long."""
        seconds = self._world.at_most("seconds", seconds)
        if not self.rates:
            self.draw_swarm()
        end = self._world.loop.time() + seconds
        names, weights = list(self.rates), list(self.rates.values())
        while names:
            pause_s = self._random.expovariate(sum(weights))
            if self._world.loop.time() + pause_s >= end:
                break
            await asyncio.sleep(pause_s)
            name = self._random.choices(names, weights)[0]
            if self._may_strike(name) and self.kinds[name].strike():
                self.struck[name] += 1
                self._world.fault(name)
        await asyncio.sleep(max(0.0, end - self._world.loop.time()))

    def _may_strike(self, name: str) -> bool:
        return name not in self.without and (self.strikes_max is None or self.struck.total() < self.strikes_max)

    def heal(self) -> None:
        """End every fault and bring every target back."""
        self._healing = True
        self._world.record("heal")
        self._world.network.heal()
        self._world.network.links.unclog()
        for node in self.targets:
            self._free_space(node)
            _calm(node.disk.kernel.faults)
            node.clock.skew_ms = 0
            node.clock.drift(0.0)
            node.resume()
            node.come_back()

    # --- strikes -------------------------------------------------------------------------------------

    def _cut(self) -> bool:
        connections = self._world.network.connections()
        if connections:
            self._world.network.cut(self._random.choice(connections))
        return bool(connections)

    def _half_open(self) -> bool:
        connections = self._world.network.connections()
        if connections:
            self._world.network.half_open(self._random.choice(connections))
        return bool(connections)

    def _clog(self) -> bool:
        self._world.network.clog(self._way(), self._random.uniform(0.05, 5.0))
        return True

    def _partition(self) -> bool:
        """One direction, both, or a host from all others."""
        one, other = self._way()
        ways = [(one, other)]
        if self._random.random() < 0.5:
            ways.append((other, one))
        if self._random.random() < 0.3:
            ways += [way for name in self._world.nodes if name != one for way in ((one, name), (name, one))]
        for way in ways:
            self._world.network.partition(way)
            self._later(self._random.uniform(0.1, 10.0), partial(self._world.network.heal, way))
        return True

    def _pause(self) -> bool:
        node = self._running_target()
        if node is None or node.is_paused():
            return False
        node.pause()
        self._later(self._random.choice((0.1, 1.0, 10.0, 60.0)) * self._random.random(), node.resume)
        return True

    def _kill(self) -> bool:
        return self._crash(lambda node: node.kill())

    def _lose_power(self) -> bool:
        return self._crash(lambda node: node.lose_power())

    def _crash(self, crash: Callable[[Node], None]) -> bool:
        """Half of them at once, half aimed: at one of the next calls to the disk."""
        node = self._running_target()
        if node is None:
            return False
        faults = node.disk.kernel.faults
        down_s = self._random.choice((0.01, 1.0, 10.0)) * self._random.random()
        calls_left = self._random.randrange(6)

        def strike() -> None:
            crash(node)
            self._later(down_s, node.come_back)

        def on_call(call: DiskCall) -> None:
            nonlocal calls_left
            calls_left -= 1
            if calls_left < 0:
                faults.on_call = None
                if node.is_running() and not self._healing:
                    strike()

        if faults.on_call is None and self._random.random() < 0.5:
            faults.on_call = on_call
        else:
            strike()
        return True

    def _slow_disk(self) -> bool:
        return self._weather(lambda faults: setattr(faults, "slow_sync_chance", self._random.random()))

    def _failing_reads(self) -> bool:
        return self._weather(lambda faults: setattr(faults, "read_error_chance", self._random.random() * 0.1))

    def _failing_writes(self) -> bool:
        return self._weather(lambda faults: setattr(faults, "write_error_chance", self._random.random() * 0.1))

    def _failing_syncs(self) -> bool:
        return self._weather(lambda faults: setattr(faults, "sync_error_chance", self._random.random() * 0.1))

    def _short_writes(self) -> bool:
        return self._weather(lambda faults: setattr(faults, "short_write_chance", self._random.random()))

    def _full_disk(self) -> bool:
        node = self._running_target()
        if node is None:
            return False
        kernel = node.disk.kernel
        whole = self._capacities.setdefault(node.name, kernel.capacity_bytes)
        used = kernel.capacity_bytes - kernel.free_bytes()
        kernel.capacity_bytes = min(whole, used + self._random.randrange(4096))
        self._later(self._random.uniform(0.1, 5.0), partial(self._free_space, node))
        return True

    def _free_space(self, node: Node) -> None:
        node.disk.kernel.capacity_bytes = self._capacities.get(node.name, node.disk.kernel.capacity_bytes)

    def _clock_jump(self) -> bool:
        node = self._running_target()
        if node is not None:
            node.clock.skew_ms = round(self._random.choice((20, 2000, 3_600_000)) * self._random.uniform(-1, 1))
        return node is not None

    def _clock_drift(self) -> bool:
        node = self._running_target()
        if node is not None:
            node.clock.drift(self._random.choice((0.001, 0.1, 2.0)) * self._random.uniform(-0.4, 1))
        return node is not None

    def _weather(self, change: Callable[[DiskFaults], None]) -> bool:
        """Bad for a while, on one disk."""
        node = self._running_target()
        if node is None:
            return False
        faults = node.disk.kernel.faults
        change(faults)
        self._later(self._random.uniform(0.1, 5.0), lambda: _calm(faults))
        return True

    def _running_target(self) -> Node | None:
        running = [node for node in self.targets if node.is_running()]
        return self._random.choice(running) if running else None

    def _way(self) -> tuple[str, str]:
        one, other = self._random.sample(list(self._world.nodes), 2)
        return one, other

    def _later(self, seconds: float, call: Callable[[], None]) -> None:
        # In an empty context: what the nemesis does must not carry the label of a process that it strikes.
        self._world.loop.call_later(seconds, lambda: None if self._healing else call(), context=Context())


def _calm(faults: DiskFaults) -> None:
    faults.slow_sync_chance = 0.0
    faults.read_error_chance = 0.0
    faults.write_error_chance = 0.0
    faults.sync_error_chance = 0.0
    faults.short_write_chance = 0.0
