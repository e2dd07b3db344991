# SPDX-License-Identifier: Apache-2.0
"""Plants a bug under ordinary tests: `PLANTED_BUG=name python -m pytest -p tests.simulation.world.planting TEST…`."""

import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

_BUG = "PLANTED_BUG"
_HOUSE = Path(__file__).resolve().parent.parent.parent.parent
_TESTS_FAILED = 1
_stack = ExitStack()


def pytest_configure() -> None:
    from tests.simulation.world.planted_bugs import planted

    _stack.enter_context(planted([bug for bug in (os.environ.get(_BUG, ""),) if bug]))


def pytest_unconfigure() -> None:
    _stack.close()


def fails(test: str, bug: str) -> bool:
    """Whether a test, which passes otherwise, fails with a bug planted. Any other end of the run is an error."""
    command = [sys.executable, "-m", "pytest", "-q", "-n0", "-p", "tests.simulation.world.planting", test]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    ran = subprocess.run(
        command, cwd=_HOUSE, env={**environment, _BUG: bug}, capture_output=True, text=True, check=False
    )
    if ran.returncode not in (0, _TESTS_FAILED):
        raise RuntimeError(f"{test} was not run:\n{ran.stdout[-2000:]}{ran.stderr[-2000:]}")
    return ran.returncode == _TESTS_FAILED
