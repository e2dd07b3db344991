# SPDX-License-Identifier: Apache-2.0
"""Requests to a broker's HTTP interface, one after another over one connection, following redirects to owners.

The standard library's client and not httpx: a command that asks once and ends is dominated by what it imports.
Carries.
"""

import http.client
import json
import sys
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urljoin, urlsplit

from magnetar.cli import exits
from magnetar.cli.access import Access
from magnetar.cli.exits import Failure
from magnetar.cli.verbs.verb import AdminAnswer, AdminRequest
from magnetar.errors import BadSetting

TIMEOUT_S: Final = 300
REDIRECTS_MAX: Final = 10
ANSWER_BYTES_MAX: Final = 1 << 30
_REDIRECTS: Final = (301, 302, 303, 307, 308)


_CODES: Final = {
    401: exits.NOT_PERMITTED,
    403: exits.NOT_PERMITTED,
    404: exits.NOT_FOUND,
    501: exits.NOT_SERVED,
}


class AdminRefusal(Failure):
    """The broker answered that it does not do it."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason, _CODES.get(status, exits.REFUSED))
        self.status = status


class HttpApi:
    """A broker's HTTP interface, for one command."""

    def __init__(self, access: Access, timeout_s: float = TIMEOUT_S) -> None:
        self._access = access
        self._timeout_s = timeout_s
        self._connections: dict[tuple[str, str], http.client.HTTPConnection] = {}
        self._headers: Mapping[str, str] | None = None

    @property
    def url(self) -> str:
        return self._access.admin_url

    def ask(self, request: AdminRequest) -> AdminAnswer:
        """The answer. Raises AdminRefusal, or Failure when nobody answers."""
        url = self._access.admin_url + request.path
        for _ in range(REDIRECTS_MAX):
            answer, content = self._send(url, request)
            target = answer.getheader("Location")
            if answer.status in _REDIRECTS and target:
                url = urljoin(url, target)
                continue
            if answer.status >= 400:
                raise AdminRefusal(answer.status, _reason(answer, content))
            headers = {name.lower(): text for name, text in answer.getheaders()}
            return AdminAnswer(_value(headers.get("content-type", ""), content), headers)
        raise Failure(f"{self._access.admin_url} redirects without end", exits.UNREACHABLE)

    def get(self, path: str) -> Any:
        return self.ask(AdminRequest("GET", path)).value

    def confirm(self, question: str) -> bool:
        if not sys.stdin.isatty():
            return False
        sys.stderr.write(f"{question} [y/N] ")
        sys.stderr.flush()
        return sys.stdin.readline().strip().lower() in ("y", "yes")

    def now_ms(self) -> int:
        from magnetar.runtime.clock import SystemClock

        return SystemClock().now_ms()

    def pause(self, seconds: float) -> None:
        from magnetar.runtime.clock import SystemClock

        # Not in a loop made for it: an interrupt while one is being built leaves half a loop to complain at the end.
        SystemClock().hold(seconds)

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()

    def _send(self, url: str, request: AdminRequest) -> tuple[http.client.HTTPResponse, bytes]:
        parts = urlsplit(url)
        path = parts.path + (f"?{parts.query}" if parts.query else "")
        headers = dict(self._proof())
        if request.body is not None:
            headers["Content-Type"] = request.media_type
        connection = self._connection(parts.scheme, parts.netloc)
        try:
            connection.request(request.method, path, body=request.body, headers=headers)
            answer = connection.getresponse()
            return answer, answer.read(ANSWER_BYTES_MAX)
        except (OSError, http.client.HTTPException) as error:
            self._connections.pop((parts.scheme, parts.netloc), None)
            connection.close()
            where = f"{parts.scheme}://{parts.netloc}"
            text = f"No answer from {where}: {_why(error)}; check --admin-url and that a broker runs there"
            raise Failure(text, exits.UNREACHABLE) from None

    def _connection(self, scheme: str, place: str) -> http.client.HTTPConnection:
        found = self._connections.get((scheme, place))
        if found is not None:
            return found
        try:
            if scheme == "https":
                made: http.client.HTTPConnection = http.client.HTTPSConnection(
                    place, timeout=self._timeout_s, context=self._access.tls()
                )
            elif scheme == "http" and place:
                made = http.client.HTTPConnection(place, timeout=self._timeout_s)
            else:
                raise BadSetting(
                    f"--admin-url {self._access.admin_url} should be http://HOST:PORT or https://HOST:PORT"
                )
        except http.client.InvalidURL as error:
            raise BadSetting(f"--admin-url {self._access.admin_url} cannot be used: {error}") from None
        self._connections[scheme, place] = made
        return made

    def _proof(self) -> Mapping[str, str]:
        """Headers that say who asks. Plug-ins are asynchronous, so a loop is only made where there is one."""
        if self._headers is None:
            authentication = self._access.authentication()
            if authentication is None:
                self._headers = {}
            else:
                import asyncio

                self._headers = asyncio.run(authentication.http_headers())
        return self._headers


def _value(media_type: str, content: bytes) -> Any:
    if "octet-stream" in media_type:
        return content
    if not content:
        return None
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        return content.decode(errors="replace")


def _reason(answer: http.client.HTTPResponse, content: bytes) -> str:
    try:
        reason = json.loads(content)["reason"]
    except (ValueError, KeyError, TypeError, RecursionError):
        reason = None
    if reason:
        return str(reason)
    if answer.status == 401:
        return "Who asks is not proven: give --auth-plugin and --auth-params"
    text = content[:200].decode(errors="replace").strip()
    return f"HTTP {answer.status} {answer.reason}" + (f": {text}" if text and "<" not in text else "")


def _why(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "it takes too long"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__
