# SPDX-License-Identifier: Apache-2.0
"""A failing seed made small: kinds of fault are left out, then the last strikes, while the same promise is broken.

What is left out does not change when the others strike: the nemesis draws all of them and stays its hand. What follows
is another story all the same, so each smaller one is run, and kept only if it fails for the same promise.
"""

from collections.abc import Callable
from typing import NamedTuple

from tests.simulation.world.world import Verdict


class Restraint(NamedTuple):
    """Which faults do not happen, and how many of the others do."""

    without: frozenset[str] = frozenset()
    strikes_max: int | None = None

    def arguments(self) -> list[str]:
        given = [f"--without {kind}" for kind in sorted(self.without)]
        return given if self.strikes_max is None else [*given, f"--strikes {self.strikes_max}"]


UNRESTRAINED = Restraint()


class Shrunk(NamedTuple):
    restraint: Restraint
    verdict: Verdict
    runs: int


def shrink(verdict: Verdict, run: Callable[[Restraint], Verdict], *, runs_max: int = 60) -> Shrunk:
    """The smallest failing story that was found; the given one if nothing can be left out."""
    promises = {violation.promise for violation in verdict.violations}
    best, restraint, runs = verdict, UNRESTRAINED, 0

    def still_fails(tried: Restraint) -> bool:
        nonlocal best, restraint, runs
        runs += 1
        found = run(tried)
        if promises.isdisjoint(violation.promise for violation in found.violations):
            return False
        best, restraint = found, tried
        return True

    for kind in sorted(verdict.struck):
        if runs < runs_max:
            still_fails(restraint._replace(without=restraint.without | {kind}))
    low, high = 0, sum(best.struck.values())
    while low < high and runs < runs_max:
        middle = (low + high) // 2
        if still_fails(restraint._replace(strikes_max=middle)):
            high = middle
        else:
            low = middle + 1
    return Shrunk(restraint, best, runs)
