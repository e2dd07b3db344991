# SPDX-License-Identifier: Apache-2.0
"""What every suite shares: the feature tags and their record, loops that notice leaks, waiting for a condition.

A tag `@pytest.mark.feature("F-PROD-26")` says that the test proves a row of docs/catalogue.tsv. Each run leaves the
outcomes under .results/tests/; `make features` turns them into docs/compatibility.md. Never writes elsewhere.
Assembles.
"""

import asyncio
import os
import shutil
import threading
import time
from collections.abc import Callable, Coroutine, Generator
from pathlib import Path
from typing import Any, TypeVar

import pytest
import uvloop
from hypothesis import HealthCheck, settings

from tools.feature_record import RESULTS, FeatureRecord, known_features

# How long an example takes, or drawing one, says something of the machine and nothing of the code. Every run has other
# examples; `EXAMPLES=2000 make unit` has more.
settings.register_profile(
    "house",
    deadline=None,
    max_examples=int(os.environ.get("EXAMPLES") or 50),
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("house")

Result = TypeVar("Result")
RunOnLoop = Callable[[Coroutine[Any, Any, Any]], Any]
Eventually = Callable[..., Any]

_LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--results", type=Path, default=RESULTS, help="where the outcomes of tagged tests are kept")
    parser.addoption("--run-name", default="", help="a longer run, whose outcomes a run without this name leaves alone")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "feature(*ids): rows of docs/catalogue.tsv that this test proves")
    if not hasattr(config, "workerinput"):  # under xdist the controller alone writes the record
        record = FeatureRecord(config, config.getoption("--results"), config.getoption("--run-name"))
        config.pluginmanager.register(record, "feature-record")


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Check tags where tests are collected, so that an unknown row stops the run with or without xdist."""
    report = yield
    known = known_features()
    for item in report.result or ():
        if not isinstance(item, pytest.Item):
            continue
        for feature in [feature for mark in item.iter_markers("feature") for feature in mark.args]:
            item.user_properties.append(("feature", feature))
            if feature not in known:
                report.outcome = "failed"
                report.longrepr = f"{item.nodeid} is tagged {feature!r}, which is no row of docs/catalogue.tsv"
    return report


def run_without_leaks(coroutine: Coroutine[Any, Any, Result], loop_factory: Callable[[], Any]) -> Result:
    """Run to the end; a task or thread that is still there then was forgotten by its owner, and the test fails."""
    threads_before = set(threading.enumerate())
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        result = runner.run(coroutine)
        tasks = sorted(repr(task) for task in asyncio.all_tasks(runner.get_loop()))
    threads = sorted(thread.name for thread in threading.enumerate() if thread not in threads_before)
    assert not tasks, "tasks left behind: " + "; ".join(tasks)
    assert not threads, "threads left behind: " + "; ".join(threads)
    return result


@pytest.fixture(scope="session")
def needs() -> Callable[[str, str], str]:
    """`needs("java", "apt install …")` is a program's path; without it a loud skip here, a failure under CI=true."""

    def path_of(program: str, remedy: str) -> str:
        found = shutil.which(program)
        if found is None:
            sentence = f"{program} is not on this machine: {remedy}"
            if os.environ.get("CI") == "true":
                pytest.fail(sentence)
            pytest.skip(sentence)
        return found

    return path_of


@pytest.fixture(params=sorted(_LOOPS))
def loop_run(request: pytest.FixtureRequest) -> RunOnLoop:
    """A call that runs one coroutine on a fresh loop: the test runs once on asyncio and once on uvloop."""
    factory = _LOOPS[request.param]
    return lambda coroutine: run_without_leaks(coroutine, factory)


@pytest.fixture
def eventually() -> Eventually:
    """`eventually(condition)` polls until the condition is true and returns its value; it fails after `limit_s`.

    For what happens in other processes. Inside a loop, wait for an event of the code under test instead.
    """

    def wait(condition: Callable[[], Result], *, limit_s: float = 30.0, interval_s: float = 0.01) -> Result:
        until = time.monotonic() + limit_s
        while True:
            value = condition()
            if value:
                return value
            assert time.monotonic() < until, f"still not true after {limit_s} s: {condition!r}"
            time.sleep(interval_s)

    return wait
