# SPDX-License-Identifier: Apache-2.0
"""The processes of a cluster on one machine: started in the background, found again by later commands, ended.

A process is known by its number and the moment it started, so that a number that was given to somebody else is never
signalled. Each member has a directory with its data, its log and the file that it writes once it serves.
Carries.
"""

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

from magnetar.cli import cluster_plan
from magnetar.cli.cluster_plan import Member, Plan
from magnetar.errors import BadSetting, CannotStart, DataDirectoryInUse
from magnetar.runtime.real_disk import RealDisk

STATE_FILE: Final = "cluster.json"
LOCK_FILE: Final = "cluster.lock"
START_LIMIT_S: Final = 120.0
STOP_LIMIT_S: Final = 90.0
LOOK_INTERVAL_S: Final = 0.02
LOG_TAIL_BYTES: Final = 4_096


class ClusterDirectory:
    """A data directory with a cluster in it. Whoever changes it holds `locked`."""

    def __init__(self, path: str) -> None:
        self.path = Path(path).absolute()

    @contextlib.asynccontextmanager
    async def locked(self) -> AsyncIterator[None]:
        """One command at a time changes the cluster."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise BadSetting(f"No cluster can be kept in {self.path}: {error.strerror}") from error
        disk = RealDisk(str(self.path))
        try:
            try:
                lock = await disk.lock(LOCK_FILE)
            except DataDirectoryInUse as error:
                raise CannotStart(
                    f"Another `magnetar cluster` command is at work in {self.path}; wait for it"
                ) from error
            try:
                yield
            finally:
                await lock.release()
        finally:
            await disk.close()

    def is_foreign(self) -> bool:
        """Whether somebody else keeps something there."""
        ours = (self.path / LOCK_FILE).exists()
        return not ours and self.path.is_dir() and any(self.path.iterdir())

    def plan(self) -> Plan | None:
        file = self.path / STATE_FILE
        return cluster_plan.decode(file.read_text(encoding="utf-8"), str(file)) if file.exists() else None

    def keep(self, plan: Plan) -> None:
        partial = self.path / f"{STATE_FILE}.partial"
        partial.write_text(cluster_plan.encode(plan), encoding="utf-8")
        partial.replace(self.path / STATE_FILE)

    def log_of(self, member: Member) -> Path:
        return self.path / member.name / "log"

    def ready_file_of(self, member: Member) -> Path:
        return self.path / member.name / "ready.json"

    def launch(self, plan: Plan, member: Member) -> Member:
        """Start a process that outlives this command; returns the member as it is now."""
        directory = self.path / member.name
        directory.mkdir(parents=True, exist_ok=True)
        ready = self.ready_file_of(member)
        ready.unlink(missing_ok=True)
        line = [sys.executable, "-m", "magnetar.cli.entry"]
        line += cluster_plan.words(plan, member, str(directory / "data"), str(ready))
        with self.log_of(member).open("ab") as log:
            process = subprocess.Popen(
                line,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **cluster_plan.environment(plan, member)},
                start_new_session=True,
            )
        # Looked at by number and moment from here on; an unclaimed child would make Python complain.
        process.returncode = 0
        return replace(member, pid=process.pid, incarnation=incarnation_of(process.pid))

    async def until_serving(self, member: Member) -> None:
        """CannotStart with the end of its log when it ends, or takes too long."""
        ready = self.ready_file_of(member)
        try:
            async with asyncio.timeout(START_LIMIT_S):
                while not _says_ready(ready, member.pid):
                    if not is_running(member):
                        raise CannotStart(f"{member.name} ended at its start:\n{self.log_tail(member)}")
                    await asyncio.sleep(LOOK_INTERVAL_S)
        except TimeoutError:
            text = f"{member.name} does not serve after {START_LIMIT_S:g} s:\n{self.log_tail(member)}"
            raise CannotStart(text) from None

    def state_of(self, member: Member) -> str:
        if not member.pid:
            return "never started"
        if not is_running(member):
            return "stopped"
        if is_paused(member.pid):
            return "paused"
        return "serving" if _says_ready(self.ready_file_of(member), member.pid) else "starting"

    def log_tail(self, member: Member, lines: int = 20) -> str:
        file = self.log_of(member)
        if not file.exists():
            return ""
        with file.open("rb") as log:
            log.seek(0, os.SEEK_END)
            log.seek(max(0, log.tell() - max(LOG_TAIL_BYTES, lines * 400)))
            text = log.read().decode(errors="replace")
        return "\n".join(text.splitlines()[-lines:])


async def end(member: Member, say: Callable[[str], object]) -> None:
    """SIGTERM and wait; SIGKILL when it does not end in time."""
    send(member, signal.SIGTERM)
    if not await _ended(member, STOP_LIMIT_S):
        say(f"{member.name} does not stop by itself and is killed")
        send(member, signal.SIGKILL)
        await _ended(member, STOP_LIMIT_S)


async def kill(member: Member) -> None:
    send(member, signal.SIGKILL)
    await _ended(member, STOP_LIMIT_S)


def send(member: Member, number: signal.Signals) -> bool:
    """Signal this very process; whether it was there."""
    if not is_running(member):
        return False
    try:
        os.kill(member.pid, number)
    except ProcessLookupError:
        return False
    return True


def is_running(member: Member) -> bool:
    return bool(member.pid) and incarnation_of(member.pid) == member.incarnation != ""


def is_paused(pid: int) -> bool:
    """Whether somebody stopped it by SIGSTOP: it is there and answers nothing."""
    return _state_and_start(pid)[0] == "T"


def incarnation_of(pid: int) -> str:
    """The moment when the process with this number started; empty when there is none."""
    _reap(pid)
    state, start = _state_and_start(pid)
    # A zombie has ended; only its parent has not looked yet.
    return "" if state in "ZX" else start


def _state_and_start(pid: int) -> tuple[str, str]:
    """The letter that the kernel gives a process, and its moment of start; both empty when there is none."""
    if Path("/proc/self/stat").exists():
        try:
            text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return "", ""
        fields = text.rpartition(")")[2].split()
        return fields[0], f"ticks {fields[19]}"
    asked = ["ps", "-o", "stat=,lstart=", "-p", str(pid)]
    said = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.split(maxsplit=1)
    return ("", "") if len(said) < 2 else (said[0][0], said[1].strip())


def free_ports() -> Callable[[], int]:
    """Gives a different free port at each call."""
    given: set[int] = set()

    def pick() -> int:
        while True:
            with socket.socket() as probe:
                probe.bind((cluster_plan.HOST, 0))
                port: int = probe.getsockname()[1]
            if port not in given:
                given.add(port)
                return port

    return pick


async def _ended(member: Member, limit_s: float) -> bool:
    try:
        async with asyncio.timeout(limit_s):
            while is_running(member):  # noqa: ASYNC110 - no event tells of a process that is not our child
                await asyncio.sleep(LOOK_INTERVAL_S)
    except TimeoutError:
        return False
    return True


def _says_ready(file: Path, pid: int) -> bool:
    try:
        said = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(said, dict) and said.get("pid") == pid


def _reap(pid: int) -> None:
    """Take the exit code of a child of this very command, if it is one."""
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)
