# SPDX-License-Identifier: Apache-2.0
"""Systematic instead of random: the same story again and again, each time with one fault at the next call to a disk.

Runs the scenario once to count the calls that a node makes, then once per call and strike. The scenario must end well
in each: it restarts nobody itself, and the node comes back a moment after a crash.
"""

from collections.abc import Callable, Iterator
from contextvars import Context
from enum import Enum
from errno import EIO, ENOSPC
from typing import NamedTuple

from magnetar.runtime.simulated_faults import DiskCall
from tests.simulation.world.node import Node
from tests.simulation.world.schedule import Policy
from tests.simulation.world.world import Scenario, Verdict, World

_DOWN_S = 0.1


class Strike(Enum):
    KILL = "kill"
    POWER_LOSS = "power-loss"
    IO_ERROR = "io-error"
    NO_SPACE = "no-space"


class Swept(NamedTuple):
    call: DiskCall
    strike: Strike
    verdict: Verdict


def sweep(
    scenario: Scenario,
    node_name: str,
    *,
    seed: int = 0,
    strikes: tuple[Strike, ...] = tuple(Strike),
    planted: frozenset[str] = frozenset(),
    every: int = 1,
) -> Iterator[Swept]:
    """One verdict per call and strike; `every=n` takes each n-th call only."""
    calls: list[DiskCall] = []
    quiet = _run(scenario, node_name, seed, planted, lambda node, call: calls.append(call))
    assert planted or not quiet.violations, f"it fails without any fault: {quiet.violations[0]}"
    for call in calls[::every]:
        for strike in strikes:
            yield Swept(call, strike, _run(scenario, node_name, seed, planted, _striker(call.number, strike)))


def _run(
    scenario: Scenario, name: str, seed: int, planted: frozenset[str], on_call: Callable[[Node, DiskCall], None]
) -> Verdict:
    world = World(seed, planted=planted, policy=Policy.FIFO)
    node = world.node(name)
    node.disk.kernel.faults.on_call = lambda call: on_call(node, call)
    return world.run("sweep", scenario)


def _striker(number: int, strike: Strike) -> Callable[[Node, DiskCall], None]:
    def on_call(node: Node, call: DiskCall) -> None:
        if call.number != number:
            return
        node.world.fault(strike.value)
        if strike is Strike.IO_ERROR:
            raise OSError(EIO, "swept", call.path)
        if strike is Strike.NO_SPACE:
            raise OSError(ENOSPC, "swept", call.path)
        if strike is Strike.KILL:
            node.kill()
        else:
            node.lose_power()
        node.world.loop.call_later(_DOWN_S, node.come_back, context=Context())

    return on_call
