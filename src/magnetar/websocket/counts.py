# SPDX-License-Identifier: Apache-2.0
"""What one session has done, and the sums that Pulsar's statistics of a WebSocket proxy make of many.

Decides.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

# Microseconds; what takes longer than the last is counted above it.
LATENCY_BOUNDS: Final = (500, 1_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000, 1_000_000)


@dataclass(slots=True)
class Traffic:
    """Of producers: what was published. Of consumers and readers: what was delivered."""

    published: int = 0
    published_bytes: int = 0
    failed: int = 0
    delivered: int = 0
    delivered_bytes: int = 0
    acknowledged: int = 0
    latencies: list[int] = field(default_factory=lambda: [0] * (len(LATENCY_BOUNDS) + 1))

    def on_published(self, size: int, latency_us: float) -> None:
        self.published += 1
        self.published_bytes += size
        self.latencies[bisect_left(LATENCY_BOUNDS, latency_us)] += 1

    def on_delivered(self, size: int) -> None:
        self.delivered += 1
        self.delivered_bytes += size

    def add(self, other: "Traffic") -> None:
        self.published += other.published
        self.published_bytes += other.published_bytes
        self.failed += other.failed
        self.delivered += other.delivered
        self.delivered_bytes += other.delivered_bytes
        self.acknowledged += other.acknowledged
        self.latencies = [ours + theirs for ours, theirs in zip(self.latencies, other.latencies, strict=True)]


def namespace_metrics(namespace: str, traffic: Traffic) -> Mapping[str, Any]:
    """As Pulsar's `proxy-stats/metrics` gives them: what happened in the last interval."""
    names = (*(str(bound) for bound in LATENCY_BOUNDS), f"{LATENCY_BOUNDS[-1]}_higher")
    return {
        "metrics": {
            "ns_msg_publish_rate": traffic.published,
            "ns_byte_publish_rate": traffic.published_bytes,
            "ns_msg_failure_rate": traffic.failed,
            "ns_msg_deliver_rate": traffic.delivered,
            "ns_byte_deliver_rate": traffic.delivered_bytes,
            "ns_msg_ack_rate": traffic.acknowledged,
            **{f"ns_msg_publish_latency_{name}": count for name, count in zip(names, traffic.latencies, strict=True)},
        },
        "dimensions": {"namespace": namespace},
    }


def sums(parts: Iterable[Traffic]) -> Traffic:
    total = Traffic()
    for part in parts:
        total.add(part)
    return total
