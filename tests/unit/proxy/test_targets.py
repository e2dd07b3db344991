# SPDX-License-Identifier: Apache-2.0
import pytest

from magnetar.config.proxy import ProxySettings
from magnetar.errors import BadSetting, NotAuthorized
from magnetar.proxy.targets import Target, TargetRules, parse_target

pytestmark = [pytest.mark.feature("F-PXY-05")]


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("broker-1:6650", Target("broker-1", 6650)),
        ("pulsar://Broker-1:6650", Target("broker-1", 6650)),
        ("pulsar+ssl://[::1]:6651/", Target("::1", 6651)),
        ("10.0.0.1:65535", Target("10.0.0.1", 65535)),
    ],
)
def test_an_address_is_a_host_and_a_port(text: str, target: Target) -> None:
    assert parse_target(text) == target
    assert parse_target(str(target)) == target


@pytest.mark.parametrize(
    "text",
    [
        "",
        "broker",
        ":6650",
        "broker:0",
        "broker:65536",
        "broker:x",
        "a b:1",
        "a/b:1",
        "u@h:1",
        "h:٣",
        "a,b:1",
        "file:///etc/hosts",
    ],
)
def test_anything_else_is_refused(text: str) -> None:
    """F151: no other kinds of addresses, no users, no lists."""
    with pytest.raises(NotAuthorized, match="is not a broker's address"):
        parse_target(text)


def test_only_pulsars_own_ports_are_allowed_unless_told() -> None:
    """F151: not the ports of other services."""
    rules = TargetRules(ProxySettings(), has_registry=False, sends_secret=False)
    assert not rules.check_name(Target("any", 6650), ())
    assert not rules.check_name(Target("any", 6651), ())
    for port in (22, 2181, 8080, 9999):
        with pytest.raises(NotAuthorized, match=f"Port {port}"):
            rules.check_name(Target("any", port), ())
    TargetRules(ProxySettings(allowed_ports=("*",)), has_registry=False, sends_secret=False).check_name(
        Target("any", 9999), ()
    )


def test_hosts_are_allowed_by_name_with_stars() -> None:
    rules = TargetRules(
        ProxySettings(allowed_hosts=("*.brokers.example", "one")), has_registry=True, sends_secret=False
    )
    for host in ("a.brokers.example", "a.b.brokers.example", "one"):
        assert not rules.check_name(Target(host, 6650), ())
    for host in ("brokers.example", "axbrokers.example", "one.evil", "a.brokers.example.evil", "a.brokers.example\n"):
        with pytest.raises(NotAuthorized):
            rules.check_name(Target(host, 6650), ())


def test_addresses_are_checked_after_the_name_is_resolved() -> None:
    """F151: an allowed name that leads elsewhere leads nowhere."""
    rules = TargetRules(ProxySettings(allowed_addresses=("10.1.0.0/16", "::1")), has_registry=True, sends_secret=False)
    target = Target("broker", 6650)
    assert not rules.check_name(target, ())
    for address in ("10.1.2.3", "::1", "::ffff:10.1.2.3"):
        rules.check_address(target, address)
    for address in ("10.2.0.1", "127.0.0.1", "::ffff:127.0.0.1", "fe80::1%eth0", "169.254.169.254"):
        with pytest.raises(NotAuthorized):
            rules.check_address(target, address)


def test_with_a_list_of_brokers_nothing_else_is_allowed() -> None:
    """F151: neither another port of a broker's host nor another host."""
    rules = TargetRules(ProxySettings(), has_registry=True, sends_secret=False)
    registered = {Target("broker-1", 43210)}
    assert rules.check_name(Target("broker-1", 43210), registered)
    for other in (Target("broker-1", 6650), Target("metadata", 6650)):
        with pytest.raises(NotAuthorized, match="not one of this cluster's brokers"):
            rules.check_name(other, registered)


@pytest.mark.parametrize("has_registry", [False, True])
def test_credentials_of_the_proxys_own_are_for_brokers_that_it_was_told_of(has_registry: bool) -> None:
    """F151: whoever may log in at the proxy could have them sent to himself."""
    named, other = Target("broker-1", 43210), Target("stranger", 6650)
    rules = TargetRules(ProxySettings(), has_registry=has_registry, sends_secret=True)
    assert rules.check_name(named, {named})
    with pytest.raises(NotAuthorized) as refused:
        rules.check_name(other, {named})
    assert has_registry or "brokerProxyAllowedHostNames" in str(refused.value)


@pytest.mark.parametrize(
    "settings",
    [
        ProxySettings(allowed_hosts=("*",)),
        ProxySettings(allowed_hosts=("str*",)),
        ProxySettings(allowed_addresses=("10.0.0.0/8",)),
    ],
)
def test_a_rule_that_is_written_says_who_gets_credentials(settings: ProxySettings) -> None:
    rules = TargetRules(settings, has_registry=False, sends_secret=True)
    assert not rules.check_name(Target("stranger", 6650), ())
    with pytest.raises(NotAuthorized, match="Port 22"):
        rules.check_name(Target("stranger", 22), ())


def test_rules_that_cannot_be_read_stop_the_start() -> None:
    with pytest.raises(BadSetting, match="neither an address nor a network"):
        TargetRules(ProxySettings(allowed_addresses=("ten",)), has_registry=False, sends_secret=False)
    for port in ("x", "0", "99999999"):
        with pytest.raises(BadSetting, match="is not a port"):
            TargetRules(ProxySettings(allowed_ports=(port,)), has_registry=False, sends_secret=False)
