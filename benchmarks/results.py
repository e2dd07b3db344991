# SPDX-License-Identifier: Apache-2.0
"""Where measurements go: a table on the terminal, and one file each under .results/bench for `make features`."""

import datetime
import json
import math
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table

from benchmarks.figures import Figure, shown

RESULTS = Path(__file__).resolve().parent.parent / ".results" / "bench"


class Measurement(NamedTuple):
    """One line of a table; features are the catalogue rows that it answers."""

    name: str
    value: str
    aim: str = ""
    features: tuple[str, ...] = ()


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
        {"features": list(each.features), "value": f"{each.name}: {each.value}", "date": today}
        for each in measurements
        if each.features
    ]
    if tagged:
        RESULTS.mkdir(parents=True, exist_ok=True)
        (RESULTS / f"{title.replace(' ', '-')}.json").write_text(json.dumps(tagged, indent=1))


class Side(NamedTuple):
    """One of the servers of a run, and what is said of it beside its numbers."""

    name: str
    words: str


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
    lowest, highest = row.get("spreads", {}).get(other, (0.0, 0.0))
    return f"{row['ratios'][other]:.2f}" + (f", {lowest:.2f} to {highest:.2f}" if highest else "")


class Run:
    """Everything that one run measured; written as one file that `benchmarks.report` and `make features` read."""

    def __init__(self, name: str, machine: str, scale: str, sides: list[Side], directory: Path = RESULTS) -> None:
        self.name = name
        self.machine = machine
        self.scale = scale
        self.sides = sides
        self.failures: list[str] = []
        self._directory = directory
        self._began = datetime.datetime.now(datetime.UTC)
        self._rows: list[dict[str, Any]] = []
        self._earlier: list[dict[str, Any]] = []

    def keep_earlier(self) -> None:
        """Some loads only are measured: rows of the others stay, with their own dates, versions and load averages."""
        path = self._directory / f"{self.name}.json"
        if path.exists():
            self._earlier = [row for row in json.loads(path.read_text()) if "number" in row]

    def add(self, group: str, sides: dict[str, list[Figure]], load_average: float) -> None:
        """Our figures, each beside the peer's of the same name."""
        own, *others = (side.name for side in self.sides)
        theirs = {name: {figure.name: figure for figure in sides.get(name, [])} for name in others}
        for figure in sides.get(own, []):
            beside = {name: found[figure.name] for name, found in theirs.items() if figure.name in found}
            peers = {name: other.value for name, other in beside.items()}
            self._rows.append(
                {
                    "group": group,
                    "name": figure.name,
                    "number": figure.value,
                    "unit": figure.unit,
                    "better": figure.better,
                    "aim": figure.aim,
                    "settings": figure.settings,
                    "peers": peers,
                    "ratios": {name: figure.value / value for name, value in peers.items() if value},
                    "spreads": {name: found for name, other in beside.items() if (found := spread(figure, other))},
                    "load_average": round(load_average, 1),
                    "scale": self.scale,
                    "versions": {side.name: side.words for side in self.sides},
                    "answers": list(figure.features),
                    # What `make features` reads of every row; rows that answer the catalogue are put together below.
                    "features": [],
                    "value": f"{figure.name.strip()}: {figure.text}",
                    "date": self._began.date().isoformat(),
                }
            )

    def document(self) -> list[dict[str, Any]]:
        """The rows, then one for each catalogue row that some of them answer, then what all have in common."""
        measured = {(row["group"], row["name"]) for row in self._rows}
        rows = [*self._rows, *(row for row in self._earlier if (row["group"], row["name"]) not in measured)]
        answers: dict[str, list[dict[str, Any]]] = {}
        for row in rows:
            for feature in row["answers"]:
                answers.setdefault(feature, []).append(row)
        for feature, found in answers.items():
            date = max(row["date"] for row in found)
            rows.append({"features": [feature], "value": "; ".join(row["value"] for row in found), "date": date})
        date = self._began.date().isoformat()
        about = {
            "machine": self.machine,
            "scale": self.scale,
            "began": self._began.isoformat(timespec="seconds"),
            "sides": [side._asdict() for side in self.sides],
            "failures": self.failures,
        }
        return [*rows, {"features": [], "value": self.name, "date": date, "about": about}]

    def write(self) -> None:
        self._directory.mkdir(parents=True, exist_ok=True)
        path = self._directory / f"{self.name}.json"
        path.write_text(json.dumps(self.document(), indent=1))

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
        for failure in self.failures:
            print(f"failed: {failure}")
