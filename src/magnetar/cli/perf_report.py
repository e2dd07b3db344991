# SPDX-License-Identifier: Apache-2.0
"""What a load test counts, and how it is shown: a line now and then, and a table at the end.

Carries.
"""

import json
import sys
from pathlib import Path
from typing import Any, Final

from magnetar.cli.pace import Latencies
from magnetar.cli.values import WrongUse

PERCENTILES: Final = (50.0, 95.0, 99.0, 99.9, 99.99)
_SHORT: Final = {"messages": "msg", "transactions": "txn"}


class Counts:
    """Messages, bytes, failures and latencies since a time; those of the last interval and of all."""

    __slots__ = ("_interval", "_interval_bytes", "bytes", "failures", "last_s", "latencies", "start_s")

    def __init__(self, start_s: float) -> None:
        self.start_s = start_s
        self.last_s = start_s
        self.bytes = 0
        self.failures = 0
        self.latencies = Latencies()
        self._interval = Latencies()
        self._interval_bytes = 0

    @property
    def messages(self) -> int:
        return self.latencies.count + self._interval.count

    def add(self, size: int, latency_us: int) -> None:
        self._interval_bytes += size
        self._interval.add(latency_us)

    def restart(self, now_s: float) -> None:
        """Forget what was counted: the warm-up is over."""
        self.start_s = self.last_s = now_s
        self.bytes = self._interval_bytes = self.failures = 0
        self.latencies, self._interval = Latencies(), Latencies()

    def line(self, verb: str, now_s: float, *, unit: str = "messages") -> str:
        """A line about the interval that ends now."""
        seconds = max(now_s - self.last_s, 1e-9)
        interval, size = self._interval, self._interval_bytes
        self._close_interval(now_s)
        return (
            f"{verb}: {interval.count / seconds:.1f} {_SHORT[unit]}/s --- {size * 8 / seconds / 1e6:.2f} Mbit/s --- "
            f"failures: {self.failures} --- latency ms: mean {interval.mean_us / 1000:.3f} "
            + " ".join(f"p{percent:g} {interval.percentile_us(percent) / 1000:.3f}" for percent in PERCENTILES)
            + f" max {interval.max_us / 1000:.3f}"
        )

    def result(self, now_s: float) -> dict[str, Any]:
        self._close_interval(now_s)
        seconds = max(now_s - self.start_s, 1e-9)
        count = self.latencies.count
        return {
            "messages": count,
            "bytes": self.bytes,
            "failures": self.failures,
            "seconds": round(seconds, 3),
            "messagesPerSecond": round(count / seconds, 1),
            "megabitsPerSecond": round(self.bytes * 8 / seconds / 1e6, 3),
            "latencyMs": {
                "mean": round(self.latencies.mean_us / 1000, 3),
                **{f"p{percent:g}": self.latencies.percentile_us(percent) / 1000 for percent in PERCENTILES},
                "max": self.latencies.max_us / 1000,
            },
        }

    def _close_interval(self, now_s: float) -> None:
        self.latencies.merge(self._interval)
        self.bytes += self._interval_bytes
        self._interval, self._interval_bytes = Latencies(), 0
        self.last_s = now_s


def show_result(verb: str, result: dict[str, Any], *, unit: str = "messages", as_json: bool) -> None:
    if as_json:
        sys.stdout.write(json.dumps(result) + "\n")
        return
    latency = " ".join(f"{name} {value:.3f}" for name, value in result["latencyMs"].items())
    sys.stdout.write(
        f"Aggregated: {verb} {result['messages']} {unit} in {result['seconds']:.1f} s --- "
        f"{result['messagesPerSecond']:.1f} {_SHORT[unit]}/s --- {result['megabitsPerSecond']:.2f} Mbit/s --- "
        f"failures: {result['failures']}\nAggregated latency ms: {latency}\n"
    )


def write_histogram(path: str, latencies: Latencies) -> None:
    rows = [f"{latencies.percentile_us(step / 10)},{step / 10}" for step in range(0, 1001)]
    try:
        Path(path).write_text("microseconds,percent\n" + "\n".join(rows) + "\n", encoding="utf-8")
    except OSError as error:
        raise WrongUse(f"{path} cannot be written: {error.strerror}") from None
