# SPDX-License-Identifier: Apache-2.0
"""The lines that begin a family of a scrape: its kind, and for families of our own a sentence about it.

Families with Pulsar's names are explained by Pulsar's documentation, and come without one.
Decides.
"""

from collections.abc import Iterator
from typing import Final

_MEANINGS: Final = {
    "magnetar_memory_bytes": "Bytes held, by owner.",
    "magnetar_memory_bytes_max": "Bytes that an owner may hold.",
    "magnetar_ml_cache_hits_total": "Entries that were read from the cache of written entries.",
    "magnetar_ml_cache_misses_total": "Entries that were read from bookies.",
    "magnetar_ml_cache_evicted_bytes_total": "Bytes that left the cache to make room.",
    "magnetar_txn_oldest_seconds": "Age of the oldest transaction that is not ended.",
    "magnetar_oldest_unacked_age_seconds": "Age of the oldest message that a subscription has not acknowledged.",
    "magnetar_subscription_oldest_unacked_age_seconds": "Age of the oldest message not acknowledged, by subscription.",
    "magnetar_sessions_failed_total": "Connections closed because a command met a bug; the log has its traceback.",
    "magnetar_publish_latency_seconds": "Time from a message's arrival until it is stored, over all topics.",
}


def head(name: str, kind: str) -> Iterator[str]:
    meaning = _MEANINGS.get(name)
    if meaning is not None:
        yield f"# HELP {name} {meaning}"
    yield f"# TYPE {name} {kind}"
