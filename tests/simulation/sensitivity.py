# SPDX-License-Identifier: Apache-2.0
"""How quickly each planted bug is found, and by which checker: `python -m tests.simulation.sensitivity --seeds N`.

Writes one JSON file for docs/reliability.md: for each bug the scenario, the seeds that ran, those that failed, the
first of them, and how often each promise was broken.
"""

import argparse
import json
import logging
import sys
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.simulation.test_planted_bugs import TABLE
from tests.simulation.world.registry import run_seed


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=40)
    parser.add_argument("--first", type=int, default=1000)
    parser.add_argument("--bug", action="append", choices=list(TABLE))
    parser.add_argument("--record", default=".results/sensitivity.json")
    options = parser.parse_args(arguments)
    logging.getLogger("magnetar").setLevel(logging.CRITICAL)
    path = Path(options.record)
    rows: dict[str, Any] = json.loads(path.read_text())["bugs"] if path.exists() else {}
    for bug in options.bug or TABLE:
        rows[bug] = _row(bug, range(options.first, options.first + options.seeds))
        sys.stdout.write(f"{bug}: {rows[bug]}\n")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"date": datetime.now(UTC).date().isoformat(), "bugs": rows}, indent=1) + "\n")
    return 0 if all(row["found"] for row in rows.values()) else 1


def _row(bug: str, seeds: range) -> dict[str, Any]:
    scenario, rates = TABLE[bug].scenario, TABLE[bug].rates
    promises: Counter[str] = Counter()
    failed: list[int] = []
    for seed in seeds:
        broken = {v.promise for v in run_seed(scenario, seed, planted=frozenset({bug}), rates=rates).violations}
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


if __name__ == "__main__":
    sys.exit(main())
