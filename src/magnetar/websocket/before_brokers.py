# SPDX-License-Identifier: Apache-2.0
"""A WebSocket service in a process of its own, such as a proxy: every topic is a broker's that is reached over TCP.

Says to brokers who it is and for whom it speaks; what a caller may do is theirs to say. Never takes a caller's word
for who they are.
Carries.
"""

import asyncio
import ssl
from collections.abc import Callable

from magnetar.broker.as_client import AsClient
from magnetar.broker.auth.authentication import Authentication
from magnetar.broker.auth.authenticator import Credentials, Identity, Principal
from magnetar.client.client import Client
from magnetar.client.pool import over_tcp
from magnetar.client.service_url import Address
from magnetar.config.websocket import WebSocketSettings
from magnetar.runtime.clock import WallClock
from magnetar.websocket.caller import Backend, Caller, acting_client


class BeforeBrokers(Backend):
    def __init__(
        self,
        authentication: Authentication | None,
        as_client: AsClient,
        service_url: Callable[[], str],
        settings: WebSocketSettings,
        clock: WallClock,
        *,
        check_interval_s: float,
    ) -> None:
        """`service_url` says where brokers are now; ServiceNotReady where there are none."""
        super().__init__(settings, clock)
        self._authentication = authentication
        self._as_client = as_client
        self._service_url = service_url
        self._check_interval_s = check_interval_s

    @property
    def check_interval_s(self) -> float:
        return self._check_interval_s

    def methods(self) -> tuple[str, ...]:
        return () if self._authentication is None else self._authentication.methods

    async def identify(self, method: str, credentials: Credentials) -> Identity:
        assert self._authentication is not None
        return await self._authentication.identify(method, credentials)

    def principal(self, role: str, original: str) -> Principal:
        return Principal(role)

    def client(self, caller: Caller) -> Client:
        as_client = self._as_client

        async def connect(
            protocol: Callable[[], asyncio.Protocol], target: Address, context: ssl.SSLContext | None
        ) -> object:
            return await over_tcp(protocol, target, as_client.tls if target.tls else None)

        url = self._service_url()
        return acting_client(url, caller, as_client, self._settings, self.clock, connect, tls=as_client.uses_tls)
