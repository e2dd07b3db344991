# SPDX-License-Identifier: Apache-2.0
"""Several bookies asked at once: answers in the order they come, each with its own deadline, the rest dropped at close.

An error that the family of errors knows is an answer too. Never decides when enough have answered.
Carries.
"""

import asyncio
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Generic, TypeVar

from magnetar.errors import BookieUnavailable, MagnetarError
from magnetar.runtime.tasks import Tasks

Key = TypeVar("Key")
Answer = TypeVar("Answer")


class Poll(Generic[Key, Answer]):
    """Used as a context: leaving it cancels what has not answered."""

    __slots__ = ("_answers", "_tasks", "_timeout_s", "_waiting")

    def __init__(self, tasks: Tasks, timeout_ms: int) -> None:
        self._tasks = tasks
        self._timeout_s = timeout_ms / 1000
        self._answers: asyncio.Queue[tuple[Key, asyncio.Task[Answer | MagnetarError]]] = asyncio.Queue()
        self._waiting: dict[Key, asyncio.Task[Answer | MagnetarError]] = {}

    def __enter__(self) -> "Poll[Key, Answer]":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for task in self._waiting.values():
            task.cancel()

    def ask(self, key: Key, question: Callable[[], Awaitable[Answer]], name: str) -> None:
        task = self._tasks.start(self._carry(question), name)
        self._waiting[key] = task
        task.add_done_callback(lambda done: self._answers.put_nowait((key, done)))

    @property
    def is_waiting(self) -> bool:
        return bool(self._waiting)

    async def next(self) -> tuple[Key, Answer | MagnetarError]:
        """The next answer. Whoever asked must still be waited for."""
        assert self._waiting, "nobody is asked"
        key, task = await self._answers.get()
        del self._waiting[key]
        return key, task.result()

    async def next_within(self, timeout_ms: float) -> tuple[Key, Answer | MagnetarError] | None:
        """The next answer, or None when none comes in time."""
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                return await self.next()
        except TimeoutError:
            return None

    async def _carry(self, question: Callable[[], Awaitable[Answer]]) -> Answer | MagnetarError:
        try:
            async with asyncio.timeout(self._timeout_s):
                return await question()
        except TimeoutError:
            return BookieUnavailable(f"No answer came within {self._timeout_s} s.")
        except MagnetarError as error:
            return error
