# SPDX-License-Identifier: Apache-2.0
"""The rows of `magnetar top`: what of a cluster's statistics a person looks at first, and in which order.

Rates come from counters of two samples where there are two, else from the broker, which averages over a minute.
Decides.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple

SORTS: Final = ("backlog", "in", "out", "age", "storage", "topic")


class TopRow(NamedTuple):
    topic: str
    in_rate: float
    out_rate: float
    in_bytes_rate: float
    producers: int
    consumers: int
    subscriptions: int
    # Messages of the largest backlog of a subscription.
    backlog: int
    # Bytes that the slowest subscription is behind.
    lag_bytes: int
    unacked: int
    # When the oldest message that a subscription has not acknowledged was published; None: none, or not asked for.
    oldest_ms: int | None
    storage_bytes: int

    def shown(self, now_ms: int) -> dict[str, Any]:
        """As JSON."""
        age_s = None if self.oldest_ms is None else max(0, now_ms - self.oldest_ms) / 1000
        return {**self._asdict(), "oldest_unacked_age_s": age_s}


def topics_in(broker_stats: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """All topics of a broker's statistics, which are by namespace, bundle and domain."""
    return {
        name: stats
        for bundles in broker_stats.values()
        for domains in bundles.values()
        for topics in domains.values()
        for name, stats in topics.items()
    }


def row_of(topic: str, stats: Mapping[str, Any], before: Mapping[str, Any] | None, seconds: float) -> TopRow:
    subscriptions = list(stats.get("subscriptions", {}).values())
    return TopRow(
        topic,
        _rate(stats, before, "msgInCounter", "msgRateIn", seconds),
        _rate(stats, before, "msgOutCounter", "msgRateOut", seconds),
        _rate(stats, before, "bytesInCounter", "msgThroughputIn", seconds),
        len(stats.get("publishers", ())),
        sum(len(each.get("consumers", ())) for each in subscriptions),
        len(subscriptions),
        max((_messages(each) for each in subscriptions), default=0),
        max((each.get("backlogSize", 0) for each in subscriptions), default=0),
        sum(each.get("unackedMessages", 0) for each in subscriptions),
        oldest_of(stats),
        stats.get("storageSize", 0),
    )


def oldest_of(stats: Mapping[str, Any]) -> int | None:
    times = [each.get("earliestMsgPublishTimeInBacklog", 0) for each in stats.get("subscriptions", {}).values()]
    return min((time for time in times if time > 0), default=None)


def sorted_rows(rows: Iterable[TopRow], by: str) -> list[TopRow]:
    """The most notable first; equal ones by name."""
    keys: dict[str, Callable[[TopRow], float]] = {
        "backlog": lambda row: -row.backlog,
        "in": lambda row: -row.in_rate,
        "out": lambda row: -row.out_rate,
        "age": lambda row: row.oldest_ms if row.oldest_ms is not None else 1 << 62,
        "storage": lambda row: -row.storage_bytes,
        "topic": lambda row: 0,
    }
    return sorted(rows, key=lambda row: (keys[by](row), row.topic))


def _messages(subscription: Mapping[str, Any]) -> int:
    # Magnetar counts messages; Apache Pulsar has entries only.
    return int(subscription.get("backlogMessages", subscription.get("msgBacklog", 0)))


def _rate(
    stats: Mapping[str, Any], before: Mapping[str, Any] | None, counter: str, averaged: str, seconds: float
) -> float:
    if before is None or seconds <= 0 or stats.get(counter, 0) < before.get(counter, 0):
        return float(stats.get(averaged, 0.0))
    return float((stats.get(counter, 0) - before.get(counter, 0)) / seconds)
