# SPDX-License-Identifier: Apache-2.0
"""One connection to a broker: the handshake, requests and their answers, and who gets what the broker sends unasked.

Owns the transport, the requests that wait, and the producers and consumers that are attached, by their ids. Frames
written in one turn of the loop leave in one write. A connection that breaks tells everyone once and is never used
again. Never reconnects, never knows a topic.
Carries.
"""

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol, cast

from google.protobuf.message import DecodeError, Message

from magnetar.client.authentication import Authentication
from magnetar.config.client import ClientSettings
from magnetar.errors import (
    AlreadyClosed,
    BadCommand,
    ConnectionLost,
    MagnetarError,
    NotAuthenticated,
    TimedOut,
    TooManyRequests,
    UnknownCommand,
)
from magnetar.runtime.tasks import Tasks
from magnetar.wire import commands
from magnetar.wire.commands import Sender, Type
from magnetar.wire.error_codes import error_of_server_error
from magnetar.wire.frame import MESSAGE_BYTES_MAX, Frame, FrameCutter, frame_bytes_max
from magnetar.wire.hot import PING, PONG
from magnetar.wire.message_row import NO_ROW, MessageRow
from magnetar.wire.proto import pulsar_api_pb2 as pb

REQUESTS_MAX: Final = 100_000
WRITE_BYTES_HIGH: Final = 1024 * 1024
CLIENT_VERSION: Final = "Magnetar-Python"
_GOODBYE_S: Final = 2.0

_RECEIPT: Final = b"\x08\x07"
_MESSAGE: Final = b"\x08\x09"

_log = logging.getLogger(__name__)


class AttachedProducer(Protocol):
    def on_receipt(self, receipt: pb.CommandSendReceipt) -> None: ...
    def on_send_error(self, error: pb.CommandSendError) -> None: ...
    def on_closed_by_broker(self, connection: "Connection", assigned_url: str) -> None: ...
    def on_connection_lost(self, connection: "Connection", error: MagnetarError) -> None: ...
    def on_writable(self) -> None: ...


class AttachedConsumer(Protocol):
    def on_message(self, command: pb.CommandMessage, body: bytes) -> None: ...
    def on_run(self, ledger_id: int, run: list[tuple[int, bytes]], epoch: int) -> None: ...
    def on_closed_by_broker(self, connection: "Connection", assigned_url: str) -> None: ...
    def on_connection_lost(self, connection: "Connection", error: MagnetarError) -> None: ...
    def on_active_change(self, is_active: bool) -> None: ...
    def on_end_of_topic(self) -> None: ...


class _Waiting:
    """A request under way."""

    __slots__ = ("deadline", "future")

    def __init__(self, future: asyncio.Future[Message], deadline: asyncio.Timeout) -> None:
        self.future = future
        self.deadline = deadline


