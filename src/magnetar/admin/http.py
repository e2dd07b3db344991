# SPDX-License-Identifier: Apache-2.0
"""HTTP connections on the broker's loop, by uvicorn's protocol, with deadlines that it does not have.

Carries.
"""

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from magnetar.admin.bounds import App, Bounds
from magnetar.broker.auth.authenticator import Certificate
from magnetar.config.admin import AdminSettings

WEBSOCKET_PATHS: Final = b"/ws/"
_STOP_PATIENCE_S: Final = 5.0
# Whoever reads more slowly than this is not waited for; anything faster gets its answer, however large.
_READ_BYTES_PER_S_MIN: Final = 100

_log = logging.getLogger(__name__)


Upgrade: TypeAlias = Callable[
    [str, str, Sequence[tuple[str, str]], "tuple[str, int] | None", "Certificate | None"], asyncio.Protocol
]
"""Takes a connection over that asks to speak WebSocket: method, target, headers, the client's address, certificate."""


class BoundedProtocol(H11Protocol):
    """Closes a connection whose request's head does not come in time or whose answer is not read; and those beyond the
    limit at once."""

    def __init__(
        self, config: uvicorn.Config, state: ServerState, settings: AdminSettings, upgrade: Upgrade | None
    ) -> None:
        super().__init__(config, state, {})
        self._settings = settings
        self._upgrade = upgrade
        self._deadline: asyncio.TimerHandle | None = None
        self._patience: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        # Whatever stays unread is noticed, so that nobody is waited for without end. With 0, TLS would say "pause"
        # after each write and not take it back.
        transport.set_write_buffer_limits(high=1)
        # Every request of this connection carries what TLS verified of its client.
        self.app_state = {"certificate": transport.get_extra_info("peercert") or None}
        if len(self.connections) > self._settings.connections_max:
            _log.warning("refusing an HTTP client: %d are connected already", len(self.connections) - 1)
            transport.abort()
            return
        self._expect_head()

    def data_received(self, data: bytes) -> None:
        if self._deadline is None and self._is_between_requests():
            self._expect_head()
        super().data_received(data)
        if not self._is_between_requests():
            self._forget_deadline()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._await_reader(None)

    def resume_writing(self) -> None:
        self._forget_patience()
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget_deadline()
        self._forget_patience()
        super().connection_lost(exc)

    def _should_upgrade(self) -> bool:
        """Whoever asks for another protocol, or elsewhere, is answered in this one."""
        is_asked = self._get_upgrade() == b"websocket" and self.scope["raw_path"].startswith(WEBSOCKET_PATHS)
        return is_asked and self._upgrade is not None

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        assert self._upgrade is not None
        if event.http_version == b"1.0" or _announces_body(self.headers):
            self.send_400_response("A WebSocket begins with a request of HTTP/1.1 without a body.")
            return
        self._forget_deadline()
        self._forget_patience()
        self.connections.discard(self)
        successor = self._upgrade(
            event.method.decode("ascii"),
            event.target.decode("ascii"),
            [(name.decode("ascii"), value.decode("latin-1")) for name, value in self.headers],
            self.client,
            self.app_state["certificate"],
        )
        self.transport.set_protocol(successor)
        successor.connection_made(self.transport)
        early = self.conn.trailing_data[0]
        if early:
            successor.data_received(early)

    def send_400_response(self, msg: str) -> None:
        """What comes is no HTTP, perhaps in the middle of a request: whoever works on that has lost its client.

        Uvicorn answers beside it, and so with two heads, or with one where a part of another is out already.
        """
        may_answer = self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE)
        if not self._is_between_requests():
            self.cycle.disconnected = True
            self.cycle.message_event.set()
            # An answer to HEAD has no body, and uvicorn's has one.
            may_answer = may_answer and self.scope["method"] != "HEAD"
        if may_answer:
            super().send_400_response(msg)
        else:
            self.transport.close()

    def _is_between_requests(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _expect_head(self) -> None:
        self._deadline = self.loop.call_later(self._settings.head_timeout_ms / 1000, self._cut_off)

    def _forget_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _await_reader(self, unread_before: int | None) -> None:
        """Until everything is read: who took next to nothing for as long as an idle client is kept is cut off."""
        unread = self.transport.get_write_buffer_size()
        idle_s = self._settings.idle_timeout_ms / 1000
        if unread_before is not None and unread > unread_before - idle_s * _READ_BYTES_PER_S_MIN:
            _log.warning("cutting off the HTTP client %s: it does not read its answer", self.client)
            self.transport.abort()
            return
        self._patience = self.loop.call_later(idle_s, self._await_reader, unread)

    def _forget_patience(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

    def _cut_off(self) -> None:
        self._deadline = None
        if self._is_between_requests() and not self.transport.is_closing():
            self.transport.abort()


def _announces_body(headers: Sequence[tuple[bytes, bytes]]) -> bool:
    return any(
        name == b"transfer-encoding" or (name == b"content-length" and int(value) > 0) for name, value in headers
    )


class HttpServer:
    def __init__(self, app: App, settings: AdminSettings, upgrade: Upgrade | None = None) -> None:
        self._settings = settings
        self._upgrade = upgrade
        self._state = ServerState()
        self._config = uvicorn.Config(
            Bounds(app, settings),
            http="h11",
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            date_header=False,
            h11_max_incomplete_event_size=settings.head_bytes_max,
            timeout_keep_alive=settings.idle_timeout_ms // 1000,
        )
        self._servers: list[asyncio.Server] = []

    async def start(self, listener: socket.socket, context: ssl.SSLContext | None = None) -> None:
        """Serve a port, with TLS when there is a context; one after another for several."""
        if not self._config.loaded:
            self._config.load()
        loop: Any = asyncio.get_running_loop()
        server = await loop.create_server(self._new_connection, sock=listener, start_serving=True, ssl=context)
        self._servers.append(server)

    async def stop(self) -> None:
        for server in self._servers:
            server.close()
        for connection in list(self._state.connections):
            connection.shutdown()
        running = list(self._state.tasks)
        if running:
            await asyncio.wait(running, timeout=_STOP_PATIENCE_S)
        for task in list(self._state.tasks):
            task.cancel()
        for connection in list(self._state.connections):
            connection.transport.abort()

    def _new_connection(self) -> BoundedProtocol:
        return BoundedProtocol(self._config, self._state, self._settings, self._upgrade)
