# SPDX-License-Identifier: Apache-2.0
"""Connections of HTTP: who sends what is no HTTP in the middle of a request gets one answer, or none, and no crash."""

import asyncio
import logging
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from magnetar.admin.http import HttpServer, Upgrade
from magnetar.config.admin import AdminSettings
from tests.conformance.certificates import Authority
from tests.conftest import RunOnLoop

HEAD = b"POST /x HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
NO_CHUNK = b"zz\r\n"

Exchange = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def serving(
    app: Any, upgrade: Upgrade | None = None, context: ssl.SSLContext | None = None, **limits: Any
) -> AsyncIterator[tuple[str, int]]:
    """Where an application is served; all of it takes twenty seconds at most."""
    listener = socket.create_server(("127.0.0.1", 0))
    server = HttpServer(app, AdminSettings(**limits), upgrade)
    await server.start(listener, context)
    try:
        async with asyncio.timeout(20):
            yield listener.getsockname()
    finally:
        await server.stop()


async def served(app: Any, exchange: Exchange) -> None:
    async with serving(app) as address:
        reader, writer = await asyncio.open_connection(*address)
        await exchange(reader, writer)
        writer.close()
        await writer.wait_closed()


class App:
    """Answers at once, or in the middle of its body; remembers what it was told at the end."""

    def __init__(self, *, answers_before: bool) -> None:
        self.answers_before = answers_before
        self.begun = asyncio.Event()
        self.told: list[str] = []
        self.ended = asyncio.Event()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if self.answers_before:
            await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"4")]})
            await send({"type": "http.response.body", "body": b"ha", "more_body": True})
        self.begun.set()
        while not self.told or self.told[-1] != "http.disconnect":
            self.told.append((await receive())["type"])
        if not self.answers_before:
            await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"lf"})
        self.ended.set()


@pytest.mark.parametrize("answers_before", [False, True])
def test_a_body_that_breaks_off_into_no_http_is_answered_once(
    answers_before: bool, loop_run: RunOnLoop, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        app = App(answers_before=answers_before)

        async def exchange(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(HEAD)
            await app.begun.wait()
            writer.write(NO_CHUNK)
            answer = await reader.read()
            await app.ended.wait()
            assert app.told[-1] == "http.disconnect"
            assert answer.count(b"HTTP/1.1 ") == 1
            assert answer.startswith(b"HTTP/1.1 200" if answers_before else b"HTTP/1.1 400")
            assert not answer.endswith(b"lf")

        await served(app, exchange)

    with caplog.at_level(logging.ERROR):
        loop_run(scenario())
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


async def quick(scope: Any, receive: Any, send: Any) -> None:
    """Reads nobody's body."""
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


def test_a_request_that_is_broken_before_anybody_looks_at_it_is_answered_once(
    loop_run: RunOnLoop, caplog: pytest.LogCaptureFixture
) -> None:
    async def exchange(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD + NO_CHUNK)
        answer = await reader.read()
        assert answer.count(b"HTTP/1.1 ") == 1
        assert answer.startswith(b"HTTP/1.1 400")

    with caplog.at_level(logging.ERROR):
        loop_run(served(quick, exchange))
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


def test_a_broken_request_for_a_head_alone_is_cut_off(loop_run: RunOnLoop, caplog: pytest.LogCaptureFixture) -> None:
    async def exchange(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD.replace(b"POST", b"HEAD") + NO_CHUNK)
        assert await reader.read() == b""

    with caplog.at_level(logging.ERROR):
        loop_run(served(quick, exchange))
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


def test_what_is_no_http_behind_an_answered_request_ends_the_connection(
    loop_run: RunOnLoop, caplog: pytest.LogCaptureFixture
) -> None:
    async def exchange(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD)
        assert (await reader.readuntil(b"ok")).startswith(b"HTTP/1.1 200")
        writer.write(NO_CHUNK)
        assert await reader.read() == b""

    with caplog.at_level(logging.ERROR):
        loop_run(served(quick, exchange))
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


@pytest.mark.parametrize("first", [b"", b"GET /x HTTP/1.1\r\nHost: h\r\n\r\n"])
def test_what_is_no_http_is_answered_where_no_answer_is_under_way(first: bytes, loop_run: RunOnLoop) -> None:
    async def exchange(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if first:
            writer.write(first)
            assert (await reader.readuntil(b"ok")).startswith(b"HTTP/1.1 200")
        writer.write(b"no HTTP\r\n\r\n")
        assert (await reader.read()).startswith(b"HTTP/1.1 400")

    loop_run(served(quick, exchange))


LARGE = bytes(range(256)) * 80_000
ASKED = b"GET /x HTTP/1.1\r\nHost: h\r\n\r\n"


async def large(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(LARGE))]})
    await send({"type": "http.response.body", "body": LARGE})


