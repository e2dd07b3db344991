# SPDX-License-Identifier: Apache-2.0
"""What a WebSocket service in a process of its own answers over plain HTTP: metrics, and statistics for super users.

Carries.
"""

import json
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final, TypeAlias

from magnetar.config.security import SecuritySettings
from magnetar.errors import MagnetarError, NotAuthorized
from magnetar.runtime.metrics import CONTENT_TYPE, Metrics
from magnetar.websocket.caller import Backend
from magnetar.websocket.handshake import Handshake
from magnetar.websocket.service import WebSocketService
from magnetar.wire.error_codes import codes_of

Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]

_STATS: Final = "/admin/v2/proxy-stats/"
_JSON: Final = "application/json"


class OwnHttp:
    """An ASGI application."""

    def __init__(
        self, service: WebSocketService, backend: Backend, metrics: Metrics, security: SecuritySettings
    ) -> None:
        self._service = service
        self._backend = backend
        self._metrics = metrics
        self._security = security

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            status, text, kind = await self._answer(scope)
        except MagnetarError as error:
            status, text, kind = codes_of(error).http_status, json.dumps({"reason": str(error)}), _JSON
        body = text.encode()
        headers = [(b"content-type", kind.encode()), (b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def _answer(self, scope: Scope) -> tuple[int, str, str]:
        path = scope["raw_path"].decode("ascii", "replace")
        if path == "/metrics":
            return 200, self._metrics.text(), CONTENT_TYPE
        if path == "/status.html":
            return 200, "OK", "text/plain"
        if path in (_STATS + "metrics", _STATS + "stats"):
            await self._require_super_user(scope)
            found = self._service.metrics() if path.endswith("metrics") else self._service.statistics()
            return 200, json.dumps(found), _JSON
        if path.startswith("/ws/"):
            return 405, json.dumps({"reason": "Here is a WebSocket: the request should ask for an upgrade"}), _JSON
        return 404, json.dumps({"reason": "Here are WebSockets (/ws), /metrics and /admin/v2/proxy-stats"}), _JSON

    async def _require_super_user(self, scope: Scope) -> None:
        headers = [(name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in scope["headers"]]
        certificate = scope.get("state", {}).get("certificate")
        asked = Handshake(scope["method"], scope["path"], headers, peer=scope["client"], certificate=certificate)
        caller = await self._backend.admit(asked)
        if caller.principal is not None and caller.principal.role not in self._security.super_user_roles:
            raise NotAuthorized(f"Role {caller.principal} is not a super user")
