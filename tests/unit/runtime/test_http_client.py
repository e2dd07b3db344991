# SPDX-License-Identifier: Apache-2.0
"""A request that is given up leaves no connection open, whatever it was waiting for."""

import asyncio
import gc
import ssl
from collections.abc import Awaitable, Callable, Iterator

import httpx
import pytest

from magnetar.runtime.http_client import http_client

WAIT_S = 10

Ask = Callable[[httpx.AsyncClient, str], Awaitable[object]]


@pytest.fixture(autouse=True)
def _nobody_else_closes() -> Iterator[None]:
    """The garbage collector would close what was forgotten."""
    gc.disable()
    yield
    gc.enable()


async def _cancelled(client: httpx.AsyncClient, url: str) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await client.get(url, timeout=WAIT_S)


async def _timed_out(client: httpx.AsyncClient, url: str) -> None:
    with pytest.raises(httpx.TimeoutException):
        await client.get(url, timeout=0.05)


@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize("ask", [_cancelled, _timed_out])
def test_a_server_that_never_answers_sees_the_connection_end(scheme: str, ask: Ask) -> None:
    async def scenario() -> None:
        ended: asyncio.Queue[bytes] = asyncio.Queue()

        async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await ended.put(await reader.read())
            writer.close()

        server = await asyncio.start_server(silent, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with server, http_client(ssl.create_default_context()) as client:
            await ask(client, f"{scheme}://127.0.0.1:{port}/")
            async with asyncio.timeout(WAIT_S):
                assert await ended.get(), "it was asked before it saw the end"

    asyncio.run(scenario())


@pytest.mark.parametrize("trust_env", [True, False])
def test_the_environments_proxy_is_used_by_who_trusts_it(trust_env: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        asked: list[bytes] = []

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            asked.append((await reader.readuntil(b"\r\n\r\n")).split(b"\r\n")[0])
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            await writer.drain()
            writer.close()

        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        async with server, http_client(trust_env=trust_env, timeout=WAIT_S) as client:
            if trust_env:
                assert (await client.get("http://nowhere.invalid/x")).status_code == 200
                assert asked == [b"GET http://nowhere.invalid/x HTTP/1.1"]
            else:
                with pytest.raises(httpx.ConnectError):
                    await client.get("http://nowhere.invalid/x")
                assert asked == []

    for name in ("http_proxy", "NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    asyncio.run(scenario())
