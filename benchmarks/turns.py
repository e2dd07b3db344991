# SPDX-License-Identifier: Apache-2.0
"""Variants of one load that take turns: a machine has its moods, and none of them may come to one variant only.

Each turn begins with another variant, so that none is always the first after a rest. What is kept is the median, and
beside it the lowest and the highest of a turn: a difference within them is none.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from statistics import median
from typing import Final, Generic, TypeVar

from benchmarks.figures import MORE, Figure, Scale, shown

TURNS: Final = (1, 3, 5)
"""At each scale."""

V = TypeVar("V", bound=Hashable)


class Turns(Generic[V]):
    """What was measured of each variant, by name: as many values as there were turns, in their order."""

    def __init__(self, taken: Mapping[V, Sequence[Mapping[str, float]]]) -> None:
        self._taken = taken

    def values(self, variant: V, what: str) -> list[float]:
        return [each[what] for each in self._taken[variant]]

    def figure(
        self,
        variant: V,
        what: str,
        name: str,
        unit: str,
        better: str = MORE,
        settings: str = "",
        features: tuple[str, ...] = (),
    ) -> Figure:
        values = self.values(variant, what)
        told = _told(settings, "median of {} turns, {}", values, unit)
        return Figure(name, median(values), unit, better, "", told, features)

    def ratio(
        self,
        over: V,
        under: V,
        what: str,
        name: str,
        better: str = MORE,
        settings: str = "",
        features: tuple[str, ...] = (),
        aim: str = "",
    ) -> Figure:
        """Of the medians; the lowest and the highest are those that two turns beside each other had."""
        above, below = self.values(over, what), self.values(under, what)
        ratios = [each / other for each, other in zip(above, below, strict=True)]
        told = _told(settings, "of the medians of {} turns, in single ones {}", ratios, "times")
        return Figure(name, median(above) / median(below), "times", better, aim, told, features)


def in_turns(
    variants: Sequence[V],
    turns: int,
    measured: Callable[[V, int], Mapping[str, float]],
    warm_up: Callable[[V], object] | None = None,
) -> Turns[V]:
    """Each variant once in each turn, which are counted from 0; before them all warm up, which counts not."""
    if warm_up is not None:
        for variant in variants:
            warm_up(variant)
    taken: dict[V, list[Mapping[str, float]]] = {variant: [] for variant in variants}
    for turn in range(turns):
        for variant in order(variants, turn, turns):
            taken[variant].append(measured(variant, turn))
    return Turns(taken)


def order(variants: Sequence[V], turn: int, turns: int) -> list[V]:
    """Those of a turn: the same circle, entered at places that are evenly apart."""
    first = turn * max(1, len(variants) // turns) % len(variants)
    return [*variants[first:], *variants[:first]]


def turns_of(scale: Scale) -> int:
    return scale.of(*TURNS)


def _told(settings: str, words: str, values: Sequence[float], unit: str) -> str:
    """With how many turns there were, and the lowest and the highest of one."""
    spread = f"{shown(min(values), '').strip()} to {shown(max(values), unit)}"
    turns = words.format(len(values), spread) if len(values) > 1 else "one turn"
    return f"{settings}; {turns}" if settings else turns
