# SPDX-License-Identifier: Apache-2.0
"""Runs suites, which are make targets, one after another, and says what each took.

`python -m tools.suites check contracts …` passes their output on, keeps pytest's closing lines for the end, and fails
when one of them failed; the others still run. `unit+types` are run at once: the first one's output is passed on as it
comes, the others' when they have ended. A suite without tests is a loud skip. Never retries anything.
Carries.
"""

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
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


def say(text: str) -> None:
    print(text, end="", flush=True)


def run_suite(name: str, say: Callable[[str], None] = say) -> SuiteResult:
    if not has_tests(name):
        say(f"\nSKIPPED {name}: tests/{name} has no tests\n")
        return SuiteResult(name, "skipped", 0.0, ())
    say(f"\n--- {name} ---\n")
    began = time.monotonic()
    closings = []
    command = [os.environ.get("MAKE", "make"), "--no-print-directory", name]
    with subprocess.Popen(command, cwd=HOUSE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            say(line)
            if CLOSING.match(line):
                closings.append(line.strip("= \n"))
    state = "passed" if process.returncode == 0 else "failed"
    return SuiteResult(name, state, time.monotonic() - began, tuple(closings))


def run_at_once(names: list[str]) -> list[SuiteResult]:
    first, *others = names
    kept: list[list[str]] = [[] for _ in others]
    with ThreadPoolExecutor(max_workers=len(names)) as threads:
        ending = [threads.submit(run_suite, name, lines.append) for name, lines in zip(others, kept, strict=True)]
        results = [run_suite(first)]
        for suite, lines in zip(ending, kept, strict=True):
            results.append(suite.result())
            say("".join(lines))
    return results


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
    began = time.monotonic()
    results = [result for group in names for result in run_at_once(group.split("+"))]
    print("\n" + "\n".join(closing_table(results)), flush=True)
    print(f"all together {time.monotonic() - began:.1f} s", flush=True)
    failed = [result.name for result in results if result.state == "failed"]
    if failed:
        print("FAILED: " + ", ".join(failed), flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
