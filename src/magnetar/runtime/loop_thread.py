# SPDX-License-Identifier: Apache-2.0
"""An event loop in a thread of its own, for callers that block.

Owns the thread and the loop. A caller's coroutine runs there while the caller waits; an interrupted caller cancels it.
After a fork the thread exists in the parent only, and the child is told so instead of waiting for ever.
Carries.
"""

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from magnetar.errors import AlreadyClosed
from magnetar.runtime.tasks import Tasks

Result = TypeVar("Result")


class LoopThread:
    """Running when it is made, until `close`."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._pid = os.getpid()
        self._closed = False
        self._tasks = Tasks(name, lambda *_: None)
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()

    @property
    def is_here(self) -> bool:
        """Whether this process is the one that has the thread."""
        return os.getpid() == self._pid

    @property
    def is_closed(self) -> bool:
        return self._closed

    @property
    def is_current(self) -> bool:
        """Whether the caller is the thread itself."""
        return threading.current_thread() is self._thread

    def start(self, coroutine: Coroutine[Any, Any, object]) -> None:
        """For callers on the thread itself: run in the background. An error is the coroutine's own to tell."""
        self._tasks.start(coroutine, "background")

    def _check(self) -> None:
        if not self.is_here:
            raise AlreadyClosed("This client belongs to the parent process: make a new one after a fork")
        if self._closed:
            raise AlreadyClosed("The client is closed")
        if threading.current_thread() is self._thread:
            raise AlreadyClosed("A callback of a client cannot wait for that client: it would wait for itself")

    def run(self, coroutine: Coroutine[Any, Any, Result]) -> Result:
        """Run to the end and give its result."""
        try:
            self._check()
        except AlreadyClosed:
            coroutine.close()
            raise
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def call(self, function: Callable[[], Result]) -> Result:
        """Call a plain function on the loop and give its result."""
        if threading.current_thread() is self._thread:
            return function()

        async def once() -> Result:
            return function()

        return self.run(once())

    def soon(self, function: Callable[[], object]) -> None:
        """Call a plain function on the loop, and do not wait."""
        if not self.is_here or self._closed:
            raise AlreadyClosed("The client is closed, or belongs to the parent process")
        self._loop.call_soon_threadsafe(function)

    def close(self) -> None:
        """Stop the loop and end the thread; nothing in the child of a fork."""
        if self._closed or not self.is_here:
            return
        self._closed = True
        self._loop.call_soon_threadsafe(self._loop.stop)
        if threading.current_thread() is not self._thread:
            self._thread.join()
            self._loop.close()
