# SPDX-License-Identifier: Apache-2.0
"""A metadata session whose calls can fail before or after they are carried out, as a test decides.

Carries.
"""

import asyncio
from collections.abc import Callable

from magnetar.errors import MetadataError, OutcomeUnknown
from magnetar.metadata.store import Change, MetadataStore, Record, SessionEvent, Stored

# Given operation and path: None lets it pass; "refused" fails it; "lost" fails it with an unknown outcome, not carried
# out; "unanswered" carries it out and fails with an unknown outcome.
Fault = Callable[[str, str], str | None]


class FaultyStore(MetadataStore):
    def __init__(self, inner: MetadataStore, fault: Fault = lambda operation, path: None) -> None:
        self.inner = inner
        self.fault = fault
        self.calls: list[tuple[str, str]] = []
        self._called = asyncio.Event()

    def _before(self, operation: str, path: str) -> str | None:
        self.calls.append((operation, path))
        self._called.set()
        fault = self.fault(operation, path)
        if fault == "refused":
            raise MetadataError("the store is away")
        if fault == "lost":
            raise OutcomeUnknown("the connection broke")
        return fault

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(20):
            while not condition():
                self._called.clear()
                await self._called.wait()

    @staticmethod
    def _after(fault: str | None) -> None:
        if fault == "unanswered":
            raise OutcomeUnknown("the connection broke")

    async def get(self, path: str) -> Record | None:
        self._after(self._before("get", path))
        return await self.inner.get(path)

    async def put(
        self,
        path: str,
        value: bytes,
        *,
        expected_version: int | None = None,
        ephemeral: bool = False,
        sequential: bool = False,
    ) -> Stored:
        fault = self._before("put", path)
        stored = await self.inner.put(
            path, value, expected_version=expected_version, ephemeral=ephemeral, sequential=sequential
        )
        self._after(fault)
        return stored

    async def delete(self, path: str, *, expected_version: int | None = None) -> None:
        fault = self._before("delete", path)
        await self.inner.delete(path, expected_version=expected_version)
        self._after(fault)

    async def children(self, path: str) -> list[str]:
        self._after(self._before("children", path))
        return await self.inner.children(path)

    def watch(self, prefix: str, listener: Callable[[Change], None]) -> Callable[[], None]:
        return self.inner.watch(prefix, listener)

    def watch_session(self, listener: Callable[[SessionEvent], None]) -> Callable[[], None]:
        return self.inner.watch_session(listener)

    async def close(self) -> None:
        await self.inner.close()


class FaultOnce:
    """The n-th call of an operation on paths that begin with a prefix fails, once."""

    def __init__(self, operation: str, prefix: str, fault: str, nth: int = 1) -> None:
        self._operation = operation
        self._prefix = prefix
        self._fault = fault
        self._left = nth

    def __call__(self, operation: str, path: str) -> str | None:
        if operation == self._operation and path.startswith(self._prefix):
            self._left -= 1
            if self._left == 0:
                return self._fault
        return None
