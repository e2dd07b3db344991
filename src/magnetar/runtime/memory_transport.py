# SPDX-License-Identifier: Apache-2.0
"""Two protocols of one loop tied together without a socket.

Behaves as a TCP connection does for who uses it: bytes arrive in later turns of the loop and in order, a reader that
pauses makes the writer pause, `close` delivers what was written before, `abort` does not.
Carries.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Final

HIGH_WATER_BYTES: Final = 64 * 1024
# Joined into one delivery at most; as much as a socket read brings.
DELIVERY_BYTES: Final = 256 * 1024

Data = bytes | bytearray | memoryview


class MemoryTransport(asyncio.Transport):
    """One end. `peer` is the other."""

    def __init__(self, loop: asyncio.AbstractEventLoop, names: tuple[str, str]) -> None:
        super().__init__({"sockname": (names[0], 0), "peername": (names[1], 0)})
        self._loop = loop
        self._protocol: asyncio.Protocol
        self.peer: MemoryTransport
        # Written by the peer, and not yet taken by our protocol.
        self._arrived: deque[bytes] = deque()
        self._arrived_bytes = 0
        self._reading_paused = False
        self._delivering = False
        self._writing_paused = False
        self._high, self._low = HIGH_WATER_BYTES, HIGH_WATER_BYTES // 4
        self._closing = False
        self._eof = False
        self._lost = False

    # --- for the protocol ------------------------------------------------------------------------

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        assert isinstance(protocol, asyncio.Protocol)
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._protocol

    def write(self, data: Data) -> None:
        self.writelines((data,))

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        if self._closing or self.peer._lost:
            return
        data = b"".join(list_of_data)
        if not data:
            return
        peer = self.peer
        peer._arrived.append(data)
        peer._arrived_bytes += len(data)
        peer._schedule()
        if peer._arrived_bytes > self._high and not self._writing_paused:
            self._writing_paused = True
            self._protocol.pause_writing()

    def get_write_buffer_size(self) -> int:
        return self.peer._arrived_bytes

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._low, self._high

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = HIGH_WATER_BYTES if high is None else high
        self._low = self._high // 4 if low is None else low

    def pause_reading(self) -> None:
        self._reading_paused = True

    def resume_reading(self) -> None:
        self._reading_paused = False
        self._schedule()

    def is_reading(self) -> bool:
        return not self._reading_paused and not self._closing

    def is_closing(self) -> bool:
        return self._closing

    def can_write_eof(self) -> bool:
        return False

    def close(self) -> None:
        """What was written still arrives; nothing more is read."""
        if self._closing:
            return
        self._closing = True
        self._arrived.clear()
        self._arrived_bytes = 0
        self.peer._eof = True
        self.peer._schedule()
        self._loop.call_soon(self._lose)

    def abort(self) -> None:
        """Both ends are gone with the next turn, and what was on its way with them."""
        self._closing = True
        self.peer._closing = True
        for end in (self, self.peer):
            end._arrived.clear()
            end._arrived_bytes = 0
            self._loop.call_soon(end._lose)

    # --- delivering --------------------------------------------------------------------------------

    @property
    def unread_bytes(self) -> int:
        return self._arrived_bytes

    def _schedule(self) -> None:
        if not self._delivering and not self._reading_paused and not self._lost:
            self._delivering = True
            self._loop.call_soon(self._deliver)

    def _deliver(self) -> None:
        self._delivering = False
        if self._lost or self._reading_paused or self._closing:
            return
        if self._arrived:
            parts = [self._arrived.popleft()]
            size = len(parts[0])
            while self._arrived and size + len(self._arrived[0]) <= DELIVERY_BYTES:
                parts.append(self._arrived.popleft())
                size += len(parts[-1])
            self._arrived_bytes -= size
            self.peer._on_drained()
            self._protocol.data_received(parts[0] if len(parts) == 1 else b"".join(parts))
        if self._arrived:
            self._schedule()
        elif self._eof and not self._closing:
            self._closing = True
            self._loop.call_soon(self._lose)

    def _on_drained(self) -> None:
        if self._writing_paused and not self._closing and self.peer._arrived_bytes <= self._low:
            self._writing_paused = False
            self._protocol.resume_writing()

    def _lose(self) -> None:
        if not self._lost:
            self._lost = True
            self._protocol.connection_lost(None)


def connect_in_memory(
    ours: Callable[[], asyncio.Protocol], theirs: Callable[[], asyncio.Protocol], name: str
) -> tuple[MemoryTransport, MemoryTransport]:
    """Tie two protocols together on the running loop; both are told before this returns, the accepting end first."""
    loop = asyncio.get_running_loop()
    near, far = MemoryTransport(loop, ("memory", name)), MemoryTransport(loop, (name, "memory"))
    near.peer, far.peer = far, near
    near.set_protocol(ours())
    far.set_protocol(theirs())
    far.get_protocol().connection_made(far)
    near.get_protocol().connection_made(near)
    return near, far
