# SPDX-License-Identifier: Apache-2.0
"""The simulated network: what a program sees on its sockets, in good and bad weather."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from tests.simulation.world.node import Node
from tests.simulation.world.process import current_process
from tests.simulation.world.transport import SimTransport
from tests.simulation.world.world import World

PORT = 80


class Peer(asyncio.Protocol):
    """Writes down everything that happens to it."""

    def __init__(self) -> None:
        self.transport: SimTransport
        self.received = b""
        self.events: list[str] = []
        self.pieces = 0
        self.lost: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()
        self.news = asyncio.Event()
        self.keep_open_after_eof = False
        self.process = current_process.get()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, SimTransport)
        self.transport = transport
        self._happened("made")

    def data_received(self, data: bytes) -> None:
        assert current_process.get() is self.process
        self.received += data
        self.pieces += 1
        self._happened("data")

    def eof_received(self) -> bool:
        self._happened("eof")
        return self.keep_open_after_eof

    def connection_lost(self, exc: Exception | None) -> None:
        assert current_process.get() is self.process
        self._happened("lost")
        self.lost.set_result(exc)

    def pause_writing(self) -> None:
        self._happened("pause")

    def resume_writing(self) -> None:
        self._happened("resume")

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(100):
            while not condition():
                self.news.clear()
                await self.news.wait()

    def _happened(self, event: str) -> None:
        if self.events[-1:] != [event]:
            self.events.append(event)
        self.news.set()


class Town:
    """A server and a client node with one connection, unless told otherwise."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.server, self.client = world.node("server"), world.node("client")
        self.accepted: list[Peer] = []
        self.far: Peer
        self.near: Peer

    async def connect(self) -> None:
        listening = self.world.loop.create_future()

        async def serve(node: Node) -> None:
            def accept() -> Peer:
                self.accepted.append(Peer())
                return self.accepted[-1]

            await node.world.loop.create_server(accept, "0.0.0.0", PORT)
            if not listening.done():
                listening.set_result(None)
            await self.world.loop.create_future()

        self.server.start(serve)
        await listening
        await self.reconnect()

    async def reconnect(self) -> None:
        connected = self.world.loop.create_future()

        async def ask(node: Node) -> None:
            try:
                _, peer = await node.world.loop.create_connection(Peer, "server", PORT)
            except OSError as error:
                connected.set_exception(error)
            else:
                connected.set_result(peer)
            await self.world.loop.create_future()

        if self.client.is_running():
            self.client.kill()
        self.client.start(ask)
        self.near = await connected
        await asyncio.sleep(1)
        self.far = self.accepted[-1]


def in_town(scenario: Callable[[Town], Coroutine[Any, Any, None]], *, connected: bool = True) -> None:
    async def whole(world: World) -> None:
        town = Town(world)
        if connected:
            await town.connect()
        await scenario(town)

    for seed in range(8):
        verdict = World(seed).run("town", whole)
        assert not verdict.violations, str(verdict.violations[0])


def test_bytes_arrive_whole_in_order_and_in_pieces() -> None:
    async def scenario(town: Town) -> None:
        data = town.world.random.randbytes(50_000)
        for start in range(0, len(data), 1000):
            town.near.transport.write(data[start : start + 1000])
        await town.far.until(lambda: len(town.far.received) == len(data))
        assert town.far.received == data
        assert town.far.pieces > 3
        town.far.transport.write(b"back")
        await town.near.until(lambda: town.near.received == b"back")
        assert town.near.transport.get_extra_info("peername") == ("server", PORT)
        assert town.far.transport.get_extra_info("peername")[0] == "client"
        assert town.far.transport.get_extra_info("sockname") == ("server", PORT)

    in_town(scenario)


