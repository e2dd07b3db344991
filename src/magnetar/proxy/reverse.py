# SPDX-License-Identifier: Apache-2.0
"""Administration through the proxy: an HTTP request goes to any broker, brokers' redirects are followed here.

Says to brokers who the client is, and never lets a client say it for itself. Answers are streamed; a request's body is
held, because a redirect sends it again. Never serves what is not administration, look-up or topics over HTTP.
Carries.
"""

import json
import logging
import re
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any, Final, TypeAlias

import httpx

from magnetar.broker.auth.authenticator import Credentials
from magnetar.broker.auth.http_credentials import credentials_of
from magnetar.errors import MagnetarError
from magnetar.proxy.brokers import web_target
from magnetar.proxy.proxy import Proxy
from magnetar.runtime.http_client import http_client
from magnetar.runtime.metrics import Metrics
from magnetar.wire.error_codes import codes_of

Message: TypeAlias = MutableMapping[str, Any]
Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]

PASSED_PATHS: Final = ("/admin/", "/lookup/", "/topics/")
_ELSEWHERE: Final = (
    "This proxy passes /admin, /lookup and /topics on; it serves WebSockets (/ws) with webSocketServiceEnabled=true"
)
# As they are written: a method in small letters is another one, and its answer is framed in another way.
_METHODS: Final = ("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH")
_ALLOWED: Final = ", ".join(_METHODS).encode()
# What one server may read as it stands and the next one as an encoded character, and the end of a text in C.
_ODD_ENCODING: Final = re.compile(rb"%(?![0-9A-Fa-f]{2})|%00")
_REDIRECTS: Final = (301, 302, 307, 308)
# Of one connection, not of the message: RFC 9110, 7.6.1. And what only the proxy may say.
_NOT_PASSED: Final = frozenset(
    b"connection keep-alive proxy-authenticate proxy-authorization te trailer transfer-encoding upgrade host "
    b"content-length expect x-original-principal".split()
)

_log = logging.getLogger(__name__)


class _Astray(Exception):
    """A redirect leads to where this proxy does not go."""


