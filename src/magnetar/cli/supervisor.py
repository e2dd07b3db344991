# SPDX-License-Identifier: Apache-2.0
"""Keeps the workers of one machine running: starts each, starts it again when it dies, stops them all.

A worker holds the other end of a pipe and ends when that closes, so that none outlives its supervisor, however that
ended. A worker that dies again and again is started ever more slowly.
Carries.
"""

import asyncio
import json
import logging
import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from magnetar.cli.worker_plan import Worker
from magnetar.errors import CannotStart
from magnetar.runtime.loop import EXIT_CANNOT_START
from magnetar.runtime.tasks import Tasks

START_LIMIT_S: Final = 120.0
LOOK_INTERVAL_S: Final = 0.02
DELAY_S: Final = 0.1
DELAY_MAX_S: Final = 10.0
# A worker that has run for so long did not die of its start.
SETTLED_S: Final = 60.0
_PIPE: Final = asyncio.subprocess.PIPE
_NOTHING: Final = asyncio.subprocess.DEVNULL

_log = logging.getLogger(__name__)


class Supervisor:
    def __init__(self, tasks: Tasks, stop_limit_s: float) -> None:
        self._tasks = tasks
        self._stop_limit_s = stop_limit_s
        self._running: dict[str, asyncio.subprocess.Process] = {}
        self._is_stopping = False
        self._watching: list[asyncio.Task[None]] = []
        self.restarts = 0

    async def start(self, workers: Sequence[Worker]) -> None:
        """All of them, and wait until they serve. CannotStart when one says that it cannot."""
        for worker in workers:
            await self._launch(worker)
        async with asyncio.timeout(START_LIMIT_S):
            for worker in workers:
                await self._until_serving(worker)
        for worker in workers:
            self._watching.append(self._tasks.start(self._keep(worker), f"keep {worker.name}"))

    async def stop(self) -> None:
        """SIGTERM to all at once; those who do not end in time are killed."""
        self._is_stopping = True
        for running in self._running.values():
            _signal(running, signal.SIGTERM)
        try:
            async with asyncio.timeout(self._stop_limit_s):
                for running in list(self._running.values()):
                    await running.wait()
        except TimeoutError:
            for name, running in self._running.items():
                if running.returncode is None:
                    _log.error("%s does not stop by itself and is killed", name)
                    _signal(running, signal.SIGKILL)
                    await running.wait()
        for task in self._watching:
            task.cancel()

    async def _launch(self, worker: Worker) -> None:
        _prepare(worker)
        # A session of its own: Ctrl-C on the terminal is the supervisor's to hear.
        self._running[worker.name] = await asyncio.create_subprocess_exec(
            *worker.command, stdin=_PIPE, stdout=_NOTHING, env=dict(os.environ), start_new_session=True
        )

    async def _until_serving(self, worker: Worker) -> None:
        running = self._running[worker.name]
        while not _says_ready(worker, running.pid):
            if running.returncode == EXIT_CANNOT_START:
                raise CannotStart(f"{worker.name} cannot start, for the reason above")
            if running.returncode is not None:
                raise CannotStart(f"{worker.name} ended at its start with {running.returncode}; its log says why")
            await asyncio.sleep(LOOK_INTERVAL_S)

    async def _keep(self, worker: Worker) -> None:
        loop = asyncio.get_running_loop()
        delay_s, since = DELAY_S, loop.time()
        while not self._is_stopping:
            code = await self._running[worker.name].wait()
            if self._is_stopping:
                return
            if loop.time() - since > SETTLED_S:
                delay_s = DELAY_S
            _log.error("%s ended with %d; it is started again in %.1f s", worker.name, code, delay_s)
            await asyncio.sleep(delay_s)
            delay_s = min(2 * delay_s, DELAY_MAX_S)
            if self._is_stopping:
                return
            since = loop.time()
            self.restarts += 1
            await self._launch(worker)


def _prepare(worker: Worker) -> None:
    Path(worker.data_dir).mkdir(parents=True, exist_ok=True)
    Path(worker.ready_file).unlink(missing_ok=True)


def _signal(running: asyncio.subprocess.Process, number: signal.Signals) -> None:
    if running.returncode is None:
        try:
            running.send_signal(number)
        except ProcessLookupError:
            return


def _says_ready(worker: Worker, pid: int) -> bool:
    try:
        said = json.loads(Path(worker.ready_file).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(said, dict) and said.get("pid") == pid
