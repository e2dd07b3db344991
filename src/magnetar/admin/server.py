# SPDX-License-Identifier: Apache-2.0
"""The HTTP server of a broker: its own port, inside the broker's loop.

The port is taken at once, so that it is known and a second process fails early; the application is imported and built
beside the loop after clients are served, and whoever connects meanwhile waits in the listener's queue. Signals and the
access log stay ours. Connections are bounded in number, in the time they take for a request's head, and when idle.
Carries.
"""

import asyncio
import errno
import importlib
import logging
import socket
from typing import TYPE_CHECKING, Any, Final

from magnetar.admin.records import Records
from magnetar.broker.broker import Broker
from magnetar.broker.policies.policies import Policies
from magnetar.config.admin import AdminSettings
from magnetar.config.broker import BrokerSettings
from magnetar.errors import CannotStart
from magnetar.metadata.store import MetadataStore
from magnetar.runtime.blocking_calls import BlockingCalls
from magnetar.runtime.clock import WallClock
from magnetar.runtime.metrics import Metrics
from magnetar.runtime.tasks import Tasks

if TYPE_CHECKING:
    from magnetar.admin.http import HttpServer

_QUEUE: Final = 512

_log = logging.getLogger(__name__)


def take_port(settings: BrokerSettings) -> socket.socket:
    """Listen on the HTTP port. CannotStart when that is not possible."""
    try:
        family = socket.AF_INET6 if ":" in settings.bind_address else socket.AF_INET
        listener = socket.create_server((settings.bind_address, settings.http_port), family=family, backlog=_QUEUE)
    except OSError as error:
        where = f"{settings.bind_address}:{settings.http_port}"
        if error.errno == errno.EADDRINUSE:
            raise CannotStart(
                f"HTTP port {where} is in use by another process; choose another with --http-port (0 picks a free one)"
            ) from error
        raise CannotStart(f"Cannot listen on {where}: {error.strerror}; check --bind and --http-port") from error
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
    ) -> None:
        self._broker = broker
        self._store = store
        self._policies = policies
        self._clock = clock
        self._metrics = metrics
        self._settings = settings
        self._tasks = tasks
        self._http: HttpServer | None = None
        self.is_serving = asyncio.Event()

    def start(self, listener: socket.socket) -> None:
        """Build the application beside the loop, then serve."""
        self._tasks.start(self._serve(listener), "admin: start")

    async def stop(self) -> None:
        """Let requests that run end, for a moment; then close every connection."""
        if self._http is not None:
            await self._http.stop()

    async def _serve(self, listener: socket.socket) -> None:
        calls = BlockingCalls(1, name="admin-import")
        try:
            module: Any = await calls.run(importlib.import_module, "magnetar.admin.app")
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
        http: Any = importlib.import_module("magnetar.admin.http")
        server: HttpServer = http.HttpServer(app, self._settings)
        await server.start(listener)
        self._http = server
        self._tasks.start(module.watch_rates(parts), "admin: rates")
        self.is_serving.set()
        _log.info("administration is served on %s", parts.web_url)
