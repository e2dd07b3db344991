# SPDX-License-Identifier: Apache-2.0
"""Metadata on a metadata server (`magnetar metadata serve`): one session over one connection at a time.

Owns the session and finds its way back: a lost connection is replaced, and the session goes on if the server still
knows it. Requests that were under way when the connection broke have an unknown outcome if they were writes. Watches
are set again after a reconnection, and each prefix is told as changed, because what happened meanwhile is not known.
Carries.
"""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final, NamedTuple, cast

from magnetar.config.metadata import MetadataSettings
from magnetar.errors import (
    CannotStart,
    MagnetarError,
    MetadataError,
    OutcomeUnknown,
    PeerFault,
    SessionLost,
    TooManyRequests,
    ValueTooLarge,
)
from magnetar.metadata.access import store_access
from magnetar.metadata.loop_watches import loop_watches
from magnetar.metadata.paths import check_path
from magnetar.metadata.remote_protocol import (
    NEW_SESSION,
    Frame,
    FrameCutter,
    Hello,
    Kind,
    Put,
    Welcome,
    decode_changes,
    decode_names,
    decode_record,
    decode_refusal,
    decode_stored,
    decode_welcome,
    encode_delete,
    encode_frame,
    encode_hello,
    encode_path,
    encode_put,
)
from magnetar.metadata.store import GOODBYE_S, Change, MetadataStore, Record, SessionEvent, Stored
from magnetar.runtime.tasks import Tasks

# Parts of the session's timeout: how often the server hears of us, and how long we wait to hear from it.
PING_PART: Final = 1 / 4
SILENCE_PART: Final = 2 / 3


class _Waiting(NamedTuple):
    answer: asyncio.Future[bytes]
    writes: bool


