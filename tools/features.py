# SPDX-License-Identifier: Apache-2.0
"""Writes docs/compatibility.md: every catalogue row, and what the last runs say about it.

    python -m tools.features [--measured]

With --measured only the benchmarks' values are new, and what the page says of tests stays: for a machine on which not
every suite was run. Tests speak through .results/tests (tools/feature_record.py), benchmarks through
.results/bench/*.json: one object, or a list of them, with "features" (row ids), "value" (text with unit) and "date"
(YYYY-MM-DD). An unknown row is an error. Never runs a test.
Carries.
"""

import argparse
import json
import re
import sys
from pathlib import Path
from typing import Any, NamedTuple

from tools.feature_record import HOUSE, RESULTS, Outcome, Row, catalogue, features_of, recorded_outcomes

PAGE = HOUSE / "docs" / "compatibility.md"
TESTS_SHOWN_MAX = 3
_ROW = re.compile(r"^\| ([A-Z]\S*-\d\S*) \| (.*) \| (.*) \|$", re.M)
"""A row's id, title and words on the page."""
HEAD = """# Compatibility

Written by `make features` from the feature tags and the last results; do not edit. The rows and their titles come from
[catalogue.tsv](catalogue.tsv). A row is *proven* by passing tests that carry its tag, *measured* by a benchmark.
"""


class Measurement(NamedTuple):
    value: str
    date: str


def measurements(results: Path = RESULTS) -> dict[str, Measurement]:
    """Row id → its newest measurement."""
    newest: dict[str, Measurement] = {}
    for path in sorted((results / "bench").glob("*.json")):
        content: Any = json.loads(path.read_text(encoding="utf-8"))
        for result in content if isinstance(content, list) else [content]:
            measured = Measurement(str(result["value"]), str(result["date"]))
            for feature in result["features"]:
                if feature not in newest or newest[feature].date <= measured.date:
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
        words.append(f"measured: {measured.value}, {measured.date}")
    if not words:
        return "not yet", "not yet"
    return ("proven" if passing else "measured"), "; ".join(words)


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
        tested, told, value = words_of.get(row.id, "").rpartition("measured: ")
        if not told:
            tested, value = value, ""
        if row.id in measured:
            value = f"{measured[row.id].value}, {measured[row.id].date}"
        parts = [tested.removesuffix("; ")] if tested not in ("", "not yet") else []
        parts += [f"measured: {value}"] if value and not tested.startswith("failing") else []
        words = "; ".join(parts) or "not yet"
        found.append((row, words.partition(":")[0], words))
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
    states = ("proven", "measured", "failing", "not yet")
    lines = ["| section | rows | " + " | ".join(states) + " |", "|---" * (len(states) + 2) + "|"]
    totals = dict.fromkeys(states, 0)
    for section, entries in sections.items():
        counts = {state: sum(1 for _, has, _ in entries if has == state) for state in states}
        totals = {state: totals[state] + counts[state] for state in states}
        lines.append(f"| {section} | {len(entries)} | " + " | ".join(str(counts[state]) for state in states) + " |")
    everything = sum(len(entries) for entries in sections.values())
    lines.append(f"| all | {everything} | " + " | ".join(str(totals[state]) for state in states) + " |")
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
    print(f"{PAGE.relative_to(HOUSE)}: {total.strip('| ')} (rows | proven | measured | failing | not yet)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
