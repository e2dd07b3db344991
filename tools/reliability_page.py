# SPDX-License-Identifier: Apache-2.0
"""Writes docs/reliability.md from docs/proof: the seeds that ran, the planted bugs, and which fault is covered by what.

`python -m tools.reliability_page` writes the page; `--check` only says whether it is in step and whether everything
that it names exists; `--add FILE…` first takes over what `make sim ARGS="--record FILE"` or a sensitivity run has left.
A fault is covered by the tests and scenarios that docs/proof/faults.tsv names, and by every test whose docstring begins
with its number.
Assembles.
"""

import ast
import json
import re
import sys
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

HOUSE = Path(__file__).parents[1]
PAGE = HOUSE / "docs" / "reliability.md"
PROOF = HOUSE / "docs" / "proof"
RUNS = PROOF / "seeds.json"
SENSITIVITY = PROOF / "sensitivity.json"
FAULTS = PROOF / "faults.tsv"
NOTES = PROOF / "notes.md"

_NUMBER = re.compile(r"\bF(\d{1,3})\b(?![-\w])")
_SCENARIO = re.compile(r'@scenario\("([\w-]+)"\)')
_SECTIONS = {
    "A": "bookie disk",
    "B": "bookie process",
    "C": "quorum protocol",
    "D": "broker",
    "E": "metadata store",
    "F": "network",
    "G": "hostile clients",
    "H": "administration",
    "I": "transactions",
    "J": "geo-replication",
    "K": "tiered storage",
    "L": "Spark",
    "M": "upgrades",
    "N": "clocks, resources",
}


# Suites whose tests start real processes, or a session of Spark.
_WITH_PROCESSES = tuple(f"tests/{suite}/" for suite in ("faults", "conformance", "spark", "interop", "deploy"))


class Fault(NamedTuple):
    section: str
    id: str
    must: bool
    # Where the scenario wants to be tried: S in the simulation, P with real processes, U by unit tests.
    levels: tuple[str, ...]
    title: str
    covered_by: tuple[str, ...]

    @property
    def lacks_processes(self) -> bool:
        return "P" in self.levels and not any(reference.startswith(_WITH_PROCESSES) for reference in self.covered_by)


def page() -> str:
    faults = all_faults()
    lines = [
        "# Reliability: what was tried, and what held\n",
        "Written by `python -m tools.reliability_page` from docs/proof; do not edit.\n",
        NOTES.read_text(encoding="utf-8"),
        *_runs(json.loads(RUNS.read_text())),
        *_bugs(json.loads(SENSITIVITY.read_text())),
        *_coverage(faults),
    ]
    return "\n".join(lines) + "\n"


# --- seeds --------------------------------------------------------------------------------------


