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


class PlantedForTests(NamedTuple):
    # Each of them fails while the bug is planted.
    tests: tuple[str, ...]


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
}

_COLLECTOR = "tests/unit/bookie/test_garbage_collector.py"
_CRASHES = "test_a_crash_at_any_call_of_a_collection_loses_nothing_alive"

BY_TESTS: dict[str, PlantedForTests] = {
    # Where the topic and its cursor share a journal, a later save never outlives an earlier append.
    "duplicates-ahead": PlantedForTests(
        ("tests/simulation/test_unstored_sequences.py::test_what_is_only_on_its_way_is_not_saved_as_stored",)
    ),
    "copies-not-synced": PlantedForTests((f"{_COLLECTOR}::{_CRASHES}[lose-power]",)),
}


def rates_of(planted: Iterable[str], scenario: str) -> dict[str, float]:
    """What the planted bugs need in their scenario; of two the higher."""
    rates: dict[str, float] = {}
    for bug in sorted(planted):
        row = TABLE.get(bug)
        if row is not None and row.scenario == scenario:
            rates.update((kind, max(rate, rates.get(kind, 0.0))) for kind, rate in row.rates.items())
    return rates


def scenarios_of(bug: str) -> tuple[str, ...]:
    """Where it can show; none where only tests find it."""
    row = TABLE.get(bug)
    return () if row is None else tuple(dict.fromkeys((row.scenario, *row.also)))
