# SPDX-License-Identifier: Apache-2.0
"""A simulated machine: one host name, one disk, one clock, and at most one living process on it.

`start(main)` runs `main(node)` as the process; `main` serves until it is cancelled or its machine dies. `kill` is
kill -9: no `finally` runs, the disk keeps what was written, peers see resets. `lose_power` also loses what no sync
covered, and peers see nothing at all. `restart` runs the same `main` again on what is left.
"""

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import Context, copy_context
from random import Random
from typing import TYPE_CHECKING, Any

from magnetar.runtime.chance import stream
from magnetar.runtime.clock import WallClock
from magnetar.runtime.simulated_disk import SimulatedDisk
from magnetar.runtime.turn_end import OF_PROCESS, TurnEnd
from tests.simulation.world.loop import SimLoop
from tests.simulation.world.process import SimProcess, current_process

if TYPE_CHECKING:
    from tests.simulation.world.world import World

Main = Callable[["Node"], Coroutine[Any, Any, None]]

_START_OF_TIME_MS = 1_700_000_000_000
_RESTART_AFTER_S = 0.5


class SimClock(WallClock):
    """Virtual time with this machine's error."""

    def __init__(self, loop: SimLoop) -> None:
        self._loop = loop
        self.skew_ms = 0
        # How much faster than true time it goes, and since when.
        self._drift = 0.0
        self._drift_from_s = 0.0

    def now_ms(self) -> int:
        drift_ms = (self._loop.time() - self._drift_from_s) * 1000 * self._drift
        return _START_OF_TIME_MS + int(self._loop.time() * 1000 + drift_ms) + self.skew_ms

    def drift(self, rate: float) -> None:
        """Go wrong steadily from now on; 0 goes right again, from the true time."""
        self._drift, self._drift_from_s = rate, self._loop.time()


class Node:
    def __init__(self, world: "World", name: str, index: int) -> None:
        self.world = world
        self.name = name
        self._index = index
        self.clock = SimClock(world.loop)
        self.disk = SimulatedDisk(self.random("disk"))
        self.process: SimProcess | None = None
        self.main_task: asyncio.Task[None] | None = None
        self._main: Main | None = None
        self.lives = 0

    def random(self, name: str) -> Random:
        """This node's stream of that name; a new object each time it is asked for."""
        return stream(self.world.seed, self.name, name)

    def is_running(self) -> bool:
        return self.process is not None and self.main_task is not None and not self.main_task.done()

    def is_paused(self) -> bool:
        return self.process is not None and self.process.paused

    def start(self, main: Main) -> None:
        assert not self.is_running(), f"{self.name} runs already"
        self._main = main
        self.lives += 1
        if self.process is not None:
            self._bury()
        process = self.process = self.world.new_process(self.name, self._index)
        self.world.network.host_started(self.name)
        self.world.record(f"start {self.name} {self.lives}")
        context = copy_context()
        context.run(current_process.set, process)
        context.run(OF_PROCESS.set, TurnEnd())
        self.main_task = self.world.loop.create_task(main(self), name=f"{self.name}/{self.lives}", context=context)
        self.main_task.add_done_callback(self._ended, context=Context())

    def restart(self) -> None:
        assert self._main is not None, f"{self.name} was never started"
        self.start(self._main)

    def come_back(self) -> None:
        """Restart, unless somebody else did."""
        if not self.is_running():
            self.restart()

    def kill(self) -> None:
        self._die(silently=False)
        self.disk.kernel.kill()

    def lose_power(self) -> None:
        self._die(silently=True)
        self.disk.kernel.lose_power()

    def pause(self) -> None:
        if self.process is not None and not self.process.dead:
            self.process.paused = True
            self.world.record(f"pause {self.name}")

    def resume(self) -> None:
        process = self.process
        if process is not None and process.paused:
            process.paused = False
            held, process.held = process.held, []
            self.world.loop.put_back(held)
            self.world.record(f"resume {self.name}")

    def _die(self, *, silently: bool) -> None:
        process = self.process
        if process is None or process.dead:
            return
        self.world.record(f"die {self.name} {silently}")
        process.buried += asyncio.all_tasks(self.world.loop)
        process.buried += process.held
        process.dead = True
        process.paused = False
        process.held = []
        self.main_task = None
        self.world.network.process_died(process, silently=silently)

    def _ended(self, task: asyncio.Task[None]) -> None:
        """The process ended by itself: it is started again after a while, as a service would be."""
        if task is not self.main_task:
            return
        error = None if task.cancelled() else task.exception()
        self.world.exits.append((self.name, error))
        self.world.record(f"exit {self.name} {type(error).__name__}")
        self.world.loop.call_later(_RESTART_AFTER_S, self._restart_after_exit, task)

    def _restart_after_exit(self, task: asyncio.Task[None]) -> None:
        if task is self.main_task:
            self.restart()

    def _bury(self) -> None:
        """A process that ended by itself is dead too: nothing of it may run in the next life."""
        self._die(silently=False)
        self.disk.kernel.kill()
