# SPDX-License-Identifier: Apache-2.0
"""Keys of identity providers by URL: found, renewed, and kept when what is fetched cannot be used."""

import asyncio
import json
import ssl
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from magnetar.broker.auth import issuer_keys
from magnetar.broker.auth.authenticator import Credentials
from magnetar.broker.auth.issuer_keys import KEYS_BYTES_MAX
from magnetar.broker.auth.opening import open_authentication
from magnetar.config.security import SecuritySettings
from magnetar.errors import BadSetting, NotAuthenticated
from magnetar.runtime.clock import SystemClock
from tests.conformance.certificates import Authority
from tests.conformance.identity_provider import AUDIENCE, IdentityProvider

pytestmark = pytest.mark.feature("B-20", "F-SEC-01")
WAIT_S = 30


class Door:
    """Authentication of a broker that believes one identity provider."""

    def __init__(self, provider: IdentityProvider, **fields: Any) -> None:
        self._provider = provider
        settings = SecuritySettings(
            authentication_enabled=True,
            authentication_providers=("openid",),
            openid_issuers=(provider.url,),
            openid_audiences=(AUDIENCE,),
            login_pause_max_ms=1,
            **fields,
        )
        authentication = open_authentication(settings, SystemClock())
        assert authentication is not None
        self._authentication = authentication
        self._upkeep = [asyncio.create_task(work()) for work in authentication.upkeep]

    async def role_of(self, token: str) -> str:
        return (await self._authentication.identify("token", Credentials(token.encode()))).role

    async def until_believed(self, role: str) -> None:
        """Tokens of the provider's present key are asked about until one is believed."""
        async with asyncio.timeout(WAIT_S):
            while True:
                try:
                    assert await self.role_of(self._provider.token(role)) == role
                    return
                except NotAuthenticated:
                    await asyncio.sleep(0.01)

    async def until_asked(self, path: str, times: int = 1) -> None:
        wanted = self._provider.asked.count(path) + times
        async with asyncio.timeout(WAIT_S):
            while True:
                if self._provider.asked.count(path) >= wanted:
                    return
                await asyncio.sleep(0.01)

    async def close(self) -> None:
        for task in self._upkeep:
            task.cancel()
        await asyncio.gather(*self._upkeep, return_exceptions=True)
        await self._authentication.close()


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(issuer_keys, "_MISS_INTERVAL_S", 0.05)
    monkeypatch.setattr(issuer_keys, "_CHECK_S", 0.01)


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(work)


def test_keys_are_found_where_the_issuer_says_and_again_when_they_changed() -> None:
    async def scenario(provider: IdentityProvider) -> None:
        door = Door(provider)
        try:
            await door.until_believed("app")
            old = provider.token("app")
            provider.rotate()
            await door.until_believed("app")
            with pytest.raises(NotAuthenticated):
                await door.role_of(old)
        finally:
            await door.close()

    with IdentityProvider().serving() as provider:
        run(scenario(provider))


def test_what_cannot_be_used_leaves_the_last_keys_in_force() -> None:
    async def scenario(provider: IdentityProvider) -> None:
        door = Door(provider, openid_keys=(f"{provider.url}={provider.url}/keys",), openid_refresh_s=0)
        try:
            await door.until_believed("app")
            provider.put("/elsewhere", provider.answers["/keys"][2])
            for put in (
                {"body": b"", "status": 503},
                {"body": b"", "status": 302, "location": f"{provider.url}/elsewhere"},
                {"body": b"no keys at all"},
                {"body": json.dumps({"keys": []}).encode()},
                {"body": b" " * (KEYS_BYTES_MAX + 1)},
            ):
                provider.put("/keys", **put)
                await door.until_asked("/keys", 2)
                assert await door.role_of(provider.token("app")) == "app"
            assert "/elsewhere" not in provider.asked, "no redirect is followed"
            assert not any("openid-configuration" in path for path in provider.asked), "the operator said where"
        finally:
            await door.close()

    with IdentityProvider().serving() as provider:
        run(scenario(provider))


def test_a_description_does_not_lead_to_other_kinds_of_addresses(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(provider: IdentityProvider) -> None:
        door = Door(provider, openid_refresh_s=0)
        path = "/.well-known/openid-configuration"
        try:
            for uri in ("file:///etc/passwd", "http://198.51.100.1/keys", 5, None):
                provider.put(path, json.dumps({"jwks_uri": uri}).encode())
                await door.until_asked(path, 2)
            assert "/keys" not in provider.asked
            with pytest.raises(NotAuthenticated):
                await door.role_of(provider.token("app"))
        finally:
            await door.close()

    with IdentityProvider().serving() as provider:
        run(scenario(provider))
    assert "stay as they were" in caplog.text


def test_an_issuer_is_believed_over_tls_of_its_own_authority_only(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ours, theirs = Authority(tmp_path / "ours"), Authority(tmp_path / "theirs", "another")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*ours.sign("issuer"))

    async def scenario(provider: IdentityProvider) -> None:
        door = Door(provider, openid_trust_file=str(ours.file))
        try:
            await door.until_believed("app")
        finally:
            await door.close()
        asked = len(provider.asked)
        deceived = Door(provider, openid_trust_file=str(theirs.file), openid_refresh_s=0)
        try:
            async with asyncio.timeout(WAIT_S):
                while caplog.text.count("stay as they were") < 3:
                    with pytest.raises(NotAuthenticated):
                        await deceived.role_of(provider.token("app"))
                    await asyncio.sleep(0.01)
        finally:
            await deceived.close()
        assert len(provider.asked) == asked

    with IdentityProvider(context).serving() as provider:
        run(scenario(provider))


def test_an_authority_that_cannot_be_read_stops_the_start(tmp_path: Path) -> None:
    with IdentityProvider().serving() as provider, pytest.raises(BadSetting, match="nowhere"):
        Door(provider, openid_trust_file=str(tmp_path / "nowhere"))
