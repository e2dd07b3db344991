# SPDX-License-Identifier: Apache-2.0
"""An open door to a network is said aloud, and refused in production."""

import pytest

from magnetar.cli.exposure import check_bookie_exposure, check_exposure, check_metadata_exposure, is_loopback
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


@pytest.mark.parametrize(
    ("given", "is_said"),
    [
        ({}, True),
        ({"bookie_server.bind_address": "127.0.0.1"}, False),
        ({"bookie_server.secret_file": "secret"}, False),
        ({"bookie_server.tls_required": "true"}, True),
        ({"bookie_server.tls_required": "true", "bookie_server.tls_client_certificate_required": "true"}, False),
    ],
)
def test_a_bookie_says_whether_it_asks_who_comes(given: dict[str, str], is_said: bool) -> None:
    flags = {"bookie_server.bind_address": "0.0.0.0", **given}
    said: list[str] = []
    check_bookie_exposure(load_settings(flags=flags, role="bookie"), said.append)
    assert bool(said) is is_said
    in_production = load_settings(flags={**flags, "security.production": "true"}, role="bookie")
    if is_said:
        with pytest.raises(CannotStart, match="secret_file"):
            check_bookie_exposure(in_production, said.append)
    else:
        check_bookie_exposure(in_production, said.append)


def test_so_does_a_metadata_server() -> None:
    said: list[str] = []
    check_metadata_exposure("127.0.0.1", load_settings(), said.append)
    check_metadata_exposure("0.0.0.0", load_settings(flags={"metadata.tls_certificate_file": "c.pem"}), said.append)
    assert said == []
    check_metadata_exposure("0.0.0.0", load_settings(), said.append)
    assert "0.0.0.0" in said[0]
    with pytest.raises(CannotStart):
        check_metadata_exposure("0.0.0.0", load_settings(flags={"security.production": "true"}), said.append)
