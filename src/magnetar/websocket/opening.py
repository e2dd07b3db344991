# SPDX-License-Identifier: Apache-2.0
"""How a WebSocket service comes into being: later than its process, and only where it is asked for.

Never imports the service before it is opened: it brings a library along that few processes need.
Assembles.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from magnetar.broker.broker import Broker
from magnetar.config.websocket import WebSocketSettings
from magnetar.runtime.clock import WallClock
from magnetar.runtime.metrics import Metrics

if TYPE_CHECKING:
    from magnetar.websocket.service import WebSocketService


def opener(
    broker: Broker, settings: WebSocketSettings, clock: WallClock, metrics: Metrics
) -> "Callable[[], WebSocketService] | None":
    """What makes the service of a broker; None where it is switched off. May be called beside the loop."""

    def opened() -> "WebSocketService":
        from magnetar.websocket.caller import AtBroker
        from magnetar.websocket.service import WebSocketService

        return WebSocketService(settings, AtBroker(broker, settings, clock), metrics)

    return opened if settings.enabled else None
