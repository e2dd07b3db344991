# SPDX-License-Identifier: Apache-2.0
"""SimTransport: one end of a simulated TCP connection, with asyncio's transport semantics.

Bytes leave in pieces while the window lets them, travel in order, and are handed to the protocol of the other end in
that end's process. FIN, RST, silence (half-open), flow control in both directions and `pause_writing` behave as a
program would see them on a real socket. What nobody can see is not modelled: no packets, no retransmission.
"""

import asyncio
from collections import deque
from contextvars import Context
from typing import TYPE_CHECKING, Any

from tests.simulation.world.links import Way

if TYPE_CHECKING:
    from tests.simulation.world.network import Network

Address = tuple[str, int]

_HIGH_WATER = 64 * 1024


class SimTransport(asyncio.Transport):
    def __init__(self, network: "Network", own: Address, peer: Address, context: Context) -> None:
        super().__init__({"sockname": own, "peername": peer})
        self._network = network
        self._loop = network.loop
        self.context = context
        self.way: Way = (own[0], peer[0])
        self.peer: SimTransport | None = None
        self.protocol: asyncio.BaseProtocol | None = None
        # Sending.
        self._buffer: deque[bytes | memoryview] = deque()
        self._buffer_bytes = 0
        self._unread_bytes = 0
        self._high, self._low = _HIGH_WATER, _HIGH_WATER // 4
        self._writing_paused = False
        self._eof_written = False
        self._fin_sent = False
        # Receiving: pieces with their arrival; None is FIN.
        self._arriving: deque[tuple[float, bytes | None]] = deque()
        self._delivering = False
        self._reading_paused = False
        self._eof_received = False
        # Ends.
        self._closing = False
        self._broken = False
        self._lost = False
        # The host does not know this connection (any more), and nobody told the other end.
        self.silent = False

    def begin(self, protocol: asyncio.BaseProtocol) -> None:
        self.protocol = protocol
        protocol.connection_made(self)
        self._expect_arrival()

    # --- for the program ----------------------------------------------------------------------------

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self.protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        assert self.protocol is not None
        return self.protocol

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._eof_written:
            raise RuntimeError("Cannot call write() after write_eof()")
        if not data or self._closing or self._lost:
            return
        # A real transport may keep a bytearray or view until it is sent; a copy here would hide that it changed.
        self._buffer.append(data if isinstance(data, bytes) else memoryview(data))
        self._buffer_bytes += len(data)
        self._send()
        if self._buffer_bytes > self._high and not self._writing_paused:
            self._writing_paused = True
            self._tell_protocol("pause_writing")

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))

    def write_eof(self) -> None:
        self._eof_written = True
        self._send()

    def can_write_eof(self) -> bool:
        return True

    def is_closing(self) -> bool:
        return self._closing

    def close(self) -> None:
        if self._closing:
            return
        self._closing = True
        self._send()

    def abort(self) -> None:
        self._reset(None)

    def pause_reading(self) -> None:
        self._reading_paused = True

    def resume_reading(self) -> None:
        if self._reading_paused:
            self._reading_paused = False
            self._expect_arrival()

    def is_reading(self) -> bool:
        return not self._reading_paused and not self._closing

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = _HIGH_WATER if high is None else high
        self._low = self._high // 4 if low is None else low

    def get_write_buffer_size(self) -> int:
        return self._buffer_bytes

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._low, self._high

    # --- sending --------------------------------------------------------------------------------------

    def _send(self) -> None:
        peer, network = self.peer, self._network
        if peer is None or self._lost:
            return
        window = network.links.settings.window_bytes
        while self._buffer and self._unread_bytes < window:
            piece = self._next_piece(window - self._unread_bytes)
            self._unread_bytes += len(piece)
            peer._will_arrive(network.links.arrival(self.way, self._loop.time(), len(piece)), piece)
        if not self._buffer and (self._eof_written or self._closing) and not self._fin_sent:
            self._fin_sent = True
            peer._will_arrive(network.links.arrival(self.way, self._loop.time(), 0), None)
        if self._closing and self._fin_sent:
            self._loop.call_soon(self._lose, None, context=self.context)

    def _next_piece(self, room: int) -> bytes:
        head = self._buffer.popleft()
        length = self._network.links.piece(min(len(head), room))
        if length < len(head):
            self._buffer.appendleft(memoryview(head)[length:])
        self._buffer_bytes -= length
        return bytes(head[:length])

    def _was_read(self, length: int) -> None:
        """The other end took bytes: the window opens."""
        self._unread_bytes -= length
        if self._buffer or self._writing_paused:
            self._loop.call_soon(self._go_on_sending, context=self.context)

    def _go_on_sending(self) -> None:
        self._send()
        if self._writing_paused and self._buffer_bytes <= self._low and not self._lost:
            self._writing_paused = False
            self._tell_protocol("resume_writing")

    # --- receiving --------------------------------------------------------------------------------------

    def _will_arrive(self, when: float, piece: bytes | None) -> None:
        if self.silent or self._broken:
            return
        if self._lost:
            if piece is not None and self.peer is not None:
                self.peer.reset_by_peer()
            return
        if self._arriving:
            when = max(when, self._arriving[-1][0])
        self._arriving.append((when, piece))
        self._expect_arrival()

    def _expect_arrival(self) -> None:
        if self._delivering or not self._arriving or self._reading_paused or self.protocol is None:
            return
        self._delivering = True
        self._loop.call_at(self._arriving[0][0], self._deliver, context=self.context)

    def _deliver(self) -> None:
        assert self.peer is not None
        if not self._network.links.is_open(self.peer.way):
            self._network.wait_for_way(self.peer.way, self._deliver_later)
            return
        self._delivering = False
        if self.silent or self._lost or self._closing:
            self._refuse_arrivals()
            return
        self._take_arrived()
        self._expect_arrival()

    def _deliver_later(self) -> None:
        self._loop.call_soon(self._deliver, context=self.context)

    def _has_arrived(self) -> bool:
        return bool(self._arriving) and self._arriving[0][0] <= self._loop.time() and self.protocol is not None

    def _take_arrived(self) -> None:
        now = self._loop.time()
        pieces: list[bytes] = []
        while self._arriving and self._arriving[0][0] <= now and not self._reading_paused:
            piece = self._arriving.popleft()[1]
            if piece is None:
                self._hand_over(pieces)
                pieces = []
                self._receive_eof()
                break
            pieces.append(piece)
            if self._network.links.splits():
                break
        self._hand_over(pieces)

    def _hand_over(self, pieces: list[bytes]) -> None:
        if not pieces:
            return
        data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        assert self.peer is not None
        self.peer._was_read(len(data))
        protocol = self.protocol
        if isinstance(protocol, asyncio.BufferedProtocol):
            _fill_buffers(protocol, data)
        else:
            assert isinstance(protocol, asyncio.Protocol)
            protocol.data_received(data)

    def _receive_eof(self) -> None:
        self._eof_received = True
        if self._lost or self._closing:
            return
        assert isinstance(self.protocol, (asyncio.Protocol, asyncio.BufferedProtocol))
        if not self.protocol.eof_received():
            self.close()

    def _refuse_arrivals(self) -> None:
        """Bytes for an end that is gone: the host answers with RST, unless it has fallen silent."""
        had_data = any(piece is not None for _, piece in self._arriving)
        self._arriving.clear()
        if had_data and not self.silent and self.peer is not None:
            self.peer.reset_by_peer()

    # --- ends ---------------------------------------------------------------------------------------------

    def reset_by_peer(self) -> None:
        """RST is on its way to this end."""
        if not self._lost and not self.silent:
            assert self.peer is not None
            when = self._network.links.arrival(self.peer.way, self._loop.time(), 0)
            self._loop.call_at(when, self._receive_reset, context=self.context)

    def _receive_reset(self) -> None:
        assert self.peer is not None
        if not self._network.links.is_open(self.peer.way):
            self._network.wait_for_way(self.peer.way, self._receive_reset_later)
        elif not self.silent and not self._lost:
            while self.is_reading() and self._has_arrived():
                self._take_arrived()
            self._arriving.clear()
            self._lose(ConnectionResetError(104, "Connection reset by peer"))

    def _receive_reset_later(self) -> None:
        self._loop.call_soon(self._receive_reset, context=self.context)

    def _reset(self, error: OSError | None) -> None:
        """End this side at once and tell the other with RST."""
        if self._lost:
            return
        self._closing = True
        self._buffer.clear()
        self._buffer_bytes = 0
        if self.peer is not None:
            self.peer.reset_by_peer()
        self._loop.call_soon(self._lose, error, context=self.context)

    def break_now(self, keep_bytes: int) -> None:
        """The connection is cut: this end still reads a beginning of what was on its way, then an error."""
        kept: deque[tuple[float, bytes | None]] = deque()
        for when, piece in self._arriving:
            if piece is None or keep_bytes <= 0:
                break
            kept.append((when, piece[:keep_bytes]))
            keep_bytes -= len(piece)
        self._arriving = kept
        self._broken = True
        when = kept[-1][0] if kept else self._loop.time()
        self._loop.call_at(when, self._receive_reset, context=self.context)

    def vanish(self) -> None:
        """The process or the host is gone, or the way is dead without anyone noticing."""
        self.silent = True
        self._arriving.clear()

    def forgotten_by_host(self) -> None:
        """The host is back and does not know this connection: from now on it answers with RST."""
        self.silent = False
        self._lost = True

    def _lose(self, error: OSError | None) -> None:
        if self._lost:
            return
        self._lost = True
        self._closing = True
        self._buffer.clear()
        self._buffer_bytes = 0
        self._network.forget(self)
        if self._arriving:
            self._refuse_arrivals()
        if self.protocol is not None:
            self.protocol.connection_lost(error)

    def _tell_protocol(self, call: str) -> None:
        getattr(self.protocol, call)()


def _fill_buffers(protocol: asyncio.BufferedProtocol, data: bytes) -> None:
    view = memoryview(data)
    while view:
        buffer = memoryview(protocol.get_buffer(len(view))).cast("B")
        length = min(len(buffer), len(view))
        if not length:
            raise RuntimeError("get_buffer() returned an empty buffer")
        buffer[:length] = view[:length]
        protocol.buffer_updated(length)
        view = view[length:]
