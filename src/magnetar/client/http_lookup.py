# SPDX-License-Identifier: Apache-2.0
"""Look-ups over HTTP, for service URLs that begin with http:// or https://: the admin server's answers.

Redirects are followed up to the limit; hosts of the URL are tried in turn. Messages still go over the binary protocol.
Carries.
"""

import ssl
from typing import Any, Final

import httpx

from magnetar.client.authentication import Authentication
from magnetar.client.lookup import Hosts, Lookup, Mode, NamespaceTopics
from magnetar.client.pool import Way
from magnetar.client.schema_info import SchemaInfo, SchemaType
from magnetar.client.service_url import parse_address
from magnetar.config.client import ClientSettings
from magnetar.errors import (
    ConnectionLost,
    MagnetarError,
    NotAuthenticated,
    NotAuthorized,
    NotSupported,
    Refused,
    ServiceNotReady,
    TooManyRedirects,
    TooManyRequests,
    TopicNotFound,
)
from magnetar.names import NamespaceName, TopicName
from magnetar.runtime.http_client import http_client
from magnetar.wire.proto import pulsar_api_pb2 as pb

_STATUS_ERRORS: Final[dict[int, type[MagnetarError]]] = {
    401: NotAuthenticated,
    403: NotAuthorized,
    404: TopicNotFound,
    405: NotSupported,
    429: TooManyRequests,
    500: ServiceNotReady,
    502: ServiceNotReady,
    503: ServiceNotReady,
    504: ServiceNotReady,
}
_MODE_NAMES: Final = {
    pb.CommandGetTopicsOfNamespace.PERSISTENT: "PERSISTENT",
    pb.CommandGetTopicsOfNamespace.NON_PERSISTENT: "NON_PERSISTENT",
    pb.CommandGetTopicsOfNamespace.ALL: "ALL",
}


class HttpLookup(Lookup):
    def __init__(
        self,
        hosts: Hosts,
        settings: ClientSettings,
        authentication: Authentication | None,
        tls: ssl.SSLContext | None,
    ) -> None:
        self._hosts = hosts
        self._settings = settings
        self._authentication = authentication
        self._client = http_client(
            tls,
            trust_env=True,
            timeout=settings.operation_timeout_seconds,
            follow_redirects=True,
            max_redirects=settings.lookup_redirects_max,
        )

    async def _fetch(self, path: str, parameters: dict[str, str] | None = None) -> Any:
        """The JSON answer of the first host that can be reached."""
        headers = dict(await self._authentication.http_headers()) if self._authentication is not None else {}
        scheme = "https" if self._hosts.url.uses_tls else "http"
        for attempt in range(len(self._hosts), 0, -1):
            url = f"{scheme}://{self._hosts.current.authority}{path}"
            try:
                answer = await self._client.get(url, params=parameters, headers=headers)
                return _checked(answer)
            except httpx.TooManyRedirects as error:
                raise TooManyRedirects(f"{url}: {error}") from error
            except (httpx.HTTPError, OSError) as error:
                self._hosts.advance()
                if attempt == 1:
                    raise ConnectionLost(f"{url} cannot be reached: {type(error).__name__}: {error}") from error
        raise AssertionError("a service URL has at least one host")

    async def locate(self, topic: TopicName) -> Way:
        parameters = {"listenerName": self._settings.listener_name} if self._settings.listener_name else None
        found = await self._fetch(f"/lookup/v2/topic/{topic.lookup_name}", parameters)
        tls = self._hosts.url.uses_tls or self._settings.use_tls
        url = found.get("brokerUrlTls" if tls else "brokerUrl") or found.get("brokerUrlSsl" if tls else "nativeUrl")
        if not url:
            raise Refused(f"{topic}: the look-up's answer has no {'TLS' if tls else 'plain'} address")
        return Way(parse_address(url))

    async def partitions(self, topic: TopicName, *, create: bool = True) -> int:
        parameters = {"checkAllowAutoCreation": "true" if create else "false"}
        found = await self._fetch(f"/admin/v2/{topic.lookup_name}/partitions", parameters)
        return int(found.get("partitions", 0))

    async def topics(
        self, namespace: NamespaceName, mode: "Mode.ValueType", pattern: str, digest: str
    ) -> NamespaceTopics:
        names = await self._fetch(f"/admin/v2/namespaces/{namespace}/topics", {"mode": _MODE_NAMES[mode]})
        return NamespaceTopics(list(names), "", False, True)

    async def schema(self, topic: TopicName, version: bytes | None = None) -> tuple[SchemaInfo, bytes] | None:
        path = f"/admin/v2/schemas/{topic.namespace}/{topic.base.encoded_local_name}/schema"
        if version is not None:
            path += f"/{int.from_bytes(version, 'big')}"
        try:
            found = await self._fetch(path)
        except TopicNotFound:
            return None
        kind = SchemaType[found["type"]]
        info = SchemaInfo(kind, topic.local_name, found.get("data", "").encode(), found.get("properties") or {})
        return info, int(found["version"]).to_bytes(8, "big")

    async def close(self) -> None:
        await self._client.aclose()


def _checked(answer: httpx.Response) -> Any:
    if answer.is_success:
        try:
            return answer.json()
        except (ValueError, RecursionError) as error:
            raise Refused(f"{answer.url} did not answer with JSON") from error
    try:
        reason = str(answer.json().get("reason", ""))
    except (ValueError, AttributeError, RecursionError):
        reason = answer.text[:200]
    kind = _STATUS_ERRORS.get(answer.status_code, Refused)
    raise kind(f"{answer.url.path} answered {answer.status_code}: {reason}")
