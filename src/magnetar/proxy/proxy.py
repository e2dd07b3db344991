# SPDX-License-Identifier: Apache-2.0
"""One proxy: its listeners, its clients, and the way to brokers.

Names are resolved here and the address that was checked is the one that is called, so that a name cannot mean one
thing to the rules and another to the connection.
Assembles.
"""

import asyncio
import contextlib
import errno
import logging
import socket
import ssl
from collections import Counter
from collections.abc import Callable, Iterator

from magnetar.broker.as_client import AsClient
from magnetar.broker.auth.authentication import Authentication
from magnetar.broker.auth.opening import open_authentication, open_tls
from magnetar.broker.doors import NO_PORT
from magnetar.client.authentication import Authentication as ClientAuthentication
from magnetar.config.broker import BrokerSettings
from magnetar.config.proxy import ProxySettings
from magnetar.config.security import SecuritySettings
from magnetar.errors import CannotStart, ConnectionLost, NotAuthorized, TooManyRequests
from magnetar.proxy.broker_link import BrokerLink, connect_link
from magnetar.proxy.brokers import Brokers
from magnetar.proxy.session import ProxySession
from magnetar.proxy.targets import Target, TargetRules
from magnetar.runtime.clock import WallClock
from magnetar.runtime.metrics import Metrics
from magnetar.runtime.server_tls import watch_files
from magnetar.runtime.tasks import Tasks
from magnetar.wire.haproxy import trusted_sources

_log = logging.getLogger(__name__)


