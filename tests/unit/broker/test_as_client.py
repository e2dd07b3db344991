# SPDX-License-Identifier: Apache-2.0
"""Who a broker is to other brokers."""

import os
from pathlib import Path

import pytest

from magnetar.broker.as_client import AsClient
from magnetar.broker.auth.authenticator import Principal
from magnetar.broker.auth.guard import Guard
from magnetar.broker.auth.opening import open_authentication
from magnetar.broker.ownership.owner import Owner
from magnetar.config.security import SecuritySettings
from magnetar.errors import BadSetting, NotAuthorized, ServiceNotReady
from magnetar.metadata.memory import MemoryTree
from magnetar.runtime.clock import SystemClock
from tests.conformance.certificates import Authority

PLAIN = Owner("pulsar://b:6650", "http://b:8080")
BOTH = Owner("pulsar://b:6650", "http://b:8080", "pulsar+ssl://b:6651", "https://b:8443")
ENCRYPTED = Owner("", "", "pulsar+ssl://b:6651", "https://b:8443")

pytestmark = pytest.mark.feature("F-SEC-04")


def test_with_tls_there_is_no_way_back_to_plain_text() -> None:
    with_tls, without = AsClient(SecuritySettings(client_tls=True)), AsClient(SecuritySettings())
    assert with_tls.tls is not None
    assert without.tls is None
    assert (with_tls.service_url(BOTH), with_tls.web_url(BOTH)) == ("pulsar+ssl://b:6651", "https://b:8443")
    assert (without.service_url(BOTH), without.web_url(BOTH)) == ("pulsar://b:6650", "http://b:8080")
    with pytest.raises(ServiceNotReady, match="no address with TLS"):
        with_tls.web_url(PLAIN)
    with pytest.raises(ServiceNotReady, match="no address without TLS"):
        without.service_url(ENCRYPTED)


@pytest.mark.parametrize(
    "settings",
    [
        SecuritySettings(client_authentication_plugin="carrier-pigeon"),
        SecuritySettings(client_authentication_plugin="basic", client_authentication_parameters="{}"),
        SecuritySettings(
            client_authentication_plugin="tls", client_authentication_parameters="tlsCertFile:a,tlsKeyFile:b"
        ),
        SecuritySettings(client_tls=True, client_trust_file="/nowhere/trust.pem"),
        SecuritySettings(client_tls=True, client_certificate_file="/nowhere/certificate.pem"),
    ],
)
def test_what_cannot_be_used_stops_the_start(settings: SecuritySettings) -> None:
    with pytest.raises(BadSetting):
        AsClient(settings)


def test_changed_certificates_are_taken_up_and_bad_ones_are_not(tmp_path: Path) -> None:
    trusted = tmp_path / "trusted.pem"
    trusted.write_bytes(Authority(tmp_path / "one").file.read_bytes())
    as_client = AsClient(SecuritySettings(client_tls=True, client_trust_file=str(trusted)))
    first = as_client.tls
    assert as_client.tls is first
    _replace(trusted, Authority(tmp_path / "two").file.read_bytes(), 1)
    second = as_client.tls
    assert second is not first
    _replace(trusted, b"nothing that is a certificate", 2)
    assert as_client.tls is second


def _replace(file: Path, content: bytes, moment: int) -> None:
    file.write_bytes(content)
    os.utime(file, ns=(moment, moment))


def test_a_super_user_may_speak_for_another_and_both_count() -> None:
    settings = SecuritySettings(
        authentication_enabled=True, anonymous_role="nobody", super_user_roles=("broker",), proxy_roles=("proxy",)
    )
    guard = Guard(settings, open_authentication(settings, SystemClock()), MemoryTree().open_session())
    assert guard.principal("broker", "alice") == Principal("broker", "alice")
    assert guard.principal("broker", "alice").roles == ("broker", "alice")
    assert guard.principal("broker", "") == Principal("broker")
    with pytest.raises(NotAuthorized):
        guard.principal("alice", "broker")