def _runs(runs: list[dict[str, Any]]) -> list[str]:
    lines = [
        "## Seeds\n",
        "One row per commit. A run that found something is followed by its repair; `lost` counts entries and messages",
        "that were acknowledged and gone.\n",
        "| date | commit | seeds | of these | operations | acknowledged | lost | failing seeds |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for run in runs:
        seeds = ", ".join(f"{name} {count}" for name, count in sorted(run["seeds"].items()))
        failed = "; ".join(run["failed"]) or "none"
        lines.append(
            f"| {run['date']} | {run['commit']} | {sum(run['seeds'].values()):,} | {seeds} | {run['operations']:,} "
            f"| {run['acknowledged']:,} | {run['lost']} | {failed} |"
        )
    total: Counter[str] = Counter()
    for run in runs:
        total.update(run["faults"])
    seeds_total = sum(sum(run["seeds"].values()) for run in runs)
    hours = sum(run["virtual_hours"] for run in runs)
    kinds = ", ".join(f"{kind} {count:,}" for kind, count in sorted(total.items()))
    lines += ["", f"Together {seeds_total:,} seeds, {hours:,.1f} virtual hours. Faults injected: {kinds}.\n"]
    return lines


def _bugs(kept: dict[str, Any]) -> list[str]:
    lines = [
        "## Planted bugs\n",
        f"Measured on {kept['date']}. Each bug is put back into the production code while a scenario, or a named test,",
        "runs; what is broken is its docstring. The test of the table is tests/simulation/test_planted_bugs.py, and",
        "`make mutations` measures it again.\n",
        "| bug | what is broken | scenario | found in | caught by |",
        "|---|---|---|---|---|",
    ]
    for bug, row in kept["bugs"].items():
        tests: dict[str, int] = row.get("tests", {})
        caught = Counter(row["promises"]) + Counter(tests)
        promises = ", ".join(f"{promise} ({count})" for promise, count in caught.items()) or "nothing"
        found = f"{row['found']} of {row['seeds']} {'tests' if row['scenario'] == 'tests' else 'seeds'}"
        if tests:
            found += f", {sum(tests.values())} of {len(tests)} tests"
        lines.append(f"| {bug} | {row['broken']} | {row['scenario']} | {found} | {promises} |")
    return [*lines, ""]


# --- the fault catalogue ------------------------------------------------------------------------


def all_faults() -> list[Fault]:
    named = _tests_by_fault()
    faults = []
    for line in FAULTS.read_text(encoding="utf-8").splitlines()[1:]:
        section, number, must, levels, title, covered_by = line.split("\t")
        references = tuple(dict.fromkeys((*covered_by.split(), *named.get(number, ()))))
        faults.append(Fault(section, number, must == "!", tuple(levels.split(",")), title, references))
    return faults


def unknown_references() -> list[str]:
    """What the table names and nobody has: scenarios that are not there, and tests; a whole file names none."""
    known = _scenarios()
    wrong = []
    for fault in all_faults():
        for reference in fault.covered_by:
            kind, _, name = reference.partition(":")
            exists = name in known if kind == "sim" else _is_test(reference)
            if not exists:
                wrong.append(f"{fault.id} names {reference}")
    return wrong


def _is_test(reference: str) -> bool:
    """`file::test`, perhaps with its parameters in brackets."""
    path, _, name = reference.partition("::")
    return name.partition("[")[0] in _tests_in(path)


@cache
def _tests_in(path: str) -> frozenset[str]:
    if not (HOUSE / path).is_file():
        return frozenset()
    statements = ast.parse((HOUSE / path).read_text(encoding="utf-8")).body
    return frozenset(
        each.name for each in statements if isinstance(each, ast.FunctionDef) and each.name.startswith("test_")
    )


def _coverage(faults: list[Fault]) -> list[str]:
    covered = sum(bool(fault.covered_by) for fault in faults)
    must = [fault for fault in faults if fault.must]
    must_covered = sum(bool(fault.covered_by) for fault in must)
    lines = [
        "## Fault catalogue\n",
        f"{covered} of {len(faults)} faults are covered, {must_covered} of the {len(must)} that must be (!).",
        "`sim:NAME` is a scenario of the simulation; anything else is a test. An empty cell: what it strikes is",
        "not built yet: tiered storage, and packages of functions. Levels say where the scenario wants to be tried:",
        'S in the simulation, P with real processes, U by unit tests. "no P": covered, and by no test with real',
        f"processes, which {sum(fault.lacks_processes for fault in faults if fault.covered_by)} faults want.\n",
        "| section | faults | covered | must | covered |",
        "|---|---|---|---|---|",
    ]
    for letter, name in _SECTIONS.items():
        own = [fault for fault in faults if fault.section == letter]
        needed = [fault for fault in own if fault.must]
        counts = [len(own), sum(bool(f.covered_by) for f in own), len(needed), sum(bool(f.covered_by) for f in needed)]
        lines.append(f"| {letter} {name} | {' | '.join(map(str, counts))} |")
    for letter, name in _SECTIONS.items():
        lines += [
            "",
            f"### {letter}. {name}\n",
            "| fault | | level | what happens | covered by |",
            "|---|---|---|---|---|",
        ]
        lines += [
            f"| {fault.id} | {'!' * fault.must} | {_levels_shown(fault)} | {fault.title} "
            f"| {'<br>'.join(map(_shown, fault.covered_by))} |"
            for fault in faults
            if fault.section == letter
        ]
    return lines


def _levels_shown(fault: Fault) -> str:
    levels = ", ".join(fault.levels)
    return f"{levels}; no P" if fault.covered_by and fault.lacks_processes else levels


def _shown(reference: str) -> str:
    return reference if reference.startswith("sim:") else reference.removeprefix("tests/")


@cache
def _scenarios() -> frozenset[str]:
    texts = (path.read_text() for path in (HOUSE / "tests" / "simulation" / "scenarios").glob("*.py"))
    return frozenset(name for text in texts for name in _SCENARIO.findall(text))


def _tests_by_fault() -> dict[str, list[str]]:
    """Fault → the tests whose docstring names it first thing."""
    found: dict[str, list[str]] = {}
    for path in sorted((HOUSE / "tests").rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.FunctionDef) or not node.name.startswith("test_"):
                continue
            head = (ast.get_docstring(node) or "").partition(":")[0]
            if head and len(head) < 40:
                for number in _NUMBER.findall(head):
                    reference = f"{path.relative_to(HOUSE)}::{node.name}"
                    found.setdefault(f"F{number}", []).append(reference)
    return found


# --- taking over results ------------------------------------------------------------------------


def add(paths: list[str]) -> None:
    runs: list[dict[str, Any]] = json.loads(RUNS.read_text()) if RUNS.exists() else []
    kept: dict[str, Any] = json.loads(SENSITIVITY.read_text()) if SENSITIVITY.exists() else {"bugs": {}}
    for name in paths:
        record = json.loads(Path(name).read_text())
        if "bugs" in record:
            kept = {"date": record["date"], "bugs": {**kept["bugs"], **record["bugs"]}}
        else:
            runs = _with(runs, record)
    PROOF.mkdir(exist_ok=True)
    RUNS.write_text(json.dumps(runs, indent=1) + "\n")
    SENSITIVITY.write_text(json.dumps(kept, indent=1) + "\n")


def _with(runs: list[dict[str, Any]], record: dict[str, Any]) -> list[dict[str, Any]]:
    """Runs of one commit on one day are one row."""
    for run in runs:
        if (run["date"], run["commit"]) == (record["date"], record["commit"]):
            for counts in ("seeds", "faults", "violations"):
                run[counts] = dict(sorted((Counter(run[counts]) + Counter(record[counts])).items()))
            for count in ("operations", "acknowledged", "lost"):
                run[count] += record[count]
            run["virtual_hours"] = round(run["virtual_hours"] + record["virtual_hours"], 2)
            run["failed"] += record["failed"]
            return runs
    return [*runs, record]


def main(arguments: list[str]) -> int:
    if arguments[:1] == ["--add"]:
        add(arguments[1:])
    wrong = unknown_references()
    if wrong:
        sys.stderr.write("\n".join(wrong) + "\n")
        return 1
    text = page()
    if "--check" in arguments:
        if PAGE.exists() and PAGE.read_text(encoding="utf-8") == text:
            return 0
        sys.stderr.write("docs/reliability.md is not in step: run python -m tools.reliability_page\n")
        return 1
    PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
