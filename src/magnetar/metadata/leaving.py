# SPDX-License-Identifier: Apache-2.0
"""A metadata store in a process that may be leaving: once it is, nobody waits for a store that is away or silent.

Passes everything on as it is until `leave` is called. From then on a request fails as soon as the store has been away
for a moment, or has left a request without an answer for a while although it is connected, instead of after the
patience that a serving process has: what it would have deleted goes with the session, and what it would have closed is
recovered by the next owner. Never changes an answer.
Carries.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

from magnetar.errors import MetadataError, OutcomeUnknown, StoreGivenUp
from magnetar.metadata.store import Change, MetadataStore, Record, SessionEvent, Stored

# A server that restarts, or another one of an ensemble, is found again within it.
PATIENCE_S: Final = 3.0
# How long one request may take while the connection stands: a server that stands still keeps it standing.
SILENCE_S: Final = 5.0

_NO_ANSWER: Final = "the metadata store does not answer"

Result = TypeVar("Result")


class LeavingStore(MetadataStore):
    """Owns the store behind it: closing it closes that one."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store
        self._loop = asyncio.get_running_loop()
        self._is_leaving = False
        self._away_since_s: float | None = None
        self._giving_up: asyncio.TimerHandle | None = None
        self._has_given_up = False
        self._under_way: dict[asyncio.Timeout, None] = {}
        store.watch_session(self._on_session)

    def leave(self) -> None:
        """The process stops: from now on it does not wait for a store that is away or silent."""
        self._is_leaving = True
        for limit in self._under_way:
            limit.reschedule(self._loop.time() + SILENCE_S)
        self._plan()

    async def get(self, path: str) -> Record | None:
        return await self._asked(self._store.get(path), path, MetadataError)

    async def put(
        self,
        path: str,
        value: bytes,
        *,
        expected_version: int | None = None,
        ephemeral: bool = False,
        sequential: bool = False,
    ) -> Stored:
        putting = self._store.put(
            path, value, expected_version=expected_version, ephemeral=ephemeral, sequential=sequential
        )
        return await self._asked(putting, path, OutcomeUnknown)

    async def delete(self, path: str, *, expected_version: int | None = None) -> None:
        await self._asked(self._store.delete(path, expected_version=expected_version), path, OutcomeUnknown)

    async def children(self, path: str) -> list[str]:
        return await self._asked(self._store.children(path), path, MetadataError)

    def watch(self, prefix: str, listener: Callable[[Change], None]) -> Callable[[], None]:
        return self._store.watch(prefix, listener)

    def watch_session(self, listener: Callable[[SessionEvent], None]) -> Callable[[], None]:
        return self._store.watch_session(listener)

    async def close(self) -> None:
        if self._giving_up is not None:
            self._giving_up.cancel()
        await self._store.close()

    # --- private ------------------------------------------------------------------------------

    def _on_session(self, event: SessionEvent) -> None:
        if event in (SessionEvent.RECONNECTED, SessionEvent.REESTABLISHED):
            self._away_since_s = None
        elif self._away_since_s is None:
            self._away_since_s = self._loop.time()
        self._plan()

    def _plan(self) -> None:
        """Give up when the store has been away for long enough, and not before."""
        if self._giving_up is not None:
            self._giving_up.cancel()
        self._has_given_up = False
        if self._is_leaving and self._away_since_s is not None:
            self._giving_up = self._loop.call_at(self._away_since_s + PATIENCE_S, self._give_up)

    def _give_up(self) -> None:
        self._has_given_up = True
        now_s = self._loop.time()
        for limit in self._under_way:
            # Those that are due end by themselves.
            if (due_s := limit.when()) is None or due_s > now_s:
                limit.reschedule(now_s)

    async def _asked(self, request: Coroutine[Any, Any, Result], path: str, unanswered: type[MetadataError]) -> Result:
        if self._has_given_up:
            request.close()
            raise StoreGivenUp(f"{path} was not asked for: this process is stopping and {_NO_ANSWER}")
        limit = asyncio.timeout(SILENCE_S if self._is_leaving else None)
        self._under_way[limit] = None
        try:
            async with limit:
                return await request
        except TimeoutError as error:
            if not limit.expired():
                raise
            self._give_up()
            raise unanswered(f"No answer about {path}: this process is stopping and {_NO_ANSWER}") from error
        finally:
            del self._under_way[limit]
