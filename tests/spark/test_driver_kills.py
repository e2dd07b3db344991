# SPDX-License-Identifier: Apache-2.0
"""kill -9 of a driver, its JVM and its workers, anywhere in a micro-batch: the last driver ends with every row once.

Each driver takes over from the one before at another place, has another number of cores and cuts the rows in another
way. Drivers that were stopped for so long that others took over write nothing when they go on. `make test` runs the
worst of the places, `make spark-faults` (MAGNETAR_SPARK_FAULTS=all) runs all of them.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple, TypeAlias

import httpx
import pytest

from magnetar.blocking import Client
from tests.processes import StandaloneProcess
from tests.spark import crash_points
from tests.spark.driver import SUBSCRIPTION
from tests.spark.in_process import read_batch
from tests.spark.test_batch_source import publish

HOUSE = Path(__file__).resolve().parents[2]
MESSAGES = 600
DRIVER_LIMIT_S = 800
Popen: TypeAlias = "subprocess.Popen[bytes]"
everywhere = pytest.mark.skipif(
    os.environ.get("MAGNETAR_SPARK_FAULTS") != "all", reason="half an hour: `make spark-faults` runs it"
)
ZOMBIE_POINTS = (("staged", "log-open", "in-the-middle", "done"), ("committing", "decided", "published", "committed"))
BATCH = 300


def python_path() -> str:
    """Where processes of a test find this package, and what it tests."""
    return os.pathsep.join(filter(None, (str(HOUSE), os.environ.get("PYTHONPATH"))))


class Driver:
    def __init__(self, standalone: StandaloneProcess, topic: str, directory: Path) -> None:
        self.crash_file = directory / "crash"
        self._log = directory / "driver.log"
        self._options = {
            "url": standalone.service_url,
            "topic": topic,
            "out": f"{topic}-out",
            "checkpoint": str(directory / "checkpoint"),
        }

    def start(self, cores: int, parts: int, **more: object) -> "subprocess.Popen[bytes]":
        options = {**self._options, "master": f"local[{cores},4]", "parts": parts, **more}
        environment = {**os.environ, "PYTHONPATH": python_path(), crash_points.FILE: str(self.crash_file)}
        with self._log.open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "tests.spark.driver", json.dumps(options)],
                stdout=log,
                stderr=log,
                env=environment,
                cwd=HOUSE,
                start_new_session=True,
            )

    def run(self, cores: int, parts: int, **more: object) -> int:
        return self.end(self.start(cores, parts, **more))

    def end(self, process: "subprocess.Popen[bytes]", limit_s: float = DRIVER_LIMIT_S) -> int:
        try:
            return process.wait(limit_s)
        finally:
            # Whatever of it is left; its workers end when their JVM does.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def plan(self, point: str, whom: str) -> None:
        """What happens at a place to the first process that comes there."""
        self.crash_file.write_text(json.dumps({"point": point, "whom": whom}))

    @property
    def has_struck(self) -> bool:
        return not self.crash_file.exists()

    def log(self) -> str:
        return self._log.read_text(errors="replace")[-4000:]


def check_exact(standalone: StandaloneProcess, topic: str, messages: int = MESSAGES) -> None:
    """Every row is there once; of all drivers one cursor is left, which is where the query is."""
    found = read_batch({"service.url": standalone.service_url, "topic": f"{topic}-out"})
    assert Counter(bytes(row["value"]) for row in found.rows) == Counter(b"%d" % number for number in range(messages))
    path = topic.replace("://", "/")
    stats = httpx.get(f"{standalone.web_url}/admin/v2/{path}/stats", timeout=60).raise_for_status().json()
    backlogs = {name: one["msgBacklog"] for name, one in stats["subscriptions"].items() if one["durable"]}
    assert backlogs == {SUBSCRIPTION: 0}


@pytest.fixture
def driver(
    needs: Callable[[str, str], str], standalone: StandaloneProcess, client: Client, topic: str, tmp_path: Path
) -> Driver:
    needs("java", "Spark needs Java 17 or newer: apt install openjdk-17-jre-headless, or set JAVA_HOME")
    publish(client, topic, MESSAGES)
    return Driver(standalone, topic, tmp_path)


class Zombie(NamedTuple):
    """A driver that was stopped, and the groups of processes that it is."""

    process: Popen
    groups: list[int]


@pytest.fixture
def stopped(driver: Driver, tmp_path: Path, eventually: Callable[..., bool]) -> Iterator[Callable[[str], Zombie]]:
    """Starts a driver and waits until it has stopped at a place."""
    made: list[Zombie] = []

    def start(point: str) -> Zombie:
        driver.plan(point, "driver-stops")
        process = driver.start(cores=2, parts=3)
        told = tmp_path / crash_points.STOPPED
        eventually(lambda: told.exists() or process.poll() is not None, limit_s=DRIVER_LIMIT_S)
        assert told.exists(), driver.log()
        zombie = Zombie(process, json.loads(told.read_text()))
        made.append(zombie)
        # What is planned next must not be met by this one, on its way to standing still.
        eventually(lambda: crash_points.are_stopped(zombie.groups))
        told.unlink()
        return zombie

    yield start
    for zombie in made:
        crash_points.resume(zombie.groups, signal.SIGKILL)
        zombie.process.kill()
        driver.end(zombie.process)


@pytest.mark.timeout(3 * DRIVER_LIMIT_S)
@pytest.mark.feature("F-SPK-02", "F-SPK-06")
def test_a_driver_stopped_and_another_killed_leave_every_row_once(
    driver: Driver, stopped: Callable[[str], Zombie], standalone: StandaloneProcess, topic: str
) -> None:
    zombie = stopped("decided")
    driver.plan("in-the-middle", "driver")
    assert driver.run(cores=2, parts=3) == -9, driver.log()
    assert driver.has_struck
    assert driver.run(cores=1, parts=2) == 0, driver.log()
    check_exact(standalone, topic)
    crash_points.resume(zombie.groups)
    driver.end(zombie.process)
    check_exact(standalone, topic)


@everywhere
@pytest.mark.timeout(7 * DRIVER_LIMIT_S)
@pytest.mark.feature("F-SPK-02", "F-SPK-06")
@pytest.mark.parametrize("phase", crash_points.DRIVER_POINTS)
def test_drivers_killed_at_one_place_after_the_other_leave_every_row_once(
    driver: Driver, standalone: StandaloneProcess, client: Client, topic: str, phase: str
) -> None:
    messages = MESSAGES
    for number, point in enumerate(crash_points.DRIVER_POINTS[phase]):
        driver.plan(point, "driver")
        assert driver.run(cores=1 + number % 2, parts=2 + number % 3) == -9, f"{point}: {driver.log()}"
        assert driver.has_struck, point
        publish(client, topic, BATCH, start=messages)
        messages += BATCH
    assert driver.run(cores=1, parts=2) == 0, driver.log()
    check_exact(standalone, topic, messages)


@everywhere
@pytest.mark.timeout(7 * DRIVER_LIMIT_S)
@pytest.mark.feature("F-SPK-02", "F-SPK-06")
@pytest.mark.parametrize("points", ZOMBIE_POINTS, ids=["-".join(points) for points in ZOMBIE_POINTS])
def test_drivers_stopped_anywhere_write_nothing_after_others_took_over(
    driver: Driver,
    stopped: Callable[[str], Zombie],
    standalone: StandaloneProcess,
    client: Client,
    topic: str,
    points: tuple[str, ...],
) -> None:
    zombies: list[Zombie] = []
    messages = MESSAGES
    for point in points:
        zombies.append(stopped(point))
        publish(client, topic, BATCH, start=messages)
        messages += BATCH
    assert driver.run(cores=1, parts=2) == 0, driver.log()
    check_exact(standalone, topic, messages)
    for zombie in zombies:
        crash_points.resume(zombie.groups)
        driver.end(zombie.process)
        check_exact(standalone, topic, messages)
