# SPDX-License-Identifier: Apache-2.0
"""The bounds around every request: how many run, how large a body is, how long it takes; and the path as it was sent.

A request beyond a bound or a rate is answered (429, 413, 503) and costs nothing else. Paths are matched as they were
sent, still encoded: a name that contains %2F is one name. Every request has an id, its own or one that it brought,
which its answer and the lines logged for it carry; what it changed is written to the audit log.
Carries.
"""

import asyncio
import math
import re
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final, TypeAlias

from fastapi import Response

from magnetar.admin.answers import refused
from magnetar.admin.audit import start_trail, write_line
from magnetar.broker.rate_limit import TokenBucket
from magnetar.config.admin import AdminSettings
from magnetar.runtime.log import REQUEST

Message: TypeAlias = MutableMapping[str, Any]
Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
App: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]


# What a client may call its request; anything else is given a number.
_REQUEST_ID: Final = re.compile(rb"[A-Za-z0-9._:-]{1,64}")


class BodyTooLarge(Exception):
    """Ends the reading of a body from inside the application."""

    def __init__(self, bytes_max: int) -> None:
        super().__init__(f"The body is larger than {bytes_max} bytes")


class Bounds:
    def __init__(self, app: App, settings: AdminSettings) -> None:
        self._app = app
        self._settings = settings
        self.running = 0
        self._requests = 0
        self._rate: TokenBucket | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        settings = self._settings
        if scope["method"] == "CONNECT":
            # A success would be the beginning of a tunnel, and the end of HTTP on the connection.
            await refused(405, "No tunnels are opened here")(scope, receive, send)
            return
        if self.running >= settings.requests_max:
            await refused(429, f"{self.running} requests run already; try again later")(scope, receive, send)
            return
        wait_s = self._wait_s()
        if wait_s > 0:
            response = refused(429, f"More than {settings.requests_per_s:g} requests came in a second; try again later")
            response.headers["retry-after"] = str(math.ceil(wait_s))
            await response(scope, receive, send)
            return
        if _declared_bytes(scope) > settings.request_bytes_max:
            await refused_body(BodyTooLarge(settings.request_bytes_max))(scope, receive, send)
            return
        scope["path"] = scope["raw_path"].decode("ascii", "replace")
        self.running += 1
        self._requests += 1
        request_id = _given_id(scope) or f"http-{self._requests}"
        REQUEST.set(request_id)
        trail = start_trail()
        status = 0

        async def named(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                # A proxy's answer comes with the broker's.
                others = [each for each in message.get("headers", ()) if each[0] != b"x-request-id"]
                message["headers"] = [*others, (b"x-request-id", request_id.encode())]
            await send(message)

        try:
            await self._bounded(scope, receive, named)
        finally:
            self.running -= 1
            write_line(trail, scope["method"], scope["path"], _peer(scope), status)

    def _wait_s(self) -> float:
        """How long this request came too early; 0 where it is served."""
        settings = self._settings
        if not settings.requests_limited:
            return 0.0
        now_s = asyncio.get_running_loop().time()
        if self._rate is None:
            amount = max(1, math.ceil(settings.requests_per_s))
            self._rate = TokenBucket(amount, amount / settings.requests_per_s, now_s)
        if self._rate.available(now_s) < 1:
            return max(self._rate.wait_s(now_s), 0.001)
        self._rate.take(1, now_s)
        return 0.0

    async def _bounded(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = False

        async def noted(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            async with asyncio.timeout(self._settings.request_timeout_ms / 1000):
                await self._app(scope, _limited(receive, self._settings.request_bytes_max), noted)
        except BodyTooLarge as error:
            if not started:
                await refused_body(error)(scope, receive, send)
        except TimeoutError:
            if not started:
                text = f"Not done after {self._settings.request_timeout_ms} ms; it may or may not have been carried out"
                await refused(503, text)(scope, receive, send)


def refused_body(error: BodyTooLarge) -> Response:
    response = refused(413, str(error))
    # What the client still sends of it is not read.
    response.headers["connection"] = "close"
    return response


def _limited(receive: Receive, bytes_max: int) -> Receive:
    size = 0

    async def limited() -> Message:
        nonlocal size
        message = await receive()
        size += len(message.get("body", b""))
        if size > bytes_max:
            raise BodyTooLarge(bytes_max)
        return message

    return limited


def _given_id(scope: Scope) -> str:
    for name, value in scope["headers"]:
        if name == b"x-request-id" and _REQUEST_ID.fullmatch(value):
            return str(value.decode())
    return ""


def _peer(scope: Scope) -> str:
    client = scope.get("client")
    return f"{client[0]}:{client[1]}" if client else ""


def _declared_bytes(scope: Scope) -> int:
    for name, value in scope["headers"]:
        if name == b"content-length":
            return int(value) if value.isdigit() else 0
    return 0
