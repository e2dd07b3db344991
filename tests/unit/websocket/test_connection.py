# SPDX-License-Identifier: Apache-2.0
"""One WebSocket over a transport in memory, against the client side of another implementation's protocol."""

import asyncio
import contextlib
from typing import Any

import pytest
from websockets.frames import Frame, Opcode

from magnetar.config.websocket import WebSocketSettings
from magnetar.errors import ConnectionLost
from magnetar.runtime.memory_transport import MemoryTransport, connect_in_memory
from magnetar.websocket import connection as connection_module
from magnetar.websocket.connection import WebSocketConnection
from magnetar.websocket.handshake import Handshake, refusal
from tests.conftest import RunOnLoop
from tests.unit.websocket.plain_client import HEADERS, PlainClient


def joined(**settings: Any) -> tuple[WebSocketConnection, PlainClient, MemoryTransport]:
    """The server's end, the client, and the client's transport."""
    handshake = Handshake("GET", "/ws/v2/x?a=1&a=2&b=", HEADERS, peer=("10.0.0.1", 5))
    connection = WebSocketConnection(handshake, WebSocketSettings(**settings), lambda _: None)
    client = PlainClient()
    near, _ = connect_in_memory(lambda: client, lambda: connection, "test")
    return connection, client, near


@pytest.mark.feature("B-27")
def test_texts_go_both_ways_whole(loop_run: RunOnLoop) -> None:
    async def scenario() -> None:
        connection, client, _ = joined()
        assert connection.handshake.parameters == {"a": "1", "b": ""}
        client.send("early")
        await asyncio.sleep(0)
        connection.accept()
        assert await connection.receive() == "early"
        await connection.send("é" * 100_000)
        await client.until(lambda: client.texts)
        assert client.texts == ["é" * 100_000]
        assert b"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=" in client.answer
        # In pieces, with a ping in between, and then the goodbye: what was said before it is still taken.
        client.protocol.send_frame(Frame(Opcode.TEXT, "ö".encode()[:1], fin=False))
        client.protocol.send_ping(b"there?")
        client.protocol.send_frame(Frame(Opcode.CONT, "ö".encode()[1:], fin=True))
        client.protocol.send_close(1000, "enough")
        client.flush()
        assert await connection.receive() == "ö"
        assert await connection.receive() is None
        await client.is_gone.wait()
        assert [frame.opcode for frame in client.frames[1:]] == [Opcode.PONG, Opcode.CLOSE]
        assert client.close_code == 1000

    loop_run(scenario())


@pytest.mark.feature("B-27")
@pytest.mark.parametrize(
    ("frames", "code"),
    [
        ([Frame(Opcode.TEXT, b"x" * 1025)], 1009),
        ([Frame(Opcode.TEXT, b"x" * 600, fin=False), Frame(Opcode.CONT, b"x" * 600)], 1009),
        ([Frame(Opcode.BINARY, b"x")], 1003),
        ([Frame(Opcode.TEXT, b"\xff")], 1007),
        ([Frame(Opcode.CONT, b"x")], 1002),
    ],
)
def test_what_breaks_the_protocol_ends_it_with_its_code(loop_run: RunOnLoop, frames: list[Frame], code: int) -> None:
    async def scenario() -> None:
        connection, client, _ = joined(text_bytes_max=1024)
        connection.accept()
        for frame in frames:
            client.transport.write(frame.serialize(mask=True, extensions=()))
        assert await connection.receive() is None
        await client.until(lambda: client.close_code is not None)
        assert client.close_code == code
        client.transport.close()
        await client.is_gone.wait()

    loop_run(scenario())


@pytest.mark.feature("B-27")
def test_who_does_not_take_texts_is_not_read_from(loop_run: RunOnLoop) -> None:
    async def scenario() -> None:
        connection, client, near = joined()
        connection.accept()
        for number in range(1_000):
            client.send(f"{number} " + "x" * 1_000)
        for _ in range(100):
            await asyncio.sleep(0)
        assert near.get_write_buffer_size() > 500_000, "most of it waits with the client"
        for number in range(1_000):
            text = await connection.receive()
            assert text is not None
            assert text.startswith(f"{number} ")
        connection.abort()
        await client.is_gone.wait()

    loop_run(scenario())


@pytest.mark.feature("B-27")
def test_who_does_not_read_is_not_sent_more_and_is_let_go_at_last(loop_run: RunOnLoop) -> None:
    async def scenario() -> None:
        connection, client, near = joined(unsent_bytes_max=10_000, idle_timeout_ms=50)
        connection.accept()
        near.pause_reading()
        sent = 0
        with contextlib.suppress(ConnectionLost):
            while sent < 100:
                await connection.send("x" * 1_000)
                sent += 1
        assert 10 <= sent <= 12, "the bound, and what made it full"
        await client.is_gone.wait()

    loop_run(scenario())


