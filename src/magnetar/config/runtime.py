# SPDX-License-Identifier: Apache-2.0
"""What the process itself can be told: loop, collector, logs, orderly stop.

Decides.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RuntimeSettings:
    """Of the process, whatever runs in it."""

    # uvloop or asyncio.
    event_loop: str = "uvloop"
    # How long a thread may hold the interpreter while others wait; the default of 5 ms alone ruins high percentiles.
    switch_interval_us: int = 500
    # How long an orderly stop may take before the process ends all the same.
    drain_timeout_ms: int = 60_000
    # How often the loop's lag is measured.
    lag_interval_ms: int = 500
    # Full collections happen when the loop has been idle for so long, at most this often.
    collect_idle_ms: int = 1_000
    collect_interval_ms: int = 60_000
    # Or at once, when resident memory has grown by so much since the last one.
    collect_growth_bytes: int = 256 * 1024 * 1024

    # human, json, or auto: human on a terminal, JSON elsewhere.
    log_format: str = "auto"
    # debug, info, warning or error.
    log_level: str = "info"
    # Equal lines beyond this number in one interval are counted, not written.
    log_repeats_max: int = 10
    log_repeat_interval_ms: int = 60_000

    # Distinct label values per metric; beyond them all further values share one series.
    metric_series_max: int = 10_000
