# SPDX-License-Identifier: Apache-2.0
"""A bookie's HTTP: metrics, a heartbeat, its state and its disks, and garbage collection on request.

Owns the paths, as BookKeeper names them, and small bounded requests over h11. A request that is not finished in time
ends its connection. Nothing here can change an entry.
Carries.
"""

import asyncio
import contextlib
import json
import socket
from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple

import h11

from magnetar.bookie.bookie_metrics import describe
from magnetar.bookie.server import BookieServer
from magnetar.bookie.storage import BookieStorage
from magnetar.bookie.version_three import Space
from magnetar.runtime.metrics import CONTENT_TYPE, Metrics

REQUEST_TIMEOUT_S: Final = 30.0
CONNECTIONS_MAX: Final = 64
_BODY_BYTES_MAX: Final = 64 * 1024
_CHUNK_BYTES: Final = 16 * 1024


class Answer(NamedTuple):
    status: int
    body: str
    content_type: str = "application/json"


class BookieHttp:
    def __init__(
        self,
        storage: BookieStorage,
        server: BookieServer,
        metrics: Metrics,
        space: Callable[[], Awaitable[Space]],
    ) -> None:
        self._storage = storage
        self._metrics = metrics
        self._space = space
        self._open = 0
        self._compaction_suspended = False
        self._server: asyncio.Server | None = None
        self._routes: dict[tuple[str, str], Callable[[], Awaitable[Answer]]] = {
            ("GET", "/metrics"): self._scrape,
            ("GET", "/heartbeat"): self._heartbeat,
            ("GET", "/api/v1/bookie/state"): self._state,
            ("GET", "/api/v1/bookie/is_ready"): self._is_ready,
            ("GET", "/api/v1/bookie/info"): self._info,
            ("GET", "/api/v1/bookie/gc"): self._gc_state,
            ("PUT", "/api/v1/bookie/gc"): self._collect,
            ("GET", "/api/v1/bookie/gc/suspend_compaction"): self._compaction_state,
            ("PUT", "/api/v1/bookie/gc/suspend_compaction"): self._suspend,
            ("PUT", "/api/v1/bookie/gc/resume_compaction"): self._resume,
        }
        self._collecting = False
        describe(metrics, storage, server)

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
                async with asyncio.timeout(REQUEST_TIMEOUT_S):
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
        request: h11.Request | None = None
        body_bytes = 0
        while True:
            event: Any = connection.next_event()
            if event is h11.NEED_DATA:
                connection.receive_data(await reader.read(_CHUNK_BYTES))
            elif isinstance(event, h11.Request):
                request = event
            elif isinstance(event, h11.Data):
                body_bytes += len(event.data)
                if body_bytes > _BODY_BYTES_MAX:
                    return
            else:
                break
        if request is not None:
            answer = await self._answer(request)
            body = answer.body.encode()
            headers = [("Content-Type", answer.content_type), ("Content-Length", str(len(body)))]
            headers.append(("Connection", "close"))
            writer.write(connection.send(h11.Response(status_code=answer.status, headers=headers)) or b"")
            writer.write(connection.send(h11.Data(data=body)) or b"")
            writer.write(connection.send(h11.EndOfMessage()) or b"")
            await writer.drain()

    async def _answer(self, request: h11.Request) -> Answer:
        path = request.target.decode("latin-1").partition("?")[0].rstrip("/")
        method = request.method.decode("latin-1")
        serve = self._routes.get((method, path))
        if serve is not None:
            return await serve()
        if any(known == path for _, known in self._routes):
            return Answer(405, f"{method} is not served at {path}.\n", "text/plain")
        return Answer(404, f"Nothing is served at {path}.\n", "text/plain")

    # --- paths --------------------------------------------------------------------------------

    async def _scrape(self) -> Answer:
        return Answer(200, self._metrics.text(), CONTENT_TYPE)

    async def _heartbeat(self) -> Answer:
        return Answer(200, "OK\n", "text/plain")

    async def _state(self) -> Answer:
        read_only = self._storage.is_read_only
        return _json(
            {
                "running": True,
                "readOnly": read_only,
                "shuttingDown": False,
                "availableForHighPriorityWrites": not read_only,
            }
        )

    async def _is_ready(self) -> Answer:
        return Answer(200, "", "text/plain")

    async def _info(self) -> Answer:
        space = await self._space()
        return _json({"freeSpace": space.free_bytes, "totalSpace": space.total_bytes})

    async def _gc_state(self) -> Answer:
        return _json({"is_in_force_gc": str(self._collecting).lower()})

    async def _collect(self) -> Answer:
        self._collecting = True
        try:
            await self._storage.housekeeping.collect(major=not self._compaction_suspended)
        finally:
            self._collecting = False
        return _json({"output": "Triggered GC on BookieServer"})

    async def _compaction_state(self) -> Answer:
        suspended = str(self._compaction_suspended).lower()
        return _json({"isMajorGcSuspended": suspended, "isMinorGcSuspended": suspended})

    async def _suspend(self) -> Answer:
        return self._set_suspended(True)

    async def _resume(self) -> Answer:
        return self._set_suspended(False)

    def _set_suspended(self, suspended: bool) -> Answer:
        self._compaction_suspended = suspended
        self._storage.housekeeping.suspend_compaction(suspended)
        return Answer(200, "", "text/plain")


def _json(value: dict[str, Any]) -> Answer:
    return Answer(200, json.dumps(value))
