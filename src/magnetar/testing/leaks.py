# SPDX-License-Identifier: Apache-2.0
"""What a test leaves behind on its loop: tasks of Magnetar that run on after their owners were closed.

Carries.
"""

import asyncio
from pathlib import Path
from typing import ClassVar, Final
from weakref import WeakKeyDictionary

PACKAGE: Final = str(Path(__file__).resolve().parent.parent)


class TaskCensus:
    """Of one loop, shared by all brokers that run on it: the last one to leave looks back."""

    _present: ClassVar["WeakKeyDictionary[asyncio.AbstractEventLoop, TaskCensus]"] = WeakKeyDictionary()

    def __init__(self) -> None:
        # What was there at the beginning is nobody's leak.
        self._before = asyncio.all_tasks()
        self._brokers = 0

    @classmethod
    def enter(cls) -> "TaskCensus":
        loop = asyncio.get_running_loop()
        census = cls._present.get(loop)
        if census is None:
            census = cls._present[loop] = cls()
        census._brokers += 1
        return census

    def leave(self) -> list[str]:
        """Names of newer tasks whose coroutine is Magnetar's own; none while another broker runs."""
        self._brokers -= 1
        if self._brokers:
            return []
        self._present.pop(asyncio.get_running_loop(), None)
        current = asyncio.current_task()
        newer = [task for task in asyncio.all_tasks() if task not in self._before and task is not current]
        return sorted(task.get_name() for task in newer if _is_ours(task))


def _is_ours(task: "asyncio.Task[object]") -> bool:
    code = getattr(task.get_coro(), "cr_code", None)
    return code is not None and code.co_filename.startswith(PACKAGE)
