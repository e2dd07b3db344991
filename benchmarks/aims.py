# SPDX-License-Identifier: Apache-2.0
"""What is aimed at: where a row's floor and aim lie, and whether its number got there.

Words of an aim: "0.5× → 0.3×" is a floor and an aim of the ratio to Apache Pulsar, "1 % → 0.3 %" of the number itself,
"≤ 120 MB" an aim alone.
"""

import re
from typing import Any, Final

from benchmarks.figures import LESS

REACHED: Final = "aim"
BETWEEN: Final = "floor"
MISSED: Final = "missed"
_RATIO: Final = re.compile(r"^([\d.]+)× → ([\d.]+)×$")
_NUMBER: Final = re.compile(r"^(≤ )?([\d.]+) ?(\D*?)(?: → ([\d.]+) ?\D*)?$")

Row = dict[str, Any]


def marks(row: Row) -> tuple[float | None, float | None]:
    """Where a row's floor and aim lie, in its unit; a ratio is one to Apache Pulsar."""
    if found := _RATIO.match(row["aim"]):
        beside = row["peers"].get("pulsar")
        return (float(found[1]) * beside, float(found[2]) * beside) if beside else (None, None)
    found = _NUMBER.match(row["aim"])
    if found is None:
        return None, None
    unit = found[3].strip() or "times"
    if not row["unit"].startswith(unit):
        return None, None
    if found[4]:
        return float(found[2]), float(found[4])
    return None, float(found[2])


def judged(row: Row) -> str | None:
    """Whether its number reached the aim, only the floor, or neither; None where it has no aim."""
    floor, aim = marks(row)
    if aim is None:
        return None
    sign = -1 if row["better"] == LESS else 1
    if sign * row["number"] >= sign * aim:
        return REACHED
    return BETWEEN if floor is not None and sign * row["number"] >= sign * floor else MISSED
