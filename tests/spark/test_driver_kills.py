# SPDX-License-Identifier: Apache-2.0
"""kill -9 of a driver, its JVM and its workers, anywhere in a micro-batch: the next driver ends with every row once.

The next driver has another number of cores and cuts the rows in another way. `make test` runs the worst of the places,
`make spark-faults` (MAGNETAR_SPARK_FAULTS=all) runs all of them.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from magnetar.blocking import Client
from tests.processes import StandaloneProcess
from tests.spark import crash_points
from tests.spark.in_process import read_batch
from tests.spark.test_batch_source import publish

HOUSE = Path(__file__).resolve().parents[2]
MESSAGES = 600
DRIVER_LIMIT_S = 800
EVERYWHERE = os.environ.get("MAGNETAR_SPARK_FAULTS") == "all"
POINTS = crash_points.DRIVER_POINTS if EVERYWHERE else ("in-the-middle",)


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

    def start(self, cores: int, parts: int) -> "subprocess.Popen[bytes]":
        options = {**self._options, "master": f"local[{cores},4]", "parts": parts}
        environment = {**os.environ, "PYTHONPATH": str(HOUSE), crash_points.FILE: str(self.crash_file)}
        with self._log.open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "tests.spark.driver", json.dumps(options)],
                stdout=log,
                stderr=log,
                env=environment,
                cwd=HOUSE,
                start_new_session=True,
            )

    def run(self, cores: int, parts: int) -> int:
        process = self.start(cores, parts)
        try:
            return process.wait(DRIVER_LIMIT_S)
        finally:
            # Whatever of it is left; its workers end when their JVM does.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def log(self) -> str:
        return self._log.read_text(errors="replace")[-4000:]


def check_exact(standalone: StandaloneProcess, topic: str, messages: int = MESSAGES) -> None:
    found = read_batch({"service.url": standalone.service_url, "topic": f"{topic}-out"})
    assert Counter(bytes(row["value"]) for row in found.rows) == Counter(b"%d" % number for number in range(messages))


@pytest.mark.timeout(2 * DRIVER_LIMIT_S)
@pytest.mark.feature("F-SPK-02", "F-SPK-06")
@pytest.mark.parametrize("point", POINTS)
def test_a_driver_killed_anywhere_leaves_every_row_once(
    needs: Callable[[str, str], str],
    standalone: StandaloneProcess,
    client: Client,
    topic: str,
    tmp_path: Path,
    point: str,
) -> None:
    needs("java", "Spark needs Java 17 or newer: apt install openjdk-17-jre-headless, or set JAVA_HOME")
    publish(client, topic, MESSAGES)
    driver = Driver(standalone, topic, tmp_path)
    driver.crash_file.write_text(json.dumps({"point": point, "whom": "driver"}))
    assert driver.run(cores=2, parts=3) == -9, driver.log()
    assert not driver.crash_file.exists()
    assert driver.run(cores=1, parts=2) == 0, driver.log()
    check_exact(standalone, topic)
