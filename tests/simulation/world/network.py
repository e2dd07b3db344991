# SPDX-License-Identifier: Apache-2.0
"""The network between simulated hosts: who listens where, which connections exist, and what can happen to them.

A host has the name of its node. `localhost`, `127.0.0.1`, `0.0.0.0` and no host at all mean the node itself. A process
that is killed resets its connections; one that loses power falls silent, and the others learn of it only when they send
after it came back, or by their own deadlines.
"""

import asyncio
import errno
from collections.abc import Callable
from contextvars import Context, copy_context
from random import Random
from typing import Any

from tests.simulation.world.links import Links, LinkSettings, Way
from tests.simulation.world.loop import SimEscape, SimLoop
from tests.simulation.world.process import SimProcess, current_process
from tests.simulation.world.transport import Address, SimTransport

_OWN_HOST = frozenset(("localhost", "127.0.0.1", "0.0.0.0", "::", "::1", ""))
# Where the scenario itself connects from.
WORLD_HOST = "world"

ProtocolFactory = Callable[[], asyncio.BaseProtocol]


class SimSocket:
    """Only what a program asks of a listening socket, or of one that it has bound and not served yet."""

    def __init__(self, address: Address) -> None:
        self._address = address

    def getsockname(self) -> Address:
        return self._address

    def close(self) -> None:
        """What listens ends with its server or its process."""


class SimServer(asyncio.AbstractServer):
    def __init__(self, network: "Network", factory: ProtocolFactory, address: Address, context: Context) -> None:
        self._network = network
        self.factory = factory
        self.address = address
        self.context = context
        self.sockets: tuple[SimSocket, ...] = (SimSocket(address),)

    def close(self) -> None:
        self._network.stop_listening(self)
        self.sockets = ()

    def get_loop(self) -> asyncio.AbstractEventLoop:
        return self._network.loop

    def is_serving(self) -> bool:
        return bool(self.sockets)

    async def start_serving(self) -> None:
        """It serves from the start."""

    async def serve_forever(self) -> None:
        await self._network.loop.create_future()

    async def wait_closed(self) -> None:
        """Closing takes no time here."""


