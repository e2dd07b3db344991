# SPDX-License-Identifier: Apache-2.0
"""A producer's or consumer's tie to the broker that serves its topic: found, attached, lost, found again.

Owns the search: look-up, connection, the owner's own `attach` (PRODUCER or SUBSCRIBE), and waiting between tries. The
first attachment must succeed within the operation time-out and fails at once where a retry cannot help; later ones
are tried for as long as the owner lives, except for an error that is final. Never knows what is sent over it.
Carries.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from magnetar.client.connection import Connection
from magnetar.client.core import Core
from magnetar.client.pool import Way
from magnetar.client.service_url import parse_address
from magnetar.errors import (
    AlreadyClosed,
    BadName,
    BadSetting,
    ConnectionLost,
    IncompatibleSchema,
    MagnetarError,
    ProducerFenced,
    TimedOut,
    TopicTerminated,
)
from magnetar.names import TopicName

FINAL: Final = (AlreadyClosed, BadName, BadSetting, IncompatibleSchema, ProducerFenced, TopicTerminated)
"""Errors after which an attached producer or consumer will never be attached again."""

_log = logging.getLogger(__name__)


class Link:
    """`connection` is None while there is none; `number` counts attachments, so that what belongs to an earlier one
    can be told apart."""

    __slots__ = (
        "_attach",
        "_backoff",
        "_closed",
        "_core",
        "_is_attached",
        "_on_failed",
        "_search",
        "_way",
        "connection",
        "number",
        "topic",
    )

    def __init__(
        self,
        core: Core,
        topic: TopicName,
        attach: Callable[[Connection], Awaitable[None]],
        on_failed: Callable[[MagnetarError], None],
    ) -> None:
        self.topic = topic
        self.connection: Connection | None = None
        self.number = 0
        self._core = core
        self._attach = attach
        self._on_failed = on_failed
        self._backoff = core.backoff()
        self._search: asyncio.Task[None] | None = None
        self._way: Way | None = None
        self._is_attached = asyncio.Event()
        self._closed = False

    async def open(self, timeout_s: float | None = None) -> None:
        """Attach for the first time. Raises the last error when time is up or trying again cannot help."""
        limit_s = self._core.settings.operation_timeout_seconds if timeout_s is None else timeout_s
        until = self._core.loop.time() + limit_s
        while True:
            try:
                await self._attach_once()
                return
            except MagnetarError as error:
                delay_s = self._backoff.next_s()
                if not error.retryable or self._core.loop.time() + delay_s >= until:
                    raise
                _log.debug("%s: %s; trying again in %.1f s", self.topic, error, delay_s)
            await asyncio.sleep(delay_s)

    async def _attach_once(self) -> None:
        way, self._way = self._way, None
        if way is None:
            way = await self._core.lookup.locate(self.topic)
        connection = await self._core.pool.connect(way)
        await self._attach(connection)
        if self._closed:
            raise AlreadyClosed(f"{self.topic}: closed while it was being attached")
        if not connection.is_open:
            raise TimedOut(f"{self.topic}: the connection broke while it was being attached")
        self.connection = connection
        self.number += 1
        self._is_attached.set()
        self._backoff.reset()

    async def attached(self) -> Connection:
        """The connection, once there is one. Raises ConnectionLost if that takes longer than an operation may."""
        if self.connection is None and not self._closed:
            limit_s = self._core.settings.operation_timeout_seconds
            try:
                async with asyncio.timeout(limit_s):
                    await self._is_attached.wait()
            except TimeoutError:
                raise ConnectionLost(f"{self.topic}: not connected for {limit_s:g} s") from None
        if self.connection is None:
            raise AlreadyClosed(f"{self.topic}: closed")
        return self.connection

    def lost(self, connection: Connection, reason: object, assigned_url: str = "") -> None:
        """The attachment over this connection is gone: search again. Another's loss changes nothing."""
        if self._closed or self.connection is not connection:
            return
        self.connection = None
        self._is_attached.clear()
        _log.info("%s: detached from %s (%s); attaching again", self.topic, connection.name, reason)
        if assigned_url:
            try:
                self._way = Way(parse_address(assigned_url))
            except BadSetting:
                self._way = None
        if self._search is None:
            self._search = self._core.tasks.start(self._reattach(), f"attach {self.topic}")

    async def _reattach(self) -> None:
        try:
            while not self._closed and self.connection is None:
                try:
                    await self._attach_once()
                except FINAL as error:
                    self._fail(error)
                    return
                except MagnetarError as error:
                    delay_s = self._backoff.next_s()
                    _log.info("%s: %s; trying again in %.1f s", self.topic, error, delay_s)
                    await asyncio.sleep(delay_s)
        finally:
            self._search = None

    def _fail(self, error: MagnetarError) -> None:
        if not self._closed:
            self._closed = True
            self._is_attached.set()
            self._on_failed(error)

    def close(self) -> Connection | None:
        """Search no more. Returns the connection that the owner is still attached to."""
        self._closed = True
        self._is_attached.set()
        if self._search is not None:
            self._search.cancel()
        connection, self.connection = self.connection, None
        return connection