class Proxy:
    def __init__(
        self,
        settings: ProxySettings,
        door: BrokerSettings,
        security: SecuritySettings,
        brokers: Brokers,
        clock: WallClock,
        metrics: Metrics,
        on_crash: Callable[[str, BaseException], None],
    ) -> None:
        self.settings = settings
        self.brokers = brokers
        self.clock = clock
        self.keep_alive_s = door.keep_alive_interval_s
        self.message_bytes_max = door.message_bytes_max
        self.tls = open_tls(security)
        self.authentication: Authentication | None = open_authentication(security, clock)
        self.metrics_authenticated = security.metrics_authenticated and self.authentication is not None
        # Who the proxy is to brokers.
        self.as_client = AsClient(security, tls=settings.tls_with_broker)
        self.client_authentication: ClientAuthentication | None = self.as_client.authentication
        self.trusted_sources = trusted_sources(security.haproxy_protocol, security.haproxy_trusted)
        self._door = door
        self._security = security
        self._rules = TargetRules(
            settings,
            has_registry=brokers.has_registry,
            sends_secret=self.as_client.sends_secret,
        )
        self._tasks = Tasks("proxy", on_crash)
        # Each with the address it is counted under; None until that is known.
        self._sessions: dict[ProxySession, str | None] = {}
        self._by_address: Counter[str] = Counter()
        self._lookups = 0
        self._servers: list[asyncio.Server] = []
        self._opened = metrics.counter("pulsar_proxy_new_connections", "Connections taken by the proxy.")
        self._rejected = metrics.counter("pulsar_proxy_rejected_connections", "Connections refused by the proxy.")
        self._bytes = metrics.counter("pulsar_proxy_binary_bytes", "Bytes passed through the proxy.")
        metrics.gauge("pulsar_proxy_active_connections", "Clients of the proxy.", lambda: float(len(self._sessions)))

    async def start(self) -> dict[str, str]:
        """Listen; returns the URLs by name."""
        door = self._door
        host = door.advertised_address
        urls = {}
        if door.port >= 0:
            urls["serviceUrl"] = f"pulsar://{host}:{await self._listen(door.port, None)}"
        if self.tls is not None:
            self._tasks.start(watch_files(self.tls, self._security.tls_reload_check_s), "watch certificates")
            if self._security.tls_port >= 0:
                port = await self._listen(self._security.tls_port, self.tls.context)
                urls["serviceUrlTls"] = f"pulsar+ssl://{host}:{port}"
        if not urls:
            raise CannotStart(NO_PORT)
        for upkeep in self.authentication.upkeep if self.authentication is not None else ():
            self._tasks.start(upkeep(), "authentication")
        return urls

    async def stop(self) -> None:
        for server in self._servers:
            server.close()
        for session in list(self._sessions):
            session.end()
        await self._tasks.close()
        if self.authentication is not None:
            await self.authentication.close()
        if self.client_authentication is not None:
            await self.client_authentication.close()

    @property
    def broker_tls(self) -> ssl.SSLContext | None:
        """For the next connection to a broker; changed certificate files are taken up."""
        return self.as_client.tls

    # --- for sessions ----------------------------------------------------------------------------

    def admit(self, session: ProxySession) -> bool:
        """Whether there is room for one more client."""
        if len(self._sessions) >= self.settings.connections_max:
            return self._reject(session, len(self._sessions))
        self._sessions[session] = None
        self._opened.add(1)
        return True

    def admit_from(self, session: ProxySession, address: str) -> bool:
        """Whether there is room for one more client of an address; asked once that is known."""
        per_address = self.settings.connections_per_address
        if per_address and self._by_address[address] >= per_address:
            return self._reject(session, self._by_address[address])
        self._sessions[session] = address
        self._by_address[address] += 1
        return True

    def _reject(self, session: ProxySession, connected: int) -> bool:
        _log.warning("refusing %s: %d clients are connected already", session.peer, connected)
        self._rejected.add(1)
        return False

    def on_session_ended(self, tasks: Tasks) -> None:
        if not self._tasks.is_closed:
            self._tasks.start(tasks.close(), "end session")

    def on_session_gone(self, session: ProxySession) -> None:
        address = self._sessions.pop(session, None)
        if address is not None:
            self._by_address[address] -= 1
            if not self._by_address[address]:
                del self._by_address[address]

    def count_bytes(self, size: int) -> None:
        self._bytes.add(size)

    @contextlib.contextmanager
    def one_lookup(self) -> Iterator[None]:
        if self._lookups >= self.settings.lookups_max:
            raise TooManyRequests(f"{self._lookups} look-ups are under way; try again later")
        self._lookups += 1
        try:
            yield
        finally:
            self._lookups -= 1

    async def link(self, target: Target, *, checked: bool) -> BrokerLink:
        """A connection to a broker; `checked` where a client asked for it. NotAuthorized, ConnectionLost."""
        is_known = True
        if checked:
            is_known = self._rules.check_name(target, self.brokers.known())
        address = await self._resolve(target)
        if not is_known:
            self._rules.check_address(target, address)
        return await connect_link(
            target,
            address,
            self.broker_tls,
            timeout_ms=self.settings.connect_timeout_ms,
            handshake_bytes_max=self.settings.handshake_bytes_max,
        )

    async def check_redirect(self, target: Target) -> None:
        """Whether an HTTP request goes on to where a broker sends it. NotAuthorized, ConnectionLost."""
        if target in self.brokers.known_web():
            return
        if self.brokers.has_registry:
            raise NotAuthorized(f"{target} is not the web server of one of this cluster's brokers")
        if self.as_client.sends_secret:
            self._rules.check_host(target)
            self._rules.check_address(target, await self._resolve(target))

    # --- leaves ----------------------------------------------------------------------------------

    async def _resolve(self, target: Target) -> str:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self.settings.connect_timeout_ms / 1000):
                found = await loop.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError, TimeoutError) as error:
            raise ConnectionLost(f"Broker {target} cannot be found: {error}") from error
        return str(found[0][4][0])

    async def _listen(self, port: int, context: ssl.SSLContext | None) -> int:
        loop = asyncio.get_running_loop()
        address = self._door.bind_address
        patience_s = self._security.tls_handshake_timeout_ms / 1000 if context is not None else None
        try:
            server = await loop.create_server(
                lambda: ProxySession(self), address, port, ssl=context, ssl_handshake_timeout=patience_s
            )
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise CannotStart(
                    f"Port {address}:{port} is in use by another process; choose another with --port (0: a free one)"
                ) from error
            raise CannotStart(
                f"Cannot listen on {address}:{port}: {error.strerror}; check --bind and --port"
            ) from error
        self._servers.append(server)
        taken: int = server.sockets[0].getsockname()[1]
        return taken
