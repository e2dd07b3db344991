# SPDX-License-Identifier: Apache-2.0
"""A few threads for calls that block, and the promise that a call which began is waited for.

A task that is cancelled while it waits does not stop its call: the kernel goes on with it, so the descriptor it uses
must stay open. Whoever closes a descriptor waits here first. Carries.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

_T = TypeVar("_T")


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
