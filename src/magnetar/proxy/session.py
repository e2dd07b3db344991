# SPDX-License-Identifier: Apache-2.0
"""One client of the proxy: it says who it is, then either asks where topics are, or is joined to a broker.

A client whose CONNECT names a broker is passed through to it, if the rules allow. Any other may look topics up: its
questions go to brokers in its own name, brokers' redirects are followed here, and the answer tells it to come back
through the proxy. Credentials that run out end the connection; the client comes back with new ones.
Carries.
"""

import asyncio
import logging
from typing import TYPE_CHECKING, Final, cast

import magnetar
from magnetar.broker.auth.authenticator import Credentials, Identity
from magnetar.errors import BadCommand, ConnectionLost, MagnetarError, NotSupported, TooManyRequests
from magnetar.proxy.broker_link import BrokerLink, Speaker
from magnetar.proxy.first_frame import FirstFrame
from magnetar.proxy.pipe import GOODBYE_S, Pipe
from magnetar.proxy.targets import Target, parse_target
from magnetar.runtime.tasks import Tasks
from magnetar.wire import commands
from magnetar.wire.commands import Sender, Type
from magnetar.wire.error_codes import codes_of
from magnetar.wire.frame import FrameCutter, frame_bytes_max
from magnetar.wire.haproxy import HaproxyHeader
from magnetar.wire.hot import PING, PONG
from magnetar.wire.proto import pulsar_api_pb2 as pb

if TYPE_CHECKING:
    from magnetar.proxy.proxy import Proxy

REQUESTS_MAX: Final = 1_000
LINKS_MAX: Final = 100
PROXY_VERSION: Final = f"Magnetar-proxy {magnetar.__version__}"
# What any broker can answer; the rest is for the one that serves the topic, which look-up names.
_ASKED_ANYWHERE: Final = frozenset({Type.PARTITIONED_METADATA, Type.GET_TOPICS_OF_NAMESPACE, Type.GET_SCHEMA})

_log = logging.getLogger(__name__)


