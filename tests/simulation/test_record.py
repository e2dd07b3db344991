# SPDX-License-Identifier: Apache-2.0
"""The record of what was proven is true: it names what exists, and a failing seed is made small."""

import json
from collections import Counter
from pathlib import Path

import pytest

from tests.simulation import sensitivity
from tests.simulation.run import main
from tests.simulation.world.planted_bugs import sentence_of
from tests.simulation.world.planted_table import NAMES
from tests.simulation.world.registry import run_seed
from tests.simulation.world.shrink import Restraint, shrink
from tools import reliability_page
from tools.reliability_page import SENSITIVITY, all_faults, unknown_references


def test_the_table_of_faults_names_only_what_exists() -> None:
    assert unknown_references() == []


@pytest.mark.parametrize(
    ("reference", "is_known"),
    [
        ("tests/simulation/test_record.py::test_a_reference_is_a_test_or_a_scenario", True),
        ("tests/simulation/test_record.py::test_a_reference_is_a_test_or_a_scenario[parameters]", True),
        ("sim:storage", True),
        ("tests/simulation/test_record.py", False),
        ("tests/simulation/test_record.py::", False),
        ("tests/simulation/test_record.py::test_a_reference", False),
        ("tests/simulation/test_no_record.py::test_a_reference_is_a_test_or_a_scenario", False),
        ("tests/faults/soak.py::main", False),
        ("sim:nothing", False),
    ],
)
def test_a_reference_is_a_test_or_a_scenario(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reference: str, is_known: bool
) -> None:
    table = tmp_path / "faults.tsv"
    table.write_text(f"section\tfault\tmust\tlevel\ttitle\tcovered by\nA\tF999\t!\tS,P\tnothing\t{reference}\n")
    monkeypatch.setattr(reliability_page, "FAULTS", table)
    assert unknown_references() == ([] if is_known else [f"F999 names {reference}"])


def test_the_page_is_what_its_sources_say() -> None:
    assert reliability_page.main(["--check"]) == 0
    assert [fault.id for fault in all_faults()] == [f"F{number}" for number in range(1, 214)]


def test_every_planted_bug_is_on_the_page_and_was_found() -> None:
    bugs = json.loads(SENSITIVITY.read_text())["bugs"]
    assert tuple(bugs) == NAMES
    assert all(row["found"] for row in bugs.values())
    assert {bug: row["broken"] for bug, row in bugs.items()} == {bug: sentence_of(bug) for bug in NAMES}


def test_a_run_of_the_sensitivity_leaves_the_kept_record_alone(tmp_path: Path) -> None:
    kept = SENSITIVITY.read_bytes()
    record = tmp_path / "sensitivity.json"
    bug = "metadata-before-sync"
    assert sensitivity.main(["--bug", bug, "--seeds", "1", "--first", "1003", "--record", str(record)]) == 0
    assert SENSITIVITY.read_bytes() == kept
    assert list(json.loads(record.read_text())["bugs"]) == [bug]
    with pytest.raises(SystemExit):
        sensitivity.main(["--keep", "--record", str(record)])


def test_a_failing_seed_is_made_small() -> None:
    """A journal that acknowledges too early needs one fault: all the others can be left out."""
    planted = frozenset({"ack-before-sync"})
    whole = next(
        verdict
        for seed in range(50)
        if (verdict := run_seed("journal", seed, planted=planted)).violations and len(verdict.struck) > 2
    )
    small = shrink(whole, lambda tried: run_seed("journal", whole.seed, planted=planted, restraint=tried))
    assert small.verdict.violations
    assert small.verdict.struck.total() < whole.struck.total()
    again = run_seed("journal", whole.seed, planted=planted, restraint=small.restraint)
    assert again.trace == small.verdict.trace, "it is replayed from its seed and its restraint"


def test_a_restraint_holds_back_what_it_names() -> None:
    seed = next(seed for seed in range(50) if run_seed("echo", seed).struck["cut"])
    held = run_seed("echo", seed, restraint=Restraint(without=frozenset({"cut"})))
    assert held.struck["cut"] == 0
    assert run_seed("echo", seed, restraint=Restraint(strikes_max=1)).struck.total() <= 1


def test_a_run_keeps_its_figures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kept = tmp_path / "run.json"
    assert main(["--seeds", "3", "--first", "1", "--scenario", "echo", "--record", str(kept)]) == 0
    record = json.loads(kept.read_text())
    assert record["seeds"] == {"echo": 3}
    assert record["failed"] == []
    assert Counter(record["faults"]).total() > 0
    assert "acknowledged" in capsys.readouterr().out
