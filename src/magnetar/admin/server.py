# SPDX-License-Identifier: Apache-2.0
"""The HTTP server of a broker: its own port, inside the broker's loop.

The port is taken at once, so that it is known and a second process fails early; the application is imported and built
beside the loop when somebody connects, or a moment after clients are served, for it takes the interpreter from them for
about a second. Whoever connects meanwhile waits in the listener's queue. Signals and the access log stay ours.
Connections are bounded in number, in the time they take for a request's head, and when idle.
Carries.
"""

import asyncio
import errno
import importlib
import logging
import os
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from magnetar.admin.records import Records
from magnetar.admin.websockets import WebSockets
from magnetar.broker.broker import Broker
from magnetar.broker.policies.policies import Policies
from magnetar.config.admin import AdminSettings
from magnetar.config.broker import BrokerSettings
from magnetar.config.load import Settings
from magnetar.errors import BadSetting, CannotStart
from magnetar.metadata.store import MetadataStore
from magnetar.runtime.blocking_calls import BlockingCalls
from magnetar.runtime.clock import WallClock
from magnetar.runtime.metrics import Metrics
from magnetar.runtime.tasks import Tasks

if TYPE_CHECKING:
    from magnetar.admin.http import HttpServer, Upgrade
    from magnetar.admin.parts import AdminParts

_QUEUE: Final = 512
# How long the first clients of a new process have the interpreter for themselves, unless somebody knocks.
HEAD_START_S: Final = 1.0
_RETRY_S: Final = 1.0
_NO_DESCRIPTORS: Final = (errno.EMFILE, errno.ENFILE)

_log = logging.getLogger(__name__)


class WebPorts(NamedTuple):
    """The listening sockets of HTTP and HTTPS, where each was asked for."""

    plain: socket.socket | None
    tls: socket.socket | None


@contextmanager
def take_ports(settings: Settings) -> Iterator[tuple[WebPorts, Settings]]:
    """Take the ports before anybody is told of them; the settings then name those that were taken.

    CannotStart when one cannot be had, or none was asked for.
    """
    broker, security = settings.broker, settings.security
    with ExitStack() as taken:
        plain = tls = None
        if broker.http_port >= 0:
            plain = taken.enter_context(take_port(broker))
            broker = replace(broker, http_port=plain.getsockname()[1])
        if security.https_port >= 0:
            tls = taken.enter_context(take_port(broker, security.https_port))
            security = replace(security, https_port=tls.getsockname()[1])
        if plain is None and tls is None:
            raise CannotStart(
                "There is no port for HTTP: give webServicePort, or webServicePortTls with tlsCertificateFilePath"
            )
        yield WebPorts(plain, tls), replace(settings, broker=broker, security=security)


def take_port(settings: BrokerSettings, https_port: int | None = None) -> socket.socket:
    """Listen on the HTTP port, or on the one for HTTPS. CannotStart when that is not possible."""
    port = settings.http_port if https_port is None else https_port
    setting = "--http-port" if https_port is None else "webServicePortTls"
    try:
        family = socket.AF_INET6 if ":" in settings.bind_address else socket.AF_INET
        listener = socket.create_server((settings.bind_address, port), family=family, backlog=_QUEUE)
    except OSError as error:
        where = f"{settings.bind_address}:{port}"
        if error.errno == errno.EADDRINUSE:
            raise CannotStart(
                f"HTTP port {where} is in use by another process; choose another with {setting} (0 picks a free one)"
            ) from error
        raise CannotStart(f"Cannot listen on {where}: {error.strerror}; check --bind and {setting}") from error
    listener.setblocking(False)
    return listener


