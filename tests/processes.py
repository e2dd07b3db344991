# SPDX-License-Identifier: Apache-2.0
"""Real Magnetar processes for tests: started on free loopback ports, killed by their own pid, restarted on the same
data.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.warm_process import WarmProcess

START_LIMIT_S = 30.0


_handed_out: set[int] = set()


def free_port() -> int:
    """A loopback port that nobody has, never given twice, and never to two workers of one run: each has its share.

    Who listens there starts later, and may be killed and started again; until then only this rule keeps it free.
    """
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    share = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    while True:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port: int = probe.getsockname()[1]
        # The kernel prefers ports of one parity here, which must not decide about the share.
        if port // 2 % workers == share and port not in _handed_out:
            _handed_out.add(port)
            return port


def launched(
    command: list[str], log_path: Path, environment: dict[str, str], *, cold: bool = False
) -> subprocess.Popen[bytes] | WarmProcess:
    """Start `python -m magnetar.cli.entry …`. Tests fork it from a warm process unless they want a `cold` start;
    benchmarks, which count what a start costs, never do.
    """
    if "PYTEST_VERSION" in os.environ and not cold:
        return WarmProcess(command[command.index("magnetar.cli.entry") + 1 :], log_path, environment)
    with log_path.open("ab") as log:
        return subprocess.Popen(command, stdout=log, stderr=log, env=environment)


class StandaloneProcess:
    """`magnetar standalone` on one data directory; start, kill and start again keep the port."""

    def __init__(
        self, directory: Path, *arguments: str, environment: dict[str, str] | None = None, cold: bool = False
    ) -> None:
        self.directory = directory
        self.port = free_port()
        self.http_port = free_port()
        self.log_path = directory / "standalone.log"
        self._arguments = arguments
        self._environment = {**os.environ, **(environment or {})}
        self._cold = cold
        self._process: subprocess.Popen[bytes] | WarmProcess | None = None

    @property
    def service_url(self) -> str:
        return f"pulsar://127.0.0.1:{self.port}"

    @property
    def web_url(self) -> str:
        return f"http://127.0.0.1:{self.http_port}"

    @property
    def data_directory(self) -> Path:
        return self.directory / "data"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def command(self) -> list[str]:
        return [
            sys.executable,
            "-m",
            "magnetar.cli.entry",
            "standalone",
            "--data-dir",
            str(self.data_directory),
            "--port",
            str(self.port),
            "--http-port",
            str(self.http_port),
            "--ready-file",
            str(self.directory / "ready.json"),
            *self._arguments,
        ]

    def start(self) -> dict[str, str]:
        """Start and wait until it serves; returns what the ready file says."""
        ready = self.directory / "ready.json"
        ready.unlink(missing_ok=True)
        self._process = launched(self.command(), self.log_path, self._environment, cold=self._cold)
        until = time.monotonic() + START_LIMIT_S
        while not ready.exists():
            if self._process.poll() is not None:
                raise AssertionError(f"standalone ended with {self._process.returncode}:\n{self.log_tail()}")
            assert time.monotonic() < until, f"standalone does not serve:\n{self.log_tail()}"
            time.sleep(0.01)
        urls: dict[str, str] = json.loads(ready.read_text())
        return urls

    def kill(self) -> None:
        """kill -9: nothing is flushed, nothing is said."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def pause(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def stop(self, limit_s: float = 30.0) -> int:
        """SIGTERM, and wait for the orderly end."""
        assert self._process is not None
        self._process.terminate()
        return self._process.wait(limit_s)

    def wait(self, limit_s: float = 30.0) -> int:
        assert self._process is not None
        return self._process.wait(limit_s)

    def log_tail(self) -> str:
        return self.log_path.read_text(errors="replace")[-4000:]

    def __enter__(self) -> Self:
        self.directory.mkdir(parents=True, exist_ok=True)
        try:
            self.start()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._end()

    def _end(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self.kill()
