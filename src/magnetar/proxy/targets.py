# SPDX-License-Identifier: Apache-2.0
"""Which brokers a client may be connected to: the rules that keep a proxy from being a way into the whole network, and
its own credentials from whoever a client names.

A broker that the metadata store lists or the configuration names is always allowed, at that very address. Anything else
needs a host, an address and a port that the rules allow. Never resolves a name.
Decides.
"""

import re
from collections.abc import Iterable
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import Final, NamedTuple

from magnetar.config.proxy import ProxySettings
from magnetar.errors import BadSetting, NotAuthorized

ANY: Final = "*"
HOST_CHARACTERS_MAX: Final = 255


class Target(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_target(text: str) -> Target:
    """`host:port`, as CONNECT carries it; a URL's scheme is dropped. NotAuthorized for anything else."""
    host, separator, port = text.rpartition("://")[2].strip("/").rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not separator or not 0 < len(host) <= HOST_CHARACTERS_MAX or not (port.isascii() and port.isdecimal()):
        raise NotAuthorized(f"{text[:300]!r} is not a broker's address: it should be host:port")
    if any(not character.isprintable() or character in " /@?#\\," for character in host):
        raise NotAuthorized(f"{text[:300]!r} is not a broker's address: it should be host:port")
    if len(port) > 5 or not 0 < int(port) < 65_536:
        raise NotAuthorized(f"{text[:300]!r} is not a broker's address: there is no such port")
    return Target(host.lower(), int(port))


class TargetRules:
    """`has_registry` says that the metadata store lists the brokers; then nothing else is allowed by default. Nor is it
    where the proxy sends every target a token or a password of its own."""

    def __init__(self, settings: ProxySettings, *, has_registry: bool, sends_secret: bool) -> None:
        self._hosts = None if ANY in settings.allowed_hosts else [_pattern(name) for name in settings.allowed_hosts]
        self._networks = (
            None if ANY in settings.allowed_addresses else [_network(text) for text in settings.allowed_addresses]
        )
        self._ports = None if ANY in settings.allowed_ports else [_port(text) for text in settings.allowed_ports]
        is_written = bool(settings.allowed_hosts or settings.allowed_addresses)
        self._only_registered = has_registry and not is_written
        self._only_named = sends_secret and not is_written

    def check_name(self, target: Target, known: Iterable[Target]) -> bool:
        """Whether the target is a known broker, and needs no further check. NotAuthorized when it is not allowed."""
        if target in known:
            return True
        self.check_host(target)
        if self._ports is not None and target.port not in self._ports:
            raise NotAuthorized(f"Port {target.port} is not one that this proxy connects to")
        return False

    def check_host(self, target: Target) -> None:
        """Whatever its port, for an unknown broker. NotAuthorized when it is not allowed."""
        if self._only_registered:
            raise NotAuthorized(f"{target} is not one of this cluster's brokers")
        if self._only_named:
            raise NotAuthorized(
                f"{target} is not a broker that this proxy was told of, and is not sent the proxy's credentials: "
                "brokerProxyAllowedHostNames or brokerProxyAllowedIPAddresses may allow it"
            )
        if self._hosts and not any(pattern.fullmatch(target.host) for pattern in self._hosts):
            raise NotAuthorized(f"{target.host} is not a host that this proxy connects to")

    def check_address(self, target: Target, address: str) -> None:
        """What the host's name turned out to be. NotAuthorized when it is not allowed."""
        if not self._networks:
            return
        found = ip_address(address.partition("%")[0])
        mapped = getattr(found, "ipv4_mapped", None)
        if not any((mapped or found) in network for network in self._networks):
            raise NotAuthorized(f"{target.host} is at an address that this proxy does not connect to")


def _pattern(name: str) -> re.Pattern[str]:
    return re.compile(".*".join(re.escape(part) for part in name.lower().split("*")), re.DOTALL)


def _network(text: str) -> IPv4Network | IPv6Network:
    try:
        return ip_network(text, strict=False)
    except ValueError:
        raise BadSetting(f"brokerProxyAllowedIPAddresses: {text!r} is neither an address nor a network") from None


def _port(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and 0 < int(text[:6]) < 65_536):
        raise BadSetting(f"brokerProxyAllowedTargetPorts: {text!r} is not a port")
    return int(text)
