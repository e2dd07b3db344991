# SPDX-License-Identifier: Apache-2.0
"""How quickly each planted bug is found, and by which checker: `python -m tests.simulation.sensitivity --seeds N`.

Writes one JSON file for docs/reliability.md: for each bug the scenario, the seeds that ran, those that failed, the
first of them, and how often each promise was broken. Where tests find a bug they stand for seeds and for promises.
"""

import argparse
import json
import logging
import sys
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.simulation.world.planted_table import BY_TESTS, TABLE
from tests.simulation.world.planting import fails
from tests.simulation.world.registry import run_seed


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=24)
    parser.add_argument("--first", type=int, default=1000)
    parser.add_argument("--bug", action="append", choices=[*TABLE, *BY_TESTS])
    parser.add_argument("--record", default="docs/proof/sensitivity.json")
    options = parser.parse_args(arguments)
    if options.seeds < 1:
        parser.error(f"--seeds {options.seeds} tries nothing: give at least one")
    logging.getLogger("magnetar").setLevel(logging.CRITICAL)
    path = Path(options.record)
    before: dict[str, Any] = json.loads(path.read_text())["bugs"] if path.exists() else {}
    # In the table's order, and without what it does not have any more.
    rows = {bug: before[bug] for bug in (*TABLE, *BY_TESTS) if bug in before}
    for bug in options.bug or (*TABLE, *BY_TESTS):
        rows[bug] = _tested(bug) if bug in BY_TESTS else _row(bug, range(options.first, options.first + options.seeds))
        sys.stdout.write(f"{bug}: {rows[bug]}\n")
        sys.stdout.flush()
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"date": datetime.now(UTC).date().isoformat(), "bugs": rows}, indent=1) + "\n")
    return 0 if all(row["found"] for row in rows.values()) else 1


def _row(bug: str, seeds: range) -> dict[str, Any]:
    scenario = TABLE[bug].scenario
    promises: Counter[str] = Counter()
    failed: list[int] = []
    for seed in seeds:
        broken = {v.promise for v in run_seed(scenario, seed, planted=frozenset({bug})).violations}
        promises.update(broken)
        if broken:
            failed.append(seed)
    return {
        "scenario": scenario,
        "seeds": len(seeds),
        "found": len(failed),
        "first": failed[0] if failed else None,
        "promises": dict(promises.most_common()),
    }


def _tested(bug: str) -> dict[str, Any]:
    tests = BY_TESTS[bug].tests
    failed = [test for test in tests if fails(test, bug)]
    return {
        "scenario": "tests",
        "seeds": len(tests),
        "found": len(failed),
        "first": None,
        "promises": dict.fromkeys(failed, 1),
    }


if __name__ == "__main__":
    sys.exit(main())