class Connection(asyncio.Protocol):
    """Usable once `handshake` returned, until `is_open` is false."""

    def __init__(
        self,
        name: str,
        settings: ClientSettings,
        authentication: Authentication | None,
        on_lost: Callable[["Connection"], None],
    ) -> None:
        self.name = name
        self.is_open = False
        self.is_writable = True
        self.ended = asyncio.Event()
        # The socket itself is closed.
        self._gone = asyncio.Event()
        self.message_bytes_max = MESSAGE_BYTES_MAX
        self.features = pb.FeatureFlags()
        self.protocol_version = 0
        self.server_version = ""
        self.producers: dict[int, AttachedProducer] = {}
        self.consumers: dict[int, AttachedConsumer] = {}
        self.topic_watchers: dict[int, Callable[[pb.CommandWatchTopicUpdate], None]] = {}
        self._settings = settings
        self._authentication = authentication
        self._on_lost = on_lost
        self._loop = asyncio.get_running_loop()
        self._pid = os.getpid()
        self._tasks = Tasks(f"connection to {name}", self._on_crash, tasks_max=100)
        self.transport: asyncio.Transport | None = None
        self._cutter = FrameCutter()
        self._row = NO_ROW
        self._requests: dict[int, _Waiting] = {}
        self._next_request_id = 0
        self._connected: asyncio.Future[pb.CommandConnected] = self._loop.create_future()
        self._out: list[bytes | memoryview] = []
        self._heard = False
        self._silent_intervals = 0
        self._idle_since: float | None = None
        self._keep_alive: asyncio.TimerHandle | None = None
        self._lost_error: MagnetarError | None = None
        self._served: dict[int, Callable[[Any], None]] = {
            Type.PING: lambda _: self.send(PONG),
            Type.PONG: lambda _: None,
            Type.CONNECTED: self._on_connected,
            Type.SEND_ERROR: self._on_send_error,
            Type.ERROR: self._on_error,
            Type.CLOSE_PRODUCER: self._on_close_producer,
            Type.CLOSE_CONSUMER: self._on_close_consumer,
            Type.ACTIVE_CONSUMER_CHANGE: self._on_active_change,
            Type.REACHED_END_OF_TOPIC: self._on_end_of_topic,
            Type.AUTH_CHALLENGE: self._on_auth_challenge,
            Type.WATCH_TOPIC_UPDATE: self._on_topics_changed,
            Type.TOPIC_MIGRATED: self._on_topic_migrated,
        }

    # --- opening and closing -------------------------------------------------------------------

    async def handshake(self, proxy_to: str | None = None) -> None:
        """CONNECT, and wait for the broker's yes. Raises NotAuthenticated, ConnectionLost and what the broker says."""
        connect = pb.CommandConnect(
            client_version=f"{CLIENT_VERSION} {self._settings.client_name}".strip(),
            protocol_version=commands.PROTOCOL_VERSION,
        )
        flags = connect.feature_flags
        flags.supports_auth_refresh = True
        flags.supports_broker_entry_metadata = True
        flags.supports_partial_producer = True
        flags.supports_topic_watchers = True
        flags.supports_get_partitioned_metadata_without_auto_creation = True
        if proxy_to is not None:
            connect.proxy_to_broker_url = proxy_to
        if self._settings.original_principal:
            connect.original_principal = self._settings.original_principal
        if self._authentication is not None:
            connect.auth_method_name = self._authentication.method
            connect.auth_data = await _given(self._authentication.credentials(), self.name)
        self.send(commands.encode(Type.CONNECT, connect))
        connected = await self._connected
        if self._lost_error is not None:
            # It broke between the broker's yes and this turn of the loop.
            raise self._lost_error
        self.protocol_version = connected.protocol_version
        self.server_version = connected.server_version
        self.features.CopyFrom(connected.feature_flags)
        if connected.max_message_size > 0:
            self.message_bytes_max = connected.max_message_size
            self._cutter.widen(frame_bytes_max(connected.max_message_size))
        self.is_open = True
        self._keep_alive = self._loop.call_later(self._settings.keep_alive_interval_seconds, self._check_alive)

    async def close(self) -> None:
        self.abandon(AlreadyClosed(f"The connection to {self.name} was closed by its client"), abort=False)
        await self._tasks.close()
        await asyncio.sleep(0)  # what is not TLS is gone with the next turn
        if self.transport is not None and os.getpid() == self._pid and not self._gone.is_set():
            # TLS says goodbye before its socket closes; a broker that does not answer is not waited for long.
            try:
                async with asyncio.timeout(_GOODBYE_S):
                    await self._gone.wait()
            except TimeoutError:
                self.transport.abort()

    def abandon(self, error: MagnetarError, *, abort: bool = True) -> None:
        """The connection is of no more use: everyone who relies on it learns why, once."""
        if self._lost_error is not None:
            return
        self._lost_error = error
        self.is_open = False
        self.ended.set()
        if self._keep_alive is not None:
            self._keep_alive.cancel()
        if self.transport is not None and os.getpid() == self._pid:
            if abort:
                self.transport.abort()
            else:
                self._flush()
                self.transport.close()
        self._fail_waiting(error)
        attached: list[AttachedProducer | AttachedConsumer] = [*self.producers.values(), *self.consumers.values()]
        self.producers.clear()
        self.consumers.clear()
        self.topic_watchers.clear()
        for peer in attached:
            peer.on_connection_lost(self, error)
        self._on_lost(self)

    def _fail_waiting(self, error: MagnetarError) -> None:
        for waiting in self._requests.values():
            if not waiting.future.done():
                waiting.future.set_exception(error)
        self._requests.clear()
        if not self._connected.done():
            self._connected.set_exception(error)
            self._connected.exception()  # the one who waits may have been cancelled

    def _on_crash(self, name: str, error: BaseException) -> None:
        self.abandon(ConnectionLost(f"The connection to {self.name} failed: {name}: {error}"))

    # --- asyncio's calls -----------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.transport.set_write_buffer_limits(high=WRITE_BYTES_HIGH)

    def connection_lost(self, exc: Exception | None) -> None:
        self._gone.set()
        self.abandon(ConnectionLost(f"The connection to {self.name} is lost: {exc or 'closed by the broker'}"))

    def pause_writing(self) -> None:
        self.is_writable = False

    def resume_writing(self) -> None:
        self.is_writable = True
        for producer in list(self.producers.values()):
            producer.on_writable()

    def data_received(self, data: bytes) -> None:
        self._heard = True
        try:
            self._on_frames(self._cutter.feed(data))
            if self._cutter.fault is not None:
                raise self._cutter.fault
        except MagnetarError as error:
            _log.warning("closing the connection to %s: %s", self.name, error)
            self.abandon(ConnectionLost(f"The connection to {self.name} was given up: {error}"))

    def _on_frames(self, frames: list[Frame]) -> None:
        """Messages in a row for one consumer, which differ in their entry id only, go to it together."""
        row = self._row
        run: list[tuple[int, bytes]] = []
        for command, body in frames:
            entry_id = row.entry_id(command)
            if entry_id < 0:
                if run:
                    self._deliver_run(row, run)
                    run = []
                self._on_frame(command, body)
                row = self._row
            else:
                run.append((entry_id, body))
        if run:
            self._deliver_run(row, run)

    def _deliver_run(self, row: MessageRow, run: list[tuple[int, bytes]]) -> None:
        consumer = self.consumers.get(row.consumer_id)
        # What was on its way when the consumer left goes back to the subscription by itself.
        if consumer is not None:
            consumer.on_run(row.ledger_id, run, row.epoch)

    def _on_frame(self, command: bytes, body: bytes) -> None:
        kind = command[:2]
        if kind in (_MESSAGE, _RECEIPT):
            self._on_hot_frame(command, body)
            return
        try:
            parsed = commands.parse(command, Sender.BROKER)
        except UnknownCommand:
            _log.info("%s sent a command that this client does not know; it is passed over", self.name)
            return
        serve = self._served.get(parsed.type)
        inner = commands.body_of(parsed)
        if serve is not None:
            serve(inner)
        else:
            self._on_answer(inner)

    def _on_hot_frame(self, command: bytes, body: bytes) -> None:
        """MESSAGE and SEND_RECEIPT: as commands.parse reads them, without what only rare commands need."""
        try:
            parsed = pb.BaseCommand.FromString(command)
        except DecodeError as error:
            raise BadCommand(f"A command of {len(command)} bytes cannot be parsed.") from error
        if parsed.type == Type.MESSAGE:
            message = parsed.message
            if not message.IsInitialized():
                raise BadCommand("MESSAGE lacks its consumer or its message id")
            consumer = self.consumers.get(message.consumer_id)
            if consumer is not None:
                self._row = MessageRow.of(command)
                consumer.on_message(message, body)
            return
        receipt = parsed.send_receipt
        if not receipt.IsInitialized():
            raise BadCommand("SEND_RECEIPT lacks its producer or its sequence id")
        producer = self.producers.get(receipt.producer_id)
        if producer is not None:
            producer.on_receipt(receipt)

    # --- writing -------------------------------------------------------------------------------

    def send(self, *buffers: bytes | memoryview) -> None:
        """Write in order; what is sent within one turn of the loop leaves together. Nothing after the end."""
        if self._lost_error is not None:
            return
        if not self._out:
            self._loop.call_soon(self._flush)
        self._out.extend(buffers)

    def _flush(self) -> None:
        out = self._out
        if not out or self.transport is None or self.transport.is_closing():
            return
        self._out = []
        self.transport.writelines(out)

    # --- requests ------------------------------------------------------------------------------

    async def request(self, kind: "Type.ValueType", message: Any, timeout_s: float | None = None) -> Any:
        """Send a request (its number is filled in) and wait for its answer, the message inside the envelope.

        Raises what the broker answers, ConnectionLost, or TimedOut; then the outcome is unknown.
        """
        if self._lost_error is not None:
            raise self._lost_error
        if len(self._requests) >= REQUESTS_MAX:
            raise TooManyRequests(f"{REQUESTS_MAX} requests wait on the connection to {self.name} already")
        request_id = self._next_request_id
        self._next_request_id += 1
        message.request_id = request_id
        limit_s = self._settings.operation_timeout_seconds if timeout_s is None else timeout_s
        future: asyncio.Future[Message] = self._loop.create_future()
        try:
            async with asyncio.timeout(limit_s) as deadline:
                self._requests[request_id] = _Waiting(future, deadline)
                self.send(commands.encode(kind, message))
                return await future
        except TimeoutError:
            name = Type.Name(kind)
            raise TimedOut(f"{self.name} did not answer {name} within {limit_s:g} s") from None
        finally:
            self._requests.pop(request_id, None)

    def tell(self, kind: "Type.ValueType", message: Any) -> None:
        """Send a request whose answer nobody waits for."""
        message.request_id = self._next_request_id
        self._next_request_id += 1
        self.send(commands.encode(kind, message))

    def _on_answer(self, answer: Any) -> None:
        waiting = self._requests.get(getattr(answer, "request_id", -1))
        if waiting is None or waiting.future.done():
            return
        if isinstance(answer, pb.CommandProducerSuccess) and not answer.producer_ready:
            # Waits in line for exclusive access: for as long as it takes.
            waiting.deadline.reschedule(None)
            return
        error = _error_in(answer)
        if error is not None:
            waiting.future.set_exception(error)
        else:
            waiting.future.set_result(answer)

    def _on_error(self, answer: pb.CommandError) -> None:
        error = error_of_server_error(answer.error, answer.message)
        if not self._connected.done():
            self._connected.set_exception(error)
            return
        waiting = self._requests.get(answer.request_id)
        if waiting is not None and not waiting.future.done():
            waiting.future.set_exception(error)
        elif isinstance(error, NotAuthenticated):
            self.abandon(ConnectionLost(f"{self.name} ended the session: {error}"))

    # --- what the broker says unasked ------------------------------------------------------------

    def _on_connected(self, connected: pb.CommandConnected) -> None:
        if self._connected.done():
            raise BadCommand("CONNECTED came twice")
        self._connected.set_result(connected)

    def _on_send_error(self, error: pb.CommandSendError) -> None:
        producer = self.producers.get(error.producer_id)
        if producer is not None:
            producer.on_send_error(error)

    def _on_close_producer(self, close: pb.CommandCloseProducer) -> None:
        producer = self.producers.pop(close.producer_id, None)
        if producer is not None:
            producer.on_closed_by_broker(self, close.assignedBrokerServiceUrlTls or close.assignedBrokerServiceUrl)

    def _on_close_consumer(self, close: pb.CommandCloseConsumer) -> None:
        consumer = self.consumers.pop(close.consumer_id, None)
        if consumer is not None:
            consumer.on_closed_by_broker(self, close.assignedBrokerServiceUrlTls or close.assignedBrokerServiceUrl)

    def _on_topic_migrated(self, migrated: pb.CommandTopicMigrated) -> None:
        """The topic lives in another cluster now; its URL is where the next look-up begins."""
        url = migrated.brokerServiceUrlTls or migrated.brokerServiceUrl
        is_producer = migrated.resource_type == pb.CommandTopicMigrated.Producer
        peers: dict[int, Any] = self.producers if is_producer else self.consumers
        peer = peers.pop(migrated.resource_id, None)
        if peer is not None:
            peer.on_closed_by_broker(self, url)

    def _on_active_change(self, change: pb.CommandActiveConsumerChange) -> None:
        consumer = self.consumers.get(change.consumer_id)
        if consumer is not None:
            consumer.on_active_change(change.is_active)

    def _on_end_of_topic(self, end: pb.CommandReachedEndOfTopic) -> None:
        consumer = self.consumers.get(end.consumer_id)
        if consumer is not None:
            consumer.on_end_of_topic()

    def _on_topics_changed(self, update: pb.CommandWatchTopicUpdate) -> None:
        watcher = self.topic_watchers.get(update.watcher_id)
        if watcher is not None:
            watcher(update)

    def _on_auth_challenge(self, challenge: pb.CommandAuthChallenge) -> None:
        if self._authentication is None:
            raise BadCommand(f"{self.name} asks for credentials, and this client was given none")
        self._tasks.start(self._answer_challenge(self._authentication, challenge), "auth challenge")

    async def _answer_challenge(self, authentication: Authentication, challenge: pb.CommandAuthChallenge) -> None:
        response = pb.CommandAuthResponse(client_version=CLIENT_VERSION, protocol_version=commands.PROTOCOL_VERSION)
        response.response.auth_method_name = authentication.method
        try:
            response.response.auth_data = await _given(authentication.respond(challenge.challenge.auth_data), self.name)
        except MagnetarError as error:
            self.abandon(ConnectionLost(f"The connection to {self.name} was given up: {error}"))
            return
        self.send(commands.encode(Type.AUTH_RESPONSE, response))

    # --- keep-alive ----------------------------------------------------------------------------

    @property
    def is_idle(self) -> bool:
        return not (self.producers or self.consumers or self.topic_watchers or self._requests)

    def _check_alive(self) -> None:
        """A broker that was silent for an interval is pinged; one that is silent for two is gone."""
        interval_s = self._settings.keep_alive_interval_seconds
        if self._heard:
            self._heard = False
            self._silent_intervals = 0
        else:
            self._silent_intervals += 1
        if self._silent_intervals >= 2:
            _log.warning("closing the connection to %s: it has not answered the keep-alive", self.name)
            self.abandon(ConnectionLost(f"{self.name} was silent for {2 * interval_s:g} s"))
            return
        if self._closes_for_idleness():
            return
        self.send(PING)
        self._keep_alive = self._loop.call_later(interval_s, self._check_alive)

    def _closes_for_idleness(self) -> bool:
        now = self._loop.time()
        limit_s = self._settings.connection_max_idle_seconds
        if not self.is_idle or limit_s <= 0:
            self._idle_since = None
            return False
        if self._idle_since is None:
            self._idle_since = now
        if now - self._idle_since < limit_s:
            return False
        self.abandon(ConnectionLost(f"The connection to {self.name} was idle and closed"), abort=False)
        return True


async def _given(credentials: Awaitable[bytes], name: str) -> bytes:
    """What a plug-in gives. It is the application's code: whatever it raises, trying again later may help."""
    try:
        return await credentials
    except MagnetarError:
        raise
    except Exception as error:
        raise ConnectionLost(f"There are no credentials for {name} now: {type(error).__name__}") from error


def _error_in(answer: Any) -> MagnetarError | None:
    """What an answer that carries its own error says, if it does."""
    for code_field, text_field in (("error", "message"), ("error_code", "error_message")):
        if code_field in answer.DESCRIPTOR.fields_by_name and answer.HasField(code_field):
            return error_of_server_error(getattr(answer, code_field), getattr(answer, text_field))
    return None