class Network:
    def __init__(self, loop: SimLoop, random: Random, settings: LinkSettings | None = None) -> None:
        self.loop = loop
        self.links = Links(random, settings or LinkSettings())
        self._random = random
        self._listening: dict[Address, SimServer] = {}
        self._transports: dict[SimTransport, None] = {}
        self._waiting: dict[Way, list[Callable[[], None]]] = {}
        self._hosts_down: dict[str, None] = {}
        self._next_port = 40_000
        loop.network = self

    # --- for programs, through the loop ---------------------------------------------------------------

    def listen(self, factory: ProtocolFactory, host: Any, port: int) -> asyncio.AbstractServer:
        name = self._host(host if isinstance(host, str) else None)
        if name != self._own_host():
            raise OSError(errno.EADDRNOTAVAIL, f"{name} is not an address of {self._own_host()}")
        address = (name, port or self._fresh_port())
        if address in self._listening:
            raise OSError(errno.EADDRINUSE, f"address already in use: {address}")
        server = SimServer(self, factory, address, copy_context())
        self._listening[address] = server
        return server

    async def connect(
        self, factory: ProtocolFactory, host: str | None, port: int
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        own = self._own_host()
        target = (self._host(host), port)
        out, back = (own, target[0]), (target[0], own)
        deadline = self.loop.time() + self.links.settings.connect_patience_s
        await self._travel(out, deadline)
        server = self._listening.get(target)
        if server is None:
            await self._travel(back, deadline)
            raise ConnectionRefusedError(errno.ECONNREFUSED, f"nobody listens at {target[0]}:{port}")
        near = SimTransport(self, (own, self._fresh_port()), target, copy_context())
        far = SimTransport(self, target, near.get_extra_info("sockname"), server.context.copy())
        near.peer, far.peer = far, near
        self._transports[far] = self._transports[near] = None
        self.loop.call_soon(self._accept, server, far, context=far.context)
        try:
            await self._travel(back, deadline)
        except BaseException:
            near.abort()
            raise
        if near.is_closing():
            raise ConnectionResetError(errno.ECONNRESET, f"{target[0]}:{port} reset the connection")
        protocol = factory()
        near.begin(protocol)
        return near, protocol

    # --- for the nemesis --------------------------------------------------------------------------------

    def connections(self) -> list[SimTransport]:
        """One end of each living connection, oldest first."""
        seen: dict[SimTransport, None] = {}
        for transport in self._transports:
            if transport.peer not in seen:
                seen[transport] = None
        return list(seen)

    def cut(self, transport: SimTransport) -> None:
        """Both ends are reset; each still gets a beginning of what was on its way to it."""
        for end in (transport, transport.peer):
            if end is not None:
                end.break_now(self._random.choice((0, self._random.randrange(1, 2048), 1 << 30)))

    def half_open(self, transport: SimTransport) -> None:
        """Bytes vanish in both directions, and nobody is told."""
        transport.vanish()
        if transport.peer is not None:
            transport.peer.vanish()

    def partition(self, way: Way) -> None:
        self.links.close(way)

    def heal(self, way: Way | None = None) -> None:
        """Open one way, or all; what waited goes on."""
        for closed in [way] if way is not None else self.links.closed():
            self.links.open(closed)
            for go_on in self._waiting.pop(closed, []):
                go_on()

    def clog(self, way: Way, seconds: float) -> None:
        self.links.clog(way, self.loop.time() + seconds)

    # --- for nodes ------------------------------------------------------------------------------------------

    def process_died(self, process: SimProcess, *, silently: bool) -> None:
        """Its sockets are gone. The host resets its connections, unless it is gone itself."""
        for address, server in list(self._listening.items()):
            if server.context.get(current_process) is process:
                del self._listening[address]
        for transport in list(self._transports):
            if transport.context.get(current_process) is process:
                del self._transports[transport]
                if transport.peer is not None and not silently:
                    transport.peer.reset_by_peer()
                transport.vanish()
        if silently:
            self._hosts_down[process.name] = None

    def host_started(self, name: str) -> None:
        self._hosts_down.pop(name, None)
        for transport in list(self._transports):
            peer = transport.peer
            if peer is not None and peer.silent and transport.way[1] == name:
                peer.forgotten_by_host()

    # --- for transports -------------------------------------------------------------------------------------

    def wait_for_way(self, way: Way, go_on: Callable[[], None]) -> None:
        self._waiting.setdefault(way, []).append(go_on)

    def forget(self, transport: SimTransport) -> None:
        self._transports.pop(transport, None)

    def stop_listening(self, server: SimServer) -> None:
        if self._listening.get(server.address) is server:
            del self._listening[server.address]

    def _accept(self, server: SimServer, transport: SimTransport) -> None:
        if self._listening.get(server.address) is not server:
            transport.abort()
            return
        transport.begin(server.factory())

    async def _travel(self, way: Way, deadline: float) -> None:
        """One packet of a handshake: waits for the way, and gives up at the deadline."""
        await asyncio.sleep(self.links.arrival(way, self.loop.time(), 0) - self.loop.time())
        if way[1] in self._hosts_down:
            await asyncio.sleep(max(0.0, deadline - self.loop.time()))
            raise TimeoutError(errno.ETIMEDOUT, f"{way[1]} does not answer")
        if self.links.is_open(way):
            return
        opened = self.loop.create_future()
        context = copy_context()

        def go_on() -> None:
            self.loop.call_soon(_set, opened, context=context)

        self.wait_for_way(way, go_on)
        timer = self.loop.call_at(deadline, _give_up, opened, way)
        try:
            await opened
        finally:
            timer.cancel()

    def _own_host(self) -> str:
        process = current_process.get()
        return process.name if process is not None else WORLD_HOST

    def _host(self, host: str | None) -> str:
        if host is None or host in _OWN_HOST:
            return self._own_host()
        if any(letter.isspace() for letter in host):
            raise SimEscape(f"{host!r} is no host name")
        return host

    def _fresh_port(self) -> int:
        self._next_port += 1
        return self._next_port


def _set(opened: asyncio.Future[None]) -> None:
    if not opened.done():
        opened.set_result(None)


def _give_up(opened: asyncio.Future[None], way: Way) -> None:
    if not opened.done():
        opened.set_exception(TimeoutError(errno.ETIMEDOUT, f"no way from {way[0]} to {way[1]}"))
