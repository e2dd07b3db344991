# SPDX-License-Identifier: Apache-2.0
"""A few threads for calls that block, and the promise that a call which began is waited for.

A task that is cancelled while it waits does not stop its call: the kernel goes on with it, so the descriptor it uses
must stay open. Whoever closes a descriptor waits here first. What may be left behind for good has a thread of its own.
Carries.
"""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

_T = TypeVar("_T")


async def run_apart(call: Callable[[], None], *, name: str, limit_s: float) -> bool:
    """Run a call on a thread that the end of the process does not wait for; whether it ended in time."""
    loop, ended = asyncio.get_running_loop(), asyncio.Event()

    def run() -> None:
        try:
            call()
        finally:
            if not loop.is_closed():
                loop.call_soon_threadsafe(ended.set)

    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    try:
        async with asyncio.timeout(limit_s):
            await ended.wait()
    except TimeoutError:
        return False
    thread.join()
    return True


class CallsUnderWay:
    """The calls of one owner (a file, a disk) that have begun and not ended, in order."""

    __slots__ = ("_futures",)

    def __init__(self) -> None:
        self._futures: dict[asyncio.Future[Any], None] = {}

    def add(self, future: asyncio.Future[Any]) -> None:
        self._futures[future] = None
        future.add_done_callback(self._futures.pop)

    async def ended(self) -> None:
        while self._futures:
            await asyncio.wait(list(self._futures))


class BlockingCalls:
    def __init__(self, threads: int, *, name: str) -> None:
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._under_way = CallsUnderWay()

    def start(self, call: Callable[..., _T], *args: Any) -> asyncio.Future[_T]:
        future = asyncio.get_running_loop().run_in_executor(self._executor, call, *args)
        self._under_way.add(future)
        return future

    async def run(self, call: Callable[..., _T], *args: Any) -> _T:
        return await asyncio.shield(self.start(call, *args))

    async def close(self) -> None:
        await self._under_way.ended()
        self._executor.shutdown()
