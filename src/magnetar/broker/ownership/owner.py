# SPDX-License-Identifier: Apache-2.0
"""Who owns: the addresses of a broker, the record under which it owns a bundle, and the answer to a look-up.

The record is Pulsar's NamespaceEphemeralData, so that its tools and brokers can read it.
Decides.
"""

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from magnetar.errors import BadSetting, DamagedRecord


class Listener(NamedTuple):
    """The addresses that one group of clients is given, such as those outside a firewall."""

    service_url: str = ""
    service_url_tls: str = ""


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
                return self._replace(service_url=found.service_url, service_url_tls=found.service_url_tls)
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
    except (ValueError, AttributeError) as error:
        raise DamagedRecord(f"The record of a bundle's owner cannot be read: {value[:100]!r}") from error


def encode_listeners(owner: Owner) -> dict[str, Any]:
    return {
        name: {
            key: url
            for key, url in (
                ("brokerServiceUrl", found.service_url),
                ("brokerServiceUrlTls", found.service_url_tls),
            )
            if url
        }
        for name, found in owner.listeners
    }


def decode_listeners(data: Mapping[str, Any] | None) -> tuple[tuple[str, Listener], ...]:
    return tuple(
        (name, Listener(found.get("brokerServiceUrl") or "", found.get("brokerServiceUrlTls") or ""))
        for name, found in (data or {}).items()
    )


def parse_listeners(text: str) -> tuple[tuple[str, Listener], ...]:
    """From `internal:pulsar://a:6650,external:pulsar+ssl://b:6651`. BadSetting says what is wrong."""
    found: dict[str, Listener] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, _, url = part.partition(":")
        scheme, separator, place = url.partition("://")
        host, colon, port = place.rpartition(":")
        if not (name and separator and host and colon and port.isdecimal()) or scheme not in ("pulsar", "pulsar+ssl"):
            raise BadSetting(f"advertisedListeners: {part!r} is no listener: write name:pulsar://HOST:PORT")
        present = found.get(name, Listener())
        if scheme == "pulsar":
            found[name] = present._replace(service_url=url)
        else:
            found[name] = present._replace(service_url_tls=url)
    return tuple(found.items())
