# SPDX-License-Identifier: Apache-2.0
"""Who a client says it is: plug-ins that give the broker their credentials, again whenever it asks.

A plug-in of one's own is a subclass of `Authentication`. Never writes a credential into a log line or an error.
Carries.
"""

import base64
import inspect
import json
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, TypeAlias

from magnetar.errors import BadSetting
from magnetar.runtime.small_file import read_small_file

TOKEN_BYTES_MAX: Final = 64 * 1024

Supplier: TypeAlias = Callable[[], str | Awaitable[str]]


class Authentication(ABC):
    """Credentials of one client. `method` is the name that the broker knows the plug-in by."""

    method: str

    @abstractmethod
    async def credentials(self) -> bytes:
        """What CONNECT and every answer to a challenge carry. Asked each time, so it may change."""

    async def respond(self, challenge: bytes) -> bytes:
        """The answer to a broker's challenge. A broker whose credentials ran out sends 'PulsarAuthRefresh'."""
        return await self.credentials()

    async def http_headers(self) -> Mapping[str, str]:
        """Headers of look-ups over HTTP."""
        return {}

    def tls_files(self) -> tuple[str, str] | None:
        """Certificate and private key, where those are the credentials."""
        return None

    async def close(self) -> None:  # noqa: B027 most plug-ins hold nothing
        """Give back what the plug-in holds."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}(method={self.method!r})"


class AuthenticationToken(Authentication):
    """A JSON Web Token: the text, `token:TEXT`, `file:///path` (read again each time), or a supplier, maybe async."""

    method = "token"

    def __init__(self, token: str | Supplier) -> None:
        self._token = token

    async def credentials(self) -> bytes:
        return (await self._current()).encode()

    async def http_headers(self) -> Mapping[str, str]:
        return {"Authorization": f"Bearer {await self._current()}"}

    async def _current(self) -> str:
        if not isinstance(self._token, str):
            supplied = self._token()
            return (await supplied if inspect.isawaitable(supplied) else supplied).strip()
        if self._token.startswith("file:"):
            path = self._token.removeprefix("file://").removeprefix("file:")
            return read_small_file(path, TOKEN_BYTES_MAX).decode().strip()
        return self._token.removeprefix("token:").strip()


class AuthenticationBasic(Authentication):
    """User and password, as the broker's password file knows them."""

    method = "basic"

    def __init__(self, username: str, password: str, method: str = "basic") -> None:
        if ":" in username:
            raise BadSetting("a user name for basic authentication cannot contain ':'")
        self._pair = f"{username}:{password}".encode()
        self.method = method

    async def credentials(self) -> bytes:
        return self._pair

    async def http_headers(self) -> Mapping[str, str]:
        return {"Authorization": "Basic " + base64.b64encode(self._pair).decode()}


class AuthenticationTLS(Authentication):
    """The certificate of the TLS connection is the credential; the command carries none."""

    method = "tls"

    def __init__(self, certificate_path: str, private_key_path: str) -> None:
        self._files = (certificate_path, private_key_path)

    async def credentials(self) -> bytes:
        return b""

    def tls_files(self) -> tuple[str, str] | None:
        return self._files


class AuthenticationData(Authentication):
    """Fixed bytes under a method's name: enough for most plug-ins that a broker may have."""

    def __init__(self, method: str, data: bytes | str = b"") -> None:
        self.method = method
        self._data = data.encode() if isinstance(data, str) else data

    async def credentials(self) -> bytes:
        return self._data


def parse_parameters(text: str) -> dict[str, str]:
    """Plug-in parameters as configuration files write them: a JSON object, or `key:value,key:value`."""
    if not text.strip():
        return {}
    try:
        if text.lstrip().startswith("{"):
            return {str(key): str(value) for key, value in json.loads(text).items()}
        return {part.partition(":")[0].strip(): part.partition(":")[2] for part in text.split(",")}
    except (ValueError, AttributeError, RecursionError) as error:
        raise BadSetting("authentication parameters should be JSON or key:value pairs") from error


def authentication_of(plugin: str, parameters: str) -> Authentication:
    """The plug-in that a configuration names, by its short name or by the class name of the Java client."""
    name = plugin.rpartition(".")[2].lower().removeprefix("authentication")
    if name == "token":
        return AuthenticationToken(parameters)
    given = parse_parameters(parameters)
    try:
        if name == "basic":
            return AuthenticationBasic(given.get("username") or given["userId"], given["password"])
        if name == "tls":
            return AuthenticationTLS(given["tlsCertFile"], given["tlsKeyFile"])
    except KeyError as missing:
        raise BadSetting(f"authentication plug-in {plugin} needs the parameter {missing}") from None
    if name == "oauth2":
        from magnetar.client.oauth2 import AuthenticationOauth2

        return AuthenticationOauth2(parameters)
    raise BadSetting(f"authentication plug-in {plugin!r} is unknown: token, basic, tls and oauth2 are there")
