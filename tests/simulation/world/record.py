# SPDX-License-Identifier: Apache-2.0
"""The figures of a run of many seeds: what ran, what was struck, what was promised and whether it held.

`keep` writes them as JSON after every seed, so that a run that is ended early counts too; `tools/reliability_page.py`
reads the files.
"""

import json
import subprocess
import time
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.simulation.world.world import Verdict

_HOUSE = Path(__file__).resolve().parent.parent.parent.parent


class RunRecord:
    def __init__(self) -> None:
        self.seeds: Counter[str] = Counter()
        self.failed: list[str] = []
        self.violations: Counter[str] = Counter()
        self.faults: Counter[str] = Counter()
        self.operations = self.acknowledged = self.callbacks = 0
        self.virtual_s = 0.0
        self._started = time.monotonic()
        self._commit = _commit()

    def add(self, verdict: Verdict) -> None:
        self.seeds[verdict.scenario] += 1
        self.faults.update(verdict.faults)
        self.violations.update(violation.promise for violation in verdict.violations)
        if verdict.violations:
            self.failed.append(f"{verdict.scenario} {verdict.seed}")
        self.operations += verdict.operations
        self.acknowledged += verdict.acknowledged
        self.callbacks += verdict.callbacks
        self.virtual_s += verdict.virtual_s

    def lines(self) -> list[str]:
        real_s = time.monotonic() - self._started
        by_kind = ", ".join(f"{kind} {count}" for kind, count in sorted(self.faults.items())) or "none"
        broken = ", ".join(f"{promise} {count}" for promise, count in sorted(self.violations.items()))
        speed = f"{self.callbacks} callbacks in {real_s:.1f} s ({self.callbacks / max(real_s, 1e-9):,.0f}/s)"
        work = f"{self.operations} operations, {self.acknowledged} acknowledged, {len(self.failed)} failing runs"
        total = f"violations: {self.violations.total()}{f' ({broken})' if broken else ''}"
        return [
            f"{speed}, {self.virtual_s / 3600:.2f} virtual hours, {work}",
            f"seeds: {self.seeds.total()}; faults: {by_kind}; {total}",
        ]

    def keep(self, path: Path) -> None:
        kept: dict[str, Any] = {
            "date": datetime.now(UTC).date().isoformat(),
            "commit": self._commit,
            "seeds": dict(sorted(self.seeds.items())),
            "faults": dict(sorted(self.faults.items())),
            "violations": dict(sorted(self.violations.items())),
            "failed": self.failed,
            "operations": self.operations,
            "acknowledged": self.acknowledged,
            "lost": sum(count for promise, count in self.violations.items() if promise.startswith("I1 ")),
            "virtual_hours": round(self.virtual_s / 3600, 2),
        }
        new = path.with_suffix(".new")
        new.write_text(json.dumps(kept, indent=1) + "\n")
        new.rename(path)


def _commit() -> str:
    """Of the tree that runs; a tree without history can name it in a file."""
    note = _HOUSE / ".commit"
    if note.exists():
        return note.read_text().strip()
    asked = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=_HOUSE, capture_output=True, text=True, check=False
    )
    return asked.stdout.strip() or "unknown"
