# SPDX-License-Identifier: Apache-2.0
"""Who owns: the addresses of a broker, the record under which it owns a bundle, and the answer to a look-up.

The record is Pulsar's NamespaceEphemeralData, so that its tools and brokers can read it.
Decides.
"""

import json
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from magnetar.errors import BadSetting, DamagedRecord

_LISTENER_KEYS: Final = ("brokerServiceUrl", "brokerServiceUrlTls", "brokerHttpUrl", "brokerHttpsUrl")
_SCHEMES: Final = {
    "pulsar": "service_url",
    "pulsar+ssl": "service_url_tls",
    "http": "web_url",
    "https": "web_url_tls",
}


class Listener(NamedTuple):
    """The addresses that one group of clients is given, such as those outside a firewall."""

    service_url: str = ""
    service_url_tls: str = ""
    web_url: str = ""
    web_url_tls: str = ""


class BindAddress(NamedTuple):
    """One more address to listen at, and the listener whose clients come in there."""

    listener: str
    host: str
    port: int
    is_tls: bool


class Owner(NamedTuple):
    service_url: str
    web_url: str
    # Empty without TLS.
    service_url_tls: str = ""
    web_url_tls: str = ""
    listeners: tuple[tuple[str, Listener], ...] = ()

    @property
    def broker_id(self) -> str:
        """As Pulsar names a broker: the host and port of its HTTP server."""
        return (self.web_url or self.web_url_tls).partition("://")[2]

    def through(self, listener: str) -> "Owner | None":
        """The addresses for clients of one listener; None when this broker has none of that name."""
        if not listener:
            return self
        for name, found in self.listeners:
            if name == listener:
                return self._replace(
                    service_url=found.service_url,
                    service_url_tls=found.service_url_tls,
                    web_url=found.web_url or self.web_url,
                    web_url_tls=found.web_url_tls or self.web_url_tls,
                )
        return None


class Located(NamedTuple):
    """Where to go on: to the owner (connect), or to a broker that knows more (redirect)."""

    owner: Owner
    is_redirect: bool = False
    # The next broker need not ask the leader again: it shall own the topic.
    is_authoritative: bool = True


def encode_owner(owner: Owner) -> bytes:
    record = {
        "nativeUrl": owner.service_url,
        "nativeUrlTls": owner.service_url_tls,
        "httpUrl": owner.web_url,
        "httpUrlTls": owner.web_url_tls,
        "disabled": False,
        "advertisedListeners": encode_listeners(owner),
    }
    return json.dumps({name: value for name, value in record.items() if value != ""}).encode()


def decode_owner(value: bytes) -> Owner:
    try:
        record = json.loads(value)
        return Owner(
            record.get("nativeUrl") or "",
            record.get("httpUrl") or "",
            record.get("nativeUrlTls") or "",
            record.get("httpUrlTls") or "",
            decode_listeners(record.get("advertisedListeners")),
        )
    except (ValueError, AttributeError, RecursionError) as error:
        raise DamagedRecord(f"The record of a bundle's owner cannot be read: {value[:100]!r}") from error


def encode_listeners(owner: Owner) -> dict[str, Any]:
    return {
        name: {key: url for key, url in zip(_LISTENER_KEYS, found, strict=True) if url}
        for name, found in owner.listeners
    }


def decode_listeners(data: Mapping[str, Any] | None) -> tuple[tuple[str, Listener], ...]:
    return tuple(
        (name, Listener(*(found.get(key) or "" for key in _LISTENER_KEYS))) for name, found in (data or {}).items()
    )


def parse_listeners(text: str) -> tuple[tuple[str, Listener], ...]:
    """From `internal:pulsar://a:6650,external:pulsar+ssl://b:6651`. BadSetting says what is wrong."""
    found: dict[str, Listener] = {}
    for part in _parts(text):
        name, scheme, host, port = _split(part)
        if scheme not in _SCHEMES or not host or port is None:
            raise BadSetting(f"advertisedListeners: {part!r} is no listener: write name:pulsar://HOST:PORT")
        url = part.partition(":")[2]
        found[name] = found.get(name, Listener())._replace(**{_SCHEMES[scheme]: url})
    return tuple(found.items())


def parse_bind_addresses(text: str) -> tuple[BindAddress, ...]:
    """From `internal:pulsar://0.0.0.0:6652,external:pulsar+ssl://[::]:6653`. BadSetting says what is wrong."""
    found = []
    for part in _parts(text):
        name, scheme, host, port = _split(part)
        if scheme not in ("pulsar", "pulsar+ssl") or not host or port is None:
            raise BadSetting(f"bindAddresses: {part!r} is no address: write listener:pulsar://HOST:PORT")
        found.append(BindAddress(name, host.strip("[]"), port, scheme == "pulsar+ssl"))
    return tuple(found)


def _parts(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _split(part: str) -> tuple[str, str, str, int | None]:
    """Name, scheme, host and port of one listener; the port is None where there is none that can be used."""
    name, _, url = part.partition(":")
    scheme, _, place = url.partition("://")
    host, _, port = place.rpartition(":")
    usable = bool(name) and port.isascii() and port.isdecimal() and int(port) < 65_536
    return name, scheme, host, int(port) if usable else None