class ProxySession(asyncio.Protocol):
    def __init__(self, proxy: "Proxy") -> None:
        self.proxy = proxy
        self.peer = "?"
        self.address = ""
        self._loop = asyncio.get_running_loop()
        self._tasks = Tasks("proxy session", self._on_crash, tasks_max=REQUESTS_MAX)
        self._transport: asyncio.Transport | None = None
        self._haproxy: HaproxyHeader | None = None
        self._first = FirstFrame(proxy.settings.handshake_bytes_max)
        self._cutter: FrameCutter | None = None
        self._speaker: Speaker | None = None
        self._links: dict[Target, BrokerLink] = {}
        self._linking: dict[Target, asyncio.Lock] = {}
        self._pipe: Pipe | None = None
        self._heard = True
        self._silent_intervals = 0
        self._timer: asyncio.TimerHandle | None = None
        self._expiry: asyncio.TimerHandle | None = None
        self._goodbye: asyncio.TimerHandle | None = None
        self._ended = False

    # --- asyncio's calls -----------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=self.proxy.settings.pipe_bytes_max)
        found = transport.get_extra_info("peername")
        self.address = found[0] if isinstance(found, tuple) else ""
        self.peer = f"{found[0]}:{found[1]}" if isinstance(found, tuple) else str(found)
        if self.proxy.trusted_sources is not None and self.proxy.trusted_sources.has(self.address):
            self._haproxy = HaproxyHeader()
        if not self.proxy.admit(self) or (self._haproxy is None and not self.proxy.admit_from(self, self.address)):
            self._transport.abort()
            return
        self._timer = self._loop.call_later(self.proxy.keep_alive_s, self._check_alive)

    def data_received(self, data: bytes) -> None:
        self._heard = True
        try:
            if self._haproxy is not None:
                if not self._haproxy.feed(data):
                    return
                data = self._end_of_header(self._haproxy)
                if self._transport is None or self._transport.is_closing():
                    return
            if self._cutter is not None:
                self._on_lookup_bytes(self._cutter, data)
                return
            command = self._first.feed(data)
            if command is not None:
                self._on_connect(commands.parse(command, Sender.CLIENT))
        except MagnetarError as error:
            self.refuse(error)

    def _end_of_header(self, header: HaproxyHeader) -> bytes:
        """Who calls is the one that the load balancer named, in limits and logs alike; what came behind its header."""
        self._haproxy = None
        if header.source:
            self.peer = header.source
            self.address = header.source.rpartition(":")[0].strip("[]")
        if not self.proxy.admit_from(self, self.address) and self._transport is not None:
            self._transport.abort()
        return header.rest()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, error: Exception | None) -> None:
        self._on_gone()

    def pause_writing(self) -> None:
        if self._transport is not None:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        if self._transport is not None:
            self._transport.resume_reading()

    # --- beginning and end -----------------------------------------------------------------------

    def end(self) -> None:
        """Close everything of this client, once. It counts until it has read what it is owed, or is cut off."""
        if self._ended:
            return
        self._ended = True
        for timer in (self._timer, self._expiry):
            if timer is not None:
                timer.cancel()
        for link in self._links.values():
            link.close()
        if self._pipe is not None:
            self._pipe.close()
        elif self._transport is not None:
            self._transport.close()
            self._goodbye = self._loop.call_later(GOODBYE_S, self._transport.abort)
        self.proxy.on_session_ended(self._tasks)

    def _on_gone(self) -> None:
        self._transport = None
        self.end()
        if self._goodbye is not None:
            self._goodbye.cancel()
        self.proxy.on_session_gone(self)

    def refuse(self, error: MagnetarError) -> None:
        """Tell the client why, and let it go."""
        _log.warning("closing the connection of %s: %s", self.peer, error)
        if self._transport is not None and self._pipe is None:
            code = codes_of(error).server_error
            self._transport.write(commands.error(commands.REQUEST_ID_NONE, code, str(error)))
        self.end()

    def _on_crash(self, name: str, error: BaseException) -> None:
        """What nobody expected ends this client, and no other."""
        _log.error("closing the connection of %s: %s failed", self.peer, name)
        self.end()

    def _on_connect(self, command: pb.BaseCommand) -> None:
        if command.type != Type.CONNECT:
            raise BadCommand(f"{commands.name_of(command)} came before CONNECT")
        self._tasks.start(self._connect(command.connect), "CONNECT")

    async def _connect(self, connect: pb.CommandConnect) -> None:
        try:
            identity = await self._identify(connect)
            forwards = self.proxy.settings.forward_credentials
            self._speaker = Speaker(
                connect,
                identity.role if identity is not None else "",
                connect.auth_method_name if forwards else "",
                connect.auth_data if forwards else b"",
            )
            if connect.proxy_to_broker_url:
                await self._join(parse_target(connect.proxy_to_broker_url), self._speaker)
            else:
                self._welcome(connect)
            if identity is not None and identity.expires_ms is not None:
                left_ms = max(0, identity.expires_ms - self.proxy.clock.now_ms())
                self._expiry = self._loop.call_later(left_ms / 1000, self.end)
        except MagnetarError as error:
            self.refuse(error)

    async def _identify(self, connect: pb.CommandConnect) -> Identity | None:
        authentication = self.proxy.authentication
        if authentication is None:
            return None
        certificate = self._transport.get_extra_info("peercert") if self._transport is not None else None
        credentials = Credentials(connect.auth_data, certificate or None, self.address)
        return await authentication.identify(connect.auth_method_name or "none", credentials)

    def _check_alive(self) -> None:
        """A client that is silent for an interval is pinged; one that lets two pings go by is gone. Joined ones are
        pinged by their broker."""
        if self._pipe is not None or self._transport is None:
            return
        if self._cutter is None or self._silent_intervals >= 2:
            _log.warning("closing the connection of %s: it does not answer", self.peer)
            self._transport.abort()
            return
        self._silent_intervals = 0 if self._heard else self._silent_intervals + 1
        self._heard = False
        self._transport.write(PING)
        self._timer = self._loop.call_later(self.proxy.keep_alive_s, self._check_alive)

    # --- joined to a broker ------------------------------------------------------------------------

    async def _join(self, target: Target, speaker: Speaker) -> None:
        link = await self.proxy.link(target, checked=True)
        try:
            connected = await self._shaken(link, speaker)
            if self._transport is None or self._ended:
                raise ConnectionLost("the client left")
            broker, early = link.give_away()
        except BaseException:
            link.close()
            raise
        client = self._transport
        settings = self.proxy.settings
        client.write(commands.encode(Type.CONNECTED, connected) + early)
        # What the client sent behind its CONNECT goes first.
        waiting = self._first.rest()
        if waiting:
            broker.write(waiting)
        self._pipe = Pipe(
            client,
            broker,
            bytes_max=settings.pipe_bytes_max,
            silence_timeout_ms=settings.silence_timeout_ms,
            on_closed=self._on_gone,
            counted=self.proxy.count_bytes,
        )

    # --- look-ups ------------------------------------------------------------------------------------

    def _welcome(self, connect: pb.CommandConnect) -> None:
        connected = pb.CommandConnected(
            server_version=PROXY_VERSION,
            protocol_version=commands.agreed_version(connect.protocol_version),
            max_message_size=self.proxy.message_bytes_max,
        )
        connected.feature_flags.supports_topic_watchers = False
        connected.feature_flags.supports_get_partitioned_metadata_without_auto_creation = True
        self._write(commands.encode(Type.CONNECTED, connected))
        self._cutter = FrameCutter(frame_bytes_max(self.proxy.message_bytes_max))
        rest = self._first.rest()
        if rest:
            self._on_lookup_bytes(self._cutter, rest)

    def _on_lookup_bytes(self, cutter: FrameCutter, data: bytes) -> None:
        for command_bytes, _ in cutter.feed(data):
            command = commands.parse(command_bytes, Sender.CLIENT)
            if command.type == Type.PING:
                self._write(PONG)
            elif command.type != Type.PONG:
                self._ask(command)
        if cutter.fault is not None:
            raise cutter.fault

    def _ask(self, command: pb.BaseCommand) -> None:
        try:
            if command.type != Type.LOOKUP and command.type not in _ASKED_ANYWHERE:
                raise NotSupported(f"A proxy answers look-ups; {commands.name_of(command)} is for a topic's broker")
            self._tasks.start(self._answer(command), commands.name_of(command))
        except MagnetarError as error:
            self._say_no(command, error)

    async def _answer(self, command: pb.BaseCommand) -> None:
        try:
            with self.proxy.one_lookup():
                answer = await (self._locate(command) if command.type == Type.LOOKUP else self._ask_any(command))
            self._write(_encoded(answer))
        except MagnetarError as error:
            self._say_no(command, error)

    async def _ask_any(self, command: pb.BaseCommand) -> pb.BaseCommand:
        """The answer of the first broker that gives one."""
        failure: MagnetarError | None = None
        for target in self.proxy.brokers.services():
            try:
                return await self._ask_at(target, command)
            except ConnectionLost as error:
                failure = error
        assert failure is not None
        raise failure

    async def _locate(self, command: pb.BaseCommand) -> pb.BaseCommand:
        """Follow brokers' redirects to the owner, and tell the client to come there through the proxy."""
        answer = await self._ask_any(command)
        for _ in range(self.proxy.settings.redirects_max):
            found = answer.lookupTopicResponse
            if answer.type != Type.LOOKUP_RESPONSE or found.response != pb.CommandLookupTopicResponse.Redirect:
                break
            following = pb.BaseCommand()
            following.CopyFrom(command)
            following.lookupTopic.authoritative = found.authoritative
            tls = self.proxy.settings.tls_with_broker
            url = found.brokerServiceUrlTls if tls else found.brokerServiceUrl
            answer = await self._ask_at(parse_target(url), following)
        if answer.type == Type.LOOKUP_RESPONSE:
            found = answer.lookupTopicResponse
            if found.response == pb.CommandLookupTopicResponse.Redirect:
                raise ConnectionLost("Brokers redirect the look-up in circles; try again")
            if found.response == pb.CommandLookupTopicResponse.Connect:
                found.proxy_through_service_url = True
                self._name_both(found)
        return answer

    def _name_both(self, found: pb.CommandLookupTopicResponse) -> None:
        """Clients read the address that fits their way to the proxy; it is always the one for the proxy's way on."""
        tls = self.proxy.settings.tls_with_broker
        url = found.brokerServiceUrlTls if tls else found.brokerServiceUrl
        found.brokerServiceUrl = found.brokerServiceUrlTls = url

    async def _ask_at(self, target: Target, command: pb.BaseCommand) -> pb.BaseCommand:
        number = commands.body_of(command).request_id  # type: ignore[attr-defined]
        link = await self._lookup_link(target)
        timeout_s = self.proxy.settings.lookup_timeout_ms / 1000
        return await link.request(number, _encoded(command), timeout_s)

    async def _lookup_link(self, target: Target) -> BrokerLink:
        """This client's own connection to a broker, made when first needed."""
        assert self._speaker is not None
        async with self._linking.setdefault(target, asyncio.Lock()):
            link = self._links.get(target)
            if link is not None and not link.lost.is_set():
                return link
            if len(self._links) >= LINKS_MAX:
                raise TooManyRequests(f"Look-ups of one client reached {LINKS_MAX} brokers")
            link = await self.proxy.link(target, checked=False)
            try:
                await self._shaken(link, self._speaker)
                link.carry_requests(self.proxy.message_bytes_max)
            except BaseException:
                link.close()
                raise
            if self._ended:
                link.close()
            self._links[target] = link
            return link

    # --- leaves ----------------------------------------------------------------------------------

    async def _shaken(self, link: BrokerLink, speaker: Speaker) -> pb.CommandConnected:
        try:
            async with asyncio.timeout(self.proxy.settings.connect_timeout_ms / 1000):
                return await link.handshake(speaker, self.proxy.client_authentication, PROXY_VERSION)
        except TimeoutError:
            raise ConnectionLost(f"Broker {link.target} did not answer CONNECT in time") from None

    def _say_no(self, command: pb.BaseCommand, error: MagnetarError) -> None:
        refusal = commands.refusal(command, codes_of(error).server_error, str(error))
        if refusal is not None:
            self._write(refusal)

    def _write(self, data: bytes) -> None:
        if self._transport is not None and not self._ended:
            self._transport.write(data)


def _encoded(command: pb.BaseCommand) -> bytes:
    """Without what lies in the envelope beside the message that its type names, which nobody has checked."""
    return commands.encode(command.type, commands.body_of(command))
