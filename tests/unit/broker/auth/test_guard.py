# SPDX-License-Identifier: Apache-2.0
"""Who a request is from, and that nobody gains anything by speaking for another."""

import asyncio
from typing import Any

import pytest

from magnetar.broker.auth.grants import Need, Target
from magnetar.broker.auth.guard import Guard
from magnetar.broker.auth.opening import open_authentication
from magnetar.config.security import SecuritySettings
from magnetar.errors import NotAuthorized
from magnetar.metadata.memory import MemoryTree
from magnetar.runtime.clock import SystemClock

SETTINGS = SecuritySettings(
    authentication_enabled=True,
    authorization_enabled=True,
    anonymous_role="anonymous",
    proxy_roles=("proxy", "mighty-proxy"),
    super_user_roles=("admin", "mighty-proxy"),
)


def guard() -> Guard:
    return Guard(SETTINGS, open_authentication(SETTINGS, SystemClock()), MemoryTree().open_session())


def may_act_as_super_user(role: str, original: str) -> bool:
    async def scenario() -> bool:
        try:
            asking = guard()
            await asking.require(asking.principal(role, original), Need.SUPER_USER, Target())
        except NotAuthorized:
            return False
        return True

    return asyncio.run(scenario())


@pytest.mark.feature("F-SEC-02")
@pytest.mark.parametrize(
    ("role", "original", "allowed"),
    [
        ("admin", "", True),
        ("admin", "admin", True),
        ("admin", "stranger", False),
        ("stranger", "", False),
        ("stranger", "admin", False),
        ("anonymous", "admin", False),
        ("proxy", "", False),
        ("proxy", "admin", False),
        ("proxy", "mighty-proxy", False),
        ("mighty-proxy", "", False),
        ("mighty-proxy", "proxy", False),
        ("mighty-proxy", "stranger", False),
        ("mighty-proxy", "admin", True),
    ],
)
def test_nobody_gains_by_speaking_for_another(role: str, original: str, allowed: bool) -> None:
    """F148: both roles must be allowed, and a proxy is nobody by itself, not even where it is a super user."""
    assert may_act_as_super_user(role, original) is allowed


def test_a_principal_names_both() -> None:
    async def scenario() -> Any:
        return guard().principal("proxy", "ada").roles

    assert asyncio.run(scenario()) == ("proxy", "ada")
