# SPDX-License-Identifier: Apache-2.0
"""Supervised tasks: every background coroutine has an owner, a name and someone who learns of its death.

Owns the strong references to running tasks and the only call to `create_task` in Magnetar. A coroutine that ends with
an error has crashed: that is logged with owner and name, and told once to the owner, who goes down with it. Never
restarts a task, never swallows an error, never lets the number of tasks grow without bound.
Carries.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

from magnetar.errors import OwnerClosed, TooManyRequests

TASKS_MAX: Final = 10_000
# A task that is still there so long after its cancellation is named in the log and cancelled again.
CLOSE_PATIENCE_S: Final = 10.0

Result = TypeVar("Result")

_log = logging.getLogger(__name__)


class Tasks:
    """The tasks of one owner. Closing it ends them all; an owner closes its tasks before its resources."""

    __slots__ = ("_closed", "_on_crash", "_running", "_tasks_max", "owner")

    def __init__(
        self,
        owner: str,
        on_crash: Callable[[str, BaseException], None],
        *,
        tasks_max: int = TASKS_MAX,
    ) -> None:
        self.owner = owner
        self._on_crash = on_crash
        self._tasks_max = tasks_max
        self._closed = False
        # A dict keeps the order of starting; cancelling in that order keeps simulations repeatable.
        self._running: dict[asyncio.Task[Any], None] = {}

    def start(self, coroutine: Coroutine[Any, Any, Result], name: str) -> asyncio.Task[Result]:
        """Run a coroutine in the background. OwnerClosed after close, TooManyRequests when the group is full."""
        if self._closed or len(self._running) >= self._tasks_max:
            coroutine.close()
            if self._closed:
                raise OwnerClosed(f"{self.owner} is closed: {name} was not started")
            raise TooManyRequests(f"{self.owner} runs {self._tasks_max} tasks already: {name} was not started")
        task = asyncio.get_running_loop().create_task(coroutine, name=f"{self.owner}/{name}")
        self._running[task] = None
        task.add_done_callback(self._on_done)
        return task

    @property
    def is_closed(self) -> bool:
        return self._closed

    def __len__(self) -> int:
        return len(self._running)

    def names(self) -> list[str]:
        """Names of the running tasks, oldest first."""
        return [task.get_name() for task in self._running]

    async def close(self) -> None:
        """Cancel every task and wait until all have ended. A task of the group may call it: it is left to return."""
        self._closed = True
        caller = asyncio.current_task()
        while waiting := [task for task in self._running if task is not caller]:
            for task in waiting:
                task.cancel()
            _, stuck = await asyncio.wait(waiting, timeout=CLOSE_PATIENCE_S)
            if stuck:
                names = [task.get_name() for task in waiting if task in stuck]
                _log.warning("tasks do not end when cancelled: %s", ", ".join(names), extra={"owner": self.owner})

    def _on_done(self, task: asyncio.Task[Any]) -> None:
        del self._running[task]
        if task.cancelled():
            return
        error = task.exception()
        if error is None:
            return
        _log.error("task %s crashed", task.get_name(), exc_info=error, extra={"owner": self.owner})
        self._on_crash(task.get_name(), error)
