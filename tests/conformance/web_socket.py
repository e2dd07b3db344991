# SPDX-License-Identifier: Apache-2.0
"""A plain WebSocket client, as somebody without any client of Pulsar's writes it."""

import base64
import json
import ssl
from collections.abc import Mapping
from typing import Any

from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

PATIENCE_S = 30


def opened(
    url: str, path: str, headers: Mapping[str, str] | None = None, context: ssl.SSLContext | None = None
) -> ClientConnection:
    """A session on `http://…` or `https://…`, as a service's URL is written elsewhere."""
    where = url.replace("http", "ws", 1) + path
    return connect(where, additional_headers=headers, ssl=context, open_timeout=PATIENCE_S, close_timeout=PATIENCE_S)


def refusal(url: str, path: str, headers: Mapping[str, str] | None = None) -> tuple[int, str]:
    """The status and the reason of a request that is not let in."""
    try:
        with opened(url, path, headers):
            pass
    except InvalidStatus as error:
        return error.response.status_code, json.loads(error.response.body)["reason"]
    raise AssertionError(f"{path} was let in")


def say(socket: ClientConnection, **fields: Any) -> None:
    socket.send(json.dumps(fields))


def heard(socket: ClientConnection) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(socket.recv(PATIENCE_S))
    return found


def silent(socket: ClientConnection, seconds: float = 0.3) -> bool:
    try:
        socket.recv(seconds)
    except TimeoutError:
        return True
    return False


def end_of(socket: ClientConnection) -> tuple[int, str]:
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
