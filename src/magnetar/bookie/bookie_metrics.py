# SPDX-License-Identifier: Apache-2.0
"""A bookie's numbers under BookKeeper's names, those of today and those that older dashboards ask for.

Everything is counted elsewhere (`counts.py`, the storage) and asked at the scrape. Where BookKeeper has a thread pool
and Magnetar an event loop, the pool's names say what the loop has in hand.
Decides.
"""

from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

from magnetar.bookie.counts import OPERATIONS, BookieCounts, JournalCounts, Outcomes
from magnetar.bookie.storage_stats import JournalStats, StorageStats
from magnetar.runtime.metrics import Metrics
from magnetar.runtime.summary import JoinedSummary, Summary
from magnetar.wire.bookkeeper.codes import ReturnCode

_JOURNAL: Final = "bookie_journal_JOURNAL_"
_SERVER: Final = "bookkeeper_server_"
_WRITE_POOL: Final = "BookieWriteThreadPool"
_READ_POOL: Final = "BookieReadThreadPool"


class Counted(Protocol):
    @property
    def connections(self) -> int: ...


class Storage(Protocol):
    @property
    def counts(self) -> BookieCounts: ...

    def stats(self) -> StorageStats: ...


class Limits(NamedTuple):
    """What the bookie allows; shown beside what it uses."""

    write_cache_bytes: int
    journal_queue_bytes: int
    read_ahead_entries: int
    held_adds: int
    reads: int


def describe(metrics: Metrics, storage: Storage, server: Counted, limits: Limits) -> None:
    """Make the families; each asks its source when it is scraped."""
    _Families(metrics, storage, server, limits).describe()


