# SPDX-License-Identifier: Apache-2.0
"""What a client can be told. Names are those of the official Python client where it has them.

Decides.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """Of one client and all of its connections."""

    operation_timeout_seconds: float = 30.0
    connection_timeout_ms: int = 10_000
    keep_alive_interval_seconds: float = 30.0
    # A connection that nobody used for so long is closed; 0 keeps it.
    connection_max_idle_seconds: float = 180.0
    connections_per_broker: int = 1

    concurrent_lookup_requests: int = 50_000
    lookup_redirects_max: int = 20
    listener_name: str | None = None

    initial_backoff_ms: int = 100
    backoff_ms_max: int = 60_000

    # All bytes that producers hold until their receipts; 0 means no limit.
    memory_limit_bytes: int = 64 * 1024 * 1024
    partitions_update_interval_seconds: float = 60.0
    # 0 writes no line of statistics; they can be asked for at any time.
    stats_interval_in_seconds: int = 0

    use_tls: bool = False
    tls_trust_certs_file_path: str | None = None
    tls_allow_insecure_connection: bool = False
    tls_validate_hostname: bool = True
    tls_certificate_file_path: str | None = None
    tls_private_key_file_path: str | None = None
    # As OpenSSL writes them; None leaves the choice to the library.
    tls_ciphers: str | None = None

    client_name: str = ""
    # For whom a trusted service speaks, where it is not for itself.
    original_principal: str = ""
