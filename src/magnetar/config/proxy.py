# SPDX-License-Identifier: Apache-2.0
"""What a proxy can be told. Address, ports, TLS and authentication of its clients are the settings of a broker.

Decides.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ProxySettings:
    """How a proxy reaches brokers, and as whom."""

    # Where brokers are, when no metadata store says it.
    broker_url: str = ""
    broker_url_tls: str = ""
    broker_web_url: str = ""
    broker_web_url_tls: str = ""

    # Whether a client's own credentials go along with the proxy's, which are settings of security.
    forward_credentials: bool = False
    tls_with_broker: bool = False

    # Targets that clients may ask for; empty hosts and addresses: those that the metadata store lists or the URLs name,
    # or any where URLs name them and the proxy sends no token or password of its own. `*` stands for any.
    allowed_hosts: tuple[str, ...] = ()
    allowed_addresses: tuple[str, ...] = ()
    allowed_ports: tuple[str, ...] = ("6650", "6651")

    connections_max: int = 10_000
    # 0 means no limit.
    connections_per_address: int = 0
    lookups_max: int = 50_000
    connect_timeout_ms: int = 10_000
    # A broker from which nothing came for so long is gone.
    silence_timeout_ms: int = 75_000
    # Time for a broker to answer one look-up.
    lookup_timeout_ms: int = 30_000
    http_timeout_ms: int = 300_000
    # Bytes of one direction that wait for a slow reader before the other side is not read any more.
    pipe_bytes_max: int = 1024 * 1024
    handshake_bytes_max: int = 1024 * 1024
    redirects_max: int = 20
