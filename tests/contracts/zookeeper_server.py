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
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest

from tests.processes import free_port
from tools.zookeeper import Missing, command, tls_lines

START_LIMIT_S = 60.0


def zookeeper_server() -> str:
    """`host:port` of the running server."""
    address = _started()
    if address.startswith("missing: "):
        if os.environ.get("CI") == "true":
            pytest.fail(f"ZooKeeper cannot be tested here: {address}")
        pytest.skip(f"NOT TESTED ON ZOOKEEPER: {address}")
    return address


@contextmanager
def zookeeper_with_tls(key_store: Path, trust_store: Path) -> Iterator[str]:
    """`host:port` of a server of its own that wants TLS there, and a certificate of the client."""
    port = free_port()
    with _of_its_own(free_port(), tls_lines(port, key_store, trust_store)):
        yield f"127.0.0.1:{port}"


@contextmanager
def zookeeper_with_long_sessions() -> Iterator[str]:
    """`host:port` of a server of its own that ends no session before Pulsar's programs would, however slow they are."""
    port = free_port()
    with _of_its_own(port, "maxSessionTimeout=30000\n"):
        yield f"127.0.0.1:{port}"


@contextmanager
def _of_its_own(port: int, settings: str) -> Iterator[None]:
    zookeeper_server()
    directory = Path(tempfile.mkdtemp(prefix="zookeeper-own-"))
    server = _start(command(port, directory, settings), port, directory)
    try:
        yield
    finally:
        _stop(server, directory)


@cache
def _started() -> str:
    directory = Path(tempfile.mkdtemp(prefix="zookeeper-"))
    port = free_port()
    try:
        line = command(port, directory)
    except Missing as error:
        shutil.rmtree(directory, ignore_errors=True)
        return f"missing: {error}"
    atexit.register(_stop, _start(line, port, directory), directory)
    return f"127.0.0.1:{port}"


def _start(line: list[str], port: int, directory: Path) -> "subprocess.Popen[bytes]":
    """A server that answers."""
    with (directory / "log").open("wb") as log:
        server = subprocess.Popen(line, stdout=log, stderr=subprocess.STDOUT)
    until = time.monotonic() + START_LIMIT_S
    while not _answers(port):
        assert server.poll() is None, f"ZooKeeper ended: {(directory / 'log').read_text()[-2000:]}"
        assert time.monotonic() < until, f"ZooKeeper does not answer: {(directory / 'log').read_text()[-2000:]}"
        time.sleep(0.05)
    return server


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
