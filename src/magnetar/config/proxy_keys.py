# SPDX-License-Identifier: Apache-2.0
"""Pulsar's keys of a proxy.

Decides.
"""

from typing import Final

from magnetar.config.key import COUNT, OPTIONAL_PORT, POSITIVE_MILLISECONDS, PROXY, Key, rows
from magnetar.config.values import Flag, Text, TextList, Whole

PROXY_KEYS: Final[tuple[Key, ...]] = (
    Key(
        "servicePort",
        "broker",
        "port",
        OPTIONAL_PORT,
        "Port of a proxy's binary protocol; -1: TLS only.",
        roles=(PROXY,),
    ),
    Key(
        "servicePortTls",
        "security",
        "tls_port",
        Whole(-1, 65_535),
        "Port of a proxy's binary protocol over TLS; -1: none.",
        roles=(PROXY,),
    ),
    *rows(
        "proxy",
        ("brokerServiceURL", "broker_url", Text(), "Where a proxy finds brokers; empty: in the metadata store."),
        ("brokerServiceURLTLS", "broker_url_tls", Text(), "As brokerServiceURL, for TLS to brokers."),
        ("brokerWebServiceURL", "broker_web_url", Text(), "Where a proxy finds brokers' HTTP."),
        ("brokerWebServiceURLTLS", "broker_web_url_tls", Text(), "As brokerWebServiceURL, for TLS to brokers."),
        ("forwardAuthorizationCredentials", "forward_credentials", Flag(), "A client's credentials go along."),
        ("tlsEnabledWithBroker", "tls_with_broker", Flag(), "A proxy speaks TLS with brokers."),
        (
            "brokerProxyAllowedHostNames",
            "allowed_hosts",
            TextList(),
            "Hosts that clients may be connected to; * stands for any part.",
        ),
        (
            "brokerProxyAllowedIPAddresses",
            "allowed_addresses",
            TextList(),
            "Addresses or networks that clients may be connected to; * for any.",
        ),
        ("brokerProxyAllowedTargetPorts", "allowed_ports", TextList(), "Ports that clients may be connected to."),
        ("maxConcurrentInboundConnections", "connections_max", COUNT, "Clients of a proxy at one time."),
        (
            "maxConcurrentInboundConnectionsPerIp",
            "connections_per_address",
            Whole(0, 2**31 - 1),
            "Clients of a proxy from one address at one time; 0: any number.",
        ),
        ("maxConcurrentLookupRequests", "lookups_max", COUNT, "Look-ups through a proxy at one time."),
        ("brokerProxyConnectTimeoutMs", "connect_timeout_ms", POSITIVE_MILLISECONDS, "Time to reach a broker."),
        (
            "brokerProxyReadTimeoutMs",
            "silence_timeout_ms",
            POSITIVE_MILLISECONDS,
            "A broker from which nothing came for so long is gone.",
        ),
        ("httpProxyTimeout", "http_timeout_ms", POSITIVE_MILLISECONDS, "Time for a broker to answer over HTTP."),
    ),
)
