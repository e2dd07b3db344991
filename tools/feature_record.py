# SPDX-License-Identifier: Apache-2.0
"""Which tests proved which catalogue rows, kept in .results/ between runs.

`FeatureRecord` is a pytest plug-in of the controlling process: it reads the tags that travel with each report (so it
works under xdist) and keeps one file per suite. A run replaces what it ran and forgets tests that are no longer there.
A longer run of the same tests has a name and files of its own: a short one, which skips some, takes back nothing.
`known_features` and `recorded_outcomes` are for whoever reads. Never decides what a row's state is.
Carries.
"""

import json
import os
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

HOUSE = Path(__file__).resolve().parent.parent
CATALOGUE = HOUSE / "docs" / "catalogue.tsv"
RESULTS = HOUSE / ".results"
_SELECTIONS = ("keyword", "markexpr", "deselect", "lf", "last_failed", "failedfirst", "stepwise", "maxfail")


class Row(NamedTuple):
    """One line of the catalogue; `check` is "test" or "bench"."""

    id: str
    check: str
    title: str


class Outcome(NamedTuple):
    """What the last run of one test said: "passed", "failed" or "skipped", and the rows it is tagged with."""

    test: str
    outcome: str
    features: tuple[str, ...]


def catalogue() -> list[Row]:
    lines = CATALOGUE.read_text(encoding="utf-8").splitlines()
    return [Row(*line.split("\t")) for line in lines[1:]]


@cache
def known_features() -> frozenset[str]:
    return frozenset(row.id for row in catalogue())


def recorded_outcomes(results: Path = RESULTS) -> list[Outcome]:
    found = []
    for path in sorted((results / "tests").rglob("*.json")):
        for test, record in json.loads(path.read_text(encoding="utf-8")).items():
            found.append(Outcome(test, record["outcome"], tuple(record["features"])))
    return sorted(found)


class FeatureRecord:
    """Collects reports, writes the files at the end of the session."""

    def __init__(self, config: pytest.Config, results: Path = RESULTS, run_name: str = "") -> None:
        self._config = config
        self._directory = results / "tests" / run_name
        self._outcomes: dict[str, Outcome] = {}
        self._ran: dict[str, None] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        features = tuple(str(value) for name, value in report.user_properties if name == "feature")
        if report.when == "setup":
            self._ran[report.nodeid] = None
        if features:
            self._outcomes[report.nodeid] = Outcome(report.nodeid, self._worst(report), features)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self._config.getoption("collectonly"):
            return
        repeated = () if session.shouldstop or session.shouldfail else self._repeated_paths()
        suites = {path.stem for path in self._directory.glob("*.json")} | {_suite_of(test) for test in self._outcomes}
        for suite in sorted(suites):
            self._update(suite, repeated)

    def _worst(self, report: pytest.TestReport) -> str:
        """A test passes when set-up, call and tear-down all did; an expected failure counts as skipped."""
        before = self._outcomes.get(report.nodeid)
        if before is not None and before.outcome != "passed":
            return before.outcome
        return report.outcome

    def _repeated_paths(self) -> tuple[Path, ...]:
        """Files and folders of which this run was to run everything: what is missing from it is gone."""
        if any(self._config.getoption(name, default=None) for name in _SELECTIONS):
            return ()
        directory = self._config.invocation_params.dir
        return tuple((directory / argument).resolve() for argument in self._config.args if "::" not in argument)

    def _update(self, suite: str, repeated: tuple[Path, ...]) -> None:
        path = self._directory / f"{suite}.json"
        before: dict[str, object] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        after = {test: record for test, record in before.items() if not self._is_stale(test, repeated)}
        for test, outcome in self._outcomes.items():
            if _suite_of(test) == suite:
                after[test] = {"outcome": outcome.outcome, "features": list(outcome.features)}
        if after != before:
            _replace(path, json.dumps(dict(sorted(after.items())), indent=1))

    def _is_stale(self, test: str, repeated: tuple[Path, ...]) -> bool:
        source = (self._config.rootpath / test.split("::")[0]).resolve()
        return test in self._ran or any(source == path or path in source.parents for path in repeated)


def _suite_of(test: str) -> str:
    parts = test.split("::")[0].split("/")
    return parts[1] if len(parts) > 2 and parts[0] == "tests" else "house"


def _replace(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(f".{os.getpid()}")
    temporary.write_text(text + "\n", encoding="utf-8")
    temporary.replace(path)


def features_of(outcomes: Iterable[Outcome]) -> dict[str, list[Outcome]]:
    """Row id → the outcomes of the tests tagged with it."""
    by_row: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        for feature in outcome.features:
            by_row.setdefault(feature, []).append(outcome)
    return by_row