def test_close_sends_the_rest_then_eof_then_both_are_lost() -> None:
    async def scenario(town: Town) -> None:
        data = bytes(500_000)
        town.near.transport.write(data)
        town.near.transport.close()
        town.near.transport.close()
        town.near.transport.write(b"ignored")
        assert await town.far.lost is None
        assert await town.near.lost is None
        assert town.far.received == data
        assert town.far.events[-2:] == ["eof", "lost"]
        assert "eof" not in town.near.events
        assert not town.world.network.connections()

    in_town(scenario)


def test_eof_leaves_the_other_direction_open() -> None:
    async def scenario(town: Town) -> None:
        town.far.keep_open_after_eof = True
        town.near.transport.write(b"question")
        town.near.transport.write_eof()
        with pytest.raises(RuntimeError):
            town.near.transport.write(b"more")
        await town.far.until(lambda: "eof" in town.far.events)
        town.far.transport.write(b"answer")
        town.far.transport.close()
        await town.near.lost
        assert town.near.received == b"answer"

    in_town(scenario)


def test_abort_resets_the_other_end() -> None:
    async def scenario(town: Town) -> None:
        town.near.transport.abort()
        assert await town.near.lost is None
        assert isinstance(await town.far.lost, ConnectionResetError)

    in_town(scenario)


def test_writing_to_an_end_that_has_closed_is_answered_by_a_reset() -> None:
    async def scenario(town: Town) -> None:
        town.near.keep_open_after_eof = True
        town.far.transport.close()
        await town.far.lost
        await town.near.until(lambda: "eof" in town.near.events)
        town.near.transport.write(b"anybody there?")
        assert isinstance(await town.near.lost, ConnectionResetError)

    in_town(scenario)


def test_a_reader_that_pauses_stops_the_writer() -> None:
    async def scenario(town: Town) -> None:
        town.far.transport.pause_reading()
        town.near.transport.set_write_buffer_limits(high=10_000, low=1000)
        assert town.near.transport.get_write_buffer_limits() == (1000, 10_000)
        data = town.world.random.randbytes(1_000_000)
        town.near.transport.write(data)
        assert town.near.events[-1] == "pause"
        await asyncio.sleep(10)
        assert town.far.received == b""
        assert town.near.transport.get_write_buffer_size() >= len(data) - 200_000
        town.far.transport.resume_reading()
        await town.near.until(lambda: town.near.events[-1] == "resume")
        await town.far.until(lambda: len(town.far.received) == len(data))
        assert town.far.received == data
        assert town.near.transport.get_write_buffer_size() == 0

    in_town(scenario)


def test_a_buffered_protocol_is_filled() -> None:
    class Buffered(asyncio.BufferedProtocol):
        def __init__(self) -> None:
            self.space = bytearray(100)
            self.received = b""
            self.done = asyncio.Event()

        def get_buffer(self, sizehint: int) -> bytearray:
            return self.space

        def buffer_updated(self, nbytes: int) -> None:
            self.received += self.space[:nbytes]
            if len(self.received) == 1000:
                self.done.set()

    async def scenario(town: Town) -> None:
        server = await town.world.loop.create_server(lambda: protocol, None, 0)
        protocol = Buffered()
        port = server.sockets[0].getsockname()[1]  # type: ignore[attr-defined]
        transport, _ = await town.world.loop.create_connection(Peer, "localhost", port)
        data = town.world.random.randbytes(1000)
        transport.write(data)
        await protocol.done.wait()
        assert protocol.received == data
        server.close()
        with pytest.raises(ConnectionRefusedError):
            await town.world.loop.create_connection(Peer, "localhost", port)

    in_town(scenario, connected=False)


def test_nobody_listens_and_addresses_in_use() -> None:
    async def scenario(town: Town) -> None:
        loop = town.world.loop
        with pytest.raises(ConnectionRefusedError):
            await loop.create_connection(Peer, "server", PORT)
        await loop.create_server(Peer, "localhost", PORT)
        with pytest.raises(OSError, match="in use"):
            await loop.create_server(Peer, "0.0.0.0", PORT)
        with pytest.raises(OSError, match="not an address"):
            await loop.create_server(Peer, "server", PORT)

    in_town(scenario, connected=False)


