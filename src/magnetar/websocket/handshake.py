# SPDX-License-Identifier: Apache-2.0
"""A request to speak WebSocket: what it asks for, who says so, and the two answers that HTTP has for it.

The head was read by the HTTP server; here it is only checked and answered.
Decides.
"""

import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import parse_qsl

from websockets.datastructures import Headers
from websockets.http11 import Request, Response
from websockets.server import ServerProtocol

from magnetar.broker.auth.authenticator import Certificate

PARAMETERS_MAX: Final = 100


class Handshake:
    """The head of one request, its names of headers in lower case."""

    def __init__(
        self,
        method: str,
        target: str,
        headers: Sequence[tuple[str, str]],
        *,
        peer: tuple[str, int] | None = None,
        certificate: Certificate | None = None,
    ) -> None:
        self.method = method
        self.path, _, self._query = target.partition("?")
        self._headers = headers
        self._peer = peer
        # Of the client, where TLS asked for one and verified it.
        self.certificate = certificate

    @property
    def host(self) -> str:
        return self._peer[0] if self._peer is not None else ""

    @property
    def peer(self) -> str:
        """Where the client is, as Pulsar's statistics write it."""
        return f"{self._peer[0]}:{self._peer[1]}" if self._peer is not None else "?"

    @cached_property
    def parameters(self) -> Mapping[str, str]:
        """The query's, the first of each name; one without a value is empty. ValueError when there are too many."""
        pairs = parse_qsl(self._query, keep_blank_values=True, max_num_fields=PARAMETERS_MAX)
        return dict(reversed(pairs))

    def header(self, name: str) -> str:
        return next((value for each, value in self._headers if each == name), "")

    @cached_property
    def answer(self) -> Response:
        """What the protocol says to the head itself: 101 where it is a proper one."""
        request = Request("", Headers(self._headers), self.method)
        response = ServerProtocol().accept(request)
        return response if response.status_code == HTTPStatus.SWITCHING_PROTOCOLS else _plain(response)


def refusal(status: int, reason: str) -> Response:
    """An answer of HTTP, after which the connection closes."""
    return _json(status, {"reason": reason})


def _plain(response: Response) -> Response:
    """The library's words in the form of all our refusals."""
    words = bytes(response.body).decode(errors="replace").split("\n")[0]
    return _json(response.status_code, {"reason": words})


def _json(status: int, value: Mapping[str, Any]) -> Response:
    body = json.dumps(value, separators=(",", ":")).encode()
    headers = Headers({"content-type": "application/json", "content-length": str(len(body)), "connection": "close"})
    return Response(status, HTTPStatus(status).phrase, headers, body)
