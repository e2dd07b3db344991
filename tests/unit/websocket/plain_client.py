# SPDX-License-Identifier: Apache-2.0
"""The client's side of a WebSocket over a transport in memory, by another implementation's protocol."""

import asyncio
import json
from collections.abc import Callable
from typing import Any, cast

from websockets.client import ClientProtocol
from websockets.frames import Frame, Opcode
from websockets.protocol import OPEN
from websockets.uri import parse_uri

HEADERS = (
    ("host", "localhost"),
    ("connection", "Upgrade"),
    ("upgrade", "websocket"),
    ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
    ("sec-websocket-version", "13"),
)


class PlainClient(asyncio.Protocol):
    """Reads the answer to its upgrade, then frames."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport
        self.answer = b""
        self.frames: list[Frame] = []
        self.is_gone = asyncio.Event()
        self.protocol = ClientProtocol(parse_uri("ws://localhost/"), state=OPEN, max_size=None)
        self._changed = asyncio.Event()
        self._heard = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are not derived from asyncio's classes.
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        if b"\r\n\r\n" not in self.answer:
            head, found, data = (self.answer + data).partition(b"\r\n\r\n")
            self.answer = head + found
            if not self.answer.startswith(b"HTTP/1.1 101"):
                self.answer, data = self.answer + data, b""
        if data:
            self.protocol.receive_data(data)
            self.frames += [event for event in self.protocol.events_received() if isinstance(event, Frame)]
            self.flush()
        self._changed.set()

    def connection_lost(self, error: Exception | None) -> None:
        self.is_gone.set()
        self._changed.set()

    def flush(self) -> None:
        for piece in self.protocol.data_to_send():
            if piece:
                self.transport.write(piece)

    def send(self, text: str) -> None:
        self.protocol.send_text(text.encode())
        self.flush()

    async def until(self, condition: Callable[[], Any]) -> None:
        while not condition():
            self._changed.clear()
            await self._changed.wait()

    @property
    def texts(self) -> list[str]:
        return [bytes(frame.data).decode() for frame in self.frames if frame.opcode is Opcode.TEXT]

    async def heard(self) -> Any:
        """The next text that was not heard yet, as JSON."""
        await self.until(lambda: len(self.texts) > self._heard)
        self._heard += 1
        return json.loads(self.texts[self._heard - 1])

    def say(self, **fields: Any) -> None:
        self.send(json.dumps(fields))

    @property
    def close_code(self) -> int | None:
        return None if self.protocol.close_rcvd is None else self.protocol.close_rcvd.code
