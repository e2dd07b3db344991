# SPDX-License-Identifier: Apache-2.0
"""A part of the metadata tree, read again after each change of it, after a lost session, and now and then in any case.

Owns when it is read. A missed watch costs at most the recheck interval; a store that is away is asked again, and what
was read last holds meanwhile. What is read, and what for, is the caller's.
Carries.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from magnetar.errors import MetadataError
from magnetar.metadata.store import Change, MetadataStore, SessionEvent

RECHECK_MS: Final = 60_000
RETRY_MS: Final = 1_000

_log = logging.getLogger(__name__)


class WatchedTree:
    """Watched from the start, so that a read after it misses nothing; `keep` reads, until it is cancelled."""

    __slots__ = ("_look", "_path", "_unwatch", "_unwatch_session", "_wake")

    def __init__(self, store: MetadataStore, path: str, look: Callable[[], Awaitable[None]]) -> None:
        self._path = path
        self._look = look
        self._wake = asyncio.Event()
        self._unwatch = store.watch(path, self._on_change)
        self._unwatch_session = store.watch_session(self._on_session)

    async def keep(self) -> None:
        wait_ms = RECHECK_MS
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_ms / 1000):
                    await self._wake.wait()
            self._wake.clear()
            wait_ms = RECHECK_MS
            try:
                await self._look()
            except MetadataError as error:
                _log.warning("%s cannot be read, what was read before holds: %s", self._path, error)
                wait_ms = RETRY_MS

    def close(self) -> None:
        self._unwatch()
        self._unwatch_session()

    def _on_change(self, change: Change) -> None:
        self._wake.set()

    def _on_session(self, event: SessionEvent) -> None:
        # What happened between two sessions is told to nobody.
        if event is SessionEvent.REESTABLISHED:
            self._wake.set()
