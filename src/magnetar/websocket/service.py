# SPDX-License-Identifier: Apache-2.0
"""The WebSocket service: lets sessions in, runs each in a task of its own, and ends them all when it stops.

A request is answered in HTTP until everything behind it is open. Owns the sessions and their number. Never sees a
message.
Carries.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final

from magnetar.broker.auth.authenticator import Certificate
from magnetar.config.websocket import WebSocketSettings
from magnetar.errors import BadSetting, ConnectionLost, MagnetarError
from magnetar.runtime.metrics import Metrics
from magnetar.runtime.tasks import Tasks
from magnetar.websocket.caller import Backend, Caller
from magnetar.websocket.connection import WebSocketConnection
from magnetar.websocket.consuming import ConsumerSession, ReaderSession
from magnetar.websocket.counts import Traffic, namespace_metrics
from magnetar.websocket.endpoint import Kind, endpoint_of
from magnetar.websocket.handshake import Handshake, refusal
from magnetar.websocket.producing import ProducerSession
from magnetar.websocket.refusals import refusal_of
from magnetar.websocket.session import FAILED, NOT_ALLOWED, Session

_KINDS: Final[Mapping[Kind, type[Session]]] = {
    Kind.PRODUCER: ProducerSession,
    Kind.CONSUMER: ConsumerSession,
    Kind.READER: ReaderSession,
}
# As in Pulsar: what its statistics call a rate is what happened in a minute.
_STATISTICS_INTERVAL_S: Final = 60.0
_STOP_PATIENCE_S: Final = 5.0
_GOING_AWAY: Final = 1001

_log = logging.getLogger(__name__)


class WebSocketService:
    def __init__(self, settings: WebSocketSettings, backend: Backend, metrics: Metrics) -> None:
        self._settings = settings
        self._backend = backend
        # A session, and the watch over its credentials.
        self._tasks = Tasks("WebSocket service", self._on_crash, tasks_max=2 * settings.sessions_max + 1)
        self._connections: dict[WebSocketConnection, None] = {}
        self._sessions: dict[Session, None] = {}
        self._all_gone = asyncio.Event()
        self._all_gone.set()
        self._is_stopping = False
        self._last_metrics: Sequence[Mapping[str, Any]] = ()
        self._refused = metrics.counter("magnetar_websocket_refused_total", "WebSocket requests that were refused.")
        self._opened = metrics.counter("magnetar_websocket_opened_total", "WebSocket sessions that were opened.")
        metrics.gauge("magnetar_websocket_sessions", "WebSocket sessions now.", lambda: len(self._sessions))

    def start(self) -> None:
        self._tasks.start(self._watch_statistics(), "statistics")

    async def stop(self) -> None:
        """Say goodbye to everybody; what was taken is stored, unless that takes too long."""
        self._is_stopping = True
        for connection in list(self._connections):
            connection.close(_GOING_AWAY, "The server stops")
        try:
            async with asyncio.timeout(_STOP_PATIENCE_S):
                await self._all_gone.wait()
        except TimeoutError:
            _log.warning("%d WebSocket sessions did not end in time", len(self._connections))
        await self._tasks.close()

    def new_connection(
        self,
        method: str,
        target: str,
        headers: Sequence[tuple[str, str]],
        peer: tuple[str, int] | None,
        certificate: Certificate | None,
    ) -> WebSocketConnection:
        """What an HTTP server hands a connection over to that asks for an upgrade; headers have lower-case names."""
        handshake = Handshake(method, target, headers, peer=peer, certificate=certificate)
        return WebSocketConnection(handshake, self._settings, self._on_made)

    # --- sessions --------------------------------------------------------------------------------

    def _on_made(self, connection: WebSocketConnection) -> None:
        if self._is_stopping or len(self._connections) >= self._settings.sessions_max:
            _log.warning(
                "refusing WebSocket client %s: %d are served", connection.handshake.peer, len(self._connections)
            )
            self._refused.add(1)
            connection.refuse(refusal(503, f"{len(self._connections)} WebSocket sessions are open; try again later"))
            return
        self._connections[connection] = None
        self._all_gone.clear()
        self._tasks.start(self._serve(connection), f"session of {connection.handshake.peer}")

    async def _serve(self, connection: WebSocketConnection) -> None:
        try:
            await self._admit(connection)
        except MagnetarError as error:
            _log.info("refusing WebSocket client %s: %s", connection.handshake.peer, error)
            self._refused.add(1)
            connection.refuse(refusal_of(error))
        finally:
            # After a failure of ours, too, nobody is left to wait: neither who was let in, nor who was not yet.
            connection.refuse(refusal(503 if self._is_stopping else 500, "The session ended before it was open"))
            connection.close(FAILED, "The session ended")
            del self._connections[connection]
            if not self._connections:
                self._all_gone.set()

    async def _admit(self, connection: WebSocketConnection) -> None:
        """Raises what is answered in HTTP."""
        handshake = connection.handshake
        if handshake.answer.status_code != 101:
            self._refused.add(1)
            connection.refuse(handshake.answer)
            return
        try:
            parameters = handshake.parameters
        except ValueError as error:
            raise BadSetting(str(error)) from error
        endpoint = endpoint_of(handshake.path, parameters)
        caller = await self._backend.admit(handshake)
        client = self._backend.client(caller)
        session = _KINDS[endpoint.kind](connection, client, endpoint, parameters, self._settings)
        try:
            await session.open()
            try:
                connection.accept()
            except ConnectionLost:
                return
            self._opened.add(1)
            await self._run(session, connection, caller)
        finally:
            await session.close()

    async def _run(self, session: Session, connection: WebSocketConnection, caller: Caller) -> None:
        _log.info("WebSocket %s of %s on %s", session.endpoint.kind.value, session.peer, session.endpoint.name)
        self._sessions[session] = None
        watch = None
        if caller.identity is not None:
            watch = self._tasks.start(self._watch(session, connection, caller), f"watch over {session.peer}")
        try:
            await session.run()
        finally:
            del self._sessions[session]
            if watch is not None:
                watch.cancel()

    async def _watch(self, session: Session, connection: WebSocketConnection, caller: Caller) -> None:
        connection.close(NOT_ALLOWED, await self._backend.expelled(caller, session.endpoint))

    def _on_crash(self, name: str, error: BaseException) -> None:
        """The log has it, and the session is over; the others go on."""

    # --- statistics ------------------------------------------------------------------------------

    def statistics(self) -> Mapping[str, Mapping[str, Sequence[Mapping[str, Any]]]]:
        """By topic, as Pulsar's `proxy-stats/stats` has them."""
        found: dict[str, dict[str, list[Mapping[str, Any]]]] = {}
        for session in self._sessions:
            row = found.setdefault(session.endpoint.name, {"producerStats": [], "consumerStats": []})
            kind = "producerStats" if session.endpoint.kind is Kind.PRODUCER else "consumerStats"
            row[kind].append(session.statistics())
        return found

    def metrics(self) -> Sequence[Mapping[str, Any]]:
        """By namespace, of the last whole interval."""
        return self._last_metrics

    def close_interval(self) -> None:
        """What happened since the last time is what the metrics say from now on."""
        by_namespace: dict[str, Traffic] = {}
        for session in self._sessions:
            by_namespace.setdefault(session.endpoint.namespace, Traffic()).add(session.recent)
            session.recent = Traffic()
        self._last_metrics = [namespace_metrics(namespace, traffic) for namespace, traffic in by_namespace.items()]

    async def _watch_statistics(self) -> None:
        while True:
            await asyncio.sleep(_STATISTICS_INTERVAL_S)
            self.close_interval()
