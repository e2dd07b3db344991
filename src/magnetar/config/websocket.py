# SPDX-License-Identifier: Apache-2.0
"""What the WebSocket service can be told. Its port is that of HTTP.

Decides.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class WebSocketSettings:
    """Bounds of one WebSocket and of all together."""

    enabled: bool = True
    # Longest text that a client may send as one message.
    text_bytes_max: int = 1024 * 1024
    # A session on which nothing was heard or said for so long is closed; 0: never.
    idle_timeout_ms: int = 300_000
    # How often a client is pinged; -1: never.
    ping_interval_s: int = -1
    # Sessions at one time.
    sessions_max: int = 5_000
    # Bytes of one session's messages that wait for their receipts.
    pending_bytes_max: int = 16 * 1024 * 1024
    # Bytes of one session that wait for a client which does not read.
    unsent_bytes_max: int = 1024 * 1024
    # Messages that one consumer has not answered yet and can still acknowledge by their id alone.
    delivered_ids_max: int = 10_000
