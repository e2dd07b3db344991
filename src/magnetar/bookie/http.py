# SPDX-License-Identifier: Apache-2.0
"""A bookie's HTTP port: metrics, and the paths that it was given.

Owns small bounded requests over h11. A request that is not finished in time ends its connection; a path that fails says
why. What the paths mean is theirs.
Carries.
"""

import asyncio
import contextlib
import socket
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import parse_qsl

import h11

from magnetar.bookie.http_routes import Answer, Asked, Route, Routes, said
from magnetar.errors import MagnetarError
from magnetar.runtime.metrics import CONTENT_TYPE, Metrics
from magnetar.wire.error_codes import codes_of

REQUEST_TIMEOUT_S: Final = 30.0
ANSWER_TIMEOUT_S: Final = 600.0
CONNECTIONS_MAX: Final = 64
_BODY_BYTES_MAX: Final = 64 * 1024
_CHUNK_BYTES: Final = 16 * 1024


class BookieHttp:
    def __init__(self, metrics: Metrics, routes: Routes) -> None:
        self._metrics = metrics
        self._open = 0
        self._server: asyncio.Server | None = None
        self._routes: Mapping[tuple[str, str], Route] = {("GET", "/metrics"): self._scrape, **routes}

    async def start(self, taken: socket.socket) -> None:
        self._server = await asyncio.start_server(self._serve, sock=taken, backlog=CONNECTIONS_MAX)

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()

    # --- one connection -----------------------------------------------------------------------

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open += 1
        try:
            if self._open <= CONNECTIONS_MAX:
                await self._exchange(reader, writer)
        except (OSError, TimeoutError, h11.RemoteProtocolError):
            writer.transport.abort()
        finally:
            self._open -= 1
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = h11.Connection(h11.SERVER)
        async with asyncio.timeout(REQUEST_TIMEOUT_S):
            received = await self._received(connection, reader)
        if received is None:
            return
        async with asyncio.timeout(ANSWER_TIMEOUT_S):
            answer = await self._answer(*received)
            body = answer.body.encode()
            headers = [("Content-Type", answer.content_type), ("Content-Length", str(len(body)))]
            headers.append(("Connection", "close"))
            writer.write(connection.send(h11.Response(status_code=answer.status, headers=headers)) or b"")
            writer.write(connection.send(h11.Data(data=body)) or b"")
            writer.write(connection.send(h11.EndOfMessage()) or b"")
            await writer.drain()

    async def _received(
        self, connection: h11.Connection, reader: asyncio.StreamReader
    ) -> tuple[h11.Request, bytes] | None:
        """A whole request, or None when there is none or it is too large."""
        request: h11.Request | None = None
        body = bytearray()
        while True:
            event: Any = connection.next_event()
            if event is h11.NEED_DATA:
                connection.receive_data(await reader.read(_CHUNK_BYTES))
            elif isinstance(event, h11.Request):
                request = event
            elif isinstance(event, h11.Data):
                body += event.data
                if len(body) > _BODY_BYTES_MAX:
                    return None
            else:
                return None if request is None else (request, bytes(body))

    async def _answer(self, request: h11.Request, body: bytes) -> Answer:
        path, _, query = request.target.decode("latin-1").partition("?")
        path = path.rstrip("/")
        method = request.method.decode("latin-1")
        serve = self._routes.get((method, path))
        if serve is None:
            known = [each for each, served in self._routes if served == path]
            if known:
                return said(f"{method} is not served at {path}; {', '.join(sorted(known))} is.", 405)
            return said(f"Nothing is served at {path}.", 404)
        try:
            return await serve(Asked(dict(parse_qsl(query)), body))
        except ValueError as error:
            return said(f"{method} {path}: {error}.", 400)
        except MagnetarError as error:
            return said(str(error), codes_of(error).http_status)

    async def _scrape(self, asked: Asked) -> Answer:
        return Answer(200, self._metrics.text(), CONTENT_TYPE)
