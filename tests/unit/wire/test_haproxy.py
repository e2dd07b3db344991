# SPDX-License-Identifier: Apache-2.0
from ipaddress import IPv4Address, IPv6Address

import pytest

from magnetar.errors import BadCommand, BadSetting
from magnetar.wire.haproxy import HaproxyHeader, TrustedSources, trusted_sources

SIGNATURE = b"\r\n\r\n\x00\r\nQUIT\n"


def binary(command: int, family: int, body: bytes) -> bytes:
    return SIGNATURE + bytes((0x20 | command, family)) + len(body).to_bytes(2, "big") + body


FOUR = binary(1, 0x11, IPv4Address("192.0.2.7").packed * 2 + (4711).to_bytes(2, "big") * 2 + b"\x03\x00\x01x")
SIX = binary(1, 0x21, IPv6Address("2001:db8::7").packed * 2 + (4711).to_bytes(2, "big") * 2)
HEADERS = [
    (b"PROXY TCP4 192.0.2.7 192.0.2.8 4711 6650\r\n", "192.0.2.7:4711"),
    (b"PROXY TCP6 2001:db8::7 2001:db8::8 4711 6650\r\n", "[2001:db8::7]:4711"),
    (b"PROXY UNKNOWN\r\n", ""),
    (FOUR, "192.0.2.7:4711"),
    (SIX, "[2001:db8::7]:4711"),
    (binary(0, 0, b""), ""),
]


@pytest.mark.parametrize(("header", "source"), HEADERS)
def test_cut_at_every_byte_no_byte_is_lost_or_doubled(header: bytes, source: str) -> None:
    """F126: every form of the header, with what follows in the same segment."""
    stream = header + b"what follows"
    for cut in range(len(stream) + 1):
        read = HaproxyHeader()
        complete = read.feed(stream[:cut])
        assert complete == (cut >= len(header))
        if not complete:
            assert read.feed(stream[cut:])
            assert read.rest() == b"what follows"
        else:
            assert read.rest() == stream[len(header) : cut]
        assert read.source == source


@pytest.mark.parametrize(
    "stream",
    [
        b"PROXY TCP4 nowhere 192.0.2.8 1 2\r\n",
        b"PROXY TCP4 192.0.2.7 192.0.2.8 x 2\r\n",
        b"PROXY HTTP\r\n",
        b"PROXY " + b"x" * 200,
        SIGNATURE + b"\x11\x11\x00\x00",
    ],
)
def test_what_is_not_a_header_is_refused(stream: bytes) -> None:
    with pytest.raises(BadCommand):
        HaproxyHeader().feed(stream)


@pytest.mark.parametrize("stream", [b"\x00\x00\x00\x09", b"PROXIMITY", b"\r\n\r\nGET"])
def test_a_stream_without_a_header_is_left_as_it_is(stream: bytes) -> None:
    for cut in range(len(stream)):
        read = HaproxyHeader()
        if not read.feed(stream[:cut]):
            assert read.feed(stream[cut:])
            assert read.rest() == stream
        else:
            assert read.rest() == stream[:cut]
        assert read.source == ""


@pytest.mark.feature("B-30")
def test_only_named_addresses_are_believed() -> None:
    trusted = TrustedSources(("10.0.0.0/8", "192.0.2.7", "2001:db8::/32"))
    assert all(trusted.has(host) for host in ("10.1.2.3", "192.0.2.7", "2001:db8::1", "2001:db8::1%eth0"))
    assert not any(trusted.has(host) for host in ("11.0.0.1", "192.0.2.8", "::1", "?", ""))
    with pytest.raises(BadSetting, match="haproxy_trusted"):
        TrustedSources(("everybody",))
    with pytest.raises(BadSetting, match=r"asks for security\.haproxy_trusted"):
        trusted_sources(True, ())
    assert trusted_sources(False, ()) is None
