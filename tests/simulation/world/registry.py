# SPDX-License-Identifier: Apache-2.0
"""The scenarios by name, and how one seed of one is run.

Every module under tests/simulation/scenarios/ is imported; `@scenario("name")` puts its function here.
"""

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from tests.simulation.world.planted_table import rates_of
from tests.simulation.world.schedule import Policy
from tests.simulation.world.shrink import UNRESTRAINED, Restraint
from tests.simulation.world.world import Scenario, Verdict, World

_scenarios: dict[str, Scenario] = {}
_PACKAGE = "tests.simulation.scenarios"


def scenario(name: str) -> Callable[[Scenario], Scenario]:
    def register(function: Scenario) -> Scenario:
        assert name not in _scenarios, f"two scenarios are called {name}"
        _scenarios[name] = function
        return function

    return register


def scenarios() -> dict[str, Scenario]:
    """All of them, in order of their names."""
    for path in sorted((Path(__file__).parent.parent / "scenarios").glob("*.py")):
        importlib.import_module(f"{_PACKAGE}.{path.stem}")
    return dict(sorted(_scenarios.items()))


def run_seed(
    name: str,
    seed: int,
    *,
    planted: frozenset[str] = frozenset(),
    policy: Policy | None = None,
    restraint: Restraint = UNRESTRAINED,
) -> Verdict:
    """A planted bug may bring rates of its own, instead of those that the seed would draw."""
    world = World(seed, planted=planted, policy=policy)
    world.nemesis.without, world.nemesis.strikes_max, at_most = restraint
    world.work_max.update(at_most)
    world.nemesis.rates.update(rates_of(planted, name))
    return world.run(name, scenarios()[name])


class Knobs(NamedTuple):
    """What a restraint may name."""

    kinds: frozenset[str]
    measures: frozenset[str]


def knobs(name: str) -> Knobs:
    """Of one scenario; it is run without a storm to see what it asks for."""
    world = World(0)
    world.work_max["seconds"] = 0
    verdict = world.run(name, scenarios()[name])
    return Knobs(frozenset(world.nemesis.kinds), frozenset(verdict.measures))
