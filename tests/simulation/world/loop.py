# SPDX-License-Identifier: Apache-2.0
"""SimLoop: an event loop with virtual time, a seeded order of callbacks, and an in-memory network.

Time stands still while callbacks run, except for a small cost of each, and jumps to the next timer when nothing is
ready. Nothing ready and no timer, while someone waits, is a deadlock and is raised as SimDeadlock. Threads, real
sockets, signals and subprocesses are SimEscape: production code must reach the world through Disk, clocks and streams.
"""

import asyncio
import heapq
import struct
from collections import deque
from collections.abc import Callable
from contextvars import Context
from typing import TYPE_CHECKING, Any, NoReturn, TypeVarTuple
from zlib import crc32

from tests.simulation.world.process import current_process
from tests.simulation.world.schedule import Schedule

if TYPE_CHECKING:
    from tests.simulation.world.network import Network

# What a callback costs: enough that a busy loop cannot hold time, too little to matter otherwise.
CALLBACK_COST_S = 1e-6
_Ts = TypeVarTuple("_Ts")
_STEP = struct.Struct("<dI")


class SimDeadlock(Exception):
    """Nothing can happen any more, and somebody still waits."""


class SimEscape(Exception):
    """Simulated code tried to leave the simulation."""


class SimTimeout(Exception):
    """The run used more virtual time, or more callbacks, than it may."""


class SimLoop(asyncio.BaseEventLoop):
    def __init__(self, schedule: Schedule, *, time_max_s: float = 86_400.0, callbacks_max: int = 50_000_000) -> None:
        super().__init__()
        self._ready: deque[asyncio.Handle] = deque()
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._timer_count = 0
        self._cancelled_timers = 0
        self._now = 0.0
        self._schedule = schedule
        self._time_max_s = time_max_s
        self._callbacks_max = callbacks_max
        self.callbacks = 0
        self.trace = 0
        self.network: Network | None = None

    # --- time and callbacks ---------------------------------------------------------------------

    def time(self) -> float:
        return self._now

    def call_at(
        self, when: float, callback: Callable[[*_Ts], object], *args: *_Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        handle._scheduled = True  # type: ignore[attr-defined]
        self._timer_count += 1
        heapq.heappush(self._timers, (when, self._timer_count, handle))
        return handle

    def call_later(
        self, delay: float, callback: Callable[[*_Ts], object], *args: *_Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self._now + delay, callback, *args, context=context)

    def call_soon(
        self, callback: Callable[[*_Ts], object], *args: *_Ts, context: Context | None = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_soon_threadsafe(
        self, callback: Callable[[*_Ts], object], *args: *_Ts, context: Context | None = None
    ) -> asyncio.Handle:
        return self.call_soon(callback, *args, context=context)

    def put_back(self, handles: list[asyncio.Handle]) -> None:
        """Make ready again what a paused process was kept from doing."""
        self._ready.extend(handles)

    def record(self, event: str) -> None:
        """Add something that happened to the trace."""
        self.trace = crc32(event.encode(), self.trace)

    def _run_once(self) -> None:
        ready = self._ready
        self._fire_timers()
        if not ready:
            raise SimDeadlock(f"at {self._now:.6f} s nothing is ready, no timer is set, and someone waits")
        if len(ready) == 1:
            self._run_handle(ready.popleft())
            return
        batch = list(ready)
        ready.clear()
        for handle in self._schedule.order(batch):
            self._run_handle(handle)

    def _run_handle(self, handle: asyncio.Handle) -> None:
        if handle._cancelled:
            return
        process = handle._context.get(current_process)  # type: ignore[attr-defined]
        index = 0
        if process is not None:
            if process.dead:
                process.buried.append(handle)
                return
            if process.paused:
                process.held.append(handle)
                return
            index = process.index
        self.callbacks += 1
        self._now += CALLBACK_COST_S
        self.trace = crc32(_STEP.pack(self._now, index), self.trace)
        handle._run()

    def _fire_timers(self) -> None:
        timers = self._timers
        if self._now > self._time_max_s or self.callbacks > self._callbacks_max:
            raise SimTimeout(f"after {self._now:.3f} virtual seconds and {self.callbacks} callbacks")
        while timers and timers[0][2]._cancelled:
            heapq.heappop(timers)
        if not timers:
            return
        if not self._ready and timers[0][0] > self._now:
            self._now = timers[0][0]
        while timers and timers[0][0] <= self._now:
            self._ready.append(heapq.heappop(timers)[2])

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        self._cancelled_timers += 1
        if self._cancelled_timers > 1000 and self._cancelled_timers * 2 > len(self._timers):
            self._timers = [timer for timer in self._timers if not timer[2]._cancelled]
            heapq.heapify(self._timers)
            self._cancelled_timers = 0

    # --- the network --------------------------------------------------------------------------------

    async def create_connection(  # type: ignore[override]
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        host: str | None = None,
        port: int | None = None,
        **options: Any,
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        self._refuse_options(options)
        assert self.network is not None
        assert port is not None
        return await self.network.connect(protocol_factory, host, port)

    async def create_server(  # type: ignore[override]
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        host: Any = None,
        port: int | None = None,
        **options: Any,
    ) -> asyncio.AbstractServer:
        for harmless in ("backlog", "reuse_address", "reuse_port", "start_serving"):
            options.pop(harmless, None)
        taken = options.pop("sock", None)
        self._refuse_options(options)
        assert self.network is not None
        if taken is not None:
            host, port = taken.getsockname()
        return self.network.listen(protocol_factory, host, port or 0)

    def _refuse_options(self, options: dict[str, Any]) -> None:
        given = sorted(name for name, value in options.items() if value not in (None, False))
        if given:
            raise SimEscape(f"the simulated network has no {', '.join(given)}")

    # --- what is not simulated ------------------------------------------------------------------------

    def _write_to_self(self) -> None:
        """There is no thread to wake."""

    def _process_events(self, event_list: Any) -> None:
        """There is no selector."""


def _forbid(name: str) -> Callable[..., NoReturn]:
    def escape(self: SimLoop, *args: Any, **options: Any) -> NoReturn:
        raise SimEscape(f"simulated code called loop.{name}")

    return escape


for _name in (
    "run_in_executor",
    "getaddrinfo",
    "getnameinfo",
    "add_reader",
    "add_writer",
    "remove_reader",
    "remove_writer",
    "sock_recv",
    "sock_sendall",
    "sock_connect",
    "sock_accept",
    "create_datagram_endpoint",
    "create_unix_server",
    "create_unix_connection",
    "connect_read_pipe",
    "connect_write_pipe",
    "subprocess_exec",
    "subprocess_shell",
    "add_signal_handler",
    "remove_signal_handler",
    "start_tls",
    "sendfile",
):
    setattr(SimLoop, _name, _forbid(_name))
