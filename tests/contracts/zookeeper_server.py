# SPDX-License-Identifier: Apache-2.0
"""One real ZooKeeper server per test run, started when first asked for and stopped with the run.

Where Java or the jars are missing, the test that asked is skipped with the reason; under CI=true it fails.
"""

import atexit
import os
import shutil
import socket
import subprocess
import tempfile
import time
from functools import cache
from pathlib import Path

import pytest

from tests.processes import free_port
from tools.zookeeper import Missing, command

START_LIMIT_S = 60.0


def zookeeper_server() -> str:
    """`host:port` of the running server."""
    address = _started()
    if address.startswith("missing: "):
        if os.environ.get("CI") == "true":
            pytest.fail(f"ZooKeeper cannot be tested here: {address}")
        pytest.skip(f"NOT TESTED ON ZOOKEEPER: {address}")
    return address


@cache
def _started() -> str:
    directory = Path(tempfile.mkdtemp(prefix="zookeeper-"))
    port = free_port()
    try:
        line = command(port, directory)
    except Missing as error:
        shutil.rmtree(directory, ignore_errors=True)
        return f"missing: {error}"
    with (directory / "log").open("wb") as log:
        server = subprocess.Popen(line, stdout=log, stderr=subprocess.STDOUT)
    atexit.register(_stop, server, directory)
    until = time.monotonic() + START_LIMIT_S
    while not _answers(port):
        assert server.poll() is None, f"ZooKeeper ended: {(directory / 'log').read_text()[-2000:]}"
        assert time.monotonic() < until, f"ZooKeeper does not answer: {(directory / 'log').read_text()[-2000:]}"
        time.sleep(0.05)
    return f"127.0.0.1:{port}"


def _answers(port: int) -> bool:
    """`srvr` is the one four-letter word that every server allows."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1.0) as connection:
            connection.sendall(b"srvr")
            return b"Mode:" in connection.recv(4096)
    except OSError:
        return False


def _stop(server: "subprocess.Popen[bytes]", directory: Path) -> None:
    server.kill()
    server.wait()
    shutil.rmtree(directory, ignore_errors=True)
