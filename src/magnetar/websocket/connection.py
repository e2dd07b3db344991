# SPDX-License-Identifier: Apache-2.0
"""One WebSocket: bytes of a transport in, texts out, and back.

Owns the transport from the upgrade on. Reading stops while a text waits to be taken, sending waits while the client
does not read: a session costs a bounded number of bytes. A client from which nothing was heard and to which nothing
could be said for too long is let go. Never knows what a text means.
Carries.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Final, cast

from websockets.frames import CloseCode, Frame, Opcode
from websockets.http11 import Response
from websockets.protocol import OPEN
from websockets.server import ServerProtocol

from magnetar.config.websocket import WebSocketSettings
from magnetar.errors import ConnectionLost
from magnetar.websocket.handshake import Handshake

# What a client may take to answer our close, and to read what was said before it.
_GOODBYE_S: Final = 5.0
# A control frame has room for this much beside its code.
_REASON_BYTES_MAX: Final = 123
_PING: Final = b"PING"

# They would say every session that opens or closes, and every frame.
logging.getLogger("websockets").setLevel(logging.WARNING)


class WebSocketConnection(asyncio.Protocol):
    def __init__(
        self,
        handshake: Handshake,
        settings: WebSocketSettings,
        on_made: Callable[["WebSocketConnection"], None],
    ) -> None:
        self.handshake = handshake
        # Set when nothing more will come: the client closed, or its connection is gone.
        self.ended = asyncio.Event()
        self.transport: asyncio.Transport
        self._settings = settings
        self._on_made = on_made
        self._loop = asyncio.get_running_loop()
        self._frames = ServerProtocol(state=OPEN, max_size=settings.text_bytes_max)
        self._is_accepted = False
        self._gone = False
        self._early = bytearray()
        self._texts: deque[str] = deque()
        self._partial = bytearray()
        self._arrival = asyncio.Event()
        self._writable = asyncio.Event()
        self._writable.set()
        self._active_s = self._loop.time()
        self._timers: dict[str, asyncio.TimerHandle] = {}

    # --- for the session -------------------------------------------------------------------------

    def accept(self) -> None:
        """Say yes: from now on both sides send texts. ConnectionLost when the client has gone meanwhile."""
        self._check_here()
        self._is_accepted = True
        self.transport.write(self.handshake.answer.serialize())
        self._watch_idleness()
        if self._settings.ping_interval_s > 0:
            self._ping_later()
        early, self._early = bytes(self._early), bytearray()
        if early:
            self.data_received(early)

    def refuse(self, answer: Response) -> None:
        """Say no in HTTP, and close; of no effect where either was said."""
        if not self._gone and not self._is_accepted and not self.transport.is_closing():
            self.transport.write(answer.serialize())
            self._close_transport()

    async def receive(self) -> str | None:
        """The next text; None when there will be no more."""
        while not self._texts and not self.ended.is_set():
            self._arrival.clear()
            await self._arrival.wait()
        if not self._texts:
            return None
        text = self._texts.popleft()
        if not self._texts and not self._gone:
            self.transport.resume_reading()
        return text

    def say(self, text: str) -> None:
        """Send without waiting; for answers, of which there are only as many as there were texts."""
        if self._frames.state is OPEN and not self._gone:
            self._frames.send_text(text.encode())
            self._write()

    async def send(self, text: str) -> None:
        """Send when the client reads. ConnectionLost when it is gone."""
        await self.room()
        self._check_here()
        self.say(text)

    async def room(self) -> None:
        """Wait until the client has read enough of what it was sent, or is gone."""
        await self._writable.wait()

    def close(self, code: int = CloseCode.NORMAL_CLOSURE, reason: str = "") -> None:
        """Say goodbye; whoever does not answer it is cut off soon."""
        if self._frames.state is OPEN and self._is_accepted and not self._gone:
            short = reason.encode()[:_REASON_BYTES_MAX].decode(errors="ignore")
            self._frames.send_close(code, short)
            self._write()
            self.transport.resume_reading()
            self._limit_goodbye()
        self._end()

    def abort(self) -> None:
        self.transport.abort()

    # --- asyncio.Protocol ------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are not derived from asyncio's classes.
        self.transport = cast("asyncio.Transport", transport)
        self.transport.set_write_buffer_limits(high=self._settings.unsent_bytes_max)
        self._on_made(self)

    def data_received(self, data: bytes) -> None:
        if not self._is_accepted:
            self._early += data
            if len(self._early) > self._settings.text_bytes_max:
                self.transport.abort()
            return
        self._active_s = self._loop.time()
        self._frames.receive_data(data)
        for event in self._frames.events_received():
            if isinstance(event, Frame):
                self._on_frame(event)
        self._write()
        if self._texts and not self.ended.is_set():
            self.transport.pause_reading()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, error: Exception | None) -> None:
        self._gone = True
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self._writable.set()
        self._end()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._active_s = self._loop.time()
        self._writable.set()

    # --- inside ----------------------------------------------------------------------------------

    def _on_frame(self, frame: Frame) -> None:
        if frame.opcode in (Opcode.TEXT, Opcode.CONT):
            self._partial += frame.data
            if frame.fin:
                self._on_text()
        elif frame.opcode is Opcode.BINARY:
            self.close(CloseCode.UNSUPPORTED_DATA, "This endpoint takes texts only")
        elif frame.opcode is Opcode.CLOSE:
            self._end()

    def _on_text(self) -> None:
        data, self._partial = self._partial, bytearray()
        try:
            text = data.decode()
        except UnicodeDecodeError:
            self.close(CloseCode.INVALID_DATA, "The text is not UTF-8")
            return
        if not self.ended.is_set():
            self._texts.append(text)
            self._arrival.set()

    def _write(self) -> None:
        """What the protocol has to say; an empty piece means that it has said all."""
        for piece in self._frames.data_to_send():
            if piece:
                self.transport.write(piece)
                if self._writable.is_set():
                    self._active_s = self._loop.time()
            else:
                self._end()
                self._close_transport()

    def _close_transport(self) -> None:
        """What was said still goes out, to whoever reads it soon."""
        self.transport.close()
        self._limit_goodbye()

    def _limit_goodbye(self) -> None:
        if "goodbye" not in self._timers:
            self._timers["goodbye"] = self._loop.call_later(_GOODBYE_S, self.transport.abort)

    def _end(self) -> None:
        """Nothing more comes; what came before can still be taken."""
        self.ended.set()
        self._arrival.set()

    def _check_here(self) -> None:
        if self._gone or self.transport.is_closing():
            raise ConnectionLost(f"WebSocket client {self.handshake.peer} has gone")

    def _watch_idleness(self) -> None:
        limit_s = self._settings.idle_timeout_ms / 1000
        if limit_s <= 0 or self._gone:
            return
        left_s = self._active_s + limit_s - self._loop.time()
        if left_s > 0:
            self._timers["idle"] = self._loop.call_later(left_s, self._watch_idleness)
        elif self._writable.is_set():
            self.close(CloseCode.GOING_AWAY, "Idle Timeout")
        else:
            self.transport.abort()

    def _ping_later(self) -> None:
        self._timers["ping"] = self._loop.call_later(self._settings.ping_interval_s, self._ping)

    def _ping(self) -> None:
        if self._frames.state is OPEN and not self._gone:
            if self._writable.is_set():
                active_s = self._active_s
                self._frames.send_ping(_PING)
                self._write()
                # Our own ping is no sign of life.
                self._active_s = active_s
            self._ping_later()
