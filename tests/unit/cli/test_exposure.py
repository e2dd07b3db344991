# SPDX-License-Identifier: Apache-2.0
"""An open door to a network is said aloud, and refused in production."""

import pytest

from magnetar.cli.exposure import check_exposure, is_loopback
from magnetar.config.load import load_settings
from magnetar.errors import CannotStart


@pytest.mark.parametrize("address", ["127.0.0.1", "127.1.2.3", "::1", "localhost"])
def test_loopback(address: str) -> None:
    assert is_loopback(address)


@pytest.mark.parametrize("address", ["0.0.0.0", "::", "10.0.0.1", "broker.example.com", ""])
def test_not_loopback(address: str) -> None:
    assert not is_loopback(address)


@pytest.mark.parametrize(
    ("bind", "authenticated", "is_said"),
    [("127.0.0.1", False, False), ("0.0.0.0", True, False), ("0.0.0.0", False, True)],
)
def test_only_an_open_door_is_a_matter(bind: str, authenticated: bool, is_said: bool) -> None:
    flags = {"--bind": bind, "authenticationEnabled": str(authenticated)}
    said: list[str] = []
    check_exposure(load_settings(flags=flags), said.append)
    assert bool(said) is is_said
    in_production = load_settings(flags={**flags, "security.production": "true"})
    if is_said:
        assert bind in said[0]
        with pytest.raises(CannotStart):
            check_exposure(in_production, said.append)
    else:
        check_exposure(in_production, said.append)
