# SPDX-License-Identifier: Apache-2.0
"""Service URLs: where a client begins. Several hosts may stand in one URL; they are tried in turn.

    pulsar://a:6650,b,c:6651   pulsar+ssl://a   http://a:8080,b:8080   https://a

Never resolves a name.
Decides.
"""

from typing import Final, NamedTuple

from magnetar.errors import BadSetting

_DEFAULT_PORTS: Final = {"pulsar": 6650, "pulsar+ssl": 6651, "http": 80, "https": 443}
HOSTS_MAX: Final = 1_000


class Address(NamedTuple):
    """One broker's or proxy's door."""

    host: str
    port: int
    tls: bool = False

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'pulsar+ssl' if self.tls else 'pulsar'}://{host}:{self.port}"

    @property
    def authority(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


class ServiceUrl(NamedTuple):
    """A parsed URL; `is_http` says that look-ups go over HTTP."""

    text: str
    is_http: bool
    addresses: tuple[Address, ...]

    @property
    def uses_tls(self) -> bool:
        return self.addresses[0].tls

    @staticmethod
    def parse(text: str) -> "ServiceUrl":
        """Raises BadSetting, which says what a URL looks like."""
        scheme, separator, rest = text.strip().partition("://")
        scheme = scheme.lower()
        if not separator or scheme not in _DEFAULT_PORTS:
            raise BadSetting(f"service URL {text!r} should begin with pulsar://, pulsar+ssl://, http:// or https://")
        hosts = rest.split("/", 1)[0].replace(";", ",").split(",")
        if len(hosts) > HOSTS_MAX:
            raise BadSetting(f"a service URL with {len(hosts)} hosts has more than the {HOSTS_MAX} that are tried")
        tls = scheme in ("pulsar+ssl", "https")
        addresses = tuple(_address(text, host.strip(), _DEFAULT_PORTS[scheme], tls) for host in hosts)
        return ServiceUrl(text.strip(), scheme in ("http", "https"), addresses)


def parse_address(text: str) -> Address:
    """The one address in a URL that a broker sent."""
    return ServiceUrl.parse(text).addresses[0]


def _address(url: str, text: str, default_port: int, tls: bool) -> Address:
    host, port_text = text, ""
    if text.startswith("["):
        host, bracket, after = text[1:].partition("]")
        if not bracket or (after and not after.startswith(":")):
            raise BadSetting(f"service URL {url!r} has an IPv6 address without its ']'")
        port_text = after[1:]
    elif ":" in text:
        host, _, port_text = text.partition(":")
    if not host:
        raise BadSetting(f"service URL {url!r} lacks a host name")
    if not port_text:
        return Address(host, default_port, tls)
    if not port_text.isdecimal() or not 0 < int(port_text) < 65_536:
        raise BadSetting(f"service URL {url!r} has the impossible port {port_text!r}")
    return Address(host, int(port_text), tls)
