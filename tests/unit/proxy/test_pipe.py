# SPDX-License-Identifier: Apache-2.0
"""Two connections joined: nothing lost, nothing kept beyond the bound, both ends closed together."""

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

from magnetar.proxy import pipe
from magnetar.proxy.pipe import Pipe


class Gathering(asyncio.Protocol):
    """A peer that keeps what it gets, and reads only while it is let."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.ended = asyncio.Event()
        self.arrived = asyncio.Event()
        self.made: asyncio.Future[asyncio.Transport] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.made.set_result(cast("asyncio.Transport", transport))

    def data_received(self, data: bytes) -> None:
        self.data += data
        self.arrived.set()

    def connection_lost(self, error: Exception | None) -> None:
        self.ended.set()


async def _pair() -> tuple[asyncio.Transport, Gathering, asyncio.Server]:
    """The proxy's transport of a connection, and the peer at its other end."""
    loop = asyncio.get_running_loop()
    here = Gathering()
    server = await loop.create_server(lambda: here, "127.0.0.1", 0)
    _, peer = await loop.create_connection(Gathering, "127.0.0.1", server.sockets[0].getsockname()[1])
    return await here.made, peer, server


@pytest.mark.feature("F-PXY-02")
def test_a_slow_reader_stops_the_other_side_and_gets_everything(loop_run: Callable[[Any], Any]) -> None:
    async def scenario() -> None:
        to_client, client, one = await _pair()
        to_broker, broker, two = await _pair()
        closed = asyncio.Event()
        counted: list[int] = []
        bound = 64 * 1024
        Pipe(
            to_client,
            to_broker,
            bytes_max=bound,
            silence_timeout_ms=60_000,
            on_closed=closed.set,
            counted=counted.append,
        )
        client_side = await client.made
        client_side.pause_reading()
        sent = bytes(range(256)) * 200_000
        (await broker.made).write(sent)
        # The pipe takes what the kernel and its bound hold, then stops reading from the broker.
        held = -1
        while held != (held := sum(counted)):
            for _ in range(50):
                await asyncio.sleep(0)
        assert to_client.get_write_buffer_size() <= bound + 1024 * 1024
        client_side.resume_reading()
        async with asyncio.timeout(60):
            while len(client.data) < len(sent):
                client.arrived.clear()
                await client.arrived.wait()
        assert bytes(client.data) == sent
        client_side.close()
        async with asyncio.timeout(60):
            await closed.wait()
            await broker.ended.wait()
        for server in (one, two):
            server.close()
            await server.wait_closed()

    loop_run(scenario())


@pytest.mark.parametrize("owed", [b"", bytes(20_000_000)])
def test_a_silent_broker_is_given_up_and_so_is_a_client_that_reads_nothing(
    owed: bytes, loop_run: Callable[[Any], Any]
) -> None:
    """While the client does not read, nobody sees whether the broker is there."""

    async def scenario() -> None:
        to_client, client, one = await _pair()
        to_broker, broker, two = await _pair()
        closed = asyncio.Event()
        Pipe(
            to_client, to_broker, bytes_max=1024, silence_timeout_ms=50, on_closed=closed.set, counted=lambda size: None
        )
        (await client.made).pause_reading()
        (await broker.made).write(owed)
        async with asyncio.timeout(60):
            await closed.wait()
            await broker.ended.wait()
        (await client.made).resume_reading()
        async with asyncio.timeout(60):
            await client.ended.wait()
        for server in (one, two):
            server.close()
            await server.wait_closed()

    loop_run(scenario())


def test_who_does_not_read_what_is_owed_at_the_end_is_cut_off(
    loop_run: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipe, "GOODBYE_S", 0.1)

    async def scenario() -> None:
        to_client, client, one = await _pair()
        to_broker, broker, two = await _pair()
        closed = asyncio.Event()
        joined = Pipe(
            to_client,
            to_broker,
            bytes_max=1024,
            silence_timeout_ms=60_000,
            on_closed=closed.set,
            counted=lambda size: None,
        )
        (await client.made).pause_reading()
        (await broker.made).write(bytes(20_000_000))
        async with asyncio.timeout(20):
            while not to_client.get_write_buffer_size():  # noqa: ASYNC110 - the transport tells the pipe alone
                await asyncio.sleep(0)
        joined.close()
        async with asyncio.timeout(20):
            await broker.ended.wait()
            # It counts until it is gone.
            assert not closed.is_set()
            await closed.wait()
        (await client.made).resume_reading()
        async with asyncio.timeout(20):
            await client.ended.wait()
        for server in (one, two):
            server.close()
            await server.wait_closed()

    loop_run(scenario())
