# SPDX-License-Identifier: Apache-2.0
"""HTTP clients of ours: a request that is given up during the TLS handshake leaves no connection open.

httpx 0.28 with httpcore 1.0 closes a connection whose handshake fails, and forgets one whose handshake is cancelled,
by a time limit of the caller or because a server stops: the socket stays open until the garbage collector passes.
Carries.
"""

import ssl
from collections.abc import Mapping
from typing import Any

import httpx


def http_client(tls: ssl.SSLContext | None = None, *, trust_env: bool = False, **options: Any) -> httpx.AsyncClient:
    """Without `tls` the system's authorities are believed. `options` are those of httpx.AsyncClient."""
    # Not a transport of our own: with one, httpx ignores the environment's proxies.
    hooks = {"request": [_follow_handshake]}
    return httpx.AsyncClient(verify=True if tls is None else tls, trust_env=trust_env, event_hooks=hooks, **options)


async def _follow_handshake(request: httpx.Request) -> None:
    request.extensions["trace"] = _Handshake().follow


class _Handshake:
    """What httpcore tells of one request: the stream that it has connected, and that TLS on it came to nothing."""

    def __init__(self) -> None:
        self._stream: Any = None

    async def follow(self, event: str, told: Mapping[str, Any]) -> None:
        if event == "connection.connect_tcp.complete":
            self._stream = told["return_value"]
        elif event == "connection.start_tls.failed" and self._stream is not None:
            await self._stream.aclose()
