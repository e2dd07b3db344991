# SPDX-License-Identifier: Apache-2.0
"""Notices that this process stood still, and asks the metadata store whether its session still lives.

While a process is stopped or starved, its session may end and another broker may take its bundles. So after every
stall no client is listened to until the store has answered: an answer means that the session lives, and if it does
not, the store says so, which ends every claim. A store that is away says nothing, and what is held is served on.
Carries.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from magnetar.errors import MetadataError
from magnetar.metadata.store import MetadataStore

# How often a session's length the loop is looked at, and what share of it a pause must be to count.
_LOOKS: Final = 10
_STALL_SHARE: Final = 0.3
_ASK_S: Final = 0.25

_log = logging.getLogger(__name__)


class StallWatch:
    def __init__(self, store: MetadataStore, path: str, session_timeout_ms: int, hold: Callable[[float], None]) -> None:
        """`path` is any record to ask for; `hold` stops listening to clients for so many seconds."""
        self._store = store
        self._path = path
        self._interval_s = session_timeout_ms / 1000 / _LOOKS
        self._stall_s = session_timeout_ms / 1000 * _STALL_SHARE
        self._hold = hold
        self.stalls = 0

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            before_s = loop.time()
            await asyncio.sleep(self._interval_s)
            late_s = loop.time() - before_s - self._interval_s
            if late_s >= self._stall_s:
                await self.on_stall(late_s)

    async def on_stall(self, late_s: float) -> None:
        """Ask until there is an answer, of whatever kind."""
        self.stalls += 1
        _log.warning("this process stood still for %.1f s; its session is checked", late_s)
        while True:
            self._hold(_ASK_S)
            try:
                async with asyncio.timeout(_ASK_S):
                    await self._store.get(self._path)
            except TimeoutError:
                continue
            except MetadataError as error:
                _log.warning("whether the session lives is not known: %s", error)
            return