class Deaf(asyncio.Protocol):
    """Reads nothing until it is told to, and then sees what became of it."""

    def __init__(self) -> None:
        self.ended = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are not derived from asyncio's classes.
        cast("asyncio.Transport", transport).pause_reading()

    def connection_lost(self, error: Exception | None) -> None:
        self.ended.set()


@pytest.mark.parametrize("asked", [ASKED, ASKED.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"), ASKED * 3])
def test_who_does_not_read_takes_nobodys_place(asked: bytes, loop_run: RunOnLoop) -> None:
    async def scenario() -> None:
        async with serving(large, connections_max=1, idle_timeout_ms=200) as address:
            transport, deaf = await asyncio.get_running_loop().create_connection(Deaf, *address)
            transport.write(asked)
            answer = b""
            while not answer.startswith(b"HTTP/1.1 200"):
                reader, writer = await asyncio.open_connection(*address)
                try:
                    writer.write(ASKED)
                    answer = await reader.readline()
                except ConnectionError:
                    await asyncio.sleep(0.02)
                writer.transport.abort()
            transport.resume_reading()
            await deaf.ended.wait()

    loop_run(scenario())


@pytest.mark.parametrize(("over_tls", "idle_timeout_ms"), [(False, 200), (True, 5000)])
def test_who_reads_slowly_gets_its_answer(
    over_tls: bool, idle_timeout_ms: int, loop_run: RunOnLoop, tmp_path: Path
) -> None:
    """Where it is seen how much is left, one that takes several times as long as an idle client is kept."""
    authority = Authority(tmp_path)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*authority.sign("localhost"))

    async def scenario() -> None:
        async with serving(large, context=context if over_tls else None, idle_timeout_ms=idle_timeout_ms) as address:
            believed = ssl.create_default_context(cafile=str(authority.file)) if over_tls else None
            reader, writer = await asyncio.open_connection(*address, ssl=believed, limit=1000)
            writer.write(ASKED)
            await reader.readuntil(b"\r\n\r\n")
            read = bytearray()
            while len(read) < len(LARGE):
                read += await reader.readexactly(len(LARGE) // 10)
                await asyncio.sleep(0.08)
            assert read == LARGE
            writer.transport.abort()

    loop_run(scenario())


class Socket(asyncio.Protocol):
    """What takes a connection over, and reads nothing itself."""

    def __init__(self) -> None:
        self.ended = asyncio.Event()

    def connection_lost(self, error: Exception | None) -> None:
        self.ended.set()


def test_who_has_not_read_before_an_upgrade_is_the_next_protocols_matter(loop_run: RunOnLoop) -> None:
    async def scenario() -> None:
        successor = Socket()
        async with serving(large, lambda *_: successor, idle_timeout_ms=1000) as address:
            transport, _ = await asyncio.get_running_loop().create_connection(Deaf, *address)
            transport.write(
                ASKED + ASKED.replace(b"/x", b"/ws/x")[:-2] + b"Upgrade: websocket\r\nConnection: upgrade\r\n\r\n"
            )
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(3):
                    await successor.ended.wait()
            transport.abort()
            await successor.ended.wait()

    loop_run(scenario())


@pytest.mark.parametrize(
    "asked",
    [
        b"GET /ws/x HTTP/1.0\r\nHost: h\r\n",
        b"GET /ws/x HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n",
        b"GET /ws/x HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n",
    ],
)
def test_an_upgrade_with_a_body_or_of_an_older_protocol_is_refused(asked: bytes, loop_run: RunOnLoop) -> None:
    """What came of the body would be taken for the first frame."""
    taken: list[asyncio.Protocol] = []

    def upgrade(*_: Any) -> asyncio.Protocol:
        taken.append(Socket())
        return taken[-1]

    async def scenario() -> None:
        async with serving(quick, upgrade) as address:
            for head in (asked, b"GET /ws/x HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n"):
                reader, writer = await asyncio.open_connection(*address)
                writer.write(head + b"Upgrade: websocket\r\nConnection: upgrade\r\n\r\n{}")
                if head is asked:
                    assert (await reader.read()).startswith(b"HTTP/1.1 400")
                    assert taken == []
                    writer.close()
            while not taken:  # noqa: ASYNC110 - a socket that says nothing
                await asyncio.sleep(0.01)
            writer.close()
            successor = taken[0]
            assert isinstance(successor, Socket)
            await successor.ended.wait()

    loop_run(scenario())