class _Families:
    def __init__(self, metrics: Metrics, storage: Storage, server: Counted, limits: Limits) -> None:
        self._metrics = metrics
        self._storage = storage
        self._counts = storage.counts
        self._server = server
        self._limits = limits

    def describe(self) -> None:
        self._requests()
        self._pools()
        self._journals()
        self._write_cache()
        self._reads()
        self._housekeeping()

    # --- requests and operations --------------------------------------------------------------

    def _requests(self) -> None:
        counts = self._counts
        self._outcomes(f"{_SERVER}ADD_ENTRY_REQUEST", "Adds of clients, from arrival to answer.", counts.add_requests)
        self._added(f"{_SERVER}ADD_ENTRY", "Adds carried out.")
        self._added("bookie_BOOKIE_ADD_ENTRY", "The same, as the storage counts them.")
        for name in OPERATIONS:
            self._outcomes(f"{_SERVER}{name}_REQUEST", f"{name}, from arrival to answer.", counts.requests[name])
            self._outcomes(f"{_SERVER}{name}", f"{name} carried out.", counts.operations[name])
        self._outcomes("bookie_BOOKIE_READ_ENTRY", "Reads, as the storage counts them.", counts.read_entry)
        self._counter(f"{_SERVER}ADD_ENTRY_REJECTED", "Adds refused as too many.", self._adds_rejected)
        self._counter(f"{_SERVER}READ_ENTRY_REJECTED", "Reads refused as too many.", lambda: counts.reads_rejected)
        self._gauge(f"{_SERVER}ADD_ENTRY_IN_PROGRESS", "Adds not durable yet.", self._adds_waiting)
        self._gauge(f"{_SERVER}READ_ENTRY_IN_PROGRESS", "Questions being answered.", lambda: counts.questions)
        self._gauge(f"{_SERVER}ACTIVE_CHANNELS", "Connections of clients.", lambda: self._server.connections)
        self._counter("bookie_WRITE_BYTES", "Bytes of entries made durable.", lambda: counts.bytes_added)
        self._counter("bookie_READ_BYTES", "Bytes of entries read.", lambda: counts.bytes_read)
        self._stat("bookie_SERVER_STATUS", "1: takes adds, 0: read-only.", lambda stats: int(not stats.is_read_only))
        self._stat("bookie_LEDGERS_IN_LIMBO", "Ledgers that may lack entries here.", lambda s: s.ledgers_in_limbo)

    def _added(self, name: str, meaning: str) -> None:
        family = self._metrics.summaries(name, meaning, ("success",))
        family.adopt(JoinedSummary([journal.added.ok for journal in self._counts.journals]), "true")
        family.adopt(JoinedSummary([journal.added.failed for journal in self._counts.journals]), "false")

    def _pools(self) -> None:
        """What waits and what runs: adds wait for the journal, questions for their turn on a ledger."""
        counts = self._counts
        queue = self._metrics.gauges(f"{_SERVER}thread_executor_queue", "What waits.", ("threadPool", "thread"))
        queue.series(_WRITE_POOL, "0").source = self._adds_waiting
        queue.series(_READ_POOL, "0").source = lambda: counts.questions
        self._pool(_WRITE_POOL, self._adds_waiting, self._adds_peak)
        self._pool(_READ_POOL, lambda: counts.questions, lambda: counts.questions_peak.value)
        for name, queued, executed in (
            (_WRITE_POOL, [j.queue for j in counts.journals], [j.added.ok for j in counts.journals]),
            (_READ_POOL, [counts.read_wait], [counts.operations["READ_ENTRY"].ok]),
        ):
            for suffix, meaning, parts in (
                ("task_queued", "How long a task waited.", queued),
                ("task_execution", "How long it took.", executed),
            ):
                family = self._metrics.summaries(f"{_SERVER}{name}_{suffix}", meaning, ("success",))
                family.adopt(JoinedSummary(parts), "true")

    def _pool(self, name: str, waiting: Callable[[], int], peak: Callable[[], int]) -> None:
        limits = {_WRITE_POOL: self._limits.held_adds, _READ_POOL: self._limits.reads}
        self._gauge(f"{_SERVER}{name}_queue_0", "What waits.", waiting)
        self._gauge(f"{_SERVER}{name}_queue_0_peak", "The most that waited in the last two minutes.", peak)
        self._gauge(f"{_SERVER}{name}_max_queue_size", "How many may wait.", lambda: limits[name])
        self._gauge(f"{_SERVER}{name}_threads", "One event loop.", lambda: 1)

    # --- the journal --------------------------------------------------------------------------

    def _journals(self) -> None:
        journals = self._counts.journals
        outcomes: tuple[tuple[str, str, Callable[[JournalCounts], Outcomes]], ...] = (
            ("ADD_ENTRY", "From append to durable, per record.", lambda counts: counts.added),
            ("SYNC", "Write and sync of a group.", lambda counts: counts.synced),
            ("SYNC_LATENCY", "As SYNC, by an older name.", lambda counts: counts.synced),
            ("FLUSH_LATENCY", "Write and sync of a group: they are one call.", lambda counts: counts.synced),
        )
        for name, meaning, outcome_of in outcomes:
            family = self._metrics.summaries(_JOURNAL + name, meaning, ("success", "journalIndex"))
            for index, counts in enumerate(journals):
                family.adopt(outcome_of(counts).ok, "true", str(index))
                family.adopt(outcome_of(counts).failed, "false", str(index))
        summaries: tuple[tuple[str, str, Callable[[JournalCounts], Summary]], ...] = (
            ("QUEUE_LATENCY", "From append to the write of the group.", lambda counts: counts.queue),
            ("FORCE_WRITE_ENQUEUE", "The same: there is one queue.", lambda counts: counts.queue),
            ("FORCE_WRITE_BATCH_BYTES", "Bytes of a group.", lambda counts: counts.group_bytes),
            ("FORCE_WRITE_BATCH_ENTRIES", "Records of a group.", lambda counts: counts.group_entries),
        )
        for name, meaning, summary_of in summaries:
            family = self._metrics.summaries(_JOURNAL + name, meaning, ("success", "journalIndex"))
            for index, counts in enumerate(journals):
                family.adopt(summary_of(counts), "true", str(index))
        self._journal_numbers()

    def _journal_numbers(self) -> None:
        counters: tuple[tuple[str, str, Callable[[JournalStats, JournalCounts], int]], ...] = (
            ("NUM_FLUSH_MAX_WAIT", "Groups that had waited long enough.", lambda j, _: j.log.ended_waiting),
            ("NUM_FLUSH_MAX_OUTSTANDING_BYTES", "Groups that were full.", lambda j, _: j.log.ended_full),
            ("NUM_FLUSH_EMPTY_QUEUE", "Groups with nothing behind them.", lambda j, _: j.log.ended_empty),
            ("WRITE_BYTES", "Bytes written.", lambda _, counts: counts.bytes_written),
        )
        gauges: tuple[tuple[str, str, Callable[[JournalStats, JournalCounts], int]], ...] = (
            ("QUEUE_SIZE", "Records not durable yet.", lambda _, counts: counts.records_queued),
            ("QUEUE_SIZE_peak", "Their most in the last two minutes.", lambda _, counts: counts.queue_peak.value),
            ("FORCE_WRITE_QUEUE_SIZE", "Pieces not durable yet.", lambda j, _: j.groups_waiting),
            ("CB_QUEUE_SIZE", "Always 0: whoever waits is told at once.", lambda j, _: 0),
            ("MEMORY_USED", "Bytes not durable yet.", lambda j, _: j.queued_bytes),
            ("MEMORY_MAX", "Beyond it adds are held back.", lambda j, _: self._limits.journal_queue_bytes),
        )
        for make, rows in ((self._metrics.asked_counters, counters), (self._metrics.gauges, gauges)):
            for name, meaning, ask in rows:
                family = make(_JOURNAL + name, meaning, ("journalIndex",))
                for index, counts in enumerate(self._counts.journals):
                    family.series(str(index)).source = self._of_journal(index, counts, ask)

    def _of_journal(
        self, index: int, counts: JournalCounts, ask: Callable[[JournalStats, JournalCounts], int]
    ) -> Callable[[], int]:
        return lambda: ask(self._storage.stats().journals[index], counts)

    # --- caches -------------------------------------------------------------------------------

    def _write_cache(self) -> None:
        counts = self._counts
        self._stat("bookie_write_cache_size", "Bytes not in an entry log yet.", lambda s: s.write_cache_bytes)
        self._stat("bookie_write_cache_count", "Entries not in an entry log yet.", lambda s: s.write_cache_entries)
        self._gauge("bookie_write_cache_max_size", "Of both halves.", lambda: self._limits.write_cache_bytes)
        self._counter("bookie_write_cache_hits", "Reads from it.", lambda: counts.write_cache_hits)
        self._counter("bookie_write_cache_misses", "Reads that went on.", lambda: counts.write_cache_misses)
        self._outcomes("bookie_flush", "Checkpoints.", counts.flush)
        self._summary("bookie_flush_size", "Bytes that a checkpoint wrote out.", counts.flush_bytes)
        self._summary("bookie_throttled_write", "How long adds were held back.", counts.held)
        self._counter("bookie_throttled_write_requests", "Adds that were held back.", self._throttled)
        self._counter("bookie_rejected_write_requests", "Adds refused as too many.", self._adds_rejected)
        self._stat("bookie_held_adds", "Adds held back now.", lambda stats: stats.held_adds)

    def _reads(self) -> None:
        counts = self._counts
        self._outcomes("bookie_read_entry", "Reads of an entry.", counts.read_entry)
        for suffix in ("", "_count"):
            self._counter(
                f"bookie_read_cache_hits{suffix}", "From memory.", lambda: self._storage.stats().read_cache_hits
            )
            self._counter(
                f"bookie_read_cache_misses{suffix}", "From the disk.", lambda: self._storage.stats().read_cache_misses
            )
        self._stat("bookie_read_cache_size", "Bytes read ahead.", lambda stats: stats.read_cache_bytes)
        self._stat("bookie_read_cache_count", "Entries read ahead.", lambda stats: stats.read_cache_entries)
        self._summary("bookie_readahead_batch_count", "Entries of one read of the disk.", counts.read_ahead_entries)
        self._summary("bookie_readahead_batch_size", "Its bytes.", counts.read_ahead_bytes)
        self._gauge("bookie_readahead_max_batch_size", "Its most entries.", lambda: self._limits.read_ahead_entries)

    def _housekeeping(self) -> None:
        self._stat("bookie_ledgers_count", "Ledgers whose state is in memory.", lambda s: s.ledgers_in_memory)
        self._stat("bookie_entries_count", "Entries written out since the start.", lambda s: s.entries_written_out)
        self._stat("bookie_ACTIVE_ENTRY_LOG_TOTAL", "Entry logs.", lambda stats: stats.entry_logs)
        self._stat("bookie_DELETED_LEDGER_TOTAL", "Ledgers collected.", lambda stats: stats.ledgers_deleted)
        self._stat("bookie_COMPACTED_BYTES", "Bytes that compaction copied.", lambda stats: stats.bytes_compacted)
        self._stat("bookie_SCRUB_DAMAGED", "Damaged entries at the last walk.", lambda stats: stats.damaged_entries)

    # --- leaves -------------------------------------------------------------------------------

    def _adds_waiting(self) -> int:
        return sum(journal.records_queued for journal in self._counts.journals)

    def _adds_peak(self) -> int:
        return max((journal.queue_peak.value for journal in self._counts.journals), default=0)

    def _adds_rejected(self) -> int:
        return self._storage.stats().adds_refused.get(ReturnCode.TOO_MANY_REQUESTS, 0)

    def _throttled(self) -> int:
        return self._counts.held.count + self._storage.stats().held_adds

    def _outcomes(self, name: str, meaning: str, outcomes: Outcomes) -> None:
        family = self._metrics.summaries(name, meaning, ("success",))
        family.adopt(outcomes.ok, "true")
        family.adopt(outcomes.failed, "false")

    def _summary(self, name: str, meaning: str, summary: Summary) -> None:
        self._metrics.summaries(name, meaning, ("success",)).adopt(summary, "true")

    def _counter(self, name: str, meaning: str, source: Callable[[], int]) -> None:
        self._metrics.asked_counters(name, meaning, ()).series().source = source

    def _gauge(self, name: str, meaning: str, source: Callable[[], int]) -> None:
        self._metrics.gauge(name, meaning, source)

    def _stat(self, name: str, meaning: str, ask: Callable[[StorageStats], int]) -> None:
        self._gauge(name, meaning, lambda: ask(self._storage.stats()))
