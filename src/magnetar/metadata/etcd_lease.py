# SPDX-License-Identifier: Apache-2.0
"""The session on etcd: a lease that is kept alive, found to be lost, and replaced.

The lease is taken for lost as soon as it may have run out by this process's own clock, before etcd could say so: a
process that was stopped for too long learns it at its first step. A lost lease is revoked before another is asked for,
so that what it held is gone when the new session begins.
Carries.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Final

from magnetar.config.metadata import MetadataSettings
from magnetar.errors import MetadataError
from magnetar.metadata.etcd_client import EtcdClient
from magnetar.metadata.store import GOODBYE_S, SessionEvent

# Part of the lease after which it is renewed.
RENEW_PART: Final = 1 / 4
NONE: Final = 0

_log = logging.getLogger(__name__)


class EtcdLease:
    def __init__(
        self, client: EtcdClient, settings: MetadataSettings, on_event: Callable[[SessionEvent], None]
    ) -> None:
        self._client = client
        self._on_event = on_event
        self._loop = asyncio.get_running_loop()
        self._ttl_s = max(1, -(-settings.session_timeout_ms // 1000))
        self._delay_s = settings.reconnect_delay_min_ms / 1000
        self._delay_max_s = settings.reconnect_delay_max_ms / 1000
        self._good_until_s = 0.0
        self._connected = True
        self._doubted = asyncio.Event()
        self.number = NONE
        self._stale = NONE

    @property
    def is_lost(self) -> bool:
        """Also true when the lease may have run out and nobody has said so yet."""
        if self.number != NONE and self._loop.time() >= self._good_until_s:
            self._lose()
        return self.number == NONE

    async def grant(self) -> None:
        asked_s = self._loop.time()
        answer = await self._client.call_lease("grant", {"TTL": str(self._ttl_s)})
        self.number = int(answer["ID"])
        self._good_until_s = asked_s + int(answer["TTL"])

    async def keep(self) -> None:
        """Runs as long as the session is wanted."""
        while True:
            if self.is_lost:
                await self._replace()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._ttl_s * RENEW_PART if self._connected else self._delay_s):
                    await self._doubted.wait()
            self._doubted.clear()
            if not self.is_lost:
                await self._renew()

    def doubt(self) -> None:
        """A request went unanswered, or the lease was said to be unknown: look at once."""
        self._doubted.set()

    async def revoke(self) -> None:
        """End the session; its records go."""
        number, self.number = self.number, NONE
        if number != NONE:
            with contextlib.suppress(MetadataError):
                await self._client.call_lease("revoke", {"ID": str(number)}, GOODBYE_S)

    async def _renew(self) -> None:
        asked_s, number = self._loop.time(), self.number
        try:
            patience_s = max(0.1, self._good_until_s - asked_s)
            answer = await self._client.call_lease("keepalive", {"ID": str(number)}, patience_s)
        except MetadataError as error:
            self._miss(error)
            return
        left_s = int(answer.get("result", {}).get("TTL", 0))
        if self.number != number:
            return
        if left_s <= 0:
            self._lose()
            return
        self._good_until_s = asked_s + left_s
        if not self._connected:
            self._connected = True
            self._on_event(SessionEvent.RECONNECTED)

    def _miss(self, error: MetadataError) -> None:
        if self._connected:
            _log.warning("etcd does not answer: %s", error)
            self._connected = False
            self._on_event(SessionEvent.DISCONNECTED)

    def _lose(self) -> None:
        self._stale, self.number = self.number, NONE
        self._on_event(SessionEvent.LOST)
        self.doubt()

    async def _replace(self) -> None:
        delay_s = self._delay_s
        while self.number == NONE:
            try:
                if self._stale != NONE:
                    await self._end_stale()
                await self.grant()
            except MetadataError:
                await asyncio.sleep(delay_s)
                delay_s = min(2 * delay_s, self._delay_max_s)
        self._connected = True
        self._on_event(SessionEvent.REESTABLISHED)

    async def _end_stale(self) -> None:
        """What the lost session held must be gone before the new one begins."""
        body = {"ID": str(self._stale)}
        found = await self._client.call_lease("timetolive", body)
        if int(found.get("TTL", -1)) > 0:
            await self._client.call_lease("revoke", body)
        self._stale = NONE
