# SPDX-License-Identifier: Apache-2.0
"""What all sessions have in common: a client of the brokers behind one WebSocket, from its opening to its end.

Owns the client: what it opened is closed with it. Never decides who may do what: the brokers do.
Carries.
"""

import logging
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Final

from magnetar.client.client import Client
from magnetar.config.websocket import WebSocketSettings
from magnetar.errors import MagnetarError, NotAuthenticated, NotAuthorized
from magnetar.websocket.connection import WebSocketConnection
from magnetar.websocket.counts import Traffic
from magnetar.websocket.endpoint import Endpoint

# Of RFC 6455: a text that cannot be used; a rule of ours that was broken; a failure of ours.
BAD_TEXT: Final = 1007
NOT_ALLOWED: Final = 1008
FAILED: Final = 1011

_log = logging.getLogger(__name__)


class Session(ABC):
    def __init__(
        self,
        connection: WebSocketConnection,
        client: Client,
        endpoint: Endpoint,
        parameters: Mapping[str, str],
        settings: WebSocketSettings,
    ) -> None:
        self.endpoint = endpoint
        # Since it was opened, and since the statistics last looked.
        self.traffic = Traffic()
        self.recent = Traffic()
        self._connection = connection
        self._client = client
        self._parameters = parameters
        self._settings = settings

    @property
    def peer(self) -> str:
        return self._connection.handshake.peer

    @abstractmethod
    async def open(self) -> None:
        """Attach to the topic. Raises what the client raises; BadSetting for parameters that cannot be used."""

    @abstractmethod
    async def run(self) -> None:
        """Serve the client's texts until there are no more."""

    @abstractmethod
    def statistics(self) -> Mapping[str, Any]:
        """Its line in Pulsar's statistics of a proxy."""

    async def close(self) -> None:
        """Everything that was taken is stored or refused, acknowledgements are sent; then the client is gone."""
        await self._client.close()

    def _end_for(self, error: MagnetarError) -> None:
        """The session cannot go on."""
        code = NOT_ALLOWED if isinstance(error, (NotAuthenticated, NotAuthorized)) else FAILED
        _log.info("closing the WebSocket of %s on %s: %s", self.peer, self.endpoint.name, error)
        self._connection.close(code, str(error))
