# SPDX-License-Identifier: Apache-2.0
"""The sensitivity table: bugs that systems like this one have had, put back one at a time, and each found.

A change of the code makes every seed another story, so the seeds after a bug's first count too, up to a number that
says how rare the bug may become before the simulation is called blind to it.
"""

import logging
from collections.abc import Iterator

import pytest

from tests.simulation.world.planted_bugs import BUGS, sentence_of
from tests.simulation.world.planted_table import NAMES, TABLE, named_tests, rates_of
from tests.simulation.world.planting import fails
from tests.simulation.world.registry import knobs, run_seed, scenarios

_SEEDS_MAX = 200


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Bookies that lose their disk say so, thousands of times."""
    logger = logging.getLogger("magnetar")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    yield
    logger.setLevel(level)


def test_every_bug_is_in_the_table() -> None:
    assert sorted(BUGS) == sorted(NAMES)
    for bug, row in TABLE.items():
        assert {row.scenario, *row.also} <= set(scenarios()), bug


def test_every_bug_says_in_a_sentence_what_is_broken() -> None:
    sentences = {bug: sentence_of(bug) for bug in BUGS}
    assert len(set(sentences.values())) == len(BUGS)
    assert all(sentence[:1].isupper() and sentence.endswith(".") for sentence in sentences.values()), sentences


def test_every_rate_is_of_a_fault_that_its_scenario_has() -> None:
    for scenario in sorted({row.scenario for row in TABLE.values() if row.rates}):
        bugs = [bug for bug, row in TABLE.items() if row.scenario == scenario]
        assert set(rates_of(bugs, scenario)) <= knobs(scenario).kinds


@pytest.mark.parametrize("bug", list(TABLE))
def test_a_planted_bug_is_found(bug: str) -> None:
    row = TABLE[bug]
    for seed in range(row.first, row.first + _SEEDS_MAX):
        verdict = run_seed(row.scenario, seed, planted=frozenset({bug}))
        if any(violation.promise == row.promise for violation in verdict.violations):
            return
    raise AssertionError(f"{bug} was not found in {_SEEDS_MAX} seeds from {row.first} on")


@pytest.mark.parametrize("bug", [bug for bug in NAMES if named_tests(bug)])
def test_a_bug_is_found_by_the_tests_that_are_named(bug: str) -> None:
    for test in named_tests(bug):
        assert fails(test, bug), f"{test} does not see {bug}"
