# SPDX-License-Identifier: Apache-2.0
"""Settings of the ledger client: deadlines, bounds, how bookies are chosen and how copies are repaired.

Decides.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LedgerSettings:
    """Defaults are those of BookKeeper's client, or of Pulsar's broker where it sets its own."""

    # A bookie that has not answered an add for so long is replaced.
    add_timeout_ms: int = 30_000
    # How long one bookie may take to answer a read before another is asked in any case.
    read_timeout_ms: int = 30_000
    # How long an ensemble change may wait for the metadata store before the writer gives up; meanwhile nothing is
    # confirmed.
    ensemble_change_timeout_ms: int = 30_000
    ensemble_changes_max: int = 100
    # True: a failed bookie is replaced only when an ack quorum cannot be reached without it.
    delay_ensemble_change: bool = False
    # 0 switches explicit last-add-confirmed writes off.
    explicit_lac_interval_ms: int = 0
    # After so long without an answer the next replica is asked too; 0 asks only after an error.
    speculative_read_timeout_ms: int = 0
    sticky_reads: bool = True
    batch_reads: bool = True
    read_entries_in_flight_max: int = 64
    recovery_read_timeout_ms: int = 30_000
    recovery_attempts_max: int = 10
    recovery_entries_in_flight_max: int = 64
    # Entries of a tail that are read at one time while a ledger is recovered.
    recovery_reads_in_flight_max: int = 32
    metadata_retry_delay_ms: int = 100
    metadata_retries_max: int = 10


@dataclass(frozen=True, slots=True)
class PlacementSettings:
    """Which bookies may hold copies of one entry."""

    rack_aware: bool = True
    region_aware: bool = False
    # Racks that one write quorum must span, where the topology has so many.
    racks_per_write_quorum_min: int = 2
    # False: when the rule cannot be met the best ensemble there is; True: NotEnoughBookies.
    racks_enforced: bool = False
    regions_per_write_quorum_min: int = 2
    disk_weighted: bool = False
    # How often bookies are asked for their free space, where it weighs.
    weigh_interval_ms: int = 86_400_000
    # No bookie is chosen more than so many times as often as the median one.
    weight_max_ratio: float = 2.0
    quarantine: bool = True
    quarantine_errors_max: int = 5
    quarantine_interval_ms: int = 60_000
    quarantine_ms: int = 1_800_000
    # The share of clients that quarantine a bookie, so that not all leave and return together.
    quarantine_ratio: float = 1.0


@dataclass(frozen=True, slots=True)
class ChannelSettings:
    """One connection to one bookie."""

    connections_per_bookie: int = 1
    connect_timeout_ms: int = 10_000
    # A request without an answer for so long has failed with an unknown outcome.
    request_timeout_ms: int = 30_000
    # A bookie that claims to hold more entries of one ledger is not believed.
    listed_entries_max: int = 10_000_000
    outstanding_requests_max: int = 10_000
    outstanding_bytes_max: int = 64 * 1024 * 1024
    # Adds that are ready before others have been answered wait for their turn, up to so many bytes; beyond: refused.
    held_bytes_max: int = 256 * 1024 * 1024
    # Above the largest entry, or the largest batch read, and its header.
    frame_bytes_max: int = 5 * 1024 * 1024 + 512 * 1024
    reconnect_delay_ms: int = 100
    reconnect_delay_max_ms: int = 10_000
    # A file with the secret that proves to bookies, and of bookies, who may speak; empty: nobody has to.
    secret_file: str = ""
    # Authorities whose bookies are believed, PEM: with it every connection is TLS, and entries go over version 3.
    tls_trust_file: str = ""
    tls_certificate_file: str = ""
    tls_key_file: str = ""
    tls_hostname_verified: bool = True
    # Entries over version 2 of the protocol; False: over version 3, which costs a protobuf per entry.
    use_v2_protocol: bool = True


@dataclass(frozen=True, slots=True)
class RepairSettings:
    """The auditor and the replication workers."""

    enabled: bool = True
    lost_bookie_delay_ms: int = 0
    check_all_ledgers_interval_ms: int = 604_800_000
    check_bookies_interval_ms: int = 86_400_000
    check_placement_interval_ms: int = 0
    # Share of a fragment's entries that a check reads beside the first and the last.
    verified_percentage: int = 0
    open_fragment_grace_ms: int = 30_000
    copied_entries_in_flight_max: int = 100
    retry_delay_ms: int = 5_000
    retry_delay_max_ms: int = 300_000
    workers_max: int = 1
