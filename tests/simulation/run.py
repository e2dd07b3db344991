# SPDX-License-Identifier: Apache-2.0
"""Run seeds: `python -m tests.simulation.run --seed X | --seeds N | --minutes M [--scenario NAME] [--plant BUG]`.

Without a scenario each of many seeds is a story of one scenario, drawn from it, mostly storage and clusters. Each
failing seed is printed with what was violated, made small (faults left out while it still fails), and the one command
that runs it again. The last line says how many seeds ran, the faults by kind, and the violations; the exit code is 1 if
there were any. `--record FILE` keeps the figures for docs/reliability.md.
"""

import argparse
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from magnetar.runtime.chance import fresh_seed, stream
from tests.simulation.world.record import RunRecord
from tests.simulation.world.registry import run_seed, scenarios
from tests.simulation.world.shrink import UNRESTRAINED, Restraint, shrink
from tests.simulation.world.world import Verdict

_VIOLATIONS_SHOWN_MAX = 5
_SEED_MAX = 10**9
# How often each scenario is drawn; the others are drawn once in all of these together.
_WEIGHTS = {"storage": 8, "takeover": 6, "broker": 4, "cluster": 6, "ownership": 4, "transactions": 4}


def main(arguments: list[str] | None = None) -> int:
    options = _options(arguments)
    planted, restraint = frozenset(options.plant), Restraint(frozenset(options.without), options.strikes)
    record = RunRecord()
    for seed in _seeds(options):
        for name in _names(options, seed):
            story = partial(run_seed, name, seed, planted=planted)
            verdict = story(restraint=restraint)
            if options.seed is not None and verdict.trace != story(restraint=restraint).trace:
                record.violations["determinism"] += 1
                print(f"seed {seed} of {name} had another history the second time")
            record.add(verdict)
            if verdict.violations:
                _show(verdict, planted, restraint)
                if options.shrink and restraint == UNRESTRAINED:
                    small = shrink(verdict, lambda tried, story=story: story(restraint=tried))  # type: ignore[misc]
                    if small.restraint != restraint:
                        print(f"  smaller, after {small.runs} runs:")
                        _show(small.verdict, planted, small.restraint)
            elif options.seed is not None:
                print(f"seed {seed} of {name}: trace {verdict.trace}, {verdict.callbacks} callbacks, no violation")
        if options.record:
            record.keep(Path(options.record))
    print(*record.lines(), sep="\n")
    return 1 if record.violations else 0


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.run", description=__doc__)
    parser.add_argument("--seed", type=int, help="run this seed, twice, and compare")
    parser.add_argument("--seeds", type=int, help="run so many fresh seeds")
    parser.add_argument("--minutes", type=float, help="run fresh seeds for so long")
    parser.add_argument("--first", type=int, help="count seeds up from here instead of drawing fresh ones")
    parser.add_argument("--scenario", choices=list(scenarios()), help="only this scenario")
    parser.add_argument("--plant", action="append", default=[], help="plant a known bug, to see it found")
    parser.add_argument("--without", action="append", default=[], help="a kind of fault that does not happen")
    parser.add_argument("--strikes", type=int, help="how many faults happen, at most")
    parser.add_argument("--no-shrink", dest="shrink", action="store_false", help="do not look for a smaller failure")
    parser.add_argument("--record", help="a file that keeps the figures")
    return parser.parse_args(arguments)


def _names(options: argparse.Namespace, seed: int) -> list[str]:
    """The scenarios of a seed: the one asked for, all for a seed that is replayed, one drawn for each of many."""
    if options.scenario:
        return [options.scenario]
    known = list(scenarios())
    if options.seed is not None:
        return known
    weights = [_WEIGHTS.get(name, 1) for name in known]
    return stream(seed, "mix").choices(known, weights)


def _seeds(options: argparse.Namespace) -> Iterator[int]:
    if options.seed is not None:
        yield options.seed
        return
    first = options.first if options.first is not None else fresh_seed() % _SEED_MAX
    end = time.monotonic() + 60 * options.minutes if options.minutes is not None else None
    count = options.seeds if options.seeds is not None else None if end is not None else 100
    number = 0
    while (count is None or number < count) and (end is None or time.monotonic() < end):
        yield first + number
        number += 1


def _show(verdict: Verdict, planted: frozenset[str], restraint: Restraint) -> None:
    print(f"seed {verdict.seed} of {verdict.scenario}: {len(verdict.violations)} violations")
    for violation in verdict.violations[:_VIOLATIONS_SHOWN_MAX]:
        print(f"  {violation}")
    arguments = [f"--scenario {verdict.scenario}", *(f"--plant {bug}" for bug in sorted(planted))]
    arguments += restraint.arguments()
    print(f'  again: make sim SEED={verdict.seed} ARGS="{" ".join(arguments)}"', flush=True)


if __name__ == "__main__":
    sys.exit(main())
