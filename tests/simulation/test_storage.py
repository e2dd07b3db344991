# SPDX-License-Identifier: Apache-2.0
"""The sensitivity table: bugs that storage systems have had, put back one at a time, and each found.

`first` is a seed that finds the bug today. A change of the code makes every seed another story, so the seeds after it
count too, up to a number that says how rare the bug may become before the simulation is called blind to it.
"""

import logging
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from tests.simulation.world.planted_bugs import BUGS
from tests.simulation.world.registry import run_seed

_SEEDS_MAX = 120


class Planted(NamedTuple):
    first: int
    promise: str


# Seeds to the first find, from seed 1000 on, when the table was made: 0, 0, 15, 2, 0, 0, 0, 17.
TABLE = {
    "ack-before-sync": Planted(1000, "R1 durable before acknowledged"),
    "fence-ignored": Planted(1000, "I6 fenced-cannot-commit"),
    "fence-forgotten": Planted(1015, "I6 fenced-cannot-commit"),
    "fence-before-durable": Planted(1002, "I6 fenced-cannot-commit"),
    "no-rewrite": Planted(1000, "I11 replicated"),
    "short-absence": Planted(1000, "I6 fenced-cannot-commit"),
    "unknown-is-absent": Planted(1000, "I6 fenced-cannot-commit"),
    "reads-do-not-fence": Planted(1017, "I6 fenced-cannot-commit"),
}


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Bookies that lose their disk say so, thousands of times."""
    logger = logging.getLogger("magnetar")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    yield
    logger.setLevel(level)


def test_every_bug_is_in_the_table() -> None:
    assert list(BUGS) == list(TABLE)


@pytest.mark.parametrize("bug", list(TABLE))
def test_a_planted_bug_is_found(bug: str) -> None:
    first, promise = TABLE[bug]
    for seed in range(first, first + _SEEDS_MAX):
        verdict = run_seed("takeover", seed, planted=frozenset({bug}))
        if any(violation.promise == promise for violation in verdict.violations):
            return
    raise AssertionError(f"{bug} was not found in {_SEEDS_MAX} seeds from {first} on")