def test_a_cut_gives_a_beginning_and_an_error_to_both() -> None:
    async def scenario(town: Town) -> None:
        data = town.world.random.randbytes(20_000)
        town.near.transport.write(data)
        town.world.network.cut(town.world.network.connections()[0])
        assert isinstance(await town.far.lost, ConnectionResetError)
        assert isinstance(await town.near.lost, ConnectionResetError)
        assert data.startswith(town.far.received)

    in_town(scenario)


def test_a_half_open_connection_is_silent() -> None:
    async def scenario(town: Town) -> None:
        town.world.network.half_open(town.near.transport)
        town.near.transport.write(b"into the void")
        town.far.transport.write(b"into the void")
        await asyncio.sleep(3600)
        assert town.near.events == town.far.events == ["made"]
        town.near.transport.write(bytes(10_000_000))
        assert town.near.events == ["made", "pause"]
        town.near.transport.abort()
        assert await town.near.lost is None

    in_town(scenario)


def test_a_partition_in_one_direction_delays_only_that_direction() -> None:
    async def scenario(town: Town) -> None:
        network = town.world.network
        network.partition(("client", "server"))
        town.near.transport.write(b"one ")
        town.far.transport.write(b"reaches you")
        await town.near.until(lambda: town.near.received == b"reaches you")
        await asyncio.sleep(100)
        town.near.transport.write(b"two")
        assert town.far.received == b""
        network.heal(("client", "server"))
        await town.far.until(lambda: town.far.received == b"one two")

    in_town(scenario)


def test_connecting_through_a_partition_waits_and_then_gives_up() -> None:
    async def scenario(town: Town) -> None:
        network, loop = town.world.network, town.world.loop
        network.partition(("client", "server"))
        loop.call_later(5, network.heal)
        before = loop.time()
        await town.reconnect()
        assert loop.time() - before >= 5
        network.partition(("server", "client"))
        with pytest.raises(TimeoutError):
            await town.reconnect()

    in_town(scenario)


def test_a_clogged_way_is_late_but_whole() -> None:
    async def scenario(town: Town) -> None:
        loop = town.world.loop
        before = loop.time()
        town.world.network.clog(("client", "server"), 4.0)
        town.near.transport.write(b"late")
        await town.far.until(lambda: town.far.received == b"late")
        assert loop.time() - before >= 4.0

    in_town(scenario)


def test_a_killed_process_resets_its_connections() -> None:
    async def scenario(town: Town) -> None:
        town.server.kill()
        assert isinstance(await town.near.lost, ConnectionResetError)
        assert "lost" not in town.far.events
        with pytest.raises(ConnectionRefusedError):
            await town.reconnect()
        town.server.restart()
        await asyncio.sleep(0.1)
        await town.reconnect()
        town.near.transport.write(b"hello again")
        await town.far.until(lambda: town.far.received == b"hello again")

    in_town(scenario)


def test_a_machine_without_power_says_nothing_until_it_is_back() -> None:
    async def scenario(town: Town) -> None:
        town.server.lose_power()
        town.near.transport.write(b"anybody there?")
        await asyncio.sleep(100)
        assert town.near.events == ["made"]
        town.server.restart()
        await asyncio.sleep(1)
        assert town.near.events == ["made"]
        town.near.transport.write(b"and now?")
        assert isinstance(await town.near.lost, ConnectionResetError)

    in_town(scenario)


def test_a_connection_to_a_machine_without_power_times_out() -> None:
    async def scenario(town: Town) -> None:
        town.server.lose_power()
        with pytest.raises(TimeoutError):
            await town.reconnect()

    in_town(scenario)


def test_a_paused_process_gets_everything_later() -> None:
    async def scenario(town: Town) -> None:
        town.server.pause()
        town.near.transport.write(b"patience")
        await asyncio.sleep(60)
        assert town.far.received == b""
        town.server.resume()
        await town.far.until(lambda: town.far.received == b"patience")

    in_town(scenario)
