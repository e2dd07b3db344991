# SPDX-License-Identifier: Apache-2.0
"""What is aimed at: where a row's floor and aim lie, and whether its number got there.

Words of an aim: "0.5× → 0.3×" is a floor and an aim of the ratio to Apache Pulsar, or to the only other side where
Pulsar takes no part; "1 % → 0.3 %" of the number itself; "≤ 120 MB" and "≥ 99 %" an aim alone. What was measured at
quick scale is not judged: its times are too short to be true.
"""

import math
import re
from collections.abc import Callable
from typing import Any, Final

from benchmarks.figures import LESS, shown

REACHED: Final = "aim"
BETWEEN: Final = "floor"
MISSED: Final = "missed"
PULSAR: Final = "pulsar"
QUICK: Final = "quick"
_RATIO: Final = re.compile(r"^([\d.]+)× → ([\d.]+)×$")
_NUMBER: Final = re.compile(r"^([≤≥] )?([\d.]+) ?(\D*?)(?: → ([\d.]+) ?\D*)?$")
_NO_UNIT: Final = ("", "times")

Row = dict[str, Any]


def reference(document: dict[str, Any]) -> str:
    """Whose values the ratios of its aims are to."""
    others: list[str] = document["sides"][1:]
    return others[0] if len(others) == 1 else PULSAR


def marks(row: Row, beside: str = PULSAR) -> tuple[float | None, float | None]:
    """Where a row's floor and aim lie, in its unit."""
    if found := _RATIO.match(row["aim"]):
        value = None if beside in row["unlike"] else row["peers"].get(beside)
        return (float(found[1]) * value, float(found[2]) * value) if value else (None, None)
    found = _NUMBER.match(row["aim"])
    if found is None:
        return None, None
    unit = found[3].strip()
    fits = row["unit"] in _NO_UNIT if unit in _NO_UNIT else row["unit"].startswith(unit)
    if not fits:
        return None, None
    if found[4]:
        return float(found[2]), float(found[4])
    return None, float(found[2])


def judged(row: Row, beside: str = PULSAR) -> str | None:
    """Whether its number reached the aim, only the floor, or neither; None where it has no aim."""
    floor, aim = marks(row, beside)
    if aim is None or math.isnan(row["number"]):
        return None
    sign = -1 if row["better"] == LESS else 1
    if sign * row["number"] >= sign * aim:
        return REACHED
    return BETWEEN if floor is not None and sign * row["number"] >= sign * floor else MISSED


def quick_runs(document: dict[str, Any]) -> set[str]:
    """When those began whose rows are not judged."""
    return {run["began"] for run in document["runs"] if run["scale"].split(",")[0] == QUICK}


def judge_of(document: dict[str, Any]) -> Callable[[Row], str | None]:
    """What judges the rows of a document."""
    beside, quick = reference(document), quick_runs(document)
    return lambda row: None if row["run"] in quick else judged(row, beside)


def against_aim(row: Row, beside: str = PULSAR) -> str:
    """What stands against the aim, and the aim."""
    ratio = row["ratios"].get(beside) if "×" in row["aim"] else None
    words = shown(row["number"], row["unit"]).strip() if ratio is None else f"{ratio:.2f}×"
    return f"{words} of {row['aim']}"
