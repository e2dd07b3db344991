# SPDX-License-Identifier: Apache-2.0
"""Where measurements go: a table on the terminal, and one file each under .results/bench for `make features`.

What docs/performance.md was written from is kept beside its plots, so that a fresh clone can write it again.
"""

import datetime
import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table

from benchmarks.aims import BETWEEN, MISSED, REACHED, against_aim, judge_of, quick_runs, reference
from benchmarks.figures import Figure, shown

HOUSE = Path(__file__).resolve().parent.parent
RESULTS = HOUSE / ".results" / "bench"
KEPT = HOUSE / "docs" / "performance"

VERDICTS = {REACHED: "reached", BETWEEN: "the floor alone", MISSED: "missed"}

Document = dict[str, Any]
"""`sides` by name, `runs` oldest first, `rows` and `failures`, each of which names its run by when that began."""


class Measurement(NamedTuple):
    """One line of a table; features are the catalogue rows that it answers, `missed` whether the aim was."""

    name: str
    value: str
    aim: str = ""
    features: tuple[str, ...] = ()
    missed: bool | None = None


def report(title: str, measurements: list[Measurement]) -> None:
    """Print them, and remember those that answer a catalogue row."""
    table = Table(title=title)
    for heading in ("what", "measured", "aim"):
        table.add_column(heading)
    for measurement in measurements:
        table.add_row(measurement.name, measurement.value, measurement.aim)
    Console().print(table)
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    tagged = [
        {
            "features": list(each.features),
            "value": f"{each.name}: {each.value}" + _verdict_words(each.aim, each.missed),
            "date": today,
            "missed": bool(each.missed),
        }
        for each in measurements
        if each.features
    ]
    if tagged:
        RESULTS.mkdir(parents=True, exist_ok=True)
        (RESULTS / f"{title.replace(' ', '-')}.json").write_text(json.dumps(tagged, indent=1))


def _verdict_words(aim: str, missed: bool | None) -> str:
    return "" if missed is None else f" ({aim}: {VERDICTS[MISSED if missed else REACHED]})"


class Side(NamedTuple):
    """One of the servers of a run, and what is said of it beside its numbers."""

    name: str
    words: str


def last_measured(name: str, directories: Sequence[Path] = (RESULTS, KEPT)) -> Document | None:
    """What was measured here last; where nothing was, what the page was written from."""
    for path in (directory / f"{name}.json" for directory in directories):
        if not path.exists():
            continue
        content: Any = json.loads(path.read_text())
        parts = content if isinstance(content, list) else [{"measured": content}]
        for part in parts:
            if "measured" in part:
                return Document(part["measured"])
        print(f"{path.name} was written by an older benchmark, whose rows do not know their run", file=sys.stderr)
    return None


def answers(document: Document) -> list[dict[str, Any]]:
    """One object for each catalogue row that some measured rows answer, with what came of their aims."""
    judge, beside, quick = judge_of(document), reference(document), quick_runs(document)
    answered: dict[str, list[dict[str, Any]]] = {}
    for row in document["rows"]:
        for feature in row["answers"]:
            answered.setdefault(feature, []).append(row)

    def told(row: dict[str, Any]) -> str:
        verdict = judge(row)
        value = shown(row["number"], row["unit"]).strip()
        at = against_aim(row, beside).removeprefix(f"{value} of ")
        return f"{row['name'].strip()}: {value}" + (f" ({at}: {VERDICTS[verdict]})" if verdict else "")

    return [
        {
            "features": [feature],
            "value": "; ".join(map(told, rows)),
            "date": max(row["run"] for row in rows)[:10],
            "missed": any(judge(row) == MISSED for row in rows),
            "quick": any(row["run"] in quick for row in rows),
        }
        for feature, rows in answered.items()
    ]


def spread(own: Figure, other: Figure) -> tuple[float, float] | None:
    """The lowest and the highest ratio of a round, where both were measured in the same several ones."""
    if len(own.rounds) < 2 or len(own.rounds) != len(other.rounds) or not all(other.rounds):
        return None
    ratios = [ours / theirs for ours, theirs in zip(own.rounds, other.rounds, strict=True)]
    return min(ratios), max(ratios)


def ratio_words(row: dict[str, Any], other: str) -> str:
    """A row's ratio to a peer, with what it was in single rounds."""
    if other not in row["ratios"]:
        return "–"
    lowest, highest = row["spreads"].get(other, (0.0, 0.0))
    return f"{row['ratios'][other]:.2f}" + (f", {lowest:.2f} to {highest:.2f}" if highest else "")