class AdminServer:
    def __init__(
        self,
        broker: Broker,
        store: MetadataStore,
        policies: Policies,
        clock: WallClock,
        metrics: Metrics,
        settings: AdminSettings,
        tasks: Tasks,
        open_websockets: Callable[[], WebSockets] | None = None,
    ) -> None:
        """`open_websockets` makes the WebSocket service, which shares the port; None where there is none."""
        if settings.otlp_endpoint and not settings.otlp_endpoint.startswith(("http://", "https://")):
            raise BadSetting(f"admin.otlp_endpoint={settings.otlp_endpoint!r} should be http://HOST:4318 or https://…")
        self._broker = broker
        self._store = store
        self._policies = policies
        self._clock = clock
        self._metrics = metrics
        self._settings = settings
        self._tasks = tasks
        self._open_websockets = open_websockets
        self._websockets: WebSockets | None = None
        self._http: HttpServer | None = None
        self._parts: AdminParts | None = None
        self._knocked = asyncio.Event()
        self._serving = asyncio.Event()

    def start(self, ports: WebPorts) -> None:
        """Build the application beside the loop, then serve."""
        self._tasks.start(self._serve(ports), "admin: start")

    async def until_serving(self) -> None:
        """Make haste, and return when requests are answered."""
        self._knocked.set()
        await self._serving.wait()

    async def listen_on(self, listener: socket.socket, *, tls: bool = False) -> None:
        """Serve one more port, such as one that several processes share; only once it is serving."""
        context = self._broker.tls.context if tls and self._broker.tls is not None else None
        if self._http is not None:
            await self._http.start(listener, context)

    async def stop(self) -> None:
        """Let sessions and requests that run end, for a moment; then close every connection."""
        if self._websockets is not None:
            await self._websockets.stop()
        if self._http is not None:
            await self._http.stop()
        if self._parts is not None:
            await self._parts.peers.close()

    async def _serve(self, ports: WebPorts) -> None:
        await self._knock_or_head_start([listener for listener in ports if listener is not None])
        calls = BlockingCalls(1, name="admin-import")
        try:
            module: Any = await _imported("magnetar.admin.app", calls)
            http: Any = await _imported("magnetar.admin.http", calls)
            app, parts = await calls.run(
                module.build,
                self._broker,
                Records(self._store),
                self._policies,
                self._clock,
                self._metrics,
                self._settings,
            )
        finally:
            await calls.close()
        if self._open_websockets is not None:
            parts.websockets = self._open_websockets()
        server: HttpServer = http.HttpServer(app, self._settings, self._upgrade(parts.websockets))
        if ports.plain is not None:
            await server.start(ports.plain)
        if ports.tls is not None and self._broker.tls is not None:
            await server.start(ports.tls, self._broker.tls.context)
        self._http, self._parts = server, parts
        self._tasks.start(module.watch_rates(parts), "admin: rates")
        self._tasks.start(module.watch_ages(parts), "admin: ages")
        self._tasks.start(module.export_metrics(parts), "admin: export of metrics")
        self._serving.set()
        _log.info("administration is served on %s", parts.web_url)

    def _upgrade(self, websockets: WebSockets | None) -> "Upgrade | None":
        """What takes over connections that ask to speak WebSocket; None where nobody is there to do it."""
        self._websockets = websockets
        if websockets is None:
            return None
        websockets.start()
        return websockets.new_connection

    async def _knock_or_head_start(self, listeners: Sequence[socket.socket]) -> None:
        """Returns when somebody waits at one of the listeners, or the head start is over."""
        loop = asyncio.get_running_loop()
        for listener in listeners:
            loop.add_reader(listener, self._knocked.set)
        try:
            async with asyncio.timeout(HEAD_START_S):
                await self._knocked.wait()
        except TimeoutError:
            pass
        finally:
            for listener in listeners:
                loop.remove_reader(listener)


async def _imported(name: str, calls: BlockingCalls) -> Any:
    """A module, as soon as there are descriptors to read it with: clients may have taken the last ones meanwhile."""
    while True:
        try:
            return await calls.run(importlib.import_module, name)
        except (ImportError, OSError) as error:
            # The loader of shared libraries says it in words only.
            if not any(os.strerror(code) in str(error) for code in _NO_DESCRIPTORS):
                raise
            _log.warning("administration waits for a free descriptor: raise the limit of open files (%s)", error)
        await asyncio.sleep(_RETRY_S)
