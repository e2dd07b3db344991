# SPDX-License-Identifier: Apache-2.0
"""HAProxy's header in front of a connection: who the client behind a load balancer is. Versions 1 and 2.

Every byte of it is read before anything else, however the stream is cut; what follows is untouched. A stream without
one is left as it is: no frame of Pulsar's begins as a header does. Whose header is believed, networks say.
Decides.
"""

from collections.abc import Sequence
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from struct import Struct
from typing import Final

from magnetar.errors import BadCommand, BadSetting

_TEXT: Final = b"PROXY "
_BINARY: Final = b"\r\n\r\n\x00\r\nQUIT\n"
_TEXT_BYTES_MAX: Final = 107
_AFTER_SIGNATURE: Final = Struct(">BBH")
_IPV4: Final = 1
_IPV6: Final = 2


class TrustedSources:
    """The addresses whose headers are believed: anybody could write one."""

    def __init__(self, texts: Sequence[str]) -> None:
        try:
            self._networks = [ip_network(text, strict=False) for text in texts]
        except ValueError as error:
            raise BadSetting(
                f"security.haproxy_trusted: {error}; write addresses or networks such as 10.0.0.0/8"
            ) from None

    def has(self, host: str) -> bool:
        try:
            address = ip_address(host.partition("%")[0])
        except ValueError:
            return False
        return any(address in network for network in self._networks)


def trusted_sources(enabled: bool, texts: Sequence[str]) -> TrustedSources | None:
    """None where headers are not read. BadSetting when nobody's would be believed."""
    if not enabled:
        return None
    if not texts:
        raise BadSetting(
            "haProxyProtocolEnabled=true asks for security.haproxy_trusted: the addresses or networks of the load "
            "balancers, because anybody could name a client in such a header"
        )
    return TrustedSources(texts)


class HaproxyHeader:
    """Feed chunks until it is complete; then `source` names the client and `rest` gives what follows."""

    __slots__ = ("_held", "source")

    def __init__(self) -> None:
        self._held = bytearray()
        # host:port, or empty where the load balancer speaks for itself or says nothing.
        self.source = ""

    def feed(self, chunk: bytes) -> bool:
        """Whether the header is complete, or there is none. BadCommand when it cannot be read."""
        self._held += chunk
        held = bytes(self._held[: len(_BINARY)])
        if held == _BINARY:
            return self._read_binary()
        if held[: len(_TEXT)] == _TEXT:
            return self._read_text()
        return not _BINARY.startswith(held) and not _TEXT.startswith(held[: len(_TEXT)])

    def rest(self) -> bytes:
        rest = bytes(self._held)
        self._held.clear()
        return rest

    def _read_text(self) -> bool:
        end = self._held.find(b"\r\n", 0, _TEXT_BYTES_MAX)
        if end < 0:
            if len(self._held) >= _TEXT_BYTES_MAX:
                raise BadCommand(f"HAProxy's header is longer than {_TEXT_BYTES_MAX} bytes")
            return False
        words = bytes(self._held[:end]).decode("ascii", errors="replace").split(" ")
        del self._held[: end + 2]
        if len(words) == 6 and words[1] in ("TCP4", "TCP6"):
            try:
                host = IPv4Address(words[2]) if words[1] == "TCP4" else IPv6Address(words[2])
                self.source = _address(host, int(words[4]))
            except ValueError:
                raise BadCommand("HAProxy's header names no address") from None
        elif words[1:2] != ["UNKNOWN"]:
            raise BadCommand("HAProxy's header cannot be read")
        return True

    def _read_binary(self) -> bool:
        head = len(_BINARY) + _AFTER_SIGNATURE.size
        if len(self._held) < head:
            return False
        version_command, family, size = _AFTER_SIGNATURE.unpack_from(self._held, len(_BINARY))
        if version_command >> 4 != 2:
            raise BadCommand(f"HAProxy's header has version {version_command >> 4}; 1 and 2 are known")
        if len(self._held) < head + size:
            return False
        body = bytes(self._held[head : head + size])
        del self._held[: head + size]
        if version_command & 0xF == 1:
            if family >> 4 == _IPV4 and size >= 12:
                self.source = _address(IPv4Address(body[:4]), int.from_bytes(body[8:10], "big"))
            elif family >> 4 == _IPV6 and size >= 36:
                self.source = _address(IPv6Address(body[:16]), int.from_bytes(body[32:34], "big"))
        return True


def _address(host: IPv4Address | IPv6Address, port: int) -> str:
    return f"[{host}]:{port}" if host.version == 6 else f"{host}:{port}"
