# SPDX-License-Identifier: Apache-2.0
"""What a managed ledger can be told: copies, rollover, cache, cursors, retention.

Defaults are Pulsar's; a quorum of one is its standalone's.
Decides.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ManagedLedgerSettings:
    """Of every topic that has no policy of its own."""

    ensemble_size: int = 1
    write_quorum: int = 1
    ack_quorum: int = 1
    # Groups of bookies that new ledgers keep to; none: any bookie.
    bookie_groups: tuple[str, ...] = ()
    bookie_groups_secondary: tuple[str, ...] = ()
    digest: str = "CRC32C"
    password: bytes = b""

    # A ledger ends when it is full (entries or bytes) and old enough, or when it reaches the largest age.
    ledger_entries_max: int = 50_000
    ledger_bytes_max: int = 2048 * 1024 * 1024
    rollover_age_min_ms: int = 10 * 60_000
    rollover_age_max_ms: int = 240 * 60_000
    # A ledger without appends for so long is closed; the next append opens another. 0: never.
    rollover_idle_ms: int = 0

    # For those who follow the log: an idle ledger says so often how far it is confirmed. 0: with its next entry only.
    confirmed_told_interval_ms: int = 0

    # Appends that wait for a ledger: beyond this they are refused.
    queued_bytes_max: int = 64 * 1024 * 1024
    # How long appends wait for a ledger before they fail.
    append_timeout_ms: int = 30_000
    retry_delay_ms: int = 100
    retry_delay_max_ms: int = 10_000
    # How often an owner that meets another one while opening tries again.
    open_attempts_max: int = 10

    # Over all managed ledgers of a process.
    cache_bytes_max: int = 64 * 1024 * 1024
    # Eviction goes on until the cache holds this share of its limit.
    cache_eviction_share: float = 0.9
    # Entries are cached when at least one cursor reads closer to the end than this.
    cache_lag_entries_max: int = 1_000
    # Eviction spares what is not acknowledged, not only what is not read: for clients that come back before they ack.
    cache_keeps_unacked: bool = False
    # Ledgers that one managed ledger holds open for reading.
    open_readers_max: int = 64
    # Over all managed ledgers of a process: bytes that are being read from bookies; further reads wait.
    read_bytes_in_flight_max: int = 128 * 1024 * 1024

    # A changed cursor is saved this long after it was last saved.
    cursor_flush_interval_ms: int = 1_000
    cursor_ledger_entries_max: int = 50_000
    # A cursor's ledger is full at this size, too.
    cursor_ledger_bytes_max: int = 64 * 1024 * 1024
    cursor_rollover_age_ms: int = 14_400_000
    # A cursor's state is split over entries of about this size.
    cursor_entry_bytes_max: int = 4 * 1024 * 1024
    # On a clean close the state goes into the metadata record if it is no larger; else it stays in the cursor ledger.
    cursor_record_bytes_max: int = 256 * 1024

    # How records of topics and of cursors are compressed (NONE, LZ4, ZLIB, ZSTD, SNAPPY), and from which size on.
    ledger_record_compression: str = "NONE"
    ledger_record_compressed_from_bytes: int = 16 * 1024
    cursor_record_compression: str = "NONE"
    cursor_record_compressed_from_bytes: int = 16 * 1024

    # Consumed ledgers are kept for so long and up to so many bytes; -1 means without limit, 0 not at all.
    retention_ms: int = 0
    retention_bytes: int = 0
    # Rollover by age, trimming and unfinished deletions are looked at this often.
    upkeep_interval_ms: int = 60_000

    # False: entries and cursor ledgers that are lost for good stop the topic. True: they are skipped, loudly.
    skip_lost_data: bool = False
