# SPDX-License-Identifier: Apache-2.0
"""The seam to the WebSocket service, which shares the port of HTTP: what the HTTP server asks of it.

Whoever assembles a process gives the service, or none.
Carries.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from magnetar.broker.auth.authenticator import Certificate


class WebSockets(Protocol):
    def start(self) -> None:
        """On the loop; once."""

    async def stop(self) -> None:
        """End every session; what was taken of them is stored."""

    def new_connection(
        self,
        method: str,
        target: str,
        headers: Sequence[tuple[str, str]],
        peer: tuple[str, int] | None,
        certificate: Certificate | None,
    ) -> asyncio.Protocol:
        """Takes a connection over that asked to speak WebSocket."""

    def statistics(self) -> Mapping[str, Mapping[str, Sequence[Mapping[str, Any]]]]:
        """Of open sessions, by topic."""

    def metrics(self) -> Sequence[Mapping[str, Any]]:
        """Of the last interval, by namespace."""
