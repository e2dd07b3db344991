# SPDX-License-Identifier: Apache-2.0
"""Requests that this broker makes to a topic's owner, in the name of who asked it; the owner may be this broker.

Another broker is told who this one is (`brokerClient…`) and for whom it speaks: there both must be allowed. A broker
without credentials of its own passes on those that it was given. Credentials go to owners only: a redirect is not
followed, the owner is looked up again.
Carries.
"""

import ssl
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any, Final, NamedTuple, TypeAlias

import httpx
from fastapi import Request

from magnetar.broker.auth.authenticator import Principal
from magnetar.broker.broker import Broker
from magnetar.broker.ownership.owner import Owner
from magnetar.errors import ServiceNotReady
from magnetar.names import TopicName
from magnetar.runtime.http_client import http_client

_TIMEOUT_S: Final = 30.0
# How often a topic may have moved on before the request is given up.
_MOVES_MAX: Final = 5
_REDIRECTS: Final = (307, 308)
_PASSED_ON: Final = ("authorization", "x-original-principal")
_OF_THE_REQUEST: Final = ("content-type", "x-request-id")

App: TypeAlias = Callable[[MutableMapping[str, Any], Any, Any], Awaitable[None]]


class Asked(NamedTuple):
    method: str
    path: str
    params: Mapping[str, str]
    body: bytes


class Peers:
    def __init__(self, broker: Broker, app: App) -> None:
        self._broker = broker
        self._app = app
        self._client: httpx.AsyncClient | None = None
        self._context: ssl.SSLContext | None = None

    def is_own(self, owner: Owner) -> bool:
        own = self._broker.ownership.own
        return own is not None and own.broker_id == owner.broker_id

    async def ask(self, request: Request, topic: TopicName, method: str, path: str, **params: str) -> httpx.Response:
        """The owner's answer. ServiceNotReady when it cannot be reached, or the topic moves faster than we follow."""
        asked = Asked(method, path, {**request.query_params, **params, "authoritative": "true"}, await request.body())
        for _ in range(_MOVES_MAX):
            owner = (await self._broker.ownership.locate(topic)).owner
            answer = await (self._inside(request, asked) if self.is_own(owner) else self._over(request, owner, asked))
            if answer.status_code not in _REDIRECTS:
                return answer
        raise ServiceNotReady(f"Topic {topic} moves between brokers; try again")

    async def close(self) -> None:
        if self._client is not None:
            await self._client.aclose()

    async def _inside(self, request: Request, asked: Asked) -> httpx.Response:
        """Without a connection; who asks was found out already."""
        principal = request.scope.get("state", {}).get("principal")

        async def app(scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
            # As it was sent: a name that contains %2F is one name.
            scope["path"] = scope["raw_path"].decode("ascii")
            scope["state"] = {"principal": principal}
            await self._app(scope, receive, send)

        async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://inside") as client:
            return await _send(client, asked, _chosen(request, _OF_THE_REQUEST))

    async def _over(self, request: Request, owner: Owner, asked: Asked) -> httpx.Response:
        base = self._broker.as_client.web_url(owner)
        headers = {**_chosen(request, _OF_THE_REQUEST), **await self._credentials(request)}
        try:
            return await _send(self._connected(), asked._replace(path=base + asked.path), headers)
        except (httpx.HTTPError, OSError) as error:
            raise ServiceNotReady(f"Broker {owner.broker_id} did not answer: {error!r}") from error

    async def _credentials(self, request: Request) -> dict[str, str]:
        as_client = self._broker.as_client
        if not as_client.has_credentials:
            return _chosen(request, _PASSED_ON)
        headers = dict(await as_client.authentication.http_headers()) if as_client.authentication is not None else {}
        principal: Principal | None = request.scope.get("state", {}).get("principal")
        if principal is not None:
            headers["x-original-principal"] = principal.original or principal.role
        return headers

    def _connected(self) -> httpx.AsyncClient:
        """One client for all requests until the certificates change; those who wait keep the former one."""
        context = self._broker.as_client.tls
        if self._client is None or context is not self._context:
            self._context = context
            self._client = http_client(context, follow_redirects=False, timeout=_TIMEOUT_S)
        return self._client


async def _send(client: httpx.AsyncClient, asked: Asked, headers: Mapping[str, str]) -> httpx.Response:
    return await client.request(
        asked.method, asked.path, params=dict(asked.params), content=asked.body, headers=dict(headers)
    )


def _chosen(request: Request, names: tuple[str, ...]) -> dict[str, str]:
    return {name: request.headers[name] for name in names if name in request.headers}
