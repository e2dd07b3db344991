# SPDX-License-Identifier: Apache-2.0
"""A world: one seed, one loop, a network, nodes with disks and clocks, a nemesis, a history, and a verdict.

How to write a scenario: a module in tests/simulation/scenarios/ with

    @scenario("one-message")
    async def one_message(world: World) -> None:
        bookie = world.node("bookie-1")
        bookie.disk.kernel.faults.sync_latency = Latency(0.5, 1.0)
        bookie.start(serve_bookie)                  # async def serve_bookie(node: Node) -> None
        world.nemesis.targets = [bookie]
        client = world.node("client")               # clients are nodes too, if faults between them should show
        client.start(publish)                       # writes world.history: invoke, then ok, fail or info
        await world.nemesis.run(seconds=30)         # phase 1: safety
        world.nemesis.heal()                        # phase 2: liveness
        async with asyncio.timeout(60):
            await everything_settled(world)
            await scan(world)
        world.check(no_acked_loss(world.history))
        world.check(order(world.history))

`serve_bookie` builds production objects from `node.disk`, `node.clock`, `node.random("name")` and the loop, and waits
for ever; it is cancelled by nobody: a node ends by dying. If it returns or raises, the node is started again after a
while, as a service would be; the error is kept in `world.exits`. The scenario itself runs outside all nodes.

Bugs to plant, to see that they are found: `if "ack-before-sync" in world.planted`. What can be done less of, so that
a failing story becomes small: `for _ in range(world.at_most("messages", 100))`; the storm's length is one by itself.

Everything random comes from `world.random`, `node.random(name)` or `stream(world.seed, …)`. Never iterate over a set of
objects, never use `id()` or `hash()`, and never look at a real clock: the trace of a seed must be the same everywhere.
"""

import asyncio
import contextlib
import gc
import warnings
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple, TypeVar

from magnetar.runtime.chance import stream
from tests.simulation.world.atlas import Atlas
from tests.simulation.world.checkers.durability import DurableAcks
from tests.simulation.world.checkers.violation import Violation
from tests.simulation.world.history import History, Outcome
from tests.simulation.world.loop import SimDeadlock, SimLoop, SimTimeout
from tests.simulation.world.nemesis import Nemesis
from tests.simulation.world.network import Network
from tests.simulation.world.node import Node
from tests.simulation.world.process import SimProcess
from tests.simulation.world.schedule import Policy, Schedule


class Verdict(NamedTuple):
    seed: int
    scenario: str
    trace: str
    violations: tuple[Violation, ...]
    faults: Counter[str]
    # Those of the faults that the nemesis struck by itself, which a smaller story can leave out.
    struck: Counter[str]
    operations: int
    acknowledged: int
    callbacks: int
    virtual_s: float
    # How much work there was, by measure: what a smaller story may have less of.
    measures: dict[str, float]


Number = TypeVar("Number", int, float)

# Operations whose `ok` promises that something was stored.
_STORING = ("add", "send", "put")

Scenario = Callable[["World"], Coroutine[Any, Any, None]]


