# SPDX-License-Identifier: Apache-2.0
"""What a producer or consumer has done so far: plain numbers, added to on the hot path, read by whoever wants.

Decides.
"""

from dataclasses import dataclass


@dataclass(slots=True)
class ProducerStatistics:
    """Counted from the producer's creation on."""

    sent: int = 0
    sent_bytes: int = 0
    failed: int = 0
    entries: int = 0
    # Sum and maximum over entries, from their making to their receipt.
    latency_s_sum: float = 0.0
    latency_s_max: float = 0.0

    def on_sent(self, messages: int, size: int, latency_s: float) -> None:
        self.sent += messages
        self.sent_bytes += size
        self.entries += 1
        self.latency_s_sum += latency_s
        if latency_s > self.latency_s_max:
            self.latency_s_max = latency_s

    def merged(self, other: "ProducerStatistics") -> "ProducerStatistics":
        return ProducerStatistics(
            self.sent + other.sent,
            self.sent_bytes + other.sent_bytes,
            self.failed + other.failed,
            self.entries + other.entries,
            self.latency_s_sum + other.latency_s_sum,
            max(self.latency_s_max, other.latency_s_max),
        )


@dataclass(slots=True)
class ConsumerStatistics:
    """Counted from the consumer's creation on."""

    received: int = 0
    received_bytes: int = 0
    acknowledged: int = 0
    negatively_acknowledged: int = 0
    ack_timeouts: int = 0
    dead_letters: int = 0
    damaged: int = 0
    ack_requests: int = 0
    flow_requests: int = 0

    def merged(self, other: "ConsumerStatistics") -> "ConsumerStatistics":
        return ConsumerStatistics(
            *(getattr(self, name) + getattr(other, name) for name in ConsumerStatistics.__slots__)
        )
