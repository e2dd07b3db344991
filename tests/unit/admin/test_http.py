# SPDX-License-Identifier: Apache-2.0
"""Connections of HTTP: who sends what is no HTTP in the middle of a request gets one answer, or none, and no crash."""

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from magnetar.admin.http import HttpServer
from magnetar.config.admin import AdminSettings
from tests.conftest import RunOnLoop

HEAD = b"POST /x HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
NO_CHUNK = b"zz\r\n"

Exchange = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def served(app: Any, exchange: Exchange) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    server = HttpServer(app, AdminSettings())
    await server.start(listener)
    try:
        reader, writer = await asyncio.open_connection(*listener.getsockname())
        await exchange(reader, writer)
        writer.close()
        await writer.wait_closed()
    finally:
        await server.stop()


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
