# SPDX-License-Identifier: Apache-2.0
"""The scenarios by name, and how one seed of one is run.

Every module under tests/simulation/scenarios/ is imported; `@scenario("name")` puts its function here.
"""

import importlib
from collections.abc import Callable, Mapping
from pathlib import Path

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
    rates: Mapping[str, float] | None = None,
) -> Verdict:
    """`rates` are faults per virtual second by kind, instead of those that the seed would draw."""
    world = World(seed, planted=planted, policy=policy)
    world.nemesis.without, world.nemesis.strikes_max = restraint
    world.nemesis.rates.update(rates or {})
    return world.run(name, scenarios()[name])
