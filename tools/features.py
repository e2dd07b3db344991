# SPDX-License-Identifier: Apache-2.0
"""Writes docs/compatibility.md: every catalogue row, and what the last runs say about it.

    python -m tools.features [--measured]

With --measured only the benchmarks' values are new, and what the page says of tests stays: for a machine on which not
every suite was run. Tests speak through .results/tests (tools/feature_record.py), benchmarks through
.results/bench/*.json: one object, or a list of them, with "features" (row ids), "value" (text with unit) and "date"
(YYYY-MM-DD), and where it was so "missed" (an aim) and "quick" (too short for a claim). A file that was not written
here is read from docs/performance, where `make bench-page` keeps them. An unknown row is an error. Never runs a test.
Carries.
"""

import argparse
import json
import re
import sys
from pathlib import Path
from typing import Any, Final, NamedTuple

from benchmarks.results import KEPT, answers
from tools.feature_record import HOUSE, RESULTS, Outcome, Row, catalogue, features_of, recorded_outcomes

PAGE = HOUSE / "docs" / "compatibility.md"
TESTS_SHOWN_MAX = 3
STATES: Final = ("proven", "measured", "aim missed", "failing", "not yet")
_ROW = re.compile(r"^\| ([A-Z]\S*-\d\S*) \| (.*) \| (.*) \|$", re.M)
"""A row's id, title and words on the page."""
_MEASURED = re.compile(r"(?:^|; )(measured(?:, aim missed)?): ")
"""Where a row's words begin to be about benchmarks."""
MISSED: Final = "measured, aim missed"
HEAD = """# Compatibility

Written by `make features` from the feature tags and the last results; do not edit. The rows and their titles come from
[catalogue.tsv](catalogue.tsv). A row is *proven* by passing tests that carry its tag, *measured* by a benchmark;
where that has an aim and did not reach it, the row says so, and *aim missed* counts it whatever tests prove. What was
measured at *quick* scale is too short to be judged.
"""


class Measurement(NamedTuple):
    """`missed`: an aim; `quick`: too little was done for a claim, so that anything else counts instead."""

    value: str
    date: str
    missed: bool = False
    quick: bool = False

    @property
    def words(self) -> str:
        return f"{MISSED if self.missed else 'measured'}: {self.value}{' (quick)' if self.quick else ''}, {self.date}"


def measurements(results: Path = RESULTS, kept: Path = KEPT) -> dict[str, Measurement]:
    """Row id → its newest measurement, of files that are not in the results from those that are kept."""
    newest: dict[str, Measurement] = {}
    # What was written here comes last, and so counts where both have the same name.
    paths = {path.name: path for place in (kept, results / "bench") for path in sorted(place.glob("*.json"))}
    for path in paths.values():
        content: Any = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(content, dict):
            content = answers(content) if "rows" in content else [content]
        for result in content:
            quick = bool(result.get("quick"))
            measured = Measurement(str(result["value"]), str(result["date"]), bool(result.get("missed")), quick)
            for feature in result["features"]:
                before = newest.get(feature)
                if before is None or (not before.quick, before.date) <= (not quick, measured.date):
                    newest[feature] = measured
    return newest


def state_of(outcomes: list[Outcome], measured: Measurement | None) -> tuple[str, str]:
    """The row's state and the words for it. One failing test loses the proof; a skipped one proves nothing."""
    failing = [outcome.test for outcome in outcomes if outcome.outcome == "failed"]
    passing = [outcome.test for outcome in outcomes if outcome.outcome == "passed"]
    if failing:
        return "failing", f"failing: {_named(failing)}"
    words = []
    if passing:
        words.append(f"proven: {_named(passing)}")
    if measured is not None:
        words.append(measured.words)
    return _state("; ".join(words) or "not yet")


def _state(words: str) -> tuple[str, str]:
    """The words of a row, with the state that they tell of."""
    found = _MEASURED.search(words)
    if found is not None and found[1] == MISSED:
        return "aim missed", words
    return words.partition(":")[0], words


