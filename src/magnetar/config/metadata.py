# SPDX-License-Identifier: Apache-2.0
"""Settings of the metadata room: which store, how long a session lives, and the bounds of each implementation.

Decides.
"""

from dataclasses import dataclass
from typing import Final

# What this version can read and write at most, and where it began; metadata/format_level_record.py says what each is.
FORMAT_LEVEL_FIRST: Final = 1
FORMAT_LEVEL_NEWEST: Final = 2


@dataclass(frozen=True, slots=True)
class MetadataSettings:
    """Stores read those that are meant for them."""

    # Where the cluster's own facts live, and those shared between clusters (empty: in the same store).
    url: str = "embedded:data/metadata"
    configuration_url: str = ""

    # Formats above this level are neither announced nor written, nor is a cluster joined that writes them.
    format_level_max: int = FORMAT_LEVEL_NEWEST

    session_timeout_ms: int = 30_000
    # What a broker does when its session is lost: `reconnect`, or `shutdown`.
    session_lost_policy: str = "reconnect"
    operation_timeout_ms: int = 30_000
    # How long a cached record is believed without a fresh read, however well the watches work.
    cache_expiry_ms: int = 300_000
    cache_records_max: int = 10_000

    # ZooKeeper's default packet limit; kept for every store, so that metadata can move between them.
    value_bytes_max: int = 1_048_575
    path_bytes_max: int = 4_096
    operations_pending_max: int = 65_536
    # Bytes of changes that wait for the disk or the server; more are refused until some are answered.
    pending_bytes_max: int = 64 * 1024 * 1024
    watches_max: int = 100_000

    # Embedded store: all records are held in memory, up to this many bytes by estimate.
    tree_bytes_max: int = 2 * 1024 * 1024 * 1024
    # Embedded store: size at which a log is followed by the next, and from which a snapshot replaces the finished ones.
    log_bytes_max: int = 16 * 1024 * 1024
    # An idle log gets a mark after this time, so that damage to its last synced record can be told from a torn write.
    mark_delay_ms: int = 1_000

    # A file with USER:PASSWORD, for ZooKeeper (what we make is then that user's alone) and for etcd.
    credentials_file: str = ""
    # TLS to the store, on as soon as its authority is named; a metadata server asks its clients for a certificate.
    tls_trust_file: str = ""
    tls_certificate_file: str = ""
    tls_key_file: str = ""
    # A YAML file about etcd, as Pulsar reads it.
    store_file: str = ""

    # Metadata server (`magnetar metadata serve`) and its clients.
    connections_max: int = 1_024
    sessions_max: int = 10_000
    frame_bytes_max: int = 16 * 1024 * 1024
    reconnect_delay_min_ms: int = 100
    reconnect_delay_max_ms: int = 5_000
