# SPDX-License-Identifier: Apache-2.0
"""The command line: what it does not know it refuses, and what it prints runs the same failure again."""

import os
import re
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from tests.simulation.run import main
from tests.simulation.world.checkers.violation import Violation
from tests.simulation.world.planted_table import BY_TESTS, TABLE
from tests.simulation.world.registry import knobs, run_seed, scenarios
from tests.simulation.world.shrink import Restraint, shrink
from tests.simulation.world.world import Verdict

HOUSE = Path(__file__).resolve().parent.parent.parent
_AGAIN = re.compile(r"^  again: (make sim .*)$", re.MULTILINE)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--seeds", "0"], "give at least one"),
        (["--minutes", "0"], "more than 0"),
        (["--plant", "no-such-bug"], "mark-delete-off-by-one"),
        (["--without", "no-such-fault"], "power-loss"),
        (["--scenario", "echo", "--without", "wiped-disk"], "clock-jump"),
        (["--scenario", "echo", "--at-most", "inputs=3"], "seconds"),
        (["--at-most", "seconds"], "MEASURE=N"),
        (["--scenario", "echo", "--plant", "fence-ignored"], "takeover"),
        (["--plant", "fence-ignored", "--plant", "mark-delete-off-by-one"], "broker"),
        (["--plant", "copies-not-synced"], "test_garbage_collector"),
    ],
)
def test_what_it_does_not_know_is_refused_and_what_it_knows_is_told(
    arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--no-shrink", *(arguments if "--seeds" in arguments else ["--seeds", "1", *arguments])])
    assert ended.value.code == 2
    assert told in capsys.readouterr().err


def test_a_bug_goes_to_its_scenario_with_its_rates(capsys: pytest.CaptureFixture[str]) -> None:
    """The table's seed is the command line's."""
    bug = "cookie-ignored"
    expected = next(
        seed for seed in range(1000, 1100) if run_seed("storage", seed, planted=frozenset({bug})).violations
    )
    assert main(["--seed", str(expected), "--plant", bug, "--no-shrink"]) == 1
    told = capsys.readouterr().out
    assert TABLE[bug].promise in told
    assert f'make sim SEED={expected} ARGS="--scenario storage --plant {bug}"' in told


def test_the_command_that_is_printed_last_runs_the_smallest_failure_again(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--seed", "1000", "--plant", "mark-delete-off-by-one"])
    commands = _AGAIN.findall(capsys.readouterr().out)
    assert len(commands) == 2
    assert "--at-most" in commands[-1]
    environment = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MAKELEVEL")}
    ran = subprocess.run(
        commands[-1], shell=True, cwd=HOUSE, env=environment, capture_output=True, text=True, check=False
    )
    assert ran.returncode != 0
    assert TABLE["mark-delete-off-by-one"].promise in ran.stdout
    assert "determinism" not in ran.stdout


def _verdict(measures: dict[str, float], struck: Counter[str], *, is_broken: bool) -> Verdict:
    violations = (Violation("I1", "gone"),) if is_broken else ()
    return Verdict(1, "told", "", violations, struck, struck, 0, 0, 0, 0.0, measures)


def test_shrinking_finds_the_least_work_the_kind_and_the_strike_that_it_takes() -> None:
    """The story fails with three messages, two seconds and two kills."""

    def run(tried: Restraint) -> Verdict:
        limits = dict(tried.at_most)
        struck = Counter({"kill": 5, "cut": 9})
        for kind in tried.without:
            del struck[kind]
        if tried.strikes_max is not None:
            struck = Counter({kind: min(count, tried.strikes_max) for kind, count in struck.items()})
        measures = {"messages": min(100, limits.get("messages", 100)), "seconds": min(7.5, limits.get("seconds", 8))}
        is_broken = measures["messages"] >= 3 and measures["seconds"] >= 2 and struck["kill"] >= 2
        return _verdict(measures, struck, is_broken=is_broken)

    found = shrink(run(Restraint()), run)
    assert found.restraint == Restraint(frozenset({"cut"}), 2, (("messages", 3), ("seconds", 2)))
    assert found.restraint.arguments() == [
        "--without cut",
        "--strikes 2",
        "--at-most messages=3",
        "--at-most seconds=2",
    ]


def test_shrinking_ends_when_its_time_is_over() -> None:
    verdict = _verdict({"seconds": 100.0}, Counter({"kill": 5}), is_broken=True)
    assert shrink(verdict, lambda tried: verdict, seconds_max=0.0).runs == 0
    assert shrink(verdict, lambda tried: verdict, runs_max=3).runs == 3


@pytest.mark.parametrize("name", list(scenarios()))
def test_every_scenario_has_a_storm_that_can_be_shorter(name: str) -> None:
    assert "seconds" in knobs(name).measures


def test_no_bug_has_two_rows() -> None:
    assert not set(TABLE) & set(BY_TESTS)
