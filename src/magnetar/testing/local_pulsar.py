# SPDX-License-Identifier: Apache-2.0
"""A standalone on the caller's loop, with its time and its troubles in the caller's hands.

Owns the disk, so that a restart finds what was durable; the clock, if it is not the world's; and the clients that it
made, which must be closed when the block ends. Listens on a free loopback port, the same one over all its restarts, or
on none at all. Never starts a thread when the disk is in memory and HTTP is not served.
Assembles.
"""

import asyncio
import errno
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import timedelta
from types import TracebackType
from typing import Any, Final, Literal, Self, Unpack

from magnetar.client.authentication import Authentication
from magnetar.client.client import Client
from magnetar.client.keywords import ClientKeywords
from magnetar.client.pool import over_tcp
from magnetar.config.load import Settings, load_settings
from magnetar.errors import BadSetting, ConnectionLost
from magnetar.runtime.chance import fresh_seed, stream
from magnetar.runtime.clock import SystemClock, WallClock
from magnetar.runtime.disk import Disk
from magnetar.runtime.memory_transport import MemoryTransport, connect_in_memory
from magnetar.runtime.metrics import Metrics
from magnetar.runtime.real_disk import RealDisk
from magnetar.runtime.simulated_disk import SimulatedDisk
from magnetar.runtime.simulated_faults import DiskCall, DiskFaults, Latency
from magnetar.runtime.tasks import Tasks
from magnetar.runtime.virtual_clock import VirtualClock
from magnetar.standalone.standalone import Standalone
from magnetar.testing.leaks import TaskCensus
from magnetar.testing.settling import Settling

IN_MEMORY_PORT: Final = 6650
START_MS: Final = 1_767_225_600_000
"""2026-01-01: what a clock that is moved by hand shows first."""


