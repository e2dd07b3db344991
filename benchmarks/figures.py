# SPDX-License-Identifier: Apache-2.0
"""One measured number with its unit, which way is better, what is aimed at, and which catalogue rows it answers."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

MORE: Final = "more"
LESS: Final = "less"
WORST: Final = ", max"
"""How the name of a row ends that is about the worst of all."""
TEN_THOUSANDTHS: Final = 20_000
"""So many values at least have a p99.99 that is not the worst of them."""
CLOSED_LOOP: Final = "closed loop"
"""Said of latencies whose generator sends nothing while it waits, so that a stall meets few messages."""


@dataclass(frozen=True, slots=True)
class Figure:
    """`aim` is the floor and the aim of the ratio to the peer, or of the number itself, in words.

    `rounds` are the values of which `value` is the median or the worst, in the order that they were measured. `unlike`
    says in what a peer's value was measured otherwise than ours: such two have no ratio.
    """

    name: str
    value: float
    unit: str
    better: str = MORE
    aim: str = ""
    settings: str = ""
    features: tuple[str, ...] = ()
    rounds: tuple[float, ...] = ()
    unlike: str = ""

    @property
    def text(self) -> str:
        return shown(self.value, self.unit)


@dataclass(frozen=True, slots=True)
class Scale:
    """How much is done: every load names its three sizes where it is used."""

    name: str

    def of(self, quick: int, usual: int, full: int) -> int:
        return {"quick": quick, "usual": usual, "full": full}[self.name]


def shown(value: float, unit: str) -> str:
    """Three digits that matter; thousands are grouped."""
    if math.isnan(value):
        return "–"
    if value >= 100 or value == int(value):
        return f"{value:,.0f} {unit}"
    return f"{value:.{1 if value >= 10 else 2}f} {unit}"


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest of the values that so many percent are not above."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]


def latency_figures(
    name: str,
    milliseconds: Sequence[float],
    *,
    aims: tuple[str, str, str, str] = ("", "", "", ""),
    settings: str = "",
    features: tuple[str, ...] = (),
) -> list[Figure]:
    """p50, p99, p99.9 and the worst; and p99.99 where there are values enough."""
    found: list[tuple[str, Callable[[], float]]] = [
        (", p50", lambda: percentile(milliseconds, 50)),
        (", p99", lambda: percentile(milliseconds, 99)),
        (", p99.9", lambda: percentile(milliseconds, 99.9)),
        (WORST, lambda: max(milliseconds)),
    ]
    figures = [
        Figure(f"{name}{which}", value(), "ms", LESS, aim, settings, features)
        for (which, value), aim in zip(found, aims, strict=True)
    ]
    if len(milliseconds) >= TEN_THOUSANDTHS:
        most = percentile(milliseconds, 99.99)
        figures.insert(-1, Figure(f"{name}, p99.99", most, "ms", LESS, "", settings, features))
    return figures