class World:
    def __init__(self, seed: int, *, planted: frozenset[str] = frozenset(), policy: Policy | None = None) -> None:
        self.seed = seed
        self.planted = planted
        self.random = stream(seed, "scenario")
        self.policy = policy or stream(seed, "policy").choice(tuple(Policy))
        self.loop = SimLoop(Schedule(self.policy, stream(seed, "schedule")))
        self.network = Network(self.loop, stream(seed, "network"))
        self.nodes: dict[str, Node] = {}
        self.history = History(self.loop.time, self.record)
        self.nemesis = Nemesis(self)
        self.atlas = Atlas()
        self.durable_acks = DurableAcks()
        self.faults: Counter[str] = Counter()
        # By measure: how much work there may be at most, and how much there is.
        self.work_max: dict[str, int] = {}
        self.measures: dict[str, float] = {}
        # (node, error) of every process that ended by itself.
        self.exits: list[tuple[str, BaseException | None]] = []
        self._violations: list[Violation] = []
        self._processes: list[SimProcess] = []
        self._over = False

    # --- for scenarios -----------------------------------------------------------------------------------

    def node(self, name: str) -> Node:
        """The machine of that name; made when it is asked for the first time."""
        if name not in self.nodes:
            self.nodes[name] = Node(self, name, len(self.nodes) + 1)
        return self.nodes[name]

    def at_most(self, measure: str, number: Number) -> Number:
        """How much of its work a scenario is to do: all of it, or less in a smaller story."""
        self.measures[measure] = number = min(number, self.work_max.get(measure, number))
        return number

    def check(self, violations: list[Violation]) -> None:
        self._violations += violations

    def fault(self, kind: str) -> None:
        self.faults[kind] += 1
        self.record(f"fault {kind}")

    def record(self, event: str) -> None:
        self.loop.record(event)

    def new_process(self, name: str, index: int) -> SimProcess:
        process = SimProcess(name, index)
        self._processes.append(process)
        return process

    # --- for runners -------------------------------------------------------------------------------------

    def run(self, name: str, scenario: Scenario) -> Verdict:
        self.loop.set_exception_handler(self._on_loop_error)
        collecting = gc.isenabled()
        gc.disable()
        try:
            self.loop.run_until_complete(scenario(self))
        except SimDeadlock as deadlock:
            self._violations.append(Violation("I13 live", f"deadlock: {deadlock}"))
        except SimTimeout as timeout:
            self._violations.append(Violation("I13 live", f"no end in sight {timeout}"))
        except Exception as error:
            exits = "; ".join(f"{name}: {_chain(exit)}" for name, exit in self.exits[-2:] if exit is not None)
            after = f", after these processes ended: {exits}" if exits else ""
            self._violations.append(Violation("scenario", f"ended with {_chain(error)}{after}"))
        finally:
            verdict = self._verdict(name)
            self._dispose()
            if collecting:
                gc.enable()
        return verdict

    def _verdict(self, name: str) -> Verdict:
        self._over = True
        faults = Counter(self.faults)
        for node in self.nodes.values():
            faults.update(node.disk.kernel.injected)
        for fault, count in sorted(faults.items()):
            self.record(f"{fault} {count}")
        violations = (*self._violations, *self.durable_acks.violations)
        return Verdict(
            self.seed,
            name,
            f"{self.loop.trace:08x}",
            violations,
            faults,
            Counter(self.nemesis.struck),
            len(self.history.operations),
            sum(op.outcome is Outcome.OK for op in self.history.operations if op.kind in _STORING),
            self.loop.callbacks,
            self.loop.time(),
            dict(self.measures),
        )

    def _on_loop_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if not self._over:
            error = context.get("exception")
            sentence = f"{context['message']}: {_chain(error) if error is not None else ''}"
            self._violations.append(Violation("R19 no silent death", sentence))

    def _dispose(self) -> None:
        """Only now may what dead processes left behind be unwound."""
        unwound: set[asyncio.Task[Any]] = set()
        # Whoever makes a future in its last steps would otherwise make a loop for it that nobody closes.
        asyncio.set_event_loop(self.loop)
        # What an asynchronous generator waits for is not closed with the task that it is read by.
        for generator in list(self.loop._asyncgens):  # type: ignore[attr-defined]
            if hasattr(generator.ag_await, "close"):
                with contextlib.suppress(BaseException):
                    generator.ag_await.close()
        # What is unwound may start tasks in its last steps; they never ran, and are unwound too.
        while left := asyncio.all_tasks(self.loop) - unwound:
            unwound |= left
            for task in left:
                task._log_destroy_pending = False  # type: ignore[attr-defined]
                coroutine = task.get_coro()
                if hasattr(coroutine, "close"):
                    with warnings.catch_warnings():
                        # One that its last steps wanted to start has no loop any more to run on.
                        warnings.simplefilter("ignore", RuntimeWarning)
                        with contextlib.suppress(BaseException):
                            coroutine.close()
        for process in self._processes:
            process.buried.clear()
        asyncio.set_event_loop(None)
        self.loop.close()


def _chain(error: BaseException) -> str:
    """An error and what caused it, in one line, with the place where it was raised."""
    parts: list[str] = []
    shown: BaseException | None = error
    while shown is not None and len(parts) < 4:
        place = ""
        trace = shown.__traceback__
        while trace is not None and trace.tb_next is not None:
            trace = trace.tb_next
        if trace is not None:
            place = f" ({trace.tb_frame.f_code.co_filename.rpartition('/')[2]}:{trace.tb_lineno})"
        parts.append(f"{type(shown).__name__}: {shown}{place}")
        shown = shown.__cause__ or shown.__context__
    return " ← ".join(parts)
