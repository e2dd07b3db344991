# SPDX-License-Identifier: Apache-2.0
"""Seeds that CI runs; that a seed is a whole story, told the same way everywhere; and that planted bugs are found."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from magnetar.runtime.chance import fresh_seed
from tests.simulation.run import main
from tests.simulation.world.registry import run_seed, scenarios
from tests.simulation.world.schedule import Policy
from tests.simulation.world.world import World

HOUSE = Path(__file__).resolve().parent.parent.parent

_PRINT_TRACES = """
from tests.simulation.world.registry import run_seed, scenarios
for name in scenarios():
    for seed in (11, 12):
        print(name, seed, run_seed(name, seed).trace)
"""


# Whole clusters take a second each; a long run has thousands of them.
_OF_CLUSTERS = ("cluster", "ownership", "transactions")
_RUN = [(name, seed) for name in scenarios() for seed in range(4 if name in _OF_CLUSTERS else 10)]


@pytest.mark.parametrize(("name", "seed"), _RUN)
def test_seed(name: str, seed: int) -> None:
    verdict = run_seed(name, seed)
    assert not verdict.violations, f"make sim SEED={seed} ARGS='--scenario {name}'\n{verdict.violations[0]}"


@pytest.mark.parametrize("name", ["broker", "storage", "takeover"])
def test_fresh_seeds(name: str) -> None:
    """Other ones in every run: the message says how to run one again."""
    first = fresh_seed() % 10**9
    for seed in range(first, first + 15):
        verdict = run_seed(name, seed)
        assert not verdict.violations, f"make sim SEED={seed} ARGS='--scenario {name}'\n{verdict.violations[0]}"


@pytest.mark.parametrize("policy", list(Policy))
def test_every_policy_runs_clean(policy: Policy) -> None:
    for name in scenarios():
        assert not run_seed(name, 99, policy=policy).violations


def test_a_seed_has_the_same_history_in_another_process_and_under_another_hash_seed() -> None:
    def traces(hash_seed: str) -> str:
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        command = [sys.executable, "-c", _PRINT_TRACES]
        return subprocess.run(command, cwd=HOUSE, env=environment, capture_output=True, text=True, check=True).stdout

    expected = "".join(f"{name} {seed} {run_seed(name, seed).trace}\n" for name in scenarios() for seed in (11, 12))
    assert traces("1") == expected
    assert traces("4242") == expected


def test_other_seeds_are_other_stories() -> None:
    assert len({run_seed("journal", seed).trace for seed in range(5)}) == 5


def test_acknowledging_before_the_sync_is_found_by_the_model_and_by_the_history() -> None:
    promises = set()
    for seed in range(30):
        verdict = run_seed("journal", seed, planted=frozenset({"ack-before-sync"}))
        promises |= {violation.promise for violation in verdict.violations}
        if "I1 acked-readable" in promises:
            break
    assert promises >= {"R1 durable before acknowledged", "I1 acked-readable"}


def test_faults_really_strike() -> None:
    """Over some seeds, every kind of fault that the nemesis knows happens."""
    known: set[str] = set()

    async def look(world: World) -> None:
        known.update(world.nemesis.kinds)

    World(0).run("look", look)
    struck: set[str] = set()
    for seed in range(40, 140):
        struck |= set(run_seed("echo", seed).faults)
        if struck >= known:
            break
    assert struck >= known


def test_the_runner_prints_how_to_run_a_failing_seed_again(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seed", "3", "--scenario", "journal", "--plant", "ack-before-sync"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert '  again: make sim SEED=3 ARGS="--scenario journal --plant ack-before-sync"' in lines
    assert lines[-1].startswith("seeds: 1; faults: ")
    assert "violations: 0" not in lines[-1]


def test_the_runner_ends_with_one_line_of_figures(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seeds", "2", "--first", "5", "--scenario", "echo"]) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith("seeds: 2; faults: ")
    assert last.endswith("; violations: 0")
