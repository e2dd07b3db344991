# SPDX-License-Identifier: Apache-2.0
"""OAuth 2.0 client credentials: a key file buys short-lived tokens from an issuer, and a new one before each expires.

The key file is Pulsar's: JSON with client_id, client_secret and maybe issuer_url, as a path, a `file://` or a
`data:` URL. Never logs the secret or a token.
Carries.
"""

import base64
import json
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import unquote

import httpx

from magnetar.client.authentication import Authentication, parse_parameters
from magnetar.errors import BadSetting, ConnectionLost, NotAuthenticated
from magnetar.runtime.clock import SystemClock, WallClock
from magnetar.runtime.http_client import http_client
from magnetar.runtime.small_file import read_small_file

KEY_FILE_BYTES_MAX: Final = 64 * 1024
# A token is renewed when this share of its life is over.
RENEW_AFTER: Final = 0.9


class AuthenticationOauth2(Authentication):
    """Parameters, JSON or a mapping: issuer_url; private_key, or client_id and client_secret; audience; scope."""

    method = "token"

    def __init__(
        self, parameters: str | Mapping[str, str], *, clock: WallClock | None = None, timeout_s: float = 30.0
    ) -> None:
        given = parse_parameters(parameters) if isinstance(parameters, str) else dict(parameters)
        key = _key_file(given["private_key"]) if given.get("private_key") else given
        issuer = given.get("issuer_url") or key.get("issuer_url")
        if not issuer or not key.get("client_id") or not key.get("client_secret"):
            raise BadSetting("OAuth2 needs issuer_url, and client_id and client_secret or a private_key file with them")
        self._issuer = issuer.rstrip("/")
        self._form = {
            "grant_type": "client_credentials",
            "client_id": key["client_id"],
            "client_secret": key["client_secret"],
        }
        for name in ("audience", "scope"):
            value = given.get(name) or key.get(name)
            if value:
                self._form[name] = value
        self._clock = clock or SystemClock()
        self._timeout_s = timeout_s
        self._token = ""
        self._renew_at_ms = 0

    async def credentials(self) -> bytes:
        return (await self._current()).encode()

    async def http_headers(self) -> Mapping[str, str]:
        return {"Authorization": f"Bearer {await self._current()}"}

    async def _current(self) -> str:
        if not self._token or self._clock.now_ms() >= self._renew_at_ms:
            await self._renew()
        return self._token

    async def _renew(self) -> None:
        try:
            async with http_client(trust_env=True, timeout=self._timeout_s) as http:
                about = _json(await http.get(f"{self._issuer}/.well-known/openid-configuration"))
                granted = _json(await http.post(str(about["token_endpoint"]), data=self._form))
                token = str(granted["access_token"])
        except (httpx.HTTPError, OSError) as error:
            raise ConnectionLost(
                f"the token issuer {self._issuer} cannot be reached: {type(error).__name__}"
            ) from error
        except KeyError as error:
            raise NotAuthenticated(f"the token issuer {self._issuer} answered without {error}") from error
        self._token = token
        life_ms = int(granted.get("expires_in", 3_600)) * 1000
        self._renew_at_ms = self._clock.now_ms() + int(life_ms * RENEW_AFTER)


def _json(answer: httpx.Response) -> dict[str, Any]:
    if not answer.is_success:
        raise NotAuthenticated(f"the token issuer answered {answer.status_code} to {answer.request.url.path}")
    try:
        found: dict[str, Any] = answer.json()
    except (ValueError, RecursionError) as error:
        raise NotAuthenticated("the token issuer did not answer with JSON") from error
    return found


def _key_file(url: str) -> dict[str, str]:
    try:
        if url.startswith("data:"):
            header, _, body = url.partition(",")
            text = base64.b64decode(body) if header.endswith(";base64") else unquote(body).encode()
        else:
            text = read_small_file(url.removeprefix("file://"), KEY_FILE_BYTES_MAX)
        found: dict[str, str] = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadSetting("the OAuth2 private_key is no JSON key file") from error
    return found
