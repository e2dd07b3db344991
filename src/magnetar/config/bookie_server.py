# SPDX-License-Identifier: Apache-2.0
"""Settings of a bookie's ports: where it listens, what it is called, and what one client may ask of it at once.

Decides.
"""

from dataclasses import dataclass

MEBIBYTE = 1024 * 1024


@dataclass(frozen=True, slots=True)
class BookieServerSettings:
    """Ports and bounds of a bookie that others connect to."""

    bind_address: str = "127.0.0.1"
    # Host that clients are sent to; empty: the address that is bound.
    advertised_address: str = ""
    port: int = 3181
    # What the bookie is called in the metadata; empty: its advertised address and port.
    bookie_id: str = ""
    # HTTP for metrics and administration.
    http_enabled: bool = True
    http_port: int = 8000

    # A file with the secret that clients prove before they are served; empty: nobody has to.
    secret_file: str = ""
    # Certificate and key, PEM: clients may ask for TLS then.
    tls_certificate_file: str = ""
    tls_key_file: str = ""
    # Authorities whose clients are believed, PEM; with it a client's certificate is verified.
    tls_trust_file: str = ""
    # Clients that do not ask for TLS are refused.
    tls_required: bool = False
    tls_client_certificate_required: bool = False

    # Clients at one time.
    connections_max: int = 10_000
    # Adds of one connection that wait for the journal; beyond them nothing more is read from it.
    connection_adds_max: int = 10_000
    connection_adds_bytes_max: int = 16 * MEBIBYTE
    # Reads and other questions of one connection in progress; beyond them: too many requests.
    connection_reads_max: int = 2_500
    # Answers that a client has not taken; beyond them nothing more is read from it.
    connection_write_bytes_max: int = 4 * MEBIBYTE
    # Ledgers whose answers one connection remembers how to address.
    connection_ledgers_max: int = 10_000
    # What one batch read brings, whatever the client asks for.
    batch_read_entries_max: int = 10_000
    batch_read_bytes_max: int = 5 * MEBIBYTE
    # How long a reader may wait here for the next confirmation.
    long_poll_timeout_max_ms: int = 60_000
    # How often the bookie looks whether it is listed where it belongs: among the writable or the read-only ones.
    registration_check_interval_ms: int = 1_000