class ReverseProxy:
    """An ASGI application."""

    def __init__(self, proxy: Proxy, metrics: Metrics) -> None:
        self._proxy = proxy
        self._metrics = metrics
        self._context = proxy.broker_tls
        self._client = self._new_client()

    async def close(self) -> None:
        await self._client.aclose()

    def _connected(self) -> httpx.AsyncClient:
        """One client for all requests until the certificates change; those who wait keep the former one."""
        context = self._proxy.broker_tls
        if context is not self._context:
            self._context = context
            self._client = self._new_client()
        return self._client

    def _new_client(self) -> httpx.AsyncClient:
        settings = self._proxy.settings
        return http_client(
            self._context,
            follow_redirects=False,
            timeout=httpx.Timeout(settings.http_timeout_ms / 1000, connect=settings.connect_timeout_ms / 1000),
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["raw_path"].decode("ascii", "replace")
        try:
            if scope["method"] not in _METHODS:
                await _refuse(send, 405, f"This proxy passes {', '.join(_METHODS)} on", (b"allow", _ALLOWED))
            elif [name for name, _ in scope["headers"]].count(b"authorization") > 1:
                # The proxy could believe one of them, and the broker the other.
                await _refuse(send, 400, "There is more than one Authorization header")
            elif path == "/metrics":
                await self._tell_metrics(scope, send)
            elif path == "/status.html":
                await _answer(send, 200, b"OK", b"text/plain")
            elif not path.startswith(PASSED_PATHS):
                await _refuse(send, 404, _ELSEWHERE)
            else:
                await self._pass(scope, receive, send)
        except MagnetarError as error:
            await _refuse(send, codes_of(error).http_status, str(error))

    async def _tell_metrics(self, scope: Scope, send: Send) -> None:
        if self._proxy.metrics_authenticated:
            await self._role(scope, {name.lower(): value for name, value in scope["headers"]})
        await _answer(send, 200, self._metrics.text().encode(), b"text/plain; version=0.0.4; charset=utf-8")

    async def _pass(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = await self._headers(scope)
        bases = self._proxy.brokers.web_urls()
        urls = _urls(bases, scope["raw_path"], scope["query_string"])
        if urls is None:
            await _refuse(
                send, 400, "The path or the query is not one of a URL, has odd percent-encoding, or a step to . or .."
            )
            return
        body = await _body(receive)
        if body is None:
            return
        failure = "no broker answered"
        for base, url in zip(bases, urls, strict=True):
            try:
                answer = await self._ask(scope["method"], url, headers, body)
            except httpx.ConnectError as error:
                # It never reached a broker, so another may be asked.
                failure = f"{base} cannot be reached: {error}"
                continue
            except _Astray as error:
                _log.warning("%s %s: %s", scope["method"], scope["raw_path"][:200], error)
                await _refuse(send, 502, str(error))
                return
            except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
                await _refuse(send, 502, f"The broker did not answer: {type(error).__name__}")
                return
            try:
                await _stream(send, answer)
            except (httpx.HTTPError, OSError) as error:
                # The server ends the connection of whoever has half an answer.
                _log.warning("%s broke off in the middle of an answer: %s", base, type(error).__name__)
            finally:
                await answer.aclose()
            return
        _log.warning("no broker for %s: %s", scope["raw_path"][:200], failure)
        await _refuse(send, 503, "No broker can be reached now; try again later")

    async def _ask(
        self, method: str, url: httpx.URL, headers: list[tuple[bytes, bytes]], body: bytes
    ) -> httpx.Response:
        """The answer of the broker that serves the request, wherever the first one sends us."""
        client = self._connected()
        for _ in range(self._proxy.settings.redirects_max):
            # Not by the client, which adds headers that nobody sent.
            request = httpx.Request(method, url, headers=headers, content=body)
            answer = await client.send(request, stream=True)
            location = answer.headers.get("location", "")
            if answer.status_code not in _REDIRECTS or not location:
                return answer
            await answer.aclose()
            url = url.join(location)
            await self._check_redirect(url)
        raise httpx.TooManyRedirects("brokers redirect in circles")

    async def _check_redirect(self, url: httpx.URL) -> None:
        """Credentials go to brokers only."""
        if url.scheme not in ("http", "https"):
            raise httpx.UnsupportedProtocol(url.scheme)
        try:
            await self._proxy.check_redirect(web_target(url))
        except MagnetarError as error:
            raise _Astray(f"A broker's redirect is not followed: {error}") from error

    async def _headers(self, scope: Scope) -> list[tuple[bytes, bytes]]:
        given: list[tuple[bytes, bytes]] = [(name.lower(), value) for name, value in scope["headers"]]
        dropped = _NOT_PASSED | _named_by_connection(given)
        passed = [(name, value) for name, value in given if name not in dropped]
        proxy = self._proxy
        if proxy.authentication is not None:
            role = await self._role(scope, dict(given))
            passed.append((b"x-original-principal", role.encode()))
        if proxy.client_authentication is not None and not proxy.settings.forward_credentials:
            passed = [(name, value) for name, value in passed if name != b"authorization"]
            own = await proxy.client_authentication.http_headers()
            passed += [(name.lower().encode(), value.encode()) for name, value in own.items()]
        return passed

    async def _role(self, scope: Scope, headers: dict[bytes, bytes]) -> str:
        assert self._proxy.authentication is not None
        certificate = scope.get("state", {}).get("certificate")
        authorization = headers.get(b"authorization", b"").decode("latin-1")
        method, data = credentials_of(authorization, certificate, self._proxy.authentication.methods)
        address = scope["client"][0] if scope.get("client") else ""
        return (await self._proxy.authentication.identify(method, Credentials(data, certificate, address))).role


def _named_by_connection(headers: Iterable[tuple[bytes, bytes]]) -> frozenset[bytes]:
    listed = [value for name, value in headers if name == b"connection"]
    return frozenset(word.strip().lower() for value in listed for word in value.split(b","))


def _urls(bases: Iterable[str], path: bytes, query: bytes) -> list[httpx.URL] | None:
    """The request at each broker; None where it cannot be one, or would come out of the paths that are passed on."""
    if _ODD_ENCODING.search(path):
        return None
    readable = path.lower().replace(b"%2e", b".").replace(b"%3b", b";")
    steps = readable.replace(b"%2f", b"/").replace(b"%5c", b"/").replace(b"\\", b"/").split(b"/")
    # A broker of Apache's takes a step's parameters away before it looks at the step.
    if {b".", b".."}.intersection(step.partition(b";")[0] for step in steps):
        return None
    target = path + (b"?" + query if query else b"")
    try:
        return [httpx.URL(base).copy_with(raw_path=target) for base in bases]
    except httpx.InvalidURL:
        return None


async def _body(receive: Receive) -> bytes | None:
    """All of it; None when the client left before it was there."""
    parts = []
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return None
        parts.append(message.get("body", b""))
        if not message.get("more_body"):
            break
    return b"".join(parts)


async def _stream(send: Send, answer: httpx.Response) -> None:
    headers = [(name.lower(), value) for name, value in answer.headers.raw]
    dropped = _NOT_PASSED - {b"content-length"} | _named_by_connection(headers)
    passed = [(name, value) for name, value in headers if name not in dropped]
    await send({"type": "http.response.start", "status": answer.status_code, "headers": passed})
    async for chunk in answer.aiter_raw():
        await send({"type": "http.response.body", "body": chunk, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


async def _refuse(send: Send, status: int, reason: str, *headers: tuple[bytes, bytes]) -> None:
    await _answer(send, status, json.dumps({"reason": reason}).encode(), b"application/json", *headers)


async def _answer(send: Send, status: int, body: bytes, kind: bytes, *more: tuple[bytes, bytes]) -> None:
    headers = [(b"content-type", kind), (b"content-length", str(len(body)).encode()), *more]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
