# SPDX-License-Identifier: Apache-2.0
"""The sensitivity table: bugs that systems like this one have had, put back one at a time, and each found.

`first` is a seed that finds the bug today. A change of the code makes every seed another story, so the seeds after it
count too, up to a number that says how rare the bug may become before the simulation is called blind to it.
"""

import logging
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import pytest

from tests.simulation.world.planted_bugs import BUGS
from tests.simulation.world.registry import run_seed

_SEEDS_MAX = 200


class Planted(NamedTuple):
    scenario: str
    first: int
    promise: str
    # Faults per second that bring the bug out, where drawn ones seldom do.
    rates: Mapping[str, float] = {}


# docs/reliability.md says how many seeds find each.
TABLE = {
    "ack-before-sync": Planted("takeover", 1000, "R1 durable before acknowledged"),
    "fence-ignored": Planted("takeover", 1000, "I6 fenced-cannot-commit"),
    "fence-forgotten": Planted("takeover", 1001, "I6 fenced-cannot-commit"),
    "fence-before-durable": Planted("takeover", 1000, "I6 fenced-cannot-commit"),
    "no-rewrite": Planted("takeover", 1000, "I11 replicated"),
    "short-absence": Planted("takeover", 1000, "I6 fenced-cannot-commit"),
    "unknown-is-absent": Planted("takeover", 1001, "I6 fenced-cannot-commit"),
    "reads-do-not-fence": Planted("takeover", 1003, "I6 fenced-cannot-commit"),
    "cookie-ignored": Planted("storage", 1003, "I14 honest", {"wiped-disk": 0.6, "kill": 0.3}),
    "limbo-says-absent": Planted(
        "storage", 1000, "I6 fenced-cannot-commit", {"wiped-disk": 0.6, "kill": 1.0, "clog": 0.5}
    ),
    "limbo-left-unproven": Planted("storage", 1003, "I14 honest", {"wiped-disk": 0.6, "kill": 1.0, "clog": 0.5}),
    "copies-nothing": Planted("storage", 1000, "I11 replicated", {"wiped-disk": 0.6, "kill": 0.3}),
    "broker-ack-before-sync": Planted("broker", 1000, "I1 acked-readable", {"power-loss": 1.0}),
    "mark-delete-off-by-one": Planted("broker", 1000, "I9 cursor"),
    "cursor-before-data": Planted("broker", 1012, "I9 cursor", {"slow-disk": 3.0}),
    "cursor-not-saved": Planted("broker", 1001, "I9 cursor"),
    "redelivery-lost": Planted("broker", 1000, "I9 cursor"),
    "duplicates-forgotten": Planted("broker", 1004, "I4 no-duplicate", {"kill": 1.5}),
    "keys-not-drained": Planted("broker", 1000, "I3 order"),
    "batches-counted-whole": Planted("broker", 1000, "backlog is exact"),
    "owners-not-fenced": Planted("cluster", 1004, "I6 fenced-cannot-commit", {"metadata-cut": 3.0, "cut": 4.0}),
    "given-up-before-closed": Planted("ownership", 1000, "I7 one-owner"),
    "look-ups-stay-cached": Planted("ownership", 1000, "look-ups agree"),
    "shedding-flaps": Planted("ownership", 1000, "load manager rests"),
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
    scenario, first, promise, rates = TABLE[bug]
    for seed in range(first, first + _SEEDS_MAX):
        verdict = run_seed(scenario, seed, planted=frozenset({bug}), rates=rates)
        if any(violation.promise == promise for violation in verdict.violations):
            return
    raise AssertionError(f"{bug} was not found in {_SEEDS_MAX} seeds from {first} on")
