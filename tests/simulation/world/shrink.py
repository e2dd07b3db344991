# SPDX-License-Identifier: Apache-2.0
"""A failing seed made small: less work and a shorter storm, then kinds of fault left out, then the last strikes, while
the same promise is broken.

What is left out does not change when the others strike: the nemesis draws all of them and stays its hand. What follows
is another story all the same, so each smaller one is run, and kept only if it fails for the same promise.
"""

import time
from collections.abc import Callable
from functools import partial
from math import ceil
from typing import NamedTuple

from tests.simulation.world.world import Verdict

# The storm first: it makes every later run shorter.
_FIRST = "seconds"


class Restraint(NamedTuple):
    """Which faults do not happen, how many of the others do, and how much work there is, by measure."""

    without: frozenset[str] = frozenset()
    strikes_max: int | None = None
    at_most: tuple[tuple[str, int], ...] = ()

    def arguments(self) -> list[str]:
        given = [f"--without {kind}" for kind in sorted(self.without)]
        if self.strikes_max is not None:
            given.append(f"--strikes {self.strikes_max}")
        return [*given, *(f"--at-most {measure}={number}" for measure, number in self.at_most)]


UNRESTRAINED = Restraint()


class Shrunk(NamedTuple):
    restraint: Restraint
    verdict: Verdict
    runs: int


class _Search:
    """The smallest failing story so far, and what may still be spent on a smaller one."""

    def __init__(self, verdict: Verdict, run: Callable[[Restraint], Verdict], runs_max: int, end: float) -> None:
        self._promises = {violation.promise for violation in verdict.violations}
        self._run = run
        self._runs_max = runs_max
        self._end = end
        self.best, self.restraint, self.runs = verdict, UNRESTRAINED, 0

    def limited(self, measure: str, number: int) -> Restraint:
        return self.restraint._replace(at_most=tuple(sorted({**dict(self.restraint.at_most), measure: number}.items())))

    def may_go_on(self) -> bool:
        return self.runs < self._runs_max and time.monotonic() < self._end

    def still_fails(self, tried: Restraint) -> bool:
        self.runs += 1
        found = self._run(tried)
        if self._promises.isdisjoint(violation.promise for violation in found.violations):
            return False
        self.best, self.restraint = found, tried
        return True

    def bisect(self, low: int, high: int, tried: Callable[[int], Restraint]) -> None:
        """`high` fails, without being tried; less than `low` makes no sense."""
        while low < high and self.may_go_on():
            middle = (low + high) // 2
            if self.still_fails(tried(middle)):
                high = middle
            else:
                low = middle + 1


def shrink(
    verdict: Verdict, run: Callable[[Restraint], Verdict], *, runs_max: int = 80, seconds_max: float = 60.0
) -> Shrunk:
    """The smallest failing story that was found; the given one if nothing can be left out.

    No run begins when so much real time is over.
    """
    search = _Search(verdict, run, runs_max, time.monotonic() + seconds_max)
    for measure in sorted(verdict.measures, key=lambda name: (name != _FIRST, name)):
        search.bisect(1, ceil(verdict.measures[measure]), partial(search.limited, measure))
    for kind in sorted(search.best.struck):
        if search.may_go_on():
            search.still_fails(search.restraint._replace(without=search.restraint.without | {kind}))
    search.bisect(0, search.best.struck.total(), lambda number: search.restraint._replace(strikes_max=number))
    return Shrunk(search.restraint, search.best, search.runs)
