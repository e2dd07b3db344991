# SPDX-License-Identifier: Apache-2.0
"""One connection to a broker on behalf of one client: the handshake, then requests, or raw bytes.

The proxy says who it is and for whom it speaks. After the handshake the link either carries requests and matches their
answers, or gives its transport away to a pipe together with what has arrived behind the handshake. Never reconnects.
Carries.
"""

import asyncio
import ssl
from typing import Final, NamedTuple, cast

from magnetar.client.authentication import Authentication
from magnetar.errors import BadCommand, ConnectionLost, MagnetarError, TooManyRequests
from magnetar.proxy.first_frame import FirstFrame
from magnetar.proxy.targets import Target
from magnetar.wire import commands
from magnetar.wire.commands import Sender, Type
from magnetar.wire.error_codes import error_of_server_error
from magnetar.wire.frame import FrameCutter, frame_bytes_max
from magnetar.wire.hot import PONG
from magnetar.wire.proto import pulsar_api_pb2 as pb

REQUESTS_MAX: Final = 10_000


class Speaker(NamedTuple):
    """For whom the proxy speaks: the client's own CONNECT, its role, and credentials if they go along."""

    connect: pb.CommandConnect
    role: str
    method: str = ""
    credentials: bytes = b""


class BrokerLink(asyncio.Protocol):
    """Usable once `handshake` returned, until `lost` is set."""

    def __init__(self, target: Target, handshake_bytes_max: int) -> None:
        self.target = target
        self.lost = asyncio.Event()
        self.transport: asyncio.Transport | None = None
        self._loop = asyncio.get_running_loop()
        self._first = FirstFrame(handshake_bytes_max)
        self._shaken: asyncio.Future[pb.BaseCommand] = self._loop.create_future()
        self._cutter: FrameCutter | None = None
        self._waiting: dict[int, asyncio.Future[pb.BaseCommand]] = {}

    # --- asyncio's calls -----------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def connection_lost(self, error: Exception | None) -> None:
        self.transport = None
        self.lost.set()
        reason = ConnectionLost(f"Broker {self.target} ended the connection")
        for waiting in [self._shaken, *self._waiting.values()]:
            if not waiting.done():
                waiting.set_exception(reason)
                waiting.exception()
        self._waiting.clear()

    def data_received(self, data: bytes) -> None:
        try:
            if self._cutter is None:
                self._on_handshake_bytes(data)
            else:
                self._on_bytes(self._cutter, data)
        except MagnetarError as error:
            if not self._shaken.done():
                self._shaken.set_exception(error)
            self.close()

    # --- the handshake ---------------------------------------------------------------------------

    async def handshake(
        self, speaker: Speaker, authentication: Authentication | None, proxy_version: str
    ) -> pb.CommandConnected:
        """CONNECT as the client would, with the proxy's own credentials. Raises what the broker answers."""
        asked = speaker.connect
        connect = pb.CommandConnect(
            client_version=asked.client_version,
            protocol_version=asked.protocol_version,
            proxy_version=proxy_version,
        )
        connect.feature_flags.CopyFrom(asked.feature_flags)
        if speaker.role:
            connect.original_principal = speaker.role
        if speaker.credentials:
            connect.original_auth_data = speaker.credentials.decode(errors="replace")
            connect.original_auth_method = speaker.method
        if authentication is not None:
            connect.auth_method_name = authentication.method
            connect.auth_data = await authentication.credentials()
        self._write(commands.encode(Type.CONNECT, connect))
        while True:
            answer = await self._shaken
            if answer.type == Type.CONNECTED:
                return answer.connected
            if answer.type == Type.AUTH_CHALLENGE and authentication is not None:
                self._shaken = self._loop.create_future()
                response = pb.CommandAuthResponse(protocol_version=asked.protocol_version)
                response.response.auth_method_name = authentication.method
                response.response.auth_data = await authentication.respond(answer.authChallenge.challenge.auth_data)
                self._first = self._first.following()
                self._write(commands.encode(Type.AUTH_RESPONSE, response))
                continue
            if answer.type == Type.ERROR:
                raise error_of_server_error(answer.error.error, answer.error.message)
            raise BadCommand(f"Broker {self.target} answered CONNECT with {commands.name_of(answer)}")

    def _on_handshake_bytes(self, data: bytes) -> None:
        command = self._first.feed(data)
        if command is not None and not self._shaken.done():
            self._shaken.set_result(commands.parse(command, Sender.BROKER))

    # --- after the handshake: raw bytes, or requests -----------------------------------------------

    def give_away(self) -> tuple[asyncio.Transport, bytes]:
        """The transport, and the bytes that came after the handshake; this link is done."""
        if self.transport is None:
            raise ConnectionLost(f"Broker {self.target} ended the connection")
        return self.transport, self._first.rest()

    def carry_requests(self, message_bytes_max: int) -> None:
        self._cutter = FrameCutter(frame_bytes_max(message_bytes_max))
        rest = self._first.rest()
        if rest:
            self.data_received(rest)

    async def request(self, request_id: int, frame: bytes, timeout_s: float) -> pb.BaseCommand:
        """Send a request that has this number; its answer. ConnectionLost when none comes."""
        if self.transport is None:
            raise ConnectionLost(f"Broker {self.target} ended the connection")
        if len(self._waiting) >= REQUESTS_MAX or request_id in self._waiting:
            raise TooManyRequests(f"Too many requests wait for broker {self.target}")
        waiting: asyncio.Future[pb.BaseCommand] = self._loop.create_future()
        self._waiting[request_id] = waiting
        try:
            self._write(frame)
            async with asyncio.timeout(timeout_s):
                return await waiting
        except TimeoutError:
            self.close()
            raise ConnectionLost(f"Broker {self.target} did not answer within {timeout_s:g} s") from None
        finally:
            self._waiting.pop(request_id, None)

    def close(self) -> None:
        if self.transport is not None:
            self.transport.abort()

    def _on_bytes(self, cutter: FrameCutter, data: bytes) -> None:
        for command_bytes, _ in cutter.feed(data):
            command = commands.parse(command_bytes, Sender.BROKER)
            if command.type == Type.PING:
                self._write(PONG)
                continue
            number = getattr(commands.body_of(command), "request_id", None)
            waiting = self._waiting.get(number) if number is not None else None
            if waiting is not None and not waiting.done():
                waiting.set_result(command)
        if cutter.fault is not None:
            raise cutter.fault

    def _write(self, data: bytes) -> None:
        if self.transport is not None:
            self.transport.write(data)


async def connect_link(
    target: Target, address: str, context: ssl.SSLContext | None, *, timeout_ms: int, handshake_bytes_max: int
) -> BrokerLink:
    """A TCP or TLS connection to one resolved address. ConnectionLost when there can be none."""
    link = BrokerLink(target, handshake_bytes_max)
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            await asyncio.get_running_loop().create_connection(
                lambda: link,
                address,
                target.port,
                ssl=context,
                server_hostname=target.host if context is not None else None,
            )
    except TimeoutError:
        raise ConnectionLost(f"Broker {target} took no connection within {timeout_ms} ms") from None
    except (OSError, ssl.SSLError) as error:
        raise ConnectionLost(f"Broker {target} cannot be reached: {error}") from error
    return link
