# SPDX-License-Identifier: Apache-2.0
"""What a bookie's storage says of itself, for metrics and for people.

Decides.
"""

from collections.abc import Mapping
from typing import NamedTuple

from magnetar.runtime.disk import LogStats


class JournalStats(NamedTuple):
    log: LogStats
    groups_waiting: int
    queued_bytes: int


class StorageStats(NamedTuple):
    journal_queued_bytes: int
    journal_syncs: int
    journals: tuple[JournalStats, ...]
    write_cache_entries: int
    write_cache_bytes: int
    held_adds: int
    held_adds_bytes: int
    # By return code, since the start.
    adds_refused: Mapping[int, int]
    read_cache_bytes: int
    read_cache_entries: int
    read_cache_hits: int
    read_cache_misses: int
    reads_in_progress: int
    checkpoints: int
    entries_written_out: int
    entry_logs: int
    ledgers_in_memory: int
    ledgers_deleted: int
    bytes_compacted: int
    damaged_entries: int
    is_read_only: bool
    # As the last walk over them found.
    ledgers_in_limbo: int
    is_unsure: bool
