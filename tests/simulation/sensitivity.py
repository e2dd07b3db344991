# SPDX-License-Identifier: Apache-2.0
"""How quickly each planted bug is found, and by which checker: `python -m tests.simulation.sensitivity --seeds N`.

Writes one JSON file: for each bug what is broken, the scenario, the seeds that ran, those that failed, the first of
them, and how often each promise was broken. Where tests find a bug they stand for seeds and for promises. It lies under
.results, with what was measured in this run; `--keep` puts it into docs/proof for docs/reliability.md, where bugs that
were not asked for keep their rows.
"""

import argparse
import json
import logging
import sys
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.simulation.world.planted_bugs import sentence_of
from tests.simulation.world.planted_table import NAMES, TABLE, named_tests
from tests.simulation.world.planting import fails
from tests.simulation.world.registry import run_seed

RECORD = Path(".results/sensitivity.json")
KEPT = Path("docs/proof/sensitivity.json")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=24)
    parser.add_argument("--first", type=int, default=1000)
    parser.add_argument("--bug", action="append", choices=NAMES)
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--record", type=Path, default=RECORD, help=f"write here instead of {RECORD}")
    where.add_argument("--keep", action="store_true", help=f"put the rows into {KEPT}")
    options = parser.parse_args(arguments)
    if options.seeds < 1:
        parser.error(f"--seeds {options.seeds} tries nothing: give at least one")
    logging.getLogger("magnetar").setLevel(logging.CRITICAL)
    path: Path = KEPT if options.keep else options.record
    before: dict[str, Any] = json.loads(path.read_text())["bugs"] if options.keep and path.exists() else {}
    rows: dict[str, dict[str, Any]] = {}
    for bug in options.bug or NAMES:
        rows[bug] = _row(bug, range(options.first, options.first + options.seeds))
        sys.stdout.write(_line(bug, rows[bug]))
        sys.stdout.flush()
        # In the table's order, and without what it does not have any more.
        kept = {**before, **rows}
        bugs = {each: kept[each] for each in NAMES if each in kept}
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"date": datetime.now(UTC).date().isoformat(), "bugs": bugs}, indent=1) + "\n")
    missed = [bug for bug, row in rows.items() if not (row["found"] or any(row.get("tests", {}).values()))]
    sys.stdout.write(f"{len(rows) - len(missed)} of {len(rows)} planted bugs were found; {path} has the rows\n")
    return 1 if missed else 0


def _line(bug: str, row: dict[str, Any]) -> str:
    failed = [test for test, fell in row.get("tests", {}).items() if fell]
    caught = ", ".join((*row["promises"], *failed)) or "NOTHING"
    of = f"seeds of {row['scenario']}" if bug in TABLE else "tests"
    return f"{bug}: {row['broken']} Found by {row['found']} of {row['seeds']} {of}: {caught}\n"


def _row(bug: str, seeds: range) -> dict[str, Any]:
    """What seeds find, or tests where it is in no scenario's row; tests beside seeds have a field of their own."""
    row: dict[str, Any] = {"broken": sentence_of(bug)}
    if bug not in TABLE:
        return row | _tested(bug)
    row |= _seeded(bug, seeds)
    if named_tests(bug):
        row["tests"] = {test: int(fails(test, bug)) for test in named_tests(bug)}
    return row


def _seeded(bug: str, seeds: range) -> dict[str, Any]:
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
    tests = named_tests(bug)
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
