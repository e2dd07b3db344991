# SPDX-License-Identifier: Apache-2.0
"""From settings to authentication: what cannot be used stops the start, and never says a secret."""

import asyncio
import base64
from pathlib import Path
from typing import Any

import pytest

from magnetar.broker.auth.authenticator import Credentials
from magnetar.broker.auth.guard import Guard
from magnetar.broker.auth.htpasswd import apr1
from magnetar.broker.auth.opening import open_authentication, read_source
from magnetar.config.security import SecuritySettings
from magnetar.errors import BadSetting, CannotStart, NotAuthenticated
from magnetar.runtime.clock import SystemClock

CANARY = "canary-of-thirty-two-bytes-or-more"


def settings(**fields: Any) -> SecuritySettings:
    return SecuritySettings(authentication_enabled=True, **fields)


@pytest.mark.parametrize("form", ["{path}", "file://{path}", "file:{path}", "data:;base64,{encoded}", "{encoded}"])
def test_keys_are_read_from_where_pulsar_reads_them(tmp_path: Path, form: str) -> None:
    path = tmp_path / "key"
    path.write_bytes(CANARY.encode())
    encoded = base64.b64encode(CANARY.encode()).decode()
    assert read_source(form.format(path=path, encoded=encoded), "key") == CANARY.encode()


@pytest.mark.parametrize("text", ["data:,plain", "data:;base64,%%%", "file:///nowhere/at/all", "/nowhere at all"])
def test_what_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises((BadSetting, CannotStart)):
        read_source(text, "key")


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"authentication_providers": ("token",)},
        {"authentication_providers": ("basic",)},
        {"authentication_providers": ("tls",)},
        {"authentication_providers": ("org.example.AuthenticationProviderSasl",)},
        {"authentication_providers": ("token",), "token_secret_key": base64.b64encode(b"canary").decode()},
        {"authentication_providers": ("basic",), "basic_users": "data:;base64," + base64.b64encode(b"canary").decode()},
        {"authentication_providers": ("token",), "token_secret_key": f"data:;base64,{CANARY}"},
    ],
)
def test_a_door_that_cannot_be_locked_stops_the_start(fields: dict[str, Any]) -> None:
    with pytest.raises((BadSetting, CannotStart)) as refused:
        open_authentication(settings(**fields), SystemClock())
    assert "canary" not in str(refused.value)
    assert "canary" not in repr(settings(**fields))


def test_permissions_without_roles_stop_the_start() -> None:
    with pytest.raises(BadSetting):
        Guard(SecuritySettings(authorization_enabled=True), None, None)  # type: ignore[arg-type]


def test_a_password_is_hashed_once_while_it_is_remembered() -> None:
    users = base64.b64encode(f"ada:{apr1('secret', 'salt')}\neve:{apr1('x', 'salt')}".encode()).decode()
    given = settings(
        authentication_providers=("basic",),
        basic_users=f"data:;base64,{users}",
        basic_proven_max=1,
        anonymous_role="an",
    )

    async def scenario() -> None:
        authentication = open_authentication(given, SystemClock())
        assert authentication is not None
        for _ in range(3):
            assert (await authentication.identify("basic", Credentials(b"ada:secret"))).role == "ada"
        with pytest.raises(NotAuthenticated):
            await authentication.identify("basic", Credentials(b"ada:wrong"))
        assert (await authentication.identify("basic", Credentials(b"eve:x"))).role == "eve"
        assert (await authentication.identify("none", Credentials())).role == "an"
        assert len(authentication._proven) == 1
        await authentication.close()

    asyncio.run(scenario())
