# SPDX-License-Identifier: Apache-2.0
"""Who finds each planted bug: a scenario of the simulation, or, where none does what the bug spoils, tests by name.

`first` is a seed that finds the bug today. The rates of a bug go with it wherever it is planted in its scenario, so
that a seed is the same story in the table, on the command line and in the test.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

_TRANSACTIONS = "I19 exactly once"


class Planted(NamedTuple):
    scenario: str
    first: int
    promise: str
    # Faults per second that bring the bug out, where drawn ones seldom do.
    rates: Mapping[str, float] = {}
    # Other scenarios that do what the bug spoils.
    also: tuple[str, ...] = ()
    # Where seeds seldom find it: tests that always do.
    tests: tuple[str, ...] = ()


class PlantedForTests(NamedTuple):
    # Each of them fails while the bug is planted.
    tests: tuple[str, ...]


_LEDGER = "tests/unit/ledger"
_BOOKIE = "tests/unit/bookie"
_LOG = "tests/unit/managed_ledger"
_STORAGE = ("storage", "takeover", "cluster", "transactions")
_BROKER = ("broker", "cluster")

# docs/reliability.md says how many seeds find each.
TABLE: dict[str, Planted] = {
    "ack-before-sync": Planted("takeover", 1000, "R1 durable before acknowledged", also=("journal", *_STORAGE)),
    "fence-ignored": Planted("takeover", 1000, "I6 fenced-cannot-commit", also=_STORAGE),
    "fence-forgotten": Planted(
        "takeover", 1001, "I6 fenced-cannot-commit", {"rolling-restart": 1.0, "clog": 1.0}, _STORAGE
    ),
    "fence-before-durable": Planted("takeover", 1000, "I6 fenced-cannot-commit", also=_STORAGE),
    "no-rewrite": Planted("takeover", 1000, "I11 replicated", also=_STORAGE),
    "short-absence": Planted("takeover", 1000, "I6 fenced-cannot-commit", also=_STORAGE),
    "unknown-is-absent": Planted("takeover", 1002, "I6 fenced-cannot-commit", also=_STORAGE),
    "reads-do-not-fence": Planted("takeover", 1001, "I6 fenced-cannot-commit", {"rolling-restart": 1.0}, _STORAGE),
    "cookie-ignored": Planted("storage", 1003, "I14 honest", {"wiped-disk": 0.6, "kill": 0.3}, _STORAGE),
    "limbo-says-absent": Planted(
        "storage", 1003, "I14 honest", {"wiped-disk": 0.6, "kill": 1.0, "clog": 0.5}, _STORAGE
    ),
    "limbo-left-unproven": Planted(
        "storage", 1003, "I14 honest", {"wiped-disk": 0.6, "kill": 1.0, "clog": 0.5}, _STORAGE
    ),
    "copies-nothing": Planted("storage", 1003, "I14 honest", {"wiped-disk": 0.6, "kill": 0.3}, _STORAGE),
    "broker-ack-before-sync": Planted(
        "broker", 1000, "I1 acked-readable", {"power-loss": 1.0}, ("delayed", "compacted")
    ),
    "mark-delete-off-by-one": Planted("broker", 1000, "I9 cursor", also=_BROKER),
    "cursor-before-data": Planted("cluster", 1003, "I9 cursor", {"cut": 4.0, "kill": 1.0}, _BROKER),
    "cursor-not-saved": Planted("broker", 1001, "I9 cursor", also=_BROKER),
    "redelivery-lost": Planted("broker", 1000, "I9 cursor", also=_BROKER),
    "duplicates-forgotten": Planted("broker", 1003, "I4 no-duplicate", {"kill": 3.0, "cut": 1.0}, _BROKER),
    "keys-not-drained": Planted("broker", 1006, "I3 order", also=_BROKER),
    "batches-counted-whole": Planted("broker", 1000, "backlog is exact"),
    "owners-not-fenced": Planted("cluster", 1003, "I6 fenced-cannot-commit", {"metadata-cut": 3.0, "cut": 4.0}),
    "given-up-before-closed": Planted("ownership", 1000, "I7 one-owner", also=("cluster", "transactions")),
    "look-ups-stay-cached": Planted("ownership", 1000, "look-ups agree", also=("cluster", "transactions")),
    "shedding-flaps": Planted("ownership", 1000, "load manager rests"),
    "aborted-is-visible": Planted("transactions", 1000, _TRANSACTIONS),
    "marker-not-stored": Planted("transactions", 1001, _TRANSACTIONS, {"kill": 2.0}),
    "pending-ack-not-saved": Planted("transactions", 1002, _TRANSACTIONS, {"metadata-expiry": 2.0}),
    "transactions-not-replayed": Planted("transactions", 1001, _TRANSACTIONS, {"kill": 2.0}),
    "buckets-not-scheduled": Planted("delayed", 1000, "I20 delivered", {"kill": 1.0, "power-loss": 1.0}),
    "delays-cut-short": Planted("delayed", 1000, "I21 not before its time"),
    "horizon-ahead": Planted("compacted", 1000, "I22 latest of each key"),
    "metadata-before-sync": Planted("embedded-metadata", 1003, "I1 acked-readable"),
    "versions-ignored": Planted("embedded-metadata", 1000, "I18 monotonic", also=("ownership",)),
    "recovery-from-the-start": Planted(
        "storage",
        1009,
        "I1 acked-readable",
        {"cut": 6.0, "kill": 3.0},
        _STORAGE,
        (f"{_LEDGER}/test_recoverer.py::test_recovery_of_an_empty_last_segment_with_a_bookie_down",),
    ),
    "ack-before-the-change": Planted(
        "storage",
        1007,
        "I6 fenced-cannot-commit",
        {"metadata-cut": 3.0, "kill": 1.0},
        _STORAGE,
        (f"{_LEDGER}/test_ensemble_change.py::test_nothing_is_confirmed_while_the_store_does_not_take_the_change",),
    ),
    "same-ensemble-again": Planted("storage", 1012, "scenario", {"kill": 2.0}, _STORAGE),
    "last-mark-goes-back": Planted(
        "storage",
        1011,
        "I14 honest",
        {"kill": 3.0},
        _STORAGE,
        (f"{_BOOKIE}/test_crashes.py::test_what_was_answered_survives_a_crash_at_every_disk_call[one-directory-kill]",),
    ),
    "stored-end-ignored": Planted(
        "cluster",
        1001,
        "I9 cursor",
        {"metadata-cut": 3.0, "cut": 4.0},
        ("transactions",),
        (f"{_LOG}/test_appender.py::test_a_ledger_closed_by_a_stranger_is_taken_as_it_ends[asyncio]",),
    ),
}

_COLLECTOR = f"{_BOOKIE}/test_garbage_collector.py"
_CRASHES = "test_a_crash_at_any_call_of_a_collection_loses_nothing_alive"
_REPLICATOR = "tests/unit/broker/replication/test_replicator.py"
_TRANSACTIONS_UNIT = "tests/unit/broker/transactions"

BY_TESTS: dict[str, PlantedForTests] = {
    # Where the topic and its cursor share a journal, a later save never outlives an earlier append.
    "duplicates-ahead": PlantedForTests(
        ("tests/simulation/test_unstored_sequences.py::test_what_is_only_on_its_way_is_not_saved_as_stored",)
    ),
    "copies-not-synced": PlantedForTests((f"{_COLLECTOR}::{_CRASHES}[lose-power]",)),
    "recoveries-race": PlantedForTests(
        ("tests/simulation/test_single_recovery.py::test_who_asks_for_deduplication_twice_gets_it_once",)
    ),
    # Of 99 seeds of `cluster` none found it.
    "trims-what-is-not-saved": PlantedForTests(
        (f"{_LOG}/test_trimming.py::test_the_slowest_durable_cursor_holds_data_until_its_ack_is_on_disk[asyncio]",)
    ),
    "late-properties": PlantedForTests(
        (f"{_LOG}/test_log_record.py::test_numbers_of_a_closed_ledger_never_change_on_record[9]",)
    ),
    # No scenario has a second cluster.
    "refused-and-passed-over": PlantedForTests(
        (
            f"{_REPLICATOR}::test_a_send_that_fails_among_several_reads_is_stored_before_what_came_behind_it[100]",
            f"{_REPLICATOR}::test_one_that_is_refused_for_now_is_stored_later_and_kept_until_then",
        )
    ),
    # COMMITTED is logged when all that a transaction touched has its end: of 24 seeds of `transactions` none found it.
    "committed-is-open-again": PlantedForTests(
        (f"{_TRANSACTIONS_UNIT}/test_many.py::test_what_has_ended_never_comes_back_while_its_log_is_trimmed",)
    ),
}

# Every planted bug, in the order of the page.
NAMES = (*TABLE, *BY_TESTS)


def rates_of(planted: Iterable[str], scenario: str) -> dict[str, float]:
    """What the planted bugs need in their scenario; of two the higher."""
    rates: dict[str, float] = {}
    for bug in sorted(planted):
        row = TABLE.get(bug)
        if row is not None and row.scenario == scenario:
            rates.update((kind, max(rate, rates.get(kind, 0.0))) for kind, rate in row.rates.items())
    return rates


def named_tests(bug: str) -> tuple[str, ...]:
    """Each of them fails while the bug is planted."""
    return TABLE[bug].tests if bug in TABLE else BY_TESTS[bug].tests


def scenarios_of(bug: str) -> tuple[str, ...]:
    """Where it can show; none where only tests find it."""
    row = TABLE.get(bug)
    return () if row is None else tuple(dict.fromkeys((row.scenario, *row.also)))
