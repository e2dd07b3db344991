# SPDX-License-Identifier: Apache-2.0
"""Commands at a terminal: the live table of `top`, and questions before what cannot be undone."""

import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

import httpx
import pulsar
import pytest

from tests.processes import StandaloneProcess

PATIENCE_S = 60.0
QUIET = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Terminal:
    """A command that believes it speaks to a person: 200 columns, 30 lines."""

    def __init__(self, standalone: StandaloneProcess, home: Path, *words: str) -> None:
        self._screen, far = pty.openpty()
        environment = {
            **os.environ,
            "MAGNETAR_ADMIN_URL": standalone.web_url,
            "MAGNETAR_SERVICE_URL": standalone.service_url,
            "MAGNETAR_CONTEXTS": str(home / "contexts.json"),
            "PULSAR_CLIENT_CONF": "",
            "TERM": "xterm-256color",
            "COLUMNS": "200",
            "LINES": "30",
        }
        command = [sys.executable, "-m", "magnetar.cli.entry", *words]
        self._process = subprocess.Popen(command, stdin=far, stdout=far, stderr=far, env=environment, close_fds=True)
        os.close(far)
        self.shown = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        os.close(self._screen)

    def until(self, pattern: str) -> str:
        """Wait until this was shown; what came up to its end is taken away."""
        until_s = time.monotonic() + PATIENCE_S
        while (found := re.search(pattern, self.shown, re.DOTALL)) is None:
            assert time.monotonic() < until_s, f"{pattern!r} is not shown:\n{self.shown[-2000:]}"
            assert self._read(), f"it ended without {pattern!r}:\n{self.shown[-2000:]}"
        taken, self.shown = self.shown[: found.end()], self.shown[found.end() :]
        return taken

    def type(self, text: str) -> None:
        os.write(self._screen, text.encode())

    def interrupt(self) -> None:
        self._process.send_signal(signal.SIGINT)

    def ended(self) -> int:
        while self._read():
            pass
        return self._process.wait(PATIENCE_S)

    def _read(self) -> bool:
        ready, _, _ = select.select([self._screen], [], [], 1.0)
        if not ready:
            return self._process.poll() is None
        try:
            data = os.read(self._screen, 65_536)
        except OSError:
            return False
        self.shown += ESCAPES.sub("", data.decode(errors="replace"))
        return bool(data)


@pytest.fixture(scope="module")
def standalone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneProcess]:
    with StandaloneProcess(tmp_path_factory.mktemp("terminal")) as process:
        yield process


@pytest.fixture(scope="module")
def http(standalone: StandaloneProcess) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=standalone.web_url, timeout=60) as client:
        yield client


@pytest.fixture
def behind(
    standalone: StandaloneProcess, http: httpx.Client, request: pytest.FixtureRequest
) -> Iterator[pulsar.Producer]:
    """A producer on a topic of its own whose subscription consumes nothing."""
    name = f"topic-{request.node.name.replace('[', '-').rstrip(']')}"
    assert http.put(f"/admin/v2/persistent/public/default/{name}/subscription/s").status_code == 204
    client = pulsar.Client(standalone.service_url, logger=QUIET)
    producer = client.create_producer(f"persistent://public/default/{name}")
    producer.send(b"1")
    yield producer
    client.close()


def backlog(http: httpx.Client, topic: str) -> int:
    path = topic.removeprefix("persistent://")
    found = http.get(f"/admin/v2/persistent/{path}/stats").json()["subscriptions"]["s"]["msgBacklog"]
    return int(found)


def test_top_goes_on_until_it_is_interrupted(
    standalone: StandaloneProcess, behind: pulsar.Producer, tmp_path: Path
) -> None:
    name = behind.topic().removeprefix("persistent://")
    with Terminal(standalone, tmp_path, "top", "--interval", "0.2") as top:
        # The backlog is the eighth column; it grows while we look.
        columns = r"\s+\S+" * 6
        top.until(re.escape(name) + columns + r"\s+1\s")
        behind.send(b"2")
        top.until(re.escape(name) + columns + r"\s+2\s")
        top.interrupt()
        assert top.ended() == 130
    assert "Traceback" not in top.shown


@pytest.mark.parametrize(("answer", "code", "left"), [("y", 0, 0), ("n", 2, 1), ("", 2, 1)])
def test_a_backlog_is_cleared_only_when_the_question_is_answered(
    standalone: StandaloneProcess,
    http: httpx.Client,
    behind: pulsar.Producer,
    tmp_path: Path,
    answer: str,
    code: int,
    left: int,
) -> None:
    with Terminal(standalone, tmp_path, "admin", "namespaces", "clear-backlog", "public/default", "-s", "s") as asked:
        asked.until(r"Clear the backlog of public/default\? \[y/N\]")
        asked.type(f"{answer}\n")
        assert asked.ended() == code, asked.shown
    assert backlog(http, behind.topic()) == left


def test_a_removal_is_applied_only_when_the_question_is_answered(
    standalone: StandaloneProcess, http: httpx.Client, tmp_path: Path
) -> None:
    assert http.put("/admin/v2/namespaces/public/pruned").status_code == 204
    assert http.put("/admin/v2/persistent/public/pruned/surplus").status_code == 204
    wanted = tmp_path / "cluster.yaml"
    wanted.write_text("namespaces: {public/pruned: {}}\n")
    for answer, left in (("n", ["persistent://public/pruned/surplus"]), ("y", [])):
        with Terminal(standalone, tmp_path, "apply", "-f", str(wanted), "--prune") as asked:
            asked.until(r"removals\? \[y/N\]")
            asked.type(f"{answer}\n")
            asked.ended()
        assert http.get("/admin/v2/persistent/public/pruned").json() == left, asked.shown


def test_consuming_without_a_durable_subscription_leaves_none_and_deletes_none(
    standalone: StandaloneProcess, http: httpx.Client, behind: pulsar.Producer, tmp_path: Path
) -> None:
    topic = behind.topic()
    words = ["client", "consume", topic, "-n", "1", "-m", "NonDurable", "-p", "Earliest", "-s"]
    with Terminal(standalone, tmp_path, *words, "passing") as passing:
        passing.until("content:1")
        assert passing.ended() == 0
    with Terminal(standalone, tmp_path, *words, "s") as refused:
        assert refused.ended() != 0
    path = topic.removeprefix("persistent://")
    assert http.get(f"/admin/v2/persistent/{path}/subscriptions").json() == ["s"]
    assert backlog(http, topic) == 1
