# SPDX-License-Identifier: Apache-2.0
"""An identity provider of a few lines on loopback: its description, its keys, and tokens for client credentials."""

import json
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa

AUDIENCE = "pulsar"
_DISCOVERY = "/.well-known/openid-configuration"


class IdentityProvider:
    """Answers are in `answers` by path: status, headers and body; a test may put others there."""

    def __init__(self, context: ssl.SSLContext | None = None) -> None:
        self.answers: dict[str, tuple[int, dict[str, str], bytes]] = {}
        self.asked: list[str] = []
        self._number = 0
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        if context is not None:
            # The handshake is the handler's: who never finishes it holds up nobody else, nor the end.
            self._server.socket = context.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
        scheme = "http" if context is None else "https"
        self.url = f"{scheme}://127.0.0.1:{self._server.server_port}"
        described = {"issuer": self.url, "jwks_uri": f"{self.url}/keys", "token_endpoint": f"{self.url}/token"}
        self.put(_DISCOVERY, json.dumps(described).encode())
        self.rotate()

    def rotate(self) -> None:
        """From now on its tokens are signed by another key, and that is the only one it tells of."""
        self._number += 1
        self._key = rsa.generate_private_key(65537, 2048)
        described = jwt.algorithms.RSAAlgorithm.to_jwk(self._key.public_key(), as_dict=True)
        self.put("/keys", json.dumps({"keys": [{**described, "kid": f"key-{self._number}", "use": "sig"}]}).encode())

    def put(self, path: str, body: bytes, status: int = 200, **headers: str) -> None:
        self.answers[path] = (status, headers, body)

    def token(self, role: str, **changes: Any) -> str:
        claims = {"iss": self.url, "aud": AUDIENCE, "sub": role, "exp": time.time() + 600, **changes}
        return jwt.encode(claims, self._key, algorithm="RS256", headers={"kid": f"key-{self._number}"})

    @contextmanager
    def serving(self) -> Iterator["IdentityProvider"]:
        thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            self._server.server_close()
            thread.join()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        provider = self

        class Handler(BaseHTTPRequestHandler):
            timeout = 10

            def do_GET(self) -> None:
                provider.asked.append(self.path)
                self._say(*provider.answers.get(self.path, (404, {}, b"")))

            def do_POST(self) -> None:
                asked = dict(parse_qsl(self.rfile.read(int(self.headers["content-length"])).decode()))
                provider.asked.append(self.path)
                answer = {"access_token": provider.token(asked["client_id"]), "expires_in": 600, "token_type": "Bearer"}
                self._say(200, {}, json.dumps(answer).encode())

            def _say(self, status: int, headers: dict[str, str], body: bytes) -> None:
                self.send_response(status)
                for name, value in {**headers, "content-type": "application/json"}.items():
                    self.send_header(name, value)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *_: object) -> None:
                """Not to the tests' output."""

        return Handler