@pytest.mark.parametrize("client_closes", [False, True])
def test_who_does_not_read_the_last_of_it_is_cut_off(
    client_closes: bool, loop_run: RunOnLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_module, "_GOODBYE_S", 0.05)

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        handshake = Handshake("GET", "/ws/v2/x", HEADERS)
        made: asyncio.Future[WebSocketConnection] = loop.create_future()
        gone = asyncio.Event()

        class Watched(WebSocketConnection):
            def connection_lost(self, error: Exception | None) -> None:
                super().connection_lost(error)
                gone.set()

        # Not in memory: there, nobody waits for who does not read.
        server = await loop.create_server(
            lambda: Watched(handshake, WebSocketSettings(), made.set_result), "127.0.0.1", 0
        )
        client = PlainClient()
        async with server, asyncio.timeout(20):
            near, _ = await loop.create_connection(lambda: client, *server.sockets[0].getsockname())
            near.pause_reading()
            connection = await made
            if client_closes:
                connection.accept()
                connection.say("x" * 20_000_000)
                client.protocol.send_close(1000, "enough")
                client.flush()
            else:
                # Of a request before the upgrade, say.
                connection.transport.write(bytes(20_000_000))
                connection.refuse(refusal(403, "no"))
            await gone.wait()
            near.abort()
            await client.is_gone.wait()

    loop_run(scenario())


@pytest.mark.feature("B-27")
def test_a_silent_session_ends(loop_run: RunOnLoop) -> None:
    async def scenario() -> None:
        connection, client, _ = joined(idle_timeout_ms=30)
        connection.accept()
        assert await connection.receive() is None
        await client.until(lambda: client.close_code is not None)
        assert client.close_code == 1001
        await client.is_gone.wait()

    loop_run(scenario())


def test_a_ping_is_sent_as_often_as_asked(loop_run: RunOnLoop) -> None:
    async def scenario() -> None:
        connection, client, _ = joined(ping_interval_s=1)
        connection.accept()
        await client.until(lambda: client.frames)
        assert (client.frames[0].opcode, bytes(client.frames[0].data)) == (Opcode.PING, b"PING")
        connection.close()
        await client.is_gone.wait()

    loop_run(scenario())


@pytest.mark.parametrize(
    ("name", "value", "status"),
    [
        ("sec-websocket-key", None, 400),
        ("sec-websocket-key", "short", 400),
        ("sec-websocket-version", "8", 400),
        ("upgrade", "h2c", 426),
    ],
)
def test_a_head_that_is_no_handshake_is_answered_in_http(name: str, value: str | None, status: int) -> None:
    headers = [(each, text) for each, text in HEADERS if each != name]
    if value is not None:
        headers.append((name, value))
    answer = Handshake("GET", "/ws/v2/x", headers).answer
    assert answer.status_code == status
    assert b'{"reason":"' in bytes(answer.body)
    assert Handshake("POST", "/ws/v2/x", HEADERS).answer.status_code == 405


def test_who_was_refused_is_not_refused_again_while_it_reads(loop_run: RunOnLoop) -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        made: asyncio.Future[WebSocketConnection] = loop.create_future()
        handshake = Handshake("GET", "/ws/v2/x", HEADERS)
        server = await loop.create_server(
            lambda: WebSocketConnection(handshake, WebSocketSettings(), made.set_result), "127.0.0.1", 0
        )
        async with server, asyncio.timeout(20):
            reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            connection = await made
            connection.transport.write(bytes(20_000_000))
            connection.refuse(refusal(403, "no"))
            connection.refuse(refusal(500, "The session ended before it was open"))
            said = await reader.read()
            assert said.count(b"HTTP/1.1 ") == said.count(b"HTTP/1.1 403") == 1
            writer.close()

    loop_run(scenario())


def test_a_refusal_closes_and_nothing_follows_a_yes(loop_run: RunOnLoop) -> None:
    async def scenario() -> None:
        connection, client, _ = joined()
        connection.refuse(refusal(403, "no"))
        await client.is_gone.wait()
        assert client.answer.startswith(b"HTTP/1.1 403 Forbidden")
        assert client.answer.endswith(b'{"reason":"no"}')
        with pytest.raises(ConnectionLost):
            connection.accept()
        connection, client, _ = joined()
        connection.accept()
        connection.refuse(refusal(403, "no"))
        connection.close(1008, "r" * 500)
        await client.is_gone.wait()
        assert client.close_code == 1008
        assert client.protocol.close_rcvd is not None
        assert client.protocol.close_rcvd.reason == "r" * 123

    loop_run(scenario())
