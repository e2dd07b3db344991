# SPDX-License-Identifier: Apache-2.0
"""Runs suites, which are make targets, one after another, and says what each took.

`python -m tools.suites check contracts …` passes their output on, keeps pytest's closing lines for the end, and fails
when one of them failed; the others still run. A suite without tests is a loud skip. Never retries anything.
Carries.
"""

import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

HOUSE = Path(__file__).resolve().parent.parent
# An overrun is shown, and fixed by the change that caused it.
BUDGETS_S = {"check": 120, "contracts": 120, "simulation": 180, "conformance": 240, "faults": 240, "spark": 240}
FOLDERS = ("unit", "contracts", "simulation", "conformance", "faults", "spark")
CLOSING = re.compile(r"^(=+ )?\d+ (passed|failed|errors?|skipped|deselected|xfailed|warnings?)\b.* in [\d.]+s\b.*$")


class SuiteResult(NamedTuple):
    """How one suite ended: "passed", "failed" or "skipped", its seconds, and pytest's closing lines in it."""

    name: str
    state: str
    took_s: float
    closings: tuple[str, ...]


def has_tests(name: str) -> bool:
    return name not in FOLDERS or any((HOUSE / "tests" / name).rglob("test_*.py"))


def run_suite(name: str) -> SuiteResult:
    if not has_tests(name):
        print(f"\nSKIPPED {name}: tests/{name} has no tests", flush=True)
        return SuiteResult(name, "skipped", 0.0, ())
    print(f"\n--- {name} ---", flush=True)
    began = time.monotonic()
    closings = []
    command = [os.environ.get("MAKE", "make"), "--no-print-directory", name]
    with subprocess.Popen(command, cwd=HOUSE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            if CLOSING.match(line):
                closings.append(line.strip("= \n"))
    state = "passed" if process.returncode == 0 else "failed"
    return SuiteResult(name, state, time.monotonic() - began, tuple(closings))


def closing_table(results: list[SuiteResult]) -> list[str]:
    """One line per suite: state, seconds, share of the whole, budget, and pytest's own closing lines."""
    total_s = sum(result.took_s for result in results) or 1.0
    lines = [f"{'suite':<12} {'state':<8} {'seconds':>8} {'share':>6}  budget"]
    for result in results:
        budget_s = BUDGETS_S.get(result.name)
        budget = "" if budget_s is None else f"{budget_s} s" + (" OVER" if result.took_s > budget_s else "")
        took = f"{result.took_s:>8.1f} {result.took_s / total_s:>6.0%}"
        lines.append(f"{result.name:<12} {result.state:<8} {took}  {budget}".rstrip())
    lines += [f"{result.name}: {closing}" for result in results for closing in result.closings]
    return lines


def main(names: list[str]) -> int:
    results = [run_suite(name) for name in names]
    print("\n" + "\n".join(closing_table(results)), flush=True)
    failed = [result.name for result in results if result.state == "failed"]
    if failed:
        print("FAILED: " + ", ".join(failed), flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
