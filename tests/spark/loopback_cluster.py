# SPDX-License-Identifier: Apache-2.0
"""A small Spark cluster on loopback: a master and two workers as processes of their own, for as long as a test runs.

The workers have different addresses, as if they were two machines.
"""

import os
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Self

import pyspark

from tests.processes import free_port

START_LIMIT_S = 300
SHORT_LIVED_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Compiles what runs for minutes only as far as pays off: half of the processor time of a test's JVM."""
HOSTS = ("127.0.0.1", "127.0.0.2")
"""Of the workers: Spark runs no second attempt of a task on the host that has the first."""


class LoopbackCluster:
    """`with`: the master knows both workers; every executor has one core."""

    def __init__(self, directory: Path, environment: dict[str, str]) -> None:
        """`environment`: what executors and their Python workers find in theirs, beside this process's own."""
        self.directory = directory
        self._environment = environment
        self._port, self._web_port = free_port(), free_port()
        self._processes: list[subprocess.Popen[bytes]] = []

    @property
    def master(self) -> str:
        return f"spark://127.0.0.1:{self._port}"

    @property
    def settings(self) -> dict[str, str]:
        """For a driver: two executors of a core each."""
        return {
            "spark_executor_cores": "1",
            "spark_executor_memory": "512m",
            "spark_executor_extraJavaOptions": SHORT_LIVED_JVM,
            "spark_cores_max": str(len(HOSTS)),
            "spark_driver_host": "127.0.0.1",
        }

    def _start(self, kind: str, host: str, *words: str) -> None:
        command = [str(Path(pyspark.__file__).parent / "bin" / "spark-class"), f"org.apache.spark.deploy.{kind}"]
        environment = {
            **os.environ,
            "SPARK_LOCAL_IP": host,
            "SPARK_NO_DAEMONIZE": "1",
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": SHORT_LIVED_JVM,
            "PYSPARK_PYTHON": sys.executable,
            **self._environment,
        }
        with (self.directory / f"{kind.rpartition('.')[2]}-{len(self._processes)}.log").open("ab") as log:
            self._processes.append(
                subprocess.Popen(
                    [*command, "--host", host, *words],
                    stdout=log,
                    stderr=log,
                    env=environment,
                    cwd=self.directory,
                    start_new_session=True,
                )
            )

    def __enter__(self) -> Self:
        self.directory.mkdir(parents=True, exist_ok=True)
        self._start("master.Master", HOSTS[0], "--port", str(self._port), "--webui-port", str(self._web_port))
        for number, host in enumerate(HOSTS):
            folder = self.directory / f"worker-{number}"
            words = ("--cores", "1", "--memory", "1g", "--work-dir", str(folder), "--webui-port", str(free_port()))
            self._start("worker.Worker", host, *words, self.master)
        until = time.monotonic() + START_LIMIT_S
        while self._workers() < len(HOSTS):
            if time.monotonic() > until or any(one.poll() is not None for one in self._processes):
                said = "\n".join(path.read_text(errors="replace")[-1500:] for path in self.directory.glob("*.log"))
                self._end()
                raise AssertionError(f"the Spark cluster does not come up:\n{said}")
            time.sleep(0.1)
        return self

    def _workers(self) -> int:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._web_port}/json/", timeout=5) as answer:
                told: bytes = answer.read()
        except OSError:
            return 0
        # The master itself is alive too.
        return told.count(b'"ALIVE"') - 1

    def _end(self) -> None:
        """Workers end their executors; whatever is left of a session ends with it."""
        for process in reversed(self._processes):
            process.terminate()
        for process in self._processes:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._end()
