# SPDX-License-Identifier: Apache-2.0
"""Serves an embedded store's tree to other processes: sessions with leases, over TCP.

Meant for one machine (several brokers and bookies without ZooKeeper); whoever can connect may do everything, so it
binds to loopback unless told otherwise. With a certificate it speaks TLS, and only clients that have one get in. A
session lives while frames come from its client, and for its timeout after; it survives a restart of the server with
its ephemeral records. A client that does not read what it is sent is cut off: it will reconnect and look again.
Carries.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final, cast

from magnetar.config.metadata import MetadataSettings
from magnetar.errors import (
    BadCommand,
    BadFrame,
    CannotStart,
    MagnetarError,
    SessionLost,
    TooManyRequests,
    ValueTooLarge,
)
from magnetar.metadata.access import server_context
from magnetar.metadata.durable_tree import PROCESS_BOUND, DurableTree
from magnetar.metadata.paths import lineage
from magnetar.metadata.remote_protocol import (
    CHANGES_PER_FRAME,
    NEW_SESSION,
    Frame,
    FrameCutter,
    Hello,
    Kind,
    Welcome,
    decode_delete,
    decode_hello,
    decode_path,
    decode_put,
    encode_changes,
    encode_frame,
    encode_names,
    encode_record,
    encode_refusal,
    encode_stored,
    encode_welcome,
)
from magnetar.metadata.store import Change
from magnetar.runtime.tasks import Tasks

SESSION_TIMEOUT_MIN_MS: Final = 1_000
SESSION_TIMEOUT_MAX_MS: Final = 600_000
GREETING_LIMIT_S: Final = 10.0
REQUESTS_PER_CONNECTION_MAX: Final = 1_024
UNSENT_BYTES_MAX: Final = 32 * 1024 * 1024
# A session that seems silent gets this part of its timeout more: what its client sent may still lie unread, because it
# was this process that stood still.
GRACE_PART: Final = 0.1


class MetadataServer:
    """Owns the listening socket, the connections and the leases; the tree belongs to whoever opened it."""

    def __init__(self, tree: DurableTree, settings: MetadataSettings) -> None:
        self.tree = tree
        self.settings = settings
        self.tasks = Tasks("metadata server", lambda name, error: self._on_crash(error))
        self._loop = asyncio.get_running_loop()
        self._connections: dict[_Connection, None] = {}
        self._leases: dict[int, asyncio.TimerHandle] = {}
        self._heard: dict[int, float] = {}
        self._all_gone = asyncio.Event()
        self._server: asyncio.Server | None = None
        self._unwatch: Callable[[], None] | None = None

    async def start(self, host: str, port: int) -> int:
        """Listen; returns the port, which the system chose when 0 was asked for. CannotStart names the address."""
        context = server_context(self.settings)
        try:
            self._server = await self._loop.create_server(lambda: _Connection(self), host, port, ssl=context)
        except OSError as error:
            raise CannotStart(f"the metadata server cannot listen on {host}:{port}: {error}") from error
        self._unwatch = self.tree.watch_changes(self._on_changes)
        for session, timeout_ms in self.tree.sessions().items():
            if timeout_ms != PROCESS_BOUND:
                self.renew(session)
        return int(self._server.sockets[0].getsockname()[1])

    async def close(self) -> None:
        """Stop listening and cut the connections; leased sessions go on with the next server."""
        if self._server is not None:
            self._server.close()
        if self._unwatch is not None:
            self._unwatch()
            self._unwatch = None
        for timer in self._leases.values():
            timer.cancel()
        self._leases.clear()
        await self.tasks.close()
        for connection in list(self._connections):
            connection.abort()
        while self._connections:
            self._all_gone.clear()
            await self._all_gone.wait()
        if self._server is not None:
            await self._server.wait_closed()

    # --- connections and leases -----------------------------------------------------------------

    def on_connected(self, connection: "_Connection") -> bool:
        """Whether one more connection is taken."""
        if len(self._connections) >= self.settings.connections_max:
            return False
        self._connections[connection] = None
        return True

    def on_disconnected(self, connection: "_Connection") -> None:
        self._connections.pop(connection, None)
        if not self._connections:
            self._all_gone.set()

    async def welcome(self, hello: Hello) -> Welcome:
        """Go on with the session that a client names, or begin one. SessionLost: that session has ended."""
        if hello.session != NEW_SESSION:
            timeout_ms = self.tree.session_timeout_ms(hello.session)
            if timeout_ms is None or timeout_ms == PROCESS_BOUND or hello.store_id != self.tree.store_id:
                raise SessionLost(f"metadata session {hello.session} has ended")
            self.renew(hello.session)
            return Welcome(self.tree.store_id, hello.session, timeout_ms)
        timeout_ms = min(max(hello.timeout_ms, SESSION_TIMEOUT_MIN_MS), SESSION_TIMEOUT_MAX_MS)
        session = await self.tree.open_session(timeout_ms)
        self.renew(session)
        return Welcome(self.tree.store_id, session, timeout_ms)

    def renew(self, session: int) -> None:
        """Something was heard of the session: its timeout begins again."""
        timeout_ms = self.tree.session_timeout_ms(session)
        if timeout_ms is None:
            return
        self._heard[session] = self._loop.time()
        if session not in self._leases:
            self._leases[session] = self._loop.call_later(timeout_ms / 1000, self._on_due, session, False)

    async def end(self, session: int) -> None:
        self._heard.pop(session, None)
        lease = self._leases.pop(session, None)
        if lease is not None:
            lease.cancel()
        await self.tree.close_session(session)

    # --- leaves -------------------------------------------------------------------------------

    def _on_due(self, session: int, was_silent: bool) -> None:
        """Look whether a session was heard of within its timeout; if not, wait a little more before it ends."""
        del self._leases[session]
        timeout_ms = self.tree.session_timeout_ms(session)
        if timeout_ms is None:
            self._heard.pop(session, None)
            return
        left_s = self._heard[session] + timeout_ms / 1000 - self._loop.time()
        if left_s > 0:
            self._leases[session] = self._loop.call_later(left_s, self._on_due, session, False)
        elif not was_silent:
            grace_s = timeout_ms / 1000 * GRACE_PART
            self._leases[session] = self._loop.call_later(grace_s, self._on_due, session, True)
        else:
            self.tasks.start(self.end(session), f"expiry of session {session}")

    def _on_changes(self, changes: list[Change]) -> None:
        for connection in list(self._connections):
            connection.on_changes(changes)

    def _on_crash(self, error: BaseException) -> None:
        for connection in list(self._connections):
            connection.abort()


class _Connection(asyncio.Protocol):
    """One client: requests are begun in the order of their coming, and answered when they are done."""

    def __init__(self, server: MetadataServer) -> None:
        self._server = server
        self._cutter = FrameCutter(server.settings.frame_bytes_max)
        self._transport: asyncio.Transport | None = None
        self._session = NEW_SESSION
        self._greeted = False
        self._greeting_due: asyncio.TimerHandle | None = None
        self._requests = 0
        self._prefixes: dict[str, None] = {}

    # --- from the transport -----------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports have the methods, but not the base class.
        self._transport = cast("asyncio.Transport", transport)
        if not self._server.on_connected(self):
            self._refuse(0, TooManyRequests("the metadata server has too many connections"))
            self.cut()
        self._greeting_due = asyncio.get_running_loop().call_later(GREETING_LIMIT_S, self._on_ungreeted)

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        if self._greeting_due is not None:
            self._greeting_due.cancel()
        self._server.on_disconnected(self)

    def data_received(self, data: bytes) -> None:
        try:
            for frame in self._cutter.cut(data):
                self._on_frame(frame)
        except (BadFrame, BadCommand) as error:
            self._refuse(0, error)
            self.cut()
        if self._session != NEW_SESSION:
            self._server.renew(self._session)

    # --- from the server ----------------------------------------------------------------------

    def on_changes(self, changes: list[Change]) -> None:
        told = [change for change in changes if any(above in self._prefixes for above in lineage(change.path))]
        for start in range(0, len(told), CHANGES_PER_FRAME):
            self._send(encode_frame(Kind.CHANGES, 0, encode_changes(told[start : start + CHANGES_PER_FRAME])))

    def cut(self) -> None:
        """Send what is waiting to be sent, then close."""
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    # --- leaves -------------------------------------------------------------------------------

    def _on_ungreeted(self) -> None:
        if self._session == NEW_SESSION:
            self.cut()

    def _on_frame(self, frame: Frame) -> None:
        if not self._greeted and frame.kind is not Kind.HELLO:
            raise BadCommand(f"{frame.kind.name} before HELLO")
        if frame.kind is Kind.PING:
            self._send(encode_frame(Kind.ANSWER, frame.number))
            return
        if frame.kind in (Kind.WATCH, Kind.UNWATCH):
            # At once, before anything that was asked for later can be read.
            self._watch(frame)
            return
        if self._requests >= REQUESTS_PER_CONNECTION_MAX and self._transport is not None:
            self._transport.pause_reading()
        self._requests += 1
        self._server.tasks.start(self._serve(frame), frame.kind.name.lower())

    async def _serve(self, frame: Frame) -> None:
        try:
            answer = await self._operation(frame)
        except (BadFrame, BadCommand) as error:
            self._refuse(frame.number, error)
            self.cut()
        except MagnetarError as error:
            self._refuse(frame.number, error)
        else:
            self._answer(frame, answer)
        finally:
            self._requests -= 1
            if self._transport is not None and self._requests < REQUESTS_PER_CONNECTION_MAX:
                self._transport.resume_reading()

    def _operation(self, frame: Frame) -> Coroutine[Any, Any, bytes]:
        match frame.kind:
            case Kind.HELLO:
                return self._hello(frame.body)
            case Kind.GET:
                return self._get(decode_path(frame.body))
            case Kind.PUT:
                return self._put(frame.body)
            case Kind.DELETE:
                return self._delete(frame.body)
            case Kind.CHILDREN:
                return self._children(decode_path(frame.body))
            case Kind.GOODBYE:
                return self._goodbye()
            case _:
                raise BadCommand(f"{frame.kind.name} is not a request")

    async def _hello(self, body: bytes) -> bytes:
        if self._greeted:
            raise BadCommand("a second HELLO on one connection")
        self._greeted = True
        try:
            welcome = await self._server.welcome(decode_hello(body))
        except SessionLost:
            self._greeted = False  # the client goes on with a new session
            raise
        self._session = welcome.session
        return encode_welcome(welcome)

    async def _get(self, path: str) -> bytes:
        return encode_record(await self._server.tree.get(path, session=self._session))

    async def _children(self, path: str) -> bytes:
        return encode_names(await self._server.tree.children(path, session=self._session))

    async def _put(self, body: bytes) -> bytes:
        put = decode_put(body)
        stored = await self._server.tree.put(
            put.path,
            put.value,
            session=self._session,
            expected_version=put.expected_version,
            ephemeral=put.ephemeral,
            sequential=put.sequential,
        )
        return encode_stored(*stored)

    async def _delete(self, body: bytes) -> bytes:
        path, expected_version = decode_delete(body)
        await self._server.tree.delete(path, session=self._session, expected_version=expected_version)
        return b""

    def _watch(self, frame: Frame) -> None:
        prefix = decode_path(frame.body)
        if frame.kind is Kind.UNWATCH:
            self._prefixes.pop(prefix, None)
        elif len(self._prefixes) >= self._server.settings.watches_max:
            error = TooManyRequests(f"{len(self._prefixes)} prefixes are watched, no more are taken")
            self._refuse(frame.number, error)
            return
        else:
            self._prefixes[prefix] = None
        self._send(encode_frame(Kind.ANSWER, frame.number))

    async def _goodbye(self) -> bytes:
        session, self._session = self._session, NEW_SESSION
        await self._server.end(session)
        return b""

    def _answer(self, frame: Frame, answer: bytes) -> None:
        encoded = encode_frame(Kind.ANSWER, frame.number, answer)
        if len(encoded) > self._server.settings.frame_bytes_max:
            # The client would have to cut the connection, and would ask again for ever.
            error = ValueTooLarge(
                f"the answer to {frame.kind.name} has {len(encoded)} bytes, "
                f"a frame at most {self._server.settings.frame_bytes_max}"
            )
            self._refuse(frame.number, error)
        else:
            self._send(encoded)

    def _refuse(self, number: int, error: MagnetarError) -> None:
        self._send(encode_frame(Kind.REFUSAL, number, encode_refusal(error)))

    def _send(self, data: bytes) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        self._transport.write(data)
        if self._transport.get_write_buffer_size() > UNSENT_BYTES_MAX:
            self._transport.abort()
