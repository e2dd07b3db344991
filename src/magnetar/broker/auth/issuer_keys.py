# SPDX-License-Identifier: Apache-2.0
"""Keys of identity providers: read from the file or URL that the operator gave, and again from time to time.

Nothing is fetched from an address that a client or a token names. A URL is https, or loopback; redirects are not
followed; size and time are bounded. Keys that cannot be read leave the last ones in force.
Carries.
"""

import asyncio
import json
import logging
import ssl
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

from magnetar.broker.auth.open_id import OpenIdAuthenticator, parse_keys
from magnetar.errors import BadSetting, MagnetarError, ServiceNotReady
from magnetar.runtime.client_tls import client_context
from magnetar.runtime.small_file import read_small_file

KEYS_BYTES_MAX: Final = 1024 * 1024
_TIMEOUT_S: Final = 10.0
# A token with an unknown key does not fetch more often than this.
_MISS_INTERVAL_S: Final = 30.0
_CHECK_S: Final = 1.0
_LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")
_DISCOVERY: Final = "/.well-known/openid-configuration"

_log = logging.getLogger(__name__)


def check_url(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in _LOOPBACK):
        return url
    raise BadSetting(f"Keys of an identity provider come from a file or an https URL, not from {parts.scheme!r}")


class IssuerKeys:
    def __init__(
        self, authenticator: OpenIdAuthenticator, sources: Mapping[str, str], trust_file: str, refresh_s: int
    ) -> None:
        self._authenticator = authenticator
        # Where the keys of each issuer are: a path, or a URL; without either, where the issuer says at its own URL.
        self._sources = dict(sources)
        self._tls = _context(trust_file)
        self._refresh_s = refresh_s
        for issuer, source in self._sources.items():
            if _is_url(source):
                check_url(source)
            else:
                authenticator.keys[issuer] = parse_keys(read_small_file(_path(source), KEYS_BYTES_MAX))
        for issuer in authenticator.keys:
            if issuer not in self._sources:
                check_url(issuer)

    async def watch(self) -> None:
        """Read every issuer's keys now and then, and soon when a token needs one that is not known."""
        loop = asyncio.get_running_loop()
        read_s = dict.fromkeys(self._authenticator.keys, float("-inf"))
        while True:
            for issuer in list(self._authenticator.keys):
                is_wanted = issuer in self._authenticator.wants_keys
                if loop.time() - read_s[issuer] >= (_MISS_INTERVAL_S if is_wanted else self._refresh_s):
                    read_s[issuer] = loop.time()
                    self._authenticator.wants_keys.pop(issuer, None)
                    await self.refresh(issuer)
            await asyncio.sleep(_CHECK_S)

    async def refresh(self, issuer: str) -> None:
        try:
            self._authenticator.keys[issuer] = parse_keys(await self._content(issuer))
        except MagnetarError as error:
            _log.error("the keys of %s stay as they were: %s", issuer, error)

    async def _content(self, issuer: str) -> bytes:
        source = self._sources.get(issuer)
        if source is not None and not _is_url(source):
            return read_small_file(_path(source), KEYS_BYTES_MAX)
        if source is None:
            described = await self._fetched(issuer.rstrip("/") + _DISCOVERY)
            try:
                source = check_url(str(json.loads(described)["jwks_uri"]))
            except (ValueError, KeyError, TypeError, RecursionError) as error:
                raise ServiceNotReady(f"The description of {issuer} does not say where its keys are") from error
        return await self._fetched(source)

    async def _fetched(self, url: str) -> bytes:
        import httpx

        from magnetar.runtime.http_client import http_client

        try:
            async with (
                asyncio.timeout(_TIMEOUT_S),
                http_client(self._tls, follow_redirects=False) as client,
                client.stream("GET", url) as answer,
            ):
                if answer.status_code != 200:
                    raise ServiceNotReady(f"{url} answers {answer.status_code}")
                content = b""
                async for piece in answer.aiter_bytes():
                    content += piece
                    if len(content) > KEYS_BYTES_MAX:
                        raise ServiceNotReady(f"{url} answers more than {KEYS_BYTES_MAX} bytes")
                return content
        except (httpx.HTTPError, OSError) as error:
            raise ServiceNotReady(f"{url} cannot be read: {type(error).__name__}") from error


def _context(trust_file: str) -> ssl.SSLContext:
    """Without a file the system's authorities are believed."""
    return client_context(trust_file) if trust_file else ssl.create_default_context()


def _is_url(source: str) -> bool:
    return source.startswith(("http://", "https://"))


def _path(source: str) -> str:
    return source.removeprefix("file://")
