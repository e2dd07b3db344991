# SPDX-License-Identifier: Apache-2.0
"""Run seeds: `python -m tests.simulation.run --seed X | --seeds N | --minutes M [--scenario NAME] [--plant BUG]`.

Each failing seed is printed with what was violated and the one command that runs it again. The last line says how many
seeds ran, the faults by kind, and the violations; the exit code is 1 if there were any.
"""

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterator

from magnetar.runtime.chance import fresh_seed
from tests.simulation.world.registry import run_seed, scenarios
from tests.simulation.world.world import Verdict

_VIOLATIONS_SHOWN_MAX = 5
_SEED_MAX = 10**9


def main(arguments: list[str] | None = None) -> int:
    options = _options(arguments)
    names = [options.scenario] if options.scenario else list(scenarios())
    planted = frozenset(options.plant)
    seeds = callbacks = operations = failed = 0
    violations: Counter[str] = Counter()
    faults: Counter[str] = Counter()
    virtual_s = 0.0
    started = time.monotonic()
    for seed in _seeds(options):
        seeds += 1
        for name in names:
            verdict = run_seed(name, seed, planted=planted)
            if options.seed is not None and verdict.trace != run_seed(name, seed, planted=planted).trace:
                violations["determinism"] += 1
                print(f"seed {seed} of {name} had another history the second time")
            callbacks += verdict.callbacks
            operations += verdict.operations
            virtual_s += verdict.virtual_s
            faults.update(verdict.faults)
            violations.update(violation.promise for violation in verdict.violations)
            if verdict.violations:
                failed += 1
                _show(verdict, planted, one_of_many=len(scenarios()) > 1)
            elif options.seed is not None:
                print(f"seed {seed} of {name}: trace {verdict.trace}, {verdict.callbacks} callbacks, no violation")
    real_s = time.monotonic() - started
    print(
        f"{callbacks} callbacks in {real_s:.1f} s ({callbacks / max(real_s, 1e-9):,.0f}/s), "
        f"{virtual_s / 3600:.2f} virtual hours, {operations} operations, {failed} failing runs"
    )
    by_kind = ", ".join(f"{kind} {count}" for kind, count in sorted(faults.items())) or "none"
    broken = ", ".join(f"{promise} {count}" for promise, count in sorted(violations.items()))
    print(
        f"seeds: {seeds}; faults: {by_kind}; violations: {sum(violations.values())}{f' ({broken})' if broken else ''}"
    )
    return 1 if violations else 0


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.run", description=__doc__)
    parser.add_argument("--seed", type=int, help="run this seed, twice, and compare")
    parser.add_argument("--seeds", type=int, help="run so many fresh seeds")
    parser.add_argument("--minutes", type=float, help="run fresh seeds for so long")
    parser.add_argument("--first", type=int, help="count seeds up from here instead of drawing fresh ones")
    parser.add_argument("--scenario", choices=list(scenarios()), help="only this scenario")
    parser.add_argument("--plant", action="append", default=[], help="plant a known bug, to see it found")
    return parser.parse_args(arguments)


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


def _show(verdict: Verdict, planted: frozenset[str], *, one_of_many: bool) -> None:
    print(f"seed {verdict.seed} of {verdict.scenario}: {len(verdict.violations)} violations")
    for violation in verdict.violations[:_VIOLATIONS_SHOWN_MAX]:
        print(f"  {violation}")
    arguments = [f"--scenario {verdict.scenario}"] if one_of_many else []
    arguments += [f"--plant {bug}" for bug in sorted(planted)]
    print(f"  again: make sim SEED={verdict.seed}" + (f' ARGS="{" ".join(arguments)}"' if arguments else ""))


if __name__ == "__main__":
    sys.exit(main())