def page(rows: list[Row], outcomes: list[Outcome], measured: dict[str, Measurement]) -> str:
    by_row = features_of(outcomes)
    _refuse_unknown(rows, set(by_row) | set(measured))
    return _rendered([(row, *state_of(by_row.get(row.id, []), measured.get(row.id))) for row in rows])


def remeasured(rows: list[Row], before: str, measured: dict[str, Measurement]) -> str:
    """The page as it was, with what benchmarks have measured since."""
    _refuse_unknown(rows, set(measured))
    words_of = {id_: words for id_, _, words in _ROW.findall(before)}
    found = []
    for row in rows:
        before_of_row = words_of.get(row.id, "not yet")
        told = _MEASURED.search(before_of_row)
        tested = before_of_row[: told.start()] if told else before_of_row
        value = before_of_row[told.start() :].removeprefix("; ") if told else ""
        if row.id in measured:
            value = measured[row.id].words
        parts = [tested] if tested not in ("", "not yet") else []
        parts += [value] if value and not tested.startswith("failing") else []
        found.append((row, *_state("; ".join(parts) or "not yet")))
    return _rendered(found)


def _refuse_unknown(rows: list[Row], tagged: set[str]) -> None:
    unknown = sorted(tagged - {row.id for row in rows})
    if unknown:
        raise ValueError(f"tags of rows that docs/catalogue.tsv does not have: {', '.join(unknown)}")


def _rendered(rows: list[tuple[Row, str, str]]) -> str:
    """Every row with its state and the words for that."""
    sections: dict[str, list[tuple[Row, str, str]]] = {}
    for row, state, words in rows:
        sections.setdefault(section_of(row.id), []).append((row, state, words))
    parts = [HEAD, *_counts(sections)]
    for section, entries in sections.items():
        parts += [f"\n## {section}\n", "| row | what | state |", "|---|---|---|"]
        parts += [f"| {row.id} | {row.title} | {words} |" for row, _, words in entries]
    return "\n".join(parts) + "\n"


def section_of(row_id: str) -> str:
    parts = row_id.split("-")
    return parts[1] if parts[0] == "F" else parts[0]


def _counts(sections: dict[str, list[tuple[Row, str, str]]]) -> list[str]:
    lines = ["| section | rows | " + " | ".join(STATES) + " |", "|---" * (len(STATES) + 2) + "|"]
    totals = dict.fromkeys(STATES, 0)
    for section, entries in sections.items():
        counts = {state: sum(1 for _, has, _ in entries if has == state) for state in STATES}
        totals = {state: totals[state] + counts[state] for state in STATES}
        lines.append(f"| {section} | {len(entries)} | " + " | ".join(str(counts[state]) for state in STATES) + " |")
    everything = sum(len(entries) for entries in sections.values())
    lines.append(f"| all | {everything} | " + " | ".join(str(totals[state]) for state in STATES) + " |")
    return lines


def _named(tests: list[str]) -> str:
    """Test names without their parameters, each once, a few of them."""
    names = sorted({test.split("[")[0].removeprefix("tests/") for test in tests})
    more = f" and {len(names) - TESTS_SHOWN_MAX} more" if len(names) > TESTS_SHOWN_MAX else ""
    return ", ".join(f"`{name}`" for name in names[:TESTS_SHOWN_MAX]) + more


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="features", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument(
        "--measured", action="store_true", help="measured values alone; of tests the page stays as it is"
    )
    measured_only = parser.parse_args().measured
    try:
        if measured_only:
            text = remeasured(catalogue(), PAGE.read_text(encoding="utf-8"), measurements())
        else:
            text = page(catalogue(), recorded_outcomes(), measurements())
    except ValueError as error:
        print(f"features: {error}", file=sys.stderr)
        return 1
    PAGE.write_text(text, encoding="utf-8")
    total = next(line for line in text.splitlines() if line.startswith("| all |"))
    print(f"{PAGE.relative_to(HOUSE)}: {total.strip('| ')} (rows | {' | '.join(STATES)})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
