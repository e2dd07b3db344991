# SPDX-License-Identifier: Apache-2.0
"""A cluster of real processes on loopback: metadata, bookies and a broker, each killed and started by itself."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.processes import free_port, launched
from tests.warm_process import WarmProcess

START_LIMIT_S = 180.0


class RoleProcess:
    """One `magnetar` command on one directory; start, kill and start again keep its ports."""

    def __init__(self, name: str, directory: Path, *arguments: str, environment: dict[str, str] | None = None) -> None:
        self.name = name
        self.directory = directory
        self.data_directory = directory / "data"
        self.log_path = directory / "log"
        self._ready = directory / "ready.json"
        self._arguments = arguments
        self._environment = {**os.environ, **(environment or {})}
        self._process: subprocess.Popen[bytes] | WarmProcess | None = None
        directory.mkdir(parents=True, exist_ok=True)

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def told_port(self) -> int:
        """The one that it was told to listen on."""
        return int(self._arguments[self._arguments.index("--port") + 1])

    @property
    def web_url(self) -> str:
        return f"http://127.0.0.1:{self._arguments[self._arguments.index('--http-port') + 1]}"

    def command(self) -> list[str]:
        data = ["--data-dir", str(self.data_directory), "--ready-file", str(self._ready)]
        return [sys.executable, "-m", "magnetar.cli.entry", *self._arguments, *data]

    def configure(self, **settings: str) -> None:
        """Environment of its next start."""
        self._environment |= settings

    def launch(self) -> None:
        self._ready.unlink(missing_ok=True)
        self._process = launched(self.command(), self.log_path, self._environment)

    def until_ready(self) -> dict[str, Any]:
        until = time.monotonic() + START_LIMIT_S
        while not self._ready.exists():
            code = self.exit_code()
            assert code is None, f"{self.name} ended with {code}:\n{self.log_tail()}"
            assert time.monotonic() < until, f"{self.name} does not serve:\n{self.log_tail()}"
            time.sleep(0.01)
        said: dict[str, Any] = json.loads(self._ready.read_text())
        return said

    def start(self) -> dict[str, Any]:
        self.launch()
        return self.until_ready()

    def exit_code(self) -> int | None:
        assert self._process is not None
        return self._process.poll()

    def wait(self, limit_s: float = 60.0) -> int:
        assert self._process is not None
        return self._process.wait(limit_s)

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def said(self) -> dict[str, Any]:
        """What its ready file says."""
        found: dict[str, Any] = json.loads(self._ready.read_text())
        return found

    def signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def kill(self) -> None:
        """kill -9: nothing is flushed, nothing is said."""
        self.signal(signal.SIGKILL)
        self.wait()

    def stop(self) -> int:
        self.signal(signal.SIGTERM)
        return self.wait()

    def log_tail(self) -> str:
        return self.log_path.read_text(errors="replace")[-4000:]


class ProxyRole(RoleProcess):
    """`magnetar proxy` in front of the brokers that a store lists; it keeps no data."""

    def __init__(self, name: str, directory: Path, metadata: str, environment: dict[str, str]) -> None:
        ports = ["--port", str(free_port()), "--http-port", str(free_port())]
        super().__init__(name, directory / name, "proxy", "--metadata", metadata, *ports, environment=environment)

    def command(self) -> list[str]:
        return [sys.executable, "-m", "magnetar.cli.entry", *self._arguments, "--ready-file", str(self._ready)]


class Cluster:
    """Some bookies and brokers over metadata of their own, or over the one that a URL names."""

    def __init__(
        self,
        directory: Path,
        *,
        bookies: int = 3,
        metadata: str | None = None,
        environment: dict[str, str] | None = None,
        broker: bool = True,
        brokers: int = 1,
        metadata_host: str = "127.0.0.1",
    ) -> None:
        self._directory = directory
        self._environment = environment or {}
        self.metadata: RoleProcess | None = None
        self.metadata_url = metadata or f"remote:{metadata_host}:{free_port()}"
        if metadata is None:
            port = self.metadata_url.rpartition(":")[2]
            self.metadata = RoleProcess("metadata", directory / "metadata", "metadata", "serve", "--port", port)
        self.bookies = [self._role(directory, f"bookie-{i}", "bookie") for i in range(bookies)]
        self.broker = self._role(directory, "broker", "broker") if broker else None
        others = [self._role(directory, f"broker-{i}", "broker") for i in range(1, brokers)]
        self.brokers = [self.broker, *others] if self.broker is not None else []
        self.service_url = ""
        # What a test starts beside them; ends with the cluster.
        self.others: list[RoleProcess] = []

    def _role(self, directory: Path, name: str, verb: str, *arguments: str) -> RoleProcess:
        ports = ["--port", str(free_port()), "--http-port", str(free_port())]
        words = [verb, "--metadata", self.metadata_url, *ports, *arguments]
        return RoleProcess(name, directory / name, *words, environment=self._environment)

    def add_bookie(self, name: str, *arguments: str) -> RoleProcess:
        """One more, on a directory of its own; not started yet."""
        role = self._role(self._directory, name, "bookie", *arguments)
        self.bookies.append(role)
        return role

    def processes(self) -> list[RoleProcess]:
        return [role for role in (*self.others, *self.brokers, *self.bookies, self.metadata) if role is not None]

    def start(self) -> None:
        if self.metadata is not None:
            self.metadata.start()
        for bookie in self.bookies:
            bookie.launch()
        for bookie in self.bookies:
            bookie.until_ready()
        if self.broker is not None:
            for role in self.brokers:
                role.launch()
            urls = [role.until_ready()["serviceUrl"] for role in self.brokers]
            self.service_url = "pulsar://" + ",".join(url.removeprefix("pulsar://") for url in urls)

    def __enter__(self) -> Self:
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
        for role in self.processes():
            if role.is_running:
                role.kill()
