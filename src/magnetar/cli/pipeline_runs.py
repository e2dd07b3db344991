# SPDX-License-Identifier: Apache-2.0
"""Pipelines that run on this machine: which, how far, and how to end them.

Each has a directory under $XDG_STATE_HOME/magnetar/pipelines with its last state and, if it was submitted, its log. A
process is known by its number and the moment it started.
Carries.
"""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from magnetar.cli import exits
from magnetar.cli.cluster_members import incarnation_of
from magnetar.cli.exits import Failure
from magnetar.cli.http import HttpApi
from magnetar.cli.sql import state_directory

RUNS_MAX: Final = 1_000
STOP_LIMIT_S: Final = 120.0
_LOOK_INTERVAL_S: Final = 0.1
_LOG_LINES: Final = 20


def runs_directory() -> Path:
    return state_directory() / "pipelines"


class PipelineDirectory:
    """Of one pipeline by name."""

    def __init__(self, name: str) -> None:
        if not re.fullmatch(r"[\w.-]{1,100}", name):
            raise Failure(f"{name!r} is no name of a pipeline", exits.WRONG_USE)
        self.name = name
        self.path = runs_directory() / name
        self.log = self.path / "log"
        self._state = self.path / "state.json"

    def keep(self, state: dict[str, Any]) -> None:
        """Old or new, never between."""
        self.path.mkdir(parents=True, exist_ok=True)
        written = {"name": self.name, "pid": os.getpid(), "incarnation": incarnation_of(os.getpid()), **state}
        partial = self._state.with_suffix(".partial")
        partial.write_text(json.dumps(written, indent=1), encoding="utf-8")
        partial.replace(self._state)

    def state(self) -> dict[str, Any]:
        """What it said last; `state` is "gone" where its process ended without saying so."""
        try:
            found: dict[str, Any] = json.loads(self._state.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError):
            raise Failure(f"No pipeline {self.name} has run here", exits.NOT_FOUND) from None
        if found.get("state") in ("starting", "running") and not self.is_running(found):
            found["state"] = "gone"
        return found

    @staticmethod
    def is_running(state: dict[str, Any]) -> bool:
        pid = int(state.get("pid") or 0)
        return bool(pid) and incarnation_of(pid) == state.get("incarnation") != ""

    def check_free(self) -> None:
        """Two drivers on one checkpoint would fence each other."""
        try:
            found = self.state()
        except Failure:
            return
        if found["pid"] != os.getpid() and self.is_running(found):
            raise Failure(f"The pipeline {self.name} runs already, as process {found['pid']}")

    def submit(self, words: Sequence[str]) -> int:
        """Start it in the background; returns its process number."""
        self.path.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "magnetar.cli.entry", "pipeline", "run", *words]
        with self.log.open("ab") as log:
            started = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        state = {"state": "starting", "pid": started.pid, "incarnation": incarnation_of(started.pid), "queries": []}
        self.keep(state)
        return started.pid

    def stop(self, api: HttpApi) -> None:
        """SIGTERM, and wait until its queries have ended."""
        found = self.state()
        if not self.is_running(found):
            raise Failure(f"The pipeline {self.name} does not run")
        os.kill(found["pid"], signal.SIGTERM)
        until_ms = api.now_ms() + STOP_LIMIT_S * 1000
        while self.is_running(found):
            if api.now_ms() > until_ms:
                raise Failure(f"The pipeline {self.name} still runs after {STOP_LIMIT_S:g} s; its log is {self.log}")
            api.pause(_LOOK_INTERVAL_S)

    def log_tail(self) -> str:
        try:
            return "\n".join(self.log.read_text(encoding="utf-8", errors="replace").splitlines()[-_LOG_LINES:])
        except OSError:
            return ""


def all_states() -> list[dict[str, Any]]:
    """Of every pipeline that has run here, by name."""
    root = runs_directory()
    names = sorted(one.name for one in root.iterdir() if one.is_dir())[:RUNS_MAX] if root.is_dir() else []
    found = []
    for name in names:
        try:
            found.append(PipelineDirectory(name).state())
        except Failure:
            continue
    return found
