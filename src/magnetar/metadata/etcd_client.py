# SPDX-License-Identifier: Apache-2.0
"""The seam to etcd: its gRPC gateway, which takes and gives JSON over HTTP; the next server when one fails.

Requests wait for a place on one of a few connections; those of the lease have one of their own, so that no crowd of
other requests lets a session run out. A user's name and password become a token, anew when that has run out. Knows no
record. A request that may have been carried out although its answer
is missing says so.
Carries.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator
from typing import Any, Final
from urllib.parse import urlsplit

import httpx

from magnetar.errors import BadSetting, MetadataError, OutcomeUnknown
from magnetar.metadata.access import NO_ACCESS, StoreAccess
from magnetar.metadata.etcd_format import error_text
from magnetar.runtime.http_client import http_client

CONNECTIONS_MAX: Final = 32
EVENT_BYTES_MAX: Final = 64 * 1024 * 1024


def parse_servers(text: str) -> tuple[list[str], str]:
    """Base URLs and chroot of `http://a:2379,b:2379/chroot`. BadSetting says what is wrong."""
    scheme, separator, rest = text.partition("://")
    if not separator or scheme not in ("http", "https"):
        raise BadSetting(f"metadata URL 'etcd:{text}' names no server: write etcd:http://HOST:2379")
    hosts, _, chroot = rest.partition("/")
    servers = [f"{scheme}://{host.strip()}" for host in hosts.split(",") if host.strip()]
    for server in servers:
        try:
            if not urlsplit(server).hostname or urlsplit(server).port is None:
                raise ValueError(server)
        except ValueError:
            raise BadSetting(f"metadata URL: {server!r} should be http://HOST:2379") from None
        if "@" in server:
            raise BadSetting("metadata URL: a user of etcd stands in the file that metadata.credentials_file names")
    if not servers:
        raise BadSetting(f"metadata URL 'etcd:{text}' names no server: write etcd:http://HOST:2379")
    if "#" in chroot:
        raise BadSetting(f"metadata URL: a chroot of etcd cannot contain '#': {chroot!r}")
    return servers, f"/{chroot.strip('/')}" if chroot.strip("/") else ""


class _NotKnown(Exception):
    """etcd does not know who asks; nothing was carried out."""


class EtcdClient:
    def __init__(self, servers: list[str], timeout_ms: int, access: StoreAccess = NO_ACCESS) -> None:
        self._servers = servers
        self._current = 0
        self._timeout_s = timeout_ms / 1000
        self._places = asyncio.Semaphore(CONNECTIONS_MAX)
        self._access = access
        self._token = ""
        self._extensions = {"sni_hostname": access.server_name} if access.server_name else {}
        self._http = self._new_client()
        self._lease_http = self._new_client()

    def _new_client(self) -> httpx.AsyncClient:
        return http_client(self._access.context(), timeout=httpx.Timeout(self._timeout_s))

    async def call(self, path: str, body: dict[str, Any], *, writes: bool) -> Any:
        """One request and its answer. OutcomeUnknown for a write without an answer, else MetadataError."""
        async with self._places:
            return await self._ask(self._http, path, body, writes, self._timeout_s)

    async def call_lease(self, verb: str, body: dict[str, Any], timeout_s: float | None = None) -> Any:
        """A request about a lease; MetadataError without an answer. All of them may be asked again."""
        return await self._ask(self._lease_http, f"lease/{verb}", body, False, timeout_s or self._timeout_s)

    async def _ask(self, http: httpx.AsyncClient, path: str, body: dict[str, Any], writes: bool, limit_s: float) -> Any:
        """Who is not known, or no longer, was not served: it proves itself and asks again, once."""
        used = await self._proven(http, limit_s)
        try:
            return await self._ask_once(http, path, body, writes, limit_s)
        except _NotKnown:
            if self._token == used:
                self._token = ""
            await self._proven(http, limit_s)
        try:
            return await self._ask_once(http, path, body, writes, limit_s)
        except _NotKnown as error:
            raise MetadataError(f"etcd refused {path}: {error}") from error

    async def _proven(self, http: httpx.AsyncClient, limit_s: float) -> str:
        if self._access.user and not self._token:
            who = {"name": self._access.user, "password": self._access.password}
            try:
                answer = await self._ask_once(http, "auth/authenticate", who, False, limit_s)
            except _NotKnown as error:
                raise MetadataError(f"etcd does not let {self._access.user} in: {error}") from None
            self._token = str(answer.get("token", ""))
        return self._token

    def _headers(self) -> dict[str, str]:
        return {"Authorization": self._token} if self._token else {}

    async def _ask_once(
        self, http: httpx.AsyncClient, path: str, body: dict[str, Any], writes: bool, limit_s: float
    ) -> Any:
        for attempt in range(len(self._servers), 0, -1):
            server = self._servers[self._current]
            try:
                async with asyncio.timeout(limit_s):
                    answer = await http.post(
                        f"{server}/v3/{path}", json=body, headers=self._headers(), extensions=self._extensions
                    )
            except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout) as error:
                # It never left, so another server may be asked.
                self._turn_from(server)
                if attempt == 1:
                    raise MetadataError(f"etcd at {server} cannot be reached: {error}") from error
                continue
            except (httpx.HTTPError, OSError) as error:
                # A server that refuses our certificate says so after the handshake, as an error of the socket.
                self._turn_from(server)
                if writes:
                    raise OutcomeUnknown(f"the connection to etcd broke during {path}: {error!r}") from error
                raise MetadataError(f"etcd did not answer {path}: {error!r}") from error
            if answer.status_code == 200:
                return _read(answer.content, path)
            said = error_text(answer.content)
            if answer.status_code == 401:
                raise _NotKnown(said)
            self._turn_from(server)
            if writes and answer.status_code in (500, 503, 504):
                raise OutcomeUnknown(f"etcd failed during {path}: {said}")
            raise MetadataError(f"etcd refused {path}: {said}")
        raise AssertionError("there is at least one server")

    async def events(self, body: dict[str, Any]) -> AsyncGenerator[Any, None]:
        """A watch: its answers, one after another, until the connection ends (MetadataError)."""
        server = self._servers[self._current]
        held = b""
        # No answer may come for as long as nothing changes; the session's keep-alive notices a dead server.
        timeout = httpx.Timeout(self._timeout_s, read=None)
        await self._proven(self._http, self._timeout_s)
        try:
            async with self._http.stream(
                "POST",
                f"{server}/v3/watch",
                json=body,
                timeout=timeout,
                headers=self._headers(),
                extensions=self._extensions,
            ) as answer:
                if answer.status_code != 200:
                    self._token = ""
                    raise MetadataError(f"etcd refused a watch: {answer.status_code}")
                async for chunk in answer.aiter_raw():
                    *lines, held = (held + chunk).split(b"\n")
                    if len(held) > EVENT_BYTES_MAX:
                        raise MetadataError(f"etcd sent an event of more than {EVENT_BYTES_MAX} bytes")
                    for line in lines:
                        if line.strip():
                            yield _result(_read(line, "watch"))
        except (httpx.HTTPError, OSError) as error:
            self._turn_from(server)
            raise MetadataError(f"the watch on etcd ended: {error!r}") from error
        raise MetadataError("the watch on etcd ended")

    async def close(self) -> None:
        for http in (self._http, self._lease_http):
            with contextlib.suppress(httpx.HTTPError, RuntimeError):
                await http.aclose()

    def _turn_from(self, server: str) -> None:
        if self._servers[self._current] == server:
            self._current = (self._current + 1) % len(self._servers)


def _read(data: bytes, what: str) -> Any:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise MetadataError(f"etcd answered {what} with something that is not JSON") from error
    if not isinstance(found, dict):
        raise MetadataError(f"etcd answered {what} with something that is not an object")
    return found


def _result(found: Any) -> Any:
    if "error" in found:
        raise MetadataError(f"etcd ended a watch: {error_text(json.dumps(found['error']).encode())}")
    return found.get("result", {})