class Run:
    """Everything that one run measured, beside what earlier ones say of loads that it leaves alone."""

    def __init__(self, name: str, machine: str, scale: str, sides: list[Side], directory: Path = RESULTS) -> None:
        self.name = name
        self.machine = machine
        self.scale = scale
        self.sides = sides
        self.remarks: list[str] = []
        self.failures: list[dict[str, str]] = []
        self._directory = directory
        self._began = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        self._tried: set[str] = set()
        self._rows: list[dict[str, Any]] = []
        self._earlier: Document = {"sides": [], "runs": [], "rows": [], "failures": []}

    def keep_earlier(self, kept: Path = KEPT) -> None:
        """Some loads only are measured: rows and failures of the others stay, with the runs that made them."""
        self._earlier = last_measured(self.name, (self._directory, kept)) or self._earlier

    def fail(self, load: str, words: str) -> None:
        self.failures.append({"load": load, "words": " ".join(words.split())[:300], "run": self._began})

    def add(
        self, group: str, sides: dict[str, list[Figure]], load_average: float, load: str = "", rounds: int = 0
    ) -> None:
        """Our figures of a load that was tried in so many rounds, each beside the peers' of the same name."""
        self._tried.add(load or group)
        own, *others = (side.name for side in self.sides)
        theirs = {name: {figure.name: figure for figure in sides.get(name, [])} for name in others}
        for figure in sides.get(own, []):
            beside = {name: found[figure.name] for name, found in theirs.items() if figure.name in found}
            like = {name: other for name, other in beside.items() if not other.unlike}
            whole = [name for name in like if not (_missed(figure, rounds) or _missed(like[name], rounds))]
            self._rows.append(
                {
                    "group": group,
                    "load": load or group,
                    "name": figure.name,
                    "number": figure.value,
                    "unit": figure.unit,
                    "better": figure.better,
                    "aim": figure.aim,
                    "settings": _settings(figure, beside, rounds),
                    "peers": {name: other.value for name, other in beside.items()},
                    "ratios": {name: figure.value / other.value for name, other in like.items() if other.value},
                    "spreads": {name: found for name in whole if (found := spread(figure, like[name]))},
                    "unlike": [name for name in beside if name not in like],
                    "rounds": {name: each.rounds for name, each in ((own, figure), *beside.items()) if each.rounds[1:]},
                    "load_average": round(load_average, 1),
                    "answers": list(figure.features),
                    "run": self._began,
                }
            )

    def document(self) -> Document:
        """Each load's rows from the last run that has any; every run that one of them or a failure comes from."""
        again = {row["load"] for row in self._rows}
        places = list(dict.fromkeys(row["load"] for row in (*self._earlier["rows"], *self._rows)))
        rows = [*(row for row in self._earlier["rows"] if row["load"] not in again), *self._rows]
        rows.sort(key=lambda row: places.index(row["load"]))
        failures = [*(each for each in self._earlier["failures"] if each["load"] not in self._tried), *self.failures]
        named = {each["run"] for each in (*rows, *failures)}
        return {
            "sides": list(dict.fromkeys([*self._earlier["sides"], *(side.name for side in self.sides)])),
            "runs": [
                *(run for run in self._earlier["runs"] if run["began"] in named and run["began"] != self._began),
                {
                    "began": self._began,
                    "scale": self.scale,
                    "machine": self.machine,
                    "words": {side.name: side.words for side in self.sides},
                    "remarks": self.remarks,
                },
            ],
            "rows": rows,
            "failures": failures,
        }

    def write(self) -> None:
        """One object for each catalogue row that some rows answer, then everything; a reader sees old or new."""
        document = self.document()
        content = answers(document)
        content.append({"features": [], "value": self.name, "date": self._began[:10], "measured": document})
        self._directory.mkdir(parents=True, exist_ok=True)
        path = self._directory / f"{self.name}.json"
        path.with_suffix(".new").write_text(json.dumps(content, indent=1))
        path.with_suffix(".new").replace(path)

    def show(self) -> None:
        others = [side.name for side in self.sides[1:]]
        table = Table(title=f"{self.name} ({self.scale})")
        for heading in ("what", "magnetar", *others, *(f"ratio to {name}" for name in others), "aim"):
            table.add_column(heading)
        for row in self._rows:
            peers = [shown(row["peers"].get(name, math.nan), row["unit"]) for name in others]
            ratios = [ratio_words(row, name) for name in others]
            table.add_row(row["name"], shown(row["number"], row["unit"]), *peers, *ratios, row["aim"])
        Console(width=None if Console().is_terminal else 160).print(table)
        for remark in self.remarks:
            print(remark)
        for failure in self.failures:
            print(f"failed: {failure['load']} on {failure['words']}")


def _missed(figure: Figure, rounds: int) -> int:
    """In how many of the rounds of which it is the median it was not measured."""
    return max(0, rounds - len(figure.rounds)) if figure.rounds else 0


def _settings(own: Figure, beside: dict[str, Figure], rounds: int) -> str:
    """What a row is about, and in what a side's number is weaker than it looks."""
    words = [own.settings] if own.settings else []
    for name, figure in {"": own, **beside}.items():
        if _missed(figure, rounds):
            words.append(f"{name} {len(figure.rounds)} of {rounds} rounds".strip())
        if figure.unlike:
            words.append(f"{name}'s {figure.unlike}: no ratio")
    return "; ".join(words)