class LocalPulsar:
    """`async with LocalPulsar() as pulsar:` serves `pulsar.service_url` until the block ends.

    Settings are Pulsar's own keys: `LocalPulsar(settings={"maxMessageSize": "1048576"})`. With a directory the disk is
    real. `clock` is "real", "manual" (time moves by `advance` only), "auto" (time jumps to what is due next when
    nothing else is to be done; in memory only), or a clock. `transport="memory"` does without a port: then
    `pulsar.client()` makes the clients. With `http=True` the admin interface is served too, at `pulsar.web_url`.
    """

    def __init__(
        self,
        directory: str | None = None,
        settings: Mapping[str, str] | None = None,
        *,
        clock: Literal["real", "manual", "auto"] | WallClock = "real",
        transport: Literal["tcp", "memory"] = "tcp",
        seed: int | None = None,
        http: bool = False,
    ) -> None:
        if clock == "auto" and (transport != "memory" or directory is not None):
            raise BadSetting('clock="auto" needs transport="memory" and no directory: only there nothing is unseen')
        self.seed = fresh_seed() if seed is None else seed
        self.clock = _clock_of(clock)
        self.service_url = ""
        self._is_auto = clock == "auto"
        self._in_memory = transport == "memory"
        self._metrics = Metrics() if http else None
        self._directory = directory
        self._given = dict(settings or {})
        self._port = 0
        self._disk: Disk | None = None
        self._standalone: Standalone | None = None
        self._failure: BaseException | None = None
        self._failure_is_wanted = False
        self._clients: list[Client] = []
        self._links: list[MemoryTransport] = []
        self._census: TaskCensus | None = None
        self._timer_set = asyncio.Event()
        self._tasks = Tasks("local pulsar", lambda _, error: self._on_failed(error))
        self._settling = Settling(self._reasons, self._transports, has_threads=directory is not None)

    async def __aenter__(self) -> Self:
        self._census = TaskCensus.enter()
        if self._directory is None:
            self._disk = SimulatedDisk(stream(self.seed, "disk"))
        else:
            self._disk = RealDisk(self._directory)
        await self._start()
        if self._is_auto:
            self._tasks.start(self._drive(), "time")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        forgotten = [client for client in self._clients if not client.is_closed]
        for client in forgotten:
            await client.close()
        await self._tasks.close()
        await self._stop()
        if self._disk is not None:
            await self._disk.close()
            self._disk = None
        # The transports' last callbacks.
        for _ in range(3):
            await asyncio.sleep(0)
        leaked = self._census.leave() if self._census is not None else []
        if error is None:
            self._check_nothing_is_left(len(forgotten), leaked)

    def _check_nothing_is_left(self, forgotten: int, leaked: list[str]) -> None:
        if self._failure is not None and not self._failure_is_wanted:
            raise AssertionError("the broker failed during the test") from self._failure
        if forgotten:
            raise AssertionError(f"{forgotten} clients of this broker were not closed")
        if leaked:
            raise AssertionError(f"tasks were left behind: {', '.join(leaked)}")

    @property
    def standalone(self) -> Standalone:
        """The assembly inside, for tests that look behind the protocol."""
        assert self._standalone is not None, "the broker is not running"
        return self._standalone

    @property
    def web_url(self) -> str:
        """Where the admin interface is served; another port after each restart."""
        assert self._metrics is not None, "only with LocalPulsar(http=True)"
        return self.standalone.web_url

    # --- clients -----------------------------------------------------------------------------------

    def client(self, authentication: Authentication | None = None, **settings: Unpack[ClientKeywords]) -> Client:
        """A client of this broker, on its clock and over its transport. The test closes it."""
        connect = self._connect if self._in_memory else over_tcp
        client = Client(self.service_url, authentication, clock=self.clock, connect=connect, **settings)
        self._clients.append(client)
        return client

    async def _connect(self, protocol: Any, target: Any, tls: Any) -> object:
        if self._standalone is None:
            raise ConnectionLost("the broker is not running")
        self._links = [link for link in self._links if not link.is_closing()]
        pair = connect_in_memory(protocol, self._standalone.broker.new_connection, f"client-{len(self._links)}")
        self._links += pair
        return pair

    # --- time --------------------------------------------------------------------------------------

    async def advance(
        self, *, days: float = 0, hours: float = 0, minutes: float = 0, seconds: float = 0, milliseconds: float = 0
    ) -> None:
        """Move message time on; returns when everything that became due has been done."""
        span = timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds, milliseconds=milliseconds)
        clock = self.clock
        if not isinstance(clock, VirtualClock):
            raise BadSetting('time moves by itself here: use LocalPulsar(clock="manual")')
        await self.settle()
        if self._is_auto:
            await clock.sleep(span.total_seconds())
            await self.settle()
        else:
            await clock.advance(span.total_seconds() * 1000, self.settle)

    async def settle(self) -> None:
        """Return when broker and clients have done all that was to be done at this moment."""
        for client in self._clients:
            client.push()
        await self._settling()

    async def _drive(self) -> None:
        """Time of its own accord: when nothing is under way, on to the next timer."""
        clock = self.clock
        assert isinstance(clock, VirtualClock)
        clock.on_timer_set = self._timer_set.set
        while True:
            await self._settling()
            ms = clock.ms_to_next_timer
            if ms is None:
                self._timer_set.clear()
                await self._timer_set.wait()
            else:
                await clock.advance(ms, self._settling)

    def _reasons(self) -> Iterator[str]:
        if isinstance(self.clock, VirtualClock):
            yield from self.clock.working()
        if isinstance(self._disk, SimulatedDisk) and self._disk.is_busy:
            yield "writes to the disk"

    def _transports(self) -> Iterator[asyncio.Transport]:
        yield from self._links
        if not self._in_memory and self._standalone is not None:
            for connection in self._standalone.broker.connections:
                yield connection.transport
            for client in self._clients:
                yield from client.sockets

    # --- troubles ----------------------------------------------------------------------------------

    @property
    def disk_faults(self) -> DiskFaults:
        """Everything that can be wrong with a disk in memory, one field each."""
        if not isinstance(self._disk, SimulatedDisk):
            raise BadSetting("a real disk has no switches: leave out the directory")
        return self._disk.kernel.faults

    def drop_connections(self) -> None:
        """Cut every client off at once; they reconnect by themselves."""
        for connection in self.standalone.broker.connections:
            connection.abort()

    def slow_disk(self, milliseconds: float) -> None:
        """Every write and sync takes this long in real time; 0 makes the disk instant again."""
        self.disk_faults.write_latency = self.disk_faults.sync_latency = Latency(milliseconds)

    def break_disk(self) -> None:
        """Every sync fails from now on: what is not durable yet never will be, and the broker gives up as a real one
        would. `mend_disk` and `restart` bring it back with all that it had acknowledged."""

        def refuse(call: DiskCall) -> None:
            if call.call.value == "sync":
                raise OSError(errno.EIO, "broken by the test", call.path)

        self._failure_is_wanted = True
        self.disk_faults.on_call = refuse

    def mend_disk(self) -> None:
        self.disk_faults.on_call = None

    async def restart(self) -> None:
        """Stop in order and start again on the same port and data."""
        await self._stop()
        if self._failure_is_wanted:
            self._failure = None
        await self._start()

    # --- the broker itself -------------------------------------------------------------------------

    async def _start(self) -> None:
        assert self._disk is not None
        self._standalone = await Standalone.open(
            self._disk,
            self._settings(),
            clock=self.clock,
            random=stream(self.seed, "standalone"),
            on_failed=self._on_failed,
            metrics=self._metrics,
        )
        self.service_url = await self._standalone.start(listens=not self._in_memory)
        self._port = int(self.service_url.rpartition(":")[2])
        if self._standalone.admin is not None:
            await self._standalone.admin.until_serving()

    async def _stop(self) -> None:
        if self._standalone is not None:
            standalone, self._standalone = self._standalone, None
            await standalone.stop()
            # The transports' last callbacks.
            await asyncio.sleep(0)

    def _settings(self) -> Settings:
        given = {"--port": str(self._port), "--http-port": "0", "journalPreAllocSizeMB": "1", **self._given}
        settings = load_settings((), {}, given)
        if self._in_memory:
            return replace(settings, broker=replace(settings.broker, port=IN_MEMORY_PORT))
        return settings

    def _on_failed(self, error: BaseException) -> None:
        self._failure = self._failure or error


def _clock_of(clock: Literal["real", "manual", "auto"] | WallClock) -> WallClock:
    if isinstance(clock, WallClock):
        return clock
    return SystemClock() if clock == "real" else VirtualClock(START_MS)
