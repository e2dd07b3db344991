# SPDX-License-Identifier: Apache-2.0
"""Where a broker listens to clients: its port, the one with TLS, and every further address that it was given.

Owns the listening sockets. A further address belongs to a listener: who comes in there and names none is told the
addresses of that one. From load balancers that are trusted HAProxy's header is read before the first frame. Never
looks at a frame.
Carries.
"""

import asyncio
import errno
import socket
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple, cast

from magnetar.broker.connection import Connection
from magnetar.broker.ownership.owner import parse_bind_addresses
from magnetar.config.broker import BrokerSettings
from magnetar.config.security import SecuritySettings
from magnetar.errors import BadCommand, BadSetting, CannotStart
from magnetar.runtime.server_tls import ServerTls
from magnetar.wire.haproxy import HaproxyHeader, TrustedSources, trusted_sources

NO_PORT: Final = (
    "There is no port for clients: give brokerServicePort, or brokerServicePortTls with tlsCertificateFilePath"
)


class ServiceUrls(NamedTuple):
    """Where clients come in; empty where there is no such port."""

    plain: str = ""
    tls: str = ""


class Doors:
    def __init__(
        self,
        settings: BrokerSettings,
        security: SecuritySettings,
        tls: ServerTls | None,
        new_connection: Callable[[str], Connection],
    ) -> None:
        """BadSetting for addresses that cannot be read."""
        self._settings = settings
        self._security = security
        self._tls = tls
        self._new_connection = new_connection
        self._trusted = trusted_sources(security.haproxy_protocol, security.haproxy_trusted)
        self._further = parse_bind_addresses(settings.bind_addresses)
        if tls is None and any(address.is_tls for address in self._further):
            raise BadSetting("bindAddresses: pulsar+ssl asks for brokerServicePortTls and tlsCertificateFilePath")
        self._servers: list[asyncio.Server] = []

    async def open(self) -> ServiceUrls:
        """Listen everywhere. CannotStart when a port cannot be had, or none was asked for."""
        settings, host = self._settings, self._settings.advertised_address
        urls = ServiceUrls()
        if settings.port >= 0:
            port = await self._listen(settings.bind_address, settings.port, "--port")
            urls = urls._replace(plain=f"pulsar://{host}:{port}")
        if self._tls is not None and self._security.tls_port >= 0:
            port = await self._listen(settings.bind_address, self._security.tls_port, "brokerServicePortTls", tls=True)
            urls = urls._replace(tls=f"pulsar+ssl://{host}:{port}")
        if not any(urls):
            raise CannotStart(NO_PORT)
        for address in self._further:
            await self._listen(address.host, address.port, "bindAddresses", address.listener, tls=address.is_tls)
        return urls

    async def listen_on(self, listener: socket.socket, *, tls: bool = False) -> asyncio.Server:
        """Serve clients at one more port, such as one that several processes share; closed by whoever asked for it."""
        context = self._tls.context if tls and self._tls is not None else None
        return await asyncio.get_running_loop().create_server(self._entrance(""), sock=listener, ssl=context)

    def close(self) -> None:
        """Take no new clients."""
        for server in self._servers:
            server.close()

    def _entrance(self, listener: str) -> Callable[[], asyncio.Protocol]:
        make = partial(self._new_connection, listener)
        if self._trusted is None:
            return make
        return partial(ProxiedEntrance, make, self._trusted, self._settings.keep_alive_interval_s)

    async def _listen(self, host: str, port: int, setting: str, listener: str = "", *, tls: bool = False) -> int:
        loop, entrance = asyncio.get_running_loop(), self._entrance(listener)
        try:
            if tls and self._tls is not None:
                timeout_s = self._security.tls_handshake_timeout_ms / 1000
                server = await loop.create_server(
                    entrance, host, port, ssl=self._tls.context, ssl_handshake_timeout=timeout_s
                )
            else:
                server = await loop.create_server(entrance, host, port)
        except OSError as error:
            raise _cannot_listen(error, f"{host}:{port}", setting) from error
        self._servers.append(server)
        taken: int = server.sockets[0].getsockname()[1]
        return taken


class ProxiedEntrance(asyncio.Protocol):
    """Reads the header of a load balancer, if it is one that is believed, and leaves the rest to a Connection."""

    def __init__(self, make: Callable[[], Connection], trusted: TrustedSources, patience_s: float) -> None:
        self._make = make
        self._trusted = trusted
        self._patience_s = patience_s
        self._header = HaproxyHeader()
        self._limit: asyncio.TimerHandle | None = None
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        peer = transport.get_extra_info("peername")
        if not isinstance(peer, tuple) or not self._trusted.has(peer[0]):
            self._admit("")
            return
        self._limit = asyncio.get_running_loop().call_later(self._patience_s, self._transport.abort)

    def data_received(self, data: bytes) -> None:
        try:
            if not self._header.feed(data):
                return
        except BadCommand:
            self._transport.abort()
            return
        rest = self._header.rest()
        connection = self._admit(self._header.source)
        if rest:
            connection.data_received(rest)

    def connection_lost(self, error: Exception | None) -> None:
        if self._limit is not None:
            self._limit.cancel()

    def _admit(self, client: str) -> Connection:
        if self._limit is not None:
            self._limit.cancel()
        connection = self._make()
        connection.client = client
        self._transport.set_protocol(connection)
        connection.connection_made(self._transport)
        return connection


def _cannot_listen(error: OSError, where: str, setting: str) -> CannotStart:
    if error.errno == errno.EADDRINUSE:
        return CannotStart(
            f"Port {where} is in use by another process; choose another with {setting} (0 picks a free one)"
        )
    if error.errno == errno.EACCES:
        return CannotStart(f"No permission to listen on {where}; choose a port above 1023 with {setting}")
    return CannotStart(f"Cannot listen on {where}: {error.strerror}; check --bind and {setting}")
