# SPDX-License-Identifier: Apache-2.0
"""One real etcd server per test run, started when first asked for and stopped with the run.

Where it cannot be had, the test that asked is skipped with the reason; under CI=true it fails.
"""

import atexit
import os
import shutil
import signal
import ssl
import subprocess
import tempfile
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import httpx
import pytest

from tests.processes import free_port
from tools.etcd import command
from tools.zookeeper import Missing

START_LIMIT_S = 60.0


class EtcdServer:
    """A server of its own on one port, which can be stopped and started again on its data."""

    def __init__(self, tls: Sequence[str] = (), context: ssl.SSLContext | None = None) -> None:
        """With flags for TLS it is asked how it is by the context."""
        self._tls = tls
        self._context = context
        self.directory = Path(tempfile.mkdtemp(prefix="etcd-"))
        self.port = free_port()
        self._peer_port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self.url = f"http{'s' if tls else ''}://127.0.0.1:{self.port}"

    def start(self) -> None:
        line = command(self.port, self._peer_port, self.directory, self._tls)
        with (self.directory / "log").open("ab") as log:
            self._process = subprocess.Popen(line, stdout=log, stderr=subprocess.STDOUT)
        until = time.monotonic() + START_LIMIT_S
        while not self._answers():
            assert self._process.poll() is None, f"etcd ended: {self._log()}"
            assert time.monotonic() < until, f"etcd does not answer: {self._log()}"
            time.sleep(0.05)

    def signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def remove(self) -> None:
        self.kill()
        shutil.rmtree(self.directory, ignore_errors=True)

    def _answers(self) -> bool:
        try:
            answer = httpx.get(f"{self.url}/health", timeout=1, verify=self._context or True)
            return bool(answer.json()["health"] == "true")
        except (httpx.HTTPError, ValueError, KeyError):
            return False

    def _log(self) -> str:
        return (self.directory / "log").read_text(errors="replace")[-2000:]


def etcd_server() -> str:
    """Base URL of the running server."""
    server = _started()
    if isinstance(server, str):
        if os.environ.get("CI") == "true":
            pytest.fail(f"etcd cannot be tested here: {server}")
        pytest.skip(f"NOT TESTED ON ETCD: {server}")
    return server.url


@cache
def _started() -> "EtcdServer | str":
    server = EtcdServer()
    try:
        server.start()
    except Missing as error:
        server.remove()
        return str(error)
    atexit.register(server.remove)
    return server
