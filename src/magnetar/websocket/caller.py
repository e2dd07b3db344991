# SPDX-License-Identifier: Apache-2.0
"""Who opened a WebSocket, and the client that acts for them.

A session has the rights of whoever opened it, and no more: at this broker its connection is theirs, at others this
service says for whom it speaks. Credentials that run out or are revoked end the session.
Carries.
"""

import asyncio
import contextlib
import logging
import ssl
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple

from magnetar.broker.as_client import AsClient
from magnetar.broker.auth.authenticator import Credentials, Identity, Principal
from magnetar.broker.auth.grants import Need, Target
from magnetar.broker.auth.http_credentials import credentials_of
from magnetar.broker.broker import Broker
from magnetar.broker.connection import Connection as BrokerConnection
from magnetar.client.authentication import Authentication, AuthenticationData
from magnetar.client.client import Client
from magnetar.client.pool import Connect, over_tcp
from magnetar.client.service_url import Address, parse_address
from magnetar.config.websocket import WebSocketSettings
from magnetar.errors import MetadataError, NotAuthenticated, NotAuthorized
from magnetar.names import NamespaceName, tenant_path
from magnetar.runtime.clock import WallClock
from magnetar.runtime.memory_transport import connect_in_memory
from magnetar.websocket.endpoint import Endpoint, Kind
from magnetar.websocket.handshake import Handshake

_BEARER: Final = "Bearer "
_ORIGINAL: Final = "x-original-principal"

_log = logging.getLogger(__name__)


class Caller(NamedTuple):
    """Whoever opened a session. Nobody in particular where nobody is asked."""

    host: str
    peer: str
    principal: Principal | None = None
    identity: Identity | None = None
    method: str = ""
    credentials: Credentials | None = None

    @property
    def original(self) -> str:
        """For whom the service speaks where it is somebody else's client."""
        return "" if self.principal is None else self.principal.original or self.principal.role


class Backend(ABC):
    """Where a WebSocket service finds out who calls, and how it reaches brokers."""

    def __init__(self, settings: WebSocketSettings, clock: WallClock) -> None:
        self._settings = settings
        self.clock = clock

    async def admit(self, handshake: Handshake) -> Caller:
        """Who asks. NotAuthenticated, NotAuthorized."""
        caller = Caller(handshake.host, handshake.peer)
        if not self.methods():
            return caller
        method, data = credentials_of(_authorization(handshake), handshake.certificate, self.methods())
        credentials = Credentials(data, handshake.certificate, handshake.host)
        identity = await self.identify(method, credentials)
        principal = self.principal(identity.role, handshake.header(_ORIGINAL))
        return caller._replace(principal=principal, identity=identity, method=method, credentials=credentials)

    async def expelled(self, caller: Caller, endpoint: Endpoint) -> str:
        """Return when the session may be no more, and why: credentials that ran out or were revoked, a permission that
        was withdrawn. In steps: the wall clock may be set, and a change may go by unheard.
        """
        identity, credentials = caller.identity, caller.credentials
        assert identity is not None, "nobody was asked"
        assert credentials is not None, "nobody was asked"
        changed = asyncio.Event()
        unwatch = self.on_permissions_changed(endpoint, changed.set)
        try:
            while True:
                left_s = self.check_interval_s
                if identity.expires_ms is not None:
                    left_s = min(left_s, (identity.expires_ms - self.clock.now_ms()) / 1000)
                    if left_s <= 0:
                        return "The credentials have expired"
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(left_s):
                        await changed.wait()
                changed.clear()
                if identity.marks and not await self._still_is(caller.method, credentials, identity.role):
                    return "The credentials were revoked"
                reason = await self.forbidden(caller, endpoint)
                if reason:
                    return reason
        finally:
            unwatch()

    async def _still_is(self, method: str, credentials: Credentials, role: str) -> bool:
        try:
            return (await self.identify(method, Credentials(credentials.data, credentials.certificate))).role == role
        except NotAuthenticated:
            return False

    def on_permissions_changed(self, endpoint: Endpoint, listener: Callable[[], None]) -> Callable[[], None]:
        """Tell of changes that may matter for an endpoint; returns the call that ends it. Nobody knows by default."""
        return lambda: None

    async def forbidden(self, caller: Caller, endpoint: Endpoint) -> str:
        """Why the caller may not have this session any more; empty where it may, or others find out."""
        return ""

    @property
    @abstractmethod
    def check_interval_s(self) -> float:
        """How often credentials are looked at again."""

    @abstractmethod
    def methods(self) -> tuple[str, ...]:
        """Of authentication; none where nobody is asked who they are."""

    @abstractmethod
    async def identify(self, method: str, credentials: Credentials) -> Identity: ...

    @abstractmethod
    def principal(self, role: str, original: str) -> Principal: ...

    @abstractmethod
    def client(self, caller: Caller) -> Client:
        """A client that does what the caller may do; closed by whoever asked for it."""


