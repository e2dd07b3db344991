# SPDX-License-Identifier: Apache-2.0
"""How a broker's WebSocket service comes into being: when the first WebSocket knocks, and only where it is asked for.

The service brings a client and a library along that most processes never need. They are loaded beside the loop; whoever
knocks meanwhile waits, unread. Owns the service.
Carries.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from magnetar.broker.auth.authenticator import Certificate
from magnetar.broker.broker import Broker
from magnetar.config.websocket import WebSocketSettings
from magnetar.runtime.blocking_calls import BlockingCalls
from magnetar.runtime.clock import WallClock
from magnetar.runtime.metrics import Metrics
from magnetar.runtime.tasks import Tasks

if TYPE_CHECKING:
    from magnetar.websocket.service import WebSocketService


def opener(
    broker: Broker, settings: WebSocketSettings, clock: WallClock, metrics: Metrics
) -> "Callable[[], LateService] | None":
    """What makes the service of a broker; None where it is switched off."""

    def loaded() -> "WebSocketService":
        from magnetar.websocket.caller import AtBroker
        from magnetar.websocket.service import WebSocketService

        return WebSocketService(settings, AtBroker(broker, settings, clock), metrics)

    return (lambda: LateService(loaded, settings)) if settings.enabled else None


class LateService:
    """A WebSocketService from its first connection on."""

    def __init__(self, load: "Callable[[], WebSocketService]", settings: WebSocketSettings) -> None:
        self._load = load
        self._settings = settings
        self._tasks = Tasks("WebSocket service", self._on_crash)
        self._service: WebSocketService | None = None
        self._waiting: dict[_Waiting, None] = {}

    def start(self) -> None:
        """Nothing is done before somebody comes."""

    async def stop(self) -> None:
        await self._tasks.close()
        self._send_away()
        if self._service is not None:
            await self._service.stop()

    def new_connection(
        self,
        method: str,
        target: str,
        headers: Sequence[tuple[str, str]],
        peer: tuple[str, int] | None,
        certificate: Certificate | None,
    ) -> asyncio.Protocol:
        """As WebSocketService.new_connection."""
        if self._service is not None:
            return self._service.new_connection(method, target, headers, peer, certificate)
        if not len(self._tasks) and not self._tasks.is_closed:
            self._tasks.start(self._open(), "load")
        return _Waiting(self, lambda service: service.new_connection(method, target, headers, peer, certificate))

    def statistics(self) -> Mapping[str, Mapping[str, Sequence[Mapping[str, Any]]]]:
        return {} if self._service is None else self._service.statistics()

    def metrics(self) -> Sequence[Mapping[str, Any]]:
        return () if self._service is None else self._service.metrics()

    # --- those who wait --------------------------------------------------------------------------

    def admit(self, waiting: "_Waiting") -> bool:
        """Whether one more may wait."""
        if self._tasks.is_closed or len(self._waiting) >= self._settings.sessions_max:
            return False
        self._waiting[waiting] = None
        return True

    def forget(self, waiting: "_Waiting") -> None:
        self._waiting.pop(waiting, None)

    async def _open(self) -> None:
        calls = BlockingCalls(1, name="websocket-import")
        try:
            service = await calls.run(self._load)
        finally:
            await calls.close()
        service.start()
        self._service = service
        waiting, self._waiting = self._waiting, {}
        for each in waiting:
            each.go_on(service)

    def _on_crash(self, name: str, error: BaseException) -> None:
        """The log has it; the next to come has it tried again."""
        self._send_away()

    def _send_away(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for each in waiting:
            each.transport.abort()


class _Waiting(asyncio.Protocol):
    """A connection that asked for an upgrade and is not read from until there is somebody to take it."""

    def __init__(self, late: LateService, successor: "Callable[[WebSocketService], asyncio.Protocol]") -> None:
        self._late = late
        self._successor = successor
        self._early = b""
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are not derived from asyncio's classes.
        self.transport = cast("asyncio.Transport", transport)
        self.transport.pause_reading()
        if not self._late.admit(self):
            self.transport.abort()

    def data_received(self, data: bytes) -> None:
        """What came with the head."""
        self._early += data

    def connection_lost(self, error: Exception | None) -> None:
        self._late.forget(self)

    def go_on(self, service: "WebSocketService") -> None:
        if self.transport.is_closing():
            return
        successor = self._successor(service)
        self.transport.set_protocol(successor)
        successor.connection_made(self.transport)
        if self._early:
            successor.data_received(self._early)
        self.transport.resume_reading()
