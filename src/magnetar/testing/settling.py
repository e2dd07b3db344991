# SPDX-License-Identifier: Apache-2.0
"""Waiting until a broker and its clients on one loop have done all that they had to do.

There is no such question to an event loop, so it is answered from what can be seen: upkeep that runs, bytes on their
way between two ends, writes that are not durable. When none of these was seen for many turns of the loop, more than any
chain of callbacks has links, nothing is under way. A client in another process is waited for as far as its socket.
Carries.
"""

import asyncio
import fcntl
import struct
import termios
from collections.abc import Callable, Iterable
from typing import Final

from magnetar.errors import TimedOut
from magnetar.runtime.memory_transport import MemoryTransport

QUIET_TURNS: Final = 30
# With a real disk, threads answer: real time must pass before silence means anything.
THREADS_S: Final = 0.005
PATIENCE_S: Final = 30.0
# Turns at full speed before each turn lets real time pass.
EAGER_TURNS: Final = 200
NAP_S: Final = 0.0005

_SIZE: Final = struct.Struct("i")
_NOTHING: Final = _SIZE.pack(0)


class Settling:
    def __init__(
        self,
        reasons: Callable[[], Iterable[str]],
        transports: Callable[[], Iterable[asyncio.Transport]],
        *,
        has_threads: bool,
    ) -> None:
        self._reasons = reasons
        self._transports = transports
        self._has_threads = has_threads

    async def __call__(self) -> None:
        """Raises TimedOut, which says what would not end."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + PATIENCE_S
        rounds = 3 if self._has_threads else 1
        while rounds:
            if await self._quiet_turns(loop, until_s):
                rounds -= 1
                if rounds:
                    await asyncio.sleep(THREADS_S)

    async def _quiet_turns(self, loop: asyncio.AbstractEventLoop, until_s: float) -> bool:
        turns = quiet = 0
        while quiet < QUIET_TURNS:
            turns += 1
            await asyncio.sleep(0 if turns < EAGER_TURNS else NAP_S)
            busy = self.busy_with()
            if not busy:
                quiet += 1
                continue
            quiet = 0
            if loop.time() > until_s:
                raise TimedOut(f"after {PATIENCE_S:g} s this is still under way: {', '.join(busy)}")
        return True

    def busy_with(self) -> list[str]:
        busy = list(self._reasons())
        pending = sum(map(_bytes_under_way, self._transports()))
        if pending:
            busy.append(f"{pending} bytes on their way")
        return busy


def _bytes_under_way(transport: asyncio.Transport) -> int:
    if transport.is_closing():
        return 0
    if isinstance(transport, MemoryTransport):
        return transport.unread_bytes if transport.is_reading() else 0
    found = transport.get_write_buffer_size()
    socket = transport.get_extra_info("socket")
    if socket is None or socket.fileno() < 0:
        return found
    for question in (termios.FIONREAD, termios.TIOCOUTQ):
        try:
            found += int(_SIZE.unpack(fcntl.ioctl(socket.fileno(), question, _NOTHING))[0])
        except OSError:
            # Not every system answers; then the turns of the loop must do.
            continue
    return found
