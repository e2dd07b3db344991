# SPDX-License-Identifier: Apache-2.0
"""Pulsar's keys of the WebSocket service.

Decides.
"""

from typing import Final

from magnetar.config.key import MIB, MILLISECONDS, WEBSOCKET, Key, rows
from magnetar.config.values import Flag, Text, Whole

_ALONE: Final = (WEBSOCKET,)

WEBSOCKET_KEYS: Final[tuple[Key, ...]] = (
    *rows(
        "websocket",
        ("webSocketServiceEnabled", "enabled", Flag(), "WebSocket clients are served on the port of HTTP."),
        ("webSocketMaxTextFrameSize", "text_bytes_max", Whole(1024, 2**30), "Longest text of one message, in bytes."),
        (
            "webSocketSessionIdleTimeoutMillis",
            "idle_timeout_ms",
            MILLISECONDS,
            "A session on which nothing was heard or said for so long is closed; 0: never.",
        ),
        (
            "webSocketPingDurationSeconds",
            "ping_interval_s",
            Whole(-1, 86_400),
            "How often a client is pinged; -1: never.",
        ),
        (
            "webSocketPulsarClientMemoryLimitInMB",
            "pending_bytes_max",
            Whole(1, 2**20, factor=MIB, unlimited=0),
            "Messages of one session that wait for their receipts, in MB.",
        ),
    ),
    Key(
        "serviceUrl",
        "proxy",
        "broker_web_url",
        Text(),
        "Where `magnetar websocket` finds brokers' HTTP; asked only where brokerServiceUrl is empty.",
        roles=_ALONE,
    ),
    Key("serviceUrlTls", "proxy", "broker_web_url_tls", Text(), "As serviceUrl, for TLS.", roles=_ALONE),
    Key(
        "brokerClientTlsEnabled",
        "proxy",
        "tls_with_broker",
        Flag(),
        "`magnetar websocket` speaks TLS with brokers.",
        roles=_ALONE,
    ),
)
