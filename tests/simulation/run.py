# SPDX-License-Identifier: Apache-2.0
"""Run seeds: `python -m tests.simulation.run --seed X | --seeds N | --minutes M [--scenario NAME] [--plant BUG]`.

Without a scenario each of many seeds is a story of one scenario, drawn from it, mostly storage and clusters. Each
failing seed is printed with what was violated, made small (less work and fewer faults while it still fails), and the
one command that runs it again. The last line says how many seeds ran, the faults by kind, and the violations; the exit
code is 1 if there were any. A planted bug brings the rates of faults that it needs, and is looked for in its own
scenario unless another that meets it is named. `--record FILE` keeps the figures for docs/reliability.md.
"""

import argparse
import sys
import time
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path

from magnetar.runtime.chance import fresh_seed, stream
from tests.simulation.world.planted_table import BY_TESTS, TABLE, scenarios_of
from tests.simulation.world.record import RunRecord
from tests.simulation.world.registry import knobs, run_seed, scenarios
from tests.simulation.world.shrink import UNRESTRAINED, Restraint, shrink
from tests.simulation.world.world import Verdict

_VIOLATIONS_SHOWN_MAX = 5
_SEED_MAX = 10**9
# How often each scenario is drawn; the others are drawn once in all of these together.
_WEIGHTS = {"storage": 8, "takeover": 6, "broker": 4, "cluster": 6, "ownership": 4, "transactions": 4}


def main(arguments: list[str] | None = None) -> int:
    options = _options(arguments)
    planted = frozenset(options.plant)
    restraint = Restraint(frozenset(options.without), options.strikes, tuple(sorted(dict(options.at_most).items())))
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
    parser.add_argument("--seeds", type=_at_least_one, help="run so many fresh seeds")
    parser.add_argument("--minutes", type=float, help="run fresh seeds for so long")
    parser.add_argument("--first", type=int, help="count seeds up from here instead of drawing fresh ones")
    parser.add_argument("--scenario", choices=list(scenarios()), help="only this scenario")
    parser.add_argument("--plant", action="append", default=[], help="plant a known bug, to see it found")
    parser.add_argument("--without", action="append", default=[], help="a kind of fault that does not happen")
    parser.add_argument("--strikes", type=int, help="how many faults happen, at most")
    parser.add_argument(
        "--at-most",
        action="append",
        default=[],
        type=_measured,
        metavar="MEASURE=N",
        help="less work: seconds of the storm, messages, ledgers, clients, as the scenario has them",
    )
    parser.add_argument("--no-shrink", dest="shrink", action="store_false", help="do not look for a smaller failure")
    parser.add_argument("--record", help="a file that keeps the figures")
    options = parser.parse_args(arguments)
    if options.minutes is not None and options.minutes <= 0:
        parser.error("--minutes must be more than 0")
    if options.strikes is not None and options.strikes < 0:
        parser.error("--strikes must not be less than 0")
    _check_planted(parser, options)
    _check_restraint(parser, options)
    return options


def _at_least_one(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} tries nothing: give at least one")
    return number


def _measured(text: str) -> tuple[str, int]:
    measure, _, number = text.partition("=")
    if not number.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is no MEASURE=N")
    return measure, int(number)


def _check_planted(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """Where nobody could see a bug, that nothing is found would prove nothing."""
    _check_known(parser, "--plant", options.plant, (*TABLE, *BY_TESTS))
    for bug in options.plant:
        if bug in BY_TESTS:
            parser.error(f"no scenario meets {bug}; it is found by {', '.join(BY_TESTS[bug].tests)}")
        options.scenario = options.scenario or TABLE[bug].scenario
        if options.scenario not in scenarios_of(bug):
            parser.error(f"{options.scenario} does not meet {bug}; these do: {', '.join(scenarios_of(bug))}")


def _check_restraint(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    if not options.without and not options.at_most:
        return
    known = [knobs(name) for name in ([options.scenario] if options.scenario else scenarios())]
    _check_known(parser, "--without", options.without, {kind for each in known for kind in each.kinds})
    measures = [measure for measure, _ in options.at_most]
    _check_known(parser, "--at-most", measures, {measure for each in known for measure in each.measures})


def _check_known(parser: argparse.ArgumentParser, option: str, given: Iterable[str], known: Iterable[str]) -> None:
    unknown = sorted(set(given) - set(known))
    if unknown:
        parser.error(f"{option}: {', '.join(unknown)} is unknown; there are: {', '.join(sorted(known))}")


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