class _Link(asyncio.Protocol):
    """One connection: numbers requests, matches answers, notices silence."""

    def __init__(self, settings: MetadataSettings, on_changes: Callable[[list[Change]], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._cutter = FrameCutter(settings.frame_bytes_max)
        self._on_changes = on_changes
        self._transport: asyncio.Transport | None = None
        self._waiting: dict[int, _Waiting] = {}
        self._number = 0
        self._ping_timer: asyncio.TimerHandle | None = None
        self._heard = self._loop.time()
        self._fault = ""
        self.lost = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports have the methods, but not the base class.
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        if self._ping_timer is not None:
            self._ping_timer.cancel()
        waiting, self._waiting = self._waiting, {}
        for request in waiting.values():
            if not request.answer.done():
                text = self._fault or "the connection to the metadata server broke before the answer came"
                request.answer.set_exception(OutcomeUnknown(text) if request.writes else MetadataError(text))
        self.lost.set()

    def data_received(self, data: bytes) -> None:
        self._heard = self._loop.time()
        try:
            for frame in self._cutter.cut(data):
                self._on_frame(frame)
        except PeerFault as error:
            self._fault = f"what is there does not speak as a metadata server does ({error}): is it the right port?"
            self.cut()

    def request(self, kind: Kind, body: bytes, *, writes: bool) -> asyncio.Future[bytes]:
        answer: asyncio.Future[bytes] = self._loop.create_future()
        if self._transport is None or self._transport.is_closing():
            answer.set_exception(MetadataError(self._fault or "the metadata server is not connected"))
            return answer
        self._number += 1
        self._waiting[self._number] = _Waiting(answer, writes)
        self._transport.write(encode_frame(kind, self._number, body))
        return answer

    def keep_alive(self, timeout_ms: int) -> None:
        """Ping from now on, and give the connection up when the server is silent for too long."""
        if self._loop.time() - self._heard > timeout_ms / 1000 * SILENCE_PART:
            self.cut()
            return
        self._tell(Kind.PING, b"")
        self._ping_timer = self._loop.call_later(timeout_ms / 1000 * PING_PART, self.keep_alive, timeout_ms)

    def watch(self, prefix: str, *, wanted: bool) -> None:
        self._tell(Kind.WATCH if wanted else Kind.UNWATCH, encode_path(prefix))

    def pending(self) -> int:
        return len(self._waiting)

    def unsent_bytes(self) -> int:
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def cut(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def _tell(self, kind: Kind, body: bytes) -> None:
        """A request whose answer says nothing."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(encode_frame(kind, 0, body))

    def _on_frame(self, frame: Frame) -> None:
        if frame.kind is Kind.CHANGES:
            self._on_changes(decode_changes(frame.body))
            return
        request = self._waiting.pop(frame.number, None)
        if request is None or request.answer.done():
            return
        if frame.kind is Kind.ANSWER:
            request.answer.set_result(frame.body)
        elif frame.kind is Kind.REFUSAL:
            request.answer.set_exception(decode_refusal(frame.body))


class RemoteStore(MetadataStore):
    """Open with `await RemoteStore.open(host, port)`."""

    def __init__(self, host: str, port: int, settings: MetadataSettings) -> None:
        self._host = host
        self._port = port
        self._settings = settings
        self._context = store_access(settings).context()
        self._loop = asyncio.get_running_loop()
        self._watches = loop_watches(
            settings,
            on_first=lambda prefix: self._ask(prefix, wanted=True),
            on_last=lambda prefix: self._ask(prefix, wanted=False),
        )
        self._tasks = Tasks(f"metadata {host}:{port}", self._on_crash, tasks_max=2)
        self._link: _Link | None = None
        self._session = Welcome(0, NEW_SESSION, settings.session_timeout_ms)
        self._lost = False
        self._closed = False

    @classmethod
    async def open(cls, host: str, port: int, settings: MetadataSettings | None = None) -> "RemoteStore":
        """Connect and begin a session. CannotStart when the server does not answer in time."""
        store = cls(host, port, settings or MetadataSettings())
        try:
            async with asyncio.timeout(store._settings.operation_timeout_ms / 1000):
                await store._connect()
        except (OSError, TimeoutError, MagnetarError) as error:
            await store.close()
            raise CannotStart(f"no metadata server at {host}:{port} took us: {error or 'no answer'}") from error
        store._tasks.start(store._stay_connected(), "connection")
        return store

    async def get(self, path: str) -> Record | None:
        check_path(path, self._settings.path_bytes_max)
        return decode_record(await self._request(Kind.GET, encode_path(path), writes=False))

    async def put(
        self,
        path: str,
        value: bytes,
        *,
        expected_version: int | None = None,
        ephemeral: bool = False,
        sequential: bool = False,
    ) -> Stored:
        check_path(path, self._settings.path_bytes_max)
        if len(value) > self._settings.value_bytes_max:
            raise ValueTooLarge(
                f"record {path} has {len(value)} bytes, more than the {self._settings.value_bytes_max} allowed"
            )
        put = Put(path, value, expected_version, ephemeral, sequential)
        return Stored(*decode_stored(await self._request(Kind.PUT, encode_put(put), writes=True)))

    async def delete(self, path: str, *, expected_version: int | None = None) -> None:
        check_path(path, self._settings.path_bytes_max)
        await self._request(Kind.DELETE, encode_delete(path, expected_version), writes=True)

    async def children(self, path: str) -> list[str]:
        check_path(path, self._settings.path_bytes_max)
        return decode_names(await self._request(Kind.CHILDREN, encode_path(path), writes=False))

    def watch(self, prefix: str, listener: Callable[[Change], None]) -> Callable[[], None]:
        return self._watches.add(prefix, listener)

    def watch_session(self, listener: Callable[[SessionEvent], None]) -> Callable[[], None]:
        return self._watches.add_session(listener)

    async def close(self) -> None:
        """End the session; if the server cannot be told, it ends by its timeout."""
        if self._closed:
            return
        self._closed = True
        self._watches.clear()
        await self._tasks.close()
        if self._link is not None:
            with contextlib.suppress(MagnetarError, TimeoutError):
                async with asyncio.timeout(GOODBYE_S):
                    await self._link.request(Kind.GOODBYE, b"", writes=True)
            self._link.cut()
            await self._link.lost.wait()

    # --- the connection and the session ---------------------------------------------------------

    async def _stay_connected(self) -> None:
        while True:
            assert self._link is not None
            await self._link.lost.wait()
            self._link = None
            self._watches.on_session(SessionEvent.DISCONNECTED)
            await self._reconnect()

    async def _reconnect(self) -> None:
        delay_ms = self._settings.reconnect_delay_min_ms
        while True:
            try:
                async with asyncio.timeout(self._settings.operation_timeout_ms / 1000):
                    await self._connect()
                    return
            except (OSError, TimeoutError, MagnetarError):
                await asyncio.sleep(delay_ms / 1000)
                delay_ms = min(2 * delay_ms, self._settings.reconnect_delay_max_ms)

    async def _connect(self) -> None:
        """One connection with a session on it: the former one, or if that has ended, a new one."""
        link = _Link(self._settings, self._watches.on_changes)
        name = self._host if self._context is not None else None
        await self._loop.create_connection(
            lambda: link, self._host, self._port, ssl=self._context, server_hostname=name
        )
        try:
            before = self._session.session
            try:
                welcome = await self._greet(link)
            except SessionLost:
                self._on_lost()
                welcome = await self._greet(link)
        except BaseException:
            link.cut()
            raise
        self._session = welcome
        self._link = link
        link.keep_alive(welcome.timeout_ms)
        for prefix in self._watches.prefixes():
            link.watch(prefix, wanted=True)
        self._on_connected(is_first=before == NEW_SESSION)

    async def _greet(self, link: _Link) -> Welcome:
        hello = Hello(self._session.store_id, self._session.session, self._settings.session_timeout_ms)
        return decode_welcome(await link.request(Kind.HELLO, encode_hello(hello), writes=False))

    def _on_lost(self) -> None:
        self._session = Welcome(0, NEW_SESSION, self._settings.session_timeout_ms)
        self._lost = True
        self._watches.on_session(SessionEvent.LOST)

    def _on_connected(self, *, is_first: bool) -> None:
        if self._lost:
            self._lost = False
            self._watches.on_session(SessionEvent.REESTABLISHED)
        elif not is_first:
            self._watches.on_session(SessionEvent.RECONNECTED)
        self._watches.on_gap()

    def _on_crash(self, name: str, error: BaseException) -> None:
        """Nobody looks after the connection any more: the session cannot be kept, and its users must know."""
        self._lost = True
        if self._link is not None:
            self._link.cut()
        self._watches.on_session(SessionEvent.LOST)

    # --- leaves -------------------------------------------------------------------------------

    async def _request(self, kind: Kind, body: bytes, *, writes: bool) -> bytes:
        if self._closed:
            raise SessionLost("this metadata store was closed")
        if self._lost:
            raise SessionLost("the metadata session has ended, a new one is being made")
        if self._link is None:
            raise MetadataError(f"the metadata server at {self._host}:{self._port} is not connected")
        if self._link.pending() >= self._settings.operations_pending_max:
            raise TooManyRequests(f"{self._link.pending()} requests wait for the metadata server, no more are taken")
        if self._link.unsent_bytes() >= self._settings.pending_bytes_max:
            raise TooManyRequests("too many bytes wait for the metadata server, no more are taken now")
        link = self._link
        try:
            async with asyncio.timeout(self._settings.operation_timeout_ms / 1000):
                return await link.request(kind, body, writes=writes)
        except TimeoutError as error:
            link.cut()
            text = f"the metadata server did not answer {kind.name} in time"
            raise (OutcomeUnknown(text) if writes else MetadataError(text)) from error
        except SessionLost:
            link.cut()  # the next connection brings a new session
            raise

    def _ask(self, prefix: str, *, wanted: bool) -> None:
        if self._link is not None:
            self._link.watch(prefix, wanted=wanted)