class AtBroker(Backend):
    """Inside of a broker: its own topics are reached without a socket, those of others over theirs."""

    def __init__(self, broker: Broker, settings: WebSocketSettings, clock: WallClock) -> None:
        super().__init__(settings, clock)
        self._broker = broker

    @property
    def check_interval_s(self) -> float:
        return self._broker.guard.settings.refresh_check_s

    def methods(self) -> tuple[str, ...]:
        return self._broker.guard.methods()

    async def identify(self, method: str, credentials: Credentials) -> Identity:
        return await self._broker.guard.identify(method, credentials)

    def principal(self, role: str, original: str) -> Principal:
        return self._broker.guard.principal(role, original)

    def on_permissions_changed(self, endpoint: Endpoint, listener: Callable[[], None]) -> Callable[[], None]:
        paths = {
            path
            for _, target in _questions(endpoint)
            if target.namespace is not None
            for path in (target.namespace.policies_path, tenant_path(target.tenant))
        }
        return self._broker.guard.on_permissions_changed(lambda path: listener() if path in paths else None)

    async def forbidden(self, caller: Caller, endpoint: Endpoint) -> str:
        try:
            for need, target in _questions(endpoint):
                await self._broker.guard.require(caller.principal, need, target)
        except NotAuthorized as error:
            return str(error)
        except MetadataError as error:
            _log.warning("permissions of a WebSocket session are looked at again later: %s", error)
        return ""

    def client(self, caller: Caller) -> Client:
        own = self._broker.ownership.own
        assert own is not None, "a broker that serves HTTP knows its own addresses"
        as_client = self._broker.as_client
        tls = as_client.uses_tls or not own.service_url
        url = own.service_url_tls if tls else own.service_url
        here = parse_address(url)

        def arrive() -> BrokerConnection:
            return self._broker.new_inner_connection(caller.peer, caller.principal)

        async def connect(
            protocol: Callable[[], asyncio.Protocol], target: Address, context: ssl.SSLContext | None
        ) -> object:
            if target == here:
                return connect_in_memory(protocol, arrive, caller.peer)
            return await over_tcp(protocol, target, as_client.tls if target.tls else None)

        return acting_client(url, caller, as_client, self._settings, self.clock, connect, tls=tls)


def acting_client(
    url: str,
    caller: Caller,
    as_client: AsClient,
    settings: WebSocketSettings,
    clock: WallClock,
    connect: Connect,
    *,
    tls: bool,
) -> Client:
    """To brokers it says who this service is and for whom it speaks; without a name of its own it is the caller."""
    authentication: Authentication | None = None
    original = ""
    if as_client.has_credentials:
        authentication = None if as_client.authentication is None else _Borrowed(as_client.authentication)
        original = caller.original
    elif caller.credentials is not None and caller.credentials.data:
        authentication = AuthenticationData(caller.method, caller.credentials.data)
    # Any context will do where ours is given with each connection: it says only that there is one.
    context = (as_client.tls or ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)) if tls else None
    return Client(
        url,
        authentication,
        clock=clock,
        connect=connect,
        tls=context,
        memory_limit_bytes=settings.pending_bytes_max,
        client_name="WebSocket",
        original_principal=original,
    )


def _questions(endpoint: Endpoint) -> Iterator[tuple[Need, Target]]:
    """What the brokers asked when the session was opened."""
    if endpoint.pattern:
        namespace = NamespaceName.parse(endpoint.namespace)
        yield Need.LIST, Target(namespace.tenant, namespace)
    for topic in endpoint.topics:
        if endpoint.kind is Kind.PRODUCER:
            yield Need.PRODUCE, Target.of(topic)
        else:
            yield Need.CONSUME, Target.of(topic, endpoint.subscription)


class _Borrowed(Authentication):
    """The service's own credentials, which no session closes."""

    def __init__(self, lent: Authentication) -> None:
        self._lent = lent
        self.method = lent.method

    async def credentials(self) -> bytes:
        return await self._lent.credentials()

    async def respond(self, challenge: bytes) -> bytes:
        return await self._lent.respond(challenge)

    async def http_headers(self) -> Mapping[str, str]:
        return await self._lent.http_headers()


def _authorization(handshake: Handshake) -> str:
    """The header, or for browsers, which cannot set one, a token in the query."""
    header = handshake.header("authorization")
    token = handshake.parameters.get("token", "")
    if header or not token:
        return header
    return token if token.startswith(_BEARER) else _BEARER + token
