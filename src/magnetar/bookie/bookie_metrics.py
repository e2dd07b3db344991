# SPDX-License-Identifier: Apache-2.0
"""A bookie's numbers under BookKeeper's names.

Everything is asked at the scrape; nothing is counted here.
Decides.
"""

from collections.abc import Callable
from typing import Protocol

from magnetar.bookie.storage_stats import StorageStats
from magnetar.runtime.metrics import Metrics
from magnetar.wire.bookkeeper.codes import ReturnCode


class Counted(Protocol):
    """What the port counts: requests by kind and outcome."""

    @property
    def connections(self) -> int: ...

    adds_ok: int
    adds_failed: int
    questions: int


class Storage(Protocol):
    def stats(self) -> StorageStats: ...


def describe(metrics: Metrics, storage: Storage, server: Counted) -> None:
    """Make the families; each asks its source when it is scraped."""
    adds = metrics.gauges("bookkeeper_server_ADD_ENTRY_REQUEST_count", "Adds answered, by outcome.", ("success",))
    adds.series("true").source = lambda: server.adds_ok
    adds.series("false").source = lambda: server.adds_failed
    metrics.gauge("bookkeeper_server_READ_ENTRY_REQUEST_count", "Reads and other questions.", lambda: server.questions)
    metrics.gauge("bookkeeper_server_ACTIVE_CHANNELS", "Connections of clients.", lambda: server.connections)

    def stat(name: str, meaning: str, ask: Callable[[StorageStats], int]) -> None:
        metrics.gauge(name, meaning, lambda: ask(storage.stats()))

    stat("bookie_SERVER_STATUS", "1: takes adds, 0: read-only.", lambda stats: int(not stats.is_read_only))
    stat("bookie_journal_JOURNAL_QUEUE_BYTES", "Bytes not synced yet.", lambda stats: stats.journal_queued_bytes)
    stat("bookie_journal_JOURNAL_SYNC_count", "Journal syncs.", lambda stats: stats.journal_syncs)
    stat("bookie_write_cache_size", "Bytes not in an entry log yet.", lambda stats: stats.write_cache_bytes)
    stat("bookie_write_cache_count", "Entries not in an entry log yet.", lambda stats: stats.write_cache_entries)
    stat("bookie_throttled_write_requests", "Adds held back now.", lambda stats: stats.held_adds)
    stat("bookie_rejected_write_requests", "Adds refused as too many.", _refused_as_too_many)
    stat("bookie_flush_count", "Checkpoints.", lambda stats: stats.checkpoints)
    stat("bookie_read_cache_hits_count", "Reads from the read cache.", lambda stats: stats.read_cache_hits)
    stat("bookie_read_cache_misses_count", "Reads from the disk.", lambda stats: stats.read_cache_misses)
    stat("bookie_read_cache_size", "Bytes in the read cache.", lambda stats: stats.read_cache_bytes)
    stat("bookie_entry_logs_count", "Entry logs.", lambda stats: stats.entry_logs)
    stat("bookie_ledgers_count", "Ledgers whose state is in memory.", lambda stats: stats.ledgers_in_memory)


def _refused_as_too_many(stats: StorageStats) -> int:
    return stats.adds_refused.get(ReturnCode.TOO_MANY_REQUESTS, 0)
