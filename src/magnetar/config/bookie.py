# SPDX-License-Identifier: Apache-2.0
"""Settings of one bookie's storage.

Defaults are BookKeeper's where it has one, except sizes that BookKeeper takes as a share of the machine's memory.
Decides.
"""

from dataclasses import dataclass

MEBIBYTE = 1024 * 1024


@dataclass(frozen=True, slots=True)
class BookieSettings:
    """Where entries are kept, and how much is held in memory before they are."""

    journal_directories: tuple[str, ...] = ("journal",)
    ledger_directories: tuple[str, ...] = ("ledgers",)
    # An entry is one message or one batch with its header and digest.
    entry_bytes_max: int = 5 * MEBIBYTE + 512 * 1024

    journal_sync: bool = True
    journal_file_bytes_max: int = 2048 * MEBIBYTE
    journal_preallocate_bytes: int = 16 * MEBIBYTE
    # A file of this size is written ahead of use, and the journal goes on in it: to sync what overwrites is cheaper
    # than to sync what allocates. 0: none.
    journal_spare_bytes: int = 64 * MEBIBYTE
    # How fast it is written, at most; while the journal itself writes faster, not at all.
    journal_spare_bytes_per_second_max: int = 16 * MEBIBYTE
    # Journals kept behind the last mark. BookKeeper keeps five; they serve no restart.
    journal_backups_max: int = 5
    journal_group_bytes_max: int = 4 * MEBIBYTE
    journal_group_delay_max_ms: float = 0.0
    # Entries of one group; 0: as many as its bytes allow.
    journal_group_entries_max: int = 0
    # Without journal_sync: how often the system is asked to write its pages all the same.
    journal_page_flush_interval_ms: int = 1_000
    # A journal that rests so long is sealed: a broken record in it is then known to have been durable.
    journal_seal_delay_ms: int = 1_000
    # A write or sync of the journal that has not returned for so long ends the bookie; 0: it is waited for.
    journal_stall_max_ms: int = 60_000
    # Entries that are answered in one turn of the loop after a sync; then reads and other clients have theirs.
    journal_answers_per_turn_max: int = 1_000
    # Bytes appended and not yet synced, per journal, before adds are held back.
    journal_queue_bytes_max: int = 16 * MEBIBYTE

    # Both halves together; each ledger directory shares it.
    write_cache_bytes_max: int = 64 * MEBIBYTE
    # Adds held back while both halves are full or the journal's queue is; beyond it: too many requests.
    held_adds_bytes_max: int = 32 * MEBIBYTE
    held_adds_max: int = 10_000
    held_adds_wait_max_ms: int = 10_000
    flush_interval_ms: int = 60_000
    # Ledgers whose state is kept in memory although nothing happens to them.
    idle_ledgers_max: int = 50_000

    entry_log_bytes_max: int = 1024 * MEBIBYTE
    entry_log_write_bytes: int = MEBIBYTE
    # A flush is synced whenever so much is written: a sync of the journal waits for this much at most, not for all.
    entry_log_unsynced_bytes_max: int = 2 * MEBIBYTE
    # How much of the newest entries the kernel keeps in memory for who catches up; what is older comes from the disk.
    # 0: as much as it likes.
    entry_log_kept_bytes_max: int = 1024 * MEBIBYTE
    open_entry_logs_max: int = 64

    # Places of entries that the index holds in memory before it writes them out as a sorted file, and what it caches.
    index_write_buffer_bytes: int = 8 * MEBIBYTE
    index_cache_bytes: int = 8 * MEBIBYTE

    read_cache_bytes_max: int = 16 * MEBIBYTE
    read_ahead_entries_max: int = 1_000
    read_ahead_bytes_max: int = 256 * 1024
    reads_max: int = 2_500

    garbage_interval_ms: int = 900_000
    # How often copies are looked for that the metadata does not ask of this bookie any more; 0: never.
    surplus_interval_ms: int = 86_400_000
    minor_compaction_interval_ms: int = 3_600_000
    minor_compaction_share: float = 0.2
    major_compaction_interval_ms: int = 86_400_000
    major_compaction_share: float = 0.5
    compaction_bytes_per_second_max: int = 16 * MEBIBYTE
    compaction_entries_per_second_max: int = 1_000
    # Which of the two sets the pace.
    compaction_throttled_by_bytes: bool = True
    # 0 switches the scrubber off.
    scrub_interval_ms: int = 86_400_000
    scrub_bytes_per_second_max: int = 4 * MEBIBYTE
    # After a loss: have ledgers completed from other bookies, so that they leave limbo; how often while some remain.
    limbo_checked: bool = True
    limbo_check_interval_ms: int = 60_000

    disk_check_interval_ms: int = 10_000
    disk_usage_max: float = 0.95
    # Writable again only below this, so that the bookie does not flap.
    disk_usage_low: float = 0.90
    read_only_enabled: bool = True
    # Space kept back in each directory for a start on a disk that is full to the last byte; as much as the write cache
    # holds is enough. 0: none.
    disk_reserve_bytes: int = 0
