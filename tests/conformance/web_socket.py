# SPDX-License-Identifier: Apache-2.0
"""A plain WebSocket client, as somebody without any client of Pulsar's writes it."""

import asyncio
import base64
import json
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol

from websockets.asyncio import client as asynchronous
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

PATIENCE_S = 30


class Socket(Protocol):
    """What both kinds of connections have."""

    def send(self, message: str) -> None: ...

    def recv(self, timeout: float | None = None) -> str | bytes: ...


def opened(url: str, path: str, headers: Mapping[str, str] | None = None) -> ClientConnection:
    """A session on `http://…`, as a service's URL is written elsewhere."""
    where = url.replace("http", "ws", 1) + path
    return connect(where, additional_headers=headers, open_timeout=PATIENCE_S, close_timeout=PATIENCE_S)


@contextmanager
def opened_over_tls(
    url: str, path: str, context: ssl.SSLContext, headers: Mapping[str, str] | None = None
) -> Iterator[Socket]:
    """A session on `https://…`, on a loop of its own.

    The library's blocking client reads in one thread and writes in another, and OpenSSL does not allow that of one
    connection: of some thousands that were opened so, to a server of that library, one never saw an answer.
    """
    where = url.replace("http", "ws", 1) + path
    with asyncio.Runner() as runner:
        connection = runner.run(_connected(where, context, headers))
        try:
            yield _OnALoop(runner, connection)
        finally:
            runner.run(connection.close())


async def _connected(
    where: str, context: ssl.SSLContext, headers: Mapping[str, str] | None
) -> asynchronous.ClientConnection:
    return await asynchronous.connect(
        where, additional_headers=headers, ssl=context, open_timeout=PATIENCE_S, close_timeout=PATIENCE_S
    )


class _OnALoop:
    def __init__(self, runner: asyncio.Runner, connection: asynchronous.ClientConnection) -> None:
        self._runner = runner
        self._connection = connection

    def send(self, message: str) -> None:
        self._runner.run(self._connection.send(message))

    def recv(self, timeout: float | None = None) -> str | bytes:
        return self._runner.run(self._received(timeout))

    async def _received(self, limit_s: float | None) -> str | bytes:
        async with asyncio.timeout(limit_s):
            return await self._connection.recv()


def refusal(url: str, path: str, headers: Mapping[str, str] | None = None) -> tuple[int, str]:
    """The status and the reason of a request that is not let in."""
    try:
        with opened(url, path, headers):
            pass
    except InvalidStatus as error:
        return error.response.status_code, json.loads(error.response.body)["reason"]
    raise AssertionError(f"{path} was let in")


def say(socket: Socket, **fields: Any) -> None:
    socket.send(json.dumps(fields))


def heard(socket: Socket) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(socket.recv(PATIENCE_S))
    return found


def silent(socket: Socket, seconds: float = 0.3) -> bool:
    try:
        socket.recv(seconds)
    except TimeoutError:
        return True
    return False


def end_of(socket: Socket) -> tuple[int, str]:
    """The code and the reason with which the server closes."""
    try:
        while True:
            socket.recv(PATIENCE_S)
    except ConnectionClosed as closed:
        if closed.rcvd is None:
            raise
        return closed.rcvd.code, closed.rcvd.reason


def sent(text: str | bytes) -> str:
    return base64.b64encode(text if isinstance(text, bytes) else text.encode()).decode()


def payload_of(message: dict[str, Any]) -> bytes:
    return base64.b64decode(message["payload"])
