# SPDX-License-Identifier: Apache-2.0
"""Connections from this broker to those that serve topics which it does not, as a client of theirs.

Owns one connection to each broker that was asked. The owner of a topic is found as a client's look-up finds it, which
assigns a bundle that nobody has. Never asks again: whoever asks knows how often that is worth it.
Carries.
"""

import asyncio
import logging
import ssl
from collections.abc import Callable
from typing import Final

from magnetar.broker.as_client import AsClient
from magnetar.broker.ownership.owner import Owner
from magnetar.broker.ownership.ownership import Ownership
from magnetar.client.connection import Connection
from magnetar.client.pool import Pool, Way, over_tcp
from magnetar.client.service_url import Address, parse_address
from magnetar.config.client import ClientSettings
from magnetar.errors import ServiceNotReady
from magnetar.names import TopicName
from magnetar.runtime.chance import stream
from magnetar.runtime.tasks import Tasks
from magnetar.wire.commands import Type
from magnetar.wire.error_codes import error_of_server_error
from magnetar.wire.proto import pulsar_api_pb2 as pb

_REDIRECTS_MAX: Final = 10
_KEEP_ALIVE_S: Final = 10.0

_log = logging.getLogger(__name__)


class PeerRequests:
    def __init__(
        self,
        ownership: Ownership,
        as_client: AsClient,
        on_crash: Callable[[str, BaseException], None],
        *,
        timeout_ms: int,
    ) -> None:
        """An answer, and a connection, may take this long."""
        self._ownership = ownership
        self._as_client = as_client
        self._tasks = Tasks("peers", on_crash)
        settings = ClientSettings(
            operation_timeout_seconds=timeout_ms / 1000,
            connection_timeout_ms=timeout_ms,
            keep_alive_interval_seconds=_KEEP_ALIVE_S,
            client_name="broker",
        )
        # There is one connection to each broker, so that nothing is left to chance.
        self._pool = Pool(settings, as_client.authentication, None, stream(0, "peers"), self._tasks, self._connect)

    async def owner_of(self, topic: TopicName) -> Connection | None:
        """A connection to the broker that serves a topic; None when this one does. ServiceNotReady, ConnectionLost,
        TimedOut, NotAuthenticated, NotAuthorized.
        """
        authoritative = False
        # Empty: this broker.
        url = ""
        for _ in range(_REDIRECTS_MAX):
            if url:
                answer = await self._look_up(url, topic, authoritative)
                is_found = answer.response == pb.CommandLookupTopicResponse.Connect
                url = answer.brokerServiceUrlTls if self._as_client.uses_tls else answer.brokerServiceUrl
                authoritative = answer.authoritative
                own = self._ownership.own
                if own is not None and url in (own.service_url, own.service_url_tls):
                    url = ""
            else:
                located = await self._ownership.locate(topic, authoritative=authoritative)
                is_found, authoritative = not located.is_redirect, located.is_authoritative
                url = self._url_of(located.owner)
            if is_found:
                return await self._pool.connect(Way(parse_address(url))) if url else None
        raise ServiceNotReady(f"Brokers redirected the look-up of {topic} {_REDIRECTS_MAX} times")

    async def close(self) -> None:
        await self._pool.close()
        await self._tasks.close()

    async def _look_up(self, url: str, topic: TopicName, authoritative: bool) -> pb.CommandLookupTopicResponse:
        connection = await self._pool.connect(Way(parse_address(url)))
        request = pb.CommandLookupTopic(topic=str(topic), authoritative=authoritative)
        answer: pb.CommandLookupTopicResponse = await connection.request(Type.LOOKUP, request)
        if answer.response == pb.CommandLookupTopicResponse.Failed:
            raise error_of_server_error(answer.error, f"{topic}: {answer.message or 'the look-up failed'}")
        return answer

    def _url_of(self, owner: Owner) -> str:
        own = self._ownership.own
        if own is not None and owner.broker_id == own.broker_id:
            return ""
        return self._as_client.service_url(owner)

    async def _connect(
        self, protocol: Callable[[], asyncio.Protocol], target: Address, tls: ssl.SSLContext | None
    ) -> object:
        """With the certificates of now: files may have changed since the last connection."""
        return await over_tcp(protocol, target, self._as_client.tls if target.tls else None)
