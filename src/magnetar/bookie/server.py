# SPDX-License-Identifier: Apache-2.0
"""BookKeeper's port: takes it, serves connections on it, and lets them go in order.

Owns the listening socket and the connections. Whether the bookie may serve at all is its assembler's to know.
Carries.
"""

import asyncio
import errno
import logging
import socket
from typing import Final

from magnetar.bookie.connection import BookieConnection
from magnetar.bookie.guard import guard_of
from magnetar.bookie.storage import BookieStorage
from magnetar.bookie.version_three import VersionThree
from magnetar.config.bookie_server import BookieServerSettings
from magnetar.errors import CannotStart
from magnetar.runtime.tasks import Tasks

_QUEUE: Final = 512
# Clients connect when they have something to ask; who has not been let in and asked by then takes a place for nothing.
FIRST_REQUEST_LIMIT_S: Final = 30.0
# What a packet holds beside the largest entry, in either version of the protocol.
_PACKET_MARGIN_BYTES: Final = 4096

_log = logging.getLogger(__name__)


def take_port(address: str, port: int, flag: str) -> socket.socket:
    """Bind a port; whoever connects before it is served is refused. CannotStart when that is not possible."""
    taken = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM)
    try:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind((address, port))
    except OSError as error:
        taken.close()
        if error.errno == errno.EADDRINUSE:
            sentence = f"Port {address}:{port} is in use by another process; choose another with {flag}"
            raise CannotStart(f"{sentence} (0 picks a free one)") from error
        raise CannotStart(f"Cannot listen on {address}:{port}: {error.strerror}; check --bind and {flag}") from error
    taken.setblocking(False)
    return taken


class BookieServer:
    def __init__(
        self,
        storage: BookieStorage,
        version_three: VersionThree,
        settings: BookieServerSettings,
        tasks: Tasks,
        *,
        entry_bytes_max: int,
    ) -> None:
        self._storage = storage
        self._version_three = version_three
        self._settings = settings
        self._tasks = tasks
        self._frame_bytes_max = entry_bytes_max + _PACKET_MARGIN_BYTES
        self._guard = guard_of(settings)
        self._connections: dict[BookieConnection, None] = {}
        self._all_gone = asyncio.Event()
        self._all_gone.set()
        self._server: asyncio.Server | None = None

    @property
    def connections(self) -> int:
        return len(self._connections)

    async def start(self, taken: socket.socket) -> None:
        """Serve on a port that `take_port` took."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._new_connection, sock=taken, backlog=_QUEUE)

    async def stop(self) -> None:
        """Take no new clients and let the others go; what they were not told of they must ask again."""
        if self._server is not None:
            self._server.close()
        for connection in list(self._connections):
            connection.close()
        try:
            async with asyncio.timeout(1.0):
                await self._all_gone.wait()
        except TimeoutError:
            for connection in list(self._connections):
                connection.abort()
            await self._all_gone.wait()

    # --- what connections say -----------------------------------------------------------------

    def on_connected(self, connection: BookieConnection) -> bool:
        """Whether one more connection is taken."""
        self._connections[connection] = None
        self._all_gone.clear()
        if len(self._connections) > self._settings.connections_max:
            _log.warning("refusing %s: %d connections are open already", connection.peer, len(self._connections) - 1)
            return False
        asyncio.get_running_loop().call_later(FIRST_REQUEST_LIMIT_S, self._let_go_of_silent, connection)
        return True

    def on_disconnected(self, connection: BookieConnection, tasks: Tasks) -> None:
        self._connections.pop(connection, None)
        if not self._connections:
            self._all_gone.set()
        if len(tasks) and not self._tasks.is_closed:
            self._tasks.start(tasks.close(), "end questions of a lost client")

    def _let_go_of_silent(self, connection: BookieConnection) -> None:
        if connection in self._connections and not connection.is_served:
            _log.warning("closing the connection of %s: it has asked for nothing", connection.peer)
            connection.abort()

    def _new_connection(self) -> BookieConnection:
        return BookieConnection(
            self._storage, self._version_three, self._settings, self, self._frame_bytes_max, self._guard
        )
