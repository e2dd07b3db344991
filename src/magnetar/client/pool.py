# SPDX-License-Identifier: Apache-2.0
"""The connections of one client: one per broker, or as many as its settings say, shared by all who need that broker.

Opening is done once for all who wait for it; a waiter who is cancelled does not stop it. Through a proxy, the broker's
own address says which connection is meant, and the proxy's where the bytes go.
Carries.
"""

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from random import Random
from typing import NamedTuple, TypeAlias

from magnetar.client.authentication import Authentication
from magnetar.client.connection import Connection
from magnetar.client.service_url import Address
from magnetar.config.client import ClientSettings
from magnetar.errors import AlreadyClosed, ConnectionLost, MagnetarError, TimedOut
from magnetar.runtime.tasks import Tasks


class Way(NamedTuple):
    """How to reach a broker: its own address, and the proxy's if there is one."""

    broker: Address
    proxy: Address | None = None


Connect: TypeAlias = Callable[[Callable[[], asyncio.Protocol], Address, ssl.SSLContext | None], Awaitable[object]]
"""Opens a transport to an address for a protocol; asyncio's `create_connection` unless another is given."""


async def over_tcp(protocol: Callable[[], asyncio.Protocol], target: Address, tls: ssl.SSLContext | None) -> object:
    host = target.host if tls is not None else None
    loop = asyncio.get_running_loop()
    return await loop.create_connection(protocol, target.host, target.port, ssl=tls, server_hostname=host)


class Pool:
    def __init__(
        self,
        settings: ClientSettings,
        authentication: Authentication | None,
        tls: ssl.SSLContext | None,
        random: Random,
        tasks: Tasks,
        connect: Connect = over_tcp,
    ) -> None:
        self._settings = settings
        self._connect = connect
        self._authentication = authentication
        self._tls = tls
        self._random = random
        self._tasks = tasks
        self._open: dict[tuple[Way, int], Connection] = {}
        self._opening: dict[tuple[Way, int], asyncio.Task[Connection | MagnetarError]] = {}
        self._closed = False

    @property
    def connections(self) -> list[Connection]:
        return list(self._open.values())

    async def connect(self, way: Way) -> Connection:
        """An open connection. Raises ConnectionLost or TimedOut where there can be none now."""
        key = (way, self._random.randrange(max(1, self._settings.connections_per_broker)))
        connection = self._open.get(key)
        if connection is not None and connection.is_open:
            return connection
        if self._closed:
            raise AlreadyClosed("The client is closed")
        opening = self._opening.get(key)
        if opening is None:
            opening = self._tasks.start(self._establish(key), f"connect to {way.broker}")
            self._opening[key] = opening
            opening.add_done_callback(lambda _: self._opening.pop(key, None))
        outcome = await asyncio.shield(opening)
        if isinstance(outcome, Connection):
            return outcome
        raise outcome

    async def _establish(self, key: tuple[Way, int]) -> "Connection | MagnetarError":
        """The outcome is returned, not raised: a broker that is down is no crash of the task that asked it."""
        way = key[0]
        target = way.proxy or way.broker
        connection = Connection(str(way.broker), self._settings, self._authentication, lambda it: self._forget(key, it))
        limit_s = self._settings.connection_timeout_ms / 1000
        try:
            async with asyncio.timeout(limit_s):
                await self._connect(lambda: connection, target, self._tls if target.tls else None)
                await connection.handshake(way.broker.authority if way.proxy is not None else None)
        except BaseException as failure:
            error = _as_error(failure, target, limit_s)
            connection.abandon(error)
            await connection.close()
            if not isinstance(failure, (OSError, TimeoutError, MagnetarError)):
                raise
            return error
        if self._closed:
            # Closed while this was on its way: nobody would close it later.
            closed = AlreadyClosed("The client is closed")
            connection.abandon(closed)
            await connection.close()
            return closed
        self._open[key] = connection
        return connection

    def abandon_all(self, error: MagnetarError) -> None:
        """Break every connection, so that all who are attached look for their brokers anew."""
        for connection in list(self._open.values()):
            connection.abandon(error)

    def _forget(self, key: tuple[Way, int], connection: Connection) -> None:
        if self._open.get(key) is connection:
            del self._open[key]

    async def close(self) -> None:
        self._closed = True
        for connection in list(self._open.values()):
            await connection.close()


def _as_error(failure: BaseException, target: Address, limit_s: float) -> MagnetarError:
    if isinstance(failure, MagnetarError):
        return failure
    if isinstance(failure, TimeoutError):
        return TimedOut(f"{target} did not take a connection within {limit_s:g} s")
    if isinstance(failure, OSError):
        return ConnectionLost(f"{target} cannot be reached: {failure}")
    return ConnectionLost(f"connecting to {target} was given up")
