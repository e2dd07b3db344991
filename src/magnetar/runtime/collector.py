# SPDX-License-Identifier: Apache-2.0
"""What CPython does to latency: garbage collection by our own policy, and the measurement of loop lag and pauses.

Owns the collector's settings of the process and a timer on the loop. The interpreter still collects young objects by
itself, in small steps; full collections are ours alone, and the first one waits until the process has nothing better to
do. Never touches application state.
Carries.
"""

import asyncio
import gc
import os
import time
from typing import Any, Final

from magnetar.config.runtime import RuntimeSettings
from magnetar.runtime.collection_policy import CollectionPolicy
from magnetar.runtime.metrics import Metrics

# Young collections look at few objects each; the oldest generation is never due by itself.
YOUNG_THRESHOLDS: Final = (5_000, 10, 2**31 - 1)
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")


def resident_bytes() -> int:
    """Memory of this process that lies in RAM; 0 where the system does not tell."""
    try:
        with open("/proc/self/statm", "rb") as statm:
            return int(statm.read().split()[1]) * _PAGE_BYTES
    except (OSError, IndexError, ValueError):
        return 0


def thread_count() -> int:
    """Threads of this process, Python's and those of libraries; 0 where the system does not tell."""
    try:
        return len(os.listdir("/proc/self/task"))
    except OSError:
        return 0


class Collector:
    """Made when the process starts, settled when it serves, closed when it ends."""

    def __init__(self, settings: RuntimeSettings, metrics: Metrics) -> None:
        self._settings = settings
        self._loop = asyncio.get_running_loop()
        self._interval_s = settings.lag_interval_ms / 1000
        self._lag = metrics.histogram("magnetar_loop_lag_seconds", "How late the event loop runs a timer.")
        pauses = metrics.histograms("magnetar_gc_pause_seconds", "Pauses by garbage collection.", ("generation",))
        self._pauses = [pauses.series(str(generation)) for generation in range(3)]
        metrics.gauge("magnetar_resident_bytes", "Memory of the process that lies in RAM.", resident_bytes)
        metrics.gauge("magnetar_threads", "Threads of the process.", thread_count)
        self._pause_started_s = 0.0
        self._old_thresholds = gc.get_threshold()
        self._policy: CollectionPolicy | None = None
        self._is_settled = True
        self._cpu_s = time.process_time()
        gc.set_threshold(*YOUNG_THRESHOLDS)
        gc.enable()  # off while a server was imported
        gc.callbacks.append(self._on_collection)
        self._due_s = self._loop.time() + self._interval_s
        self._timer = self._loop.call_at(self._due_s, self._on_tick)

    def settle(self) -> None:
        """All that lives now lives for long: leave it out of later collections, and its garbage until the first one."""
        gc.freeze()
        long_ago_s = self._loop.time() - self._settings.collect_interval_ms / 1000
        self._policy = CollectionPolicy(self._settings, long_ago_s, resident_bytes())
        self._is_settled = False

    def close(self) -> None:
        self._timer.cancel()
        gc.callbacks.remove(self._on_collection)
        gc.set_threshold(*self._old_thresholds)
        gc.unfreeze()

    def _on_tick(self) -> None:
        now_s = self._loop.time()
        self._lag.observe(max(0.0, now_s - self._due_s))
        cpu_s = time.process_time()
        elapsed_s = now_s - self._due_s + self._interval_s
        cpu_share = (cpu_s - self._cpu_s) / elapsed_s if elapsed_s > 0 else 1.0
        self._cpu_s = cpu_s
        if self._policy is not None and self._policy.is_due(now_s, cpu_share, resident_bytes()):
            self._collect()
            self._policy.on_collected(self._loop.time(), resident_bytes())
        # Counted from now: after a long stall one late tick is one observation, not a burst.
        self._due_s = self._loop.time() + self._interval_s
        self._timer = self._loop.call_at(self._due_s, self._on_tick)

    def _collect(self) -> None:
        """The first time with all that the start left behind; what lives then is left out from then on."""
        if not self._is_settled:
            gc.unfreeze()
        gc.collect()
        if not self._is_settled:
            gc.freeze()
            self._is_settled = True

    def _on_collection(self, phase: str, info: dict[str, Any]) -> None:
        if phase == "start":
            self._pause_started_s = time.perf_counter()
        else:
            self._pauses[info["generation"]].observe(time.perf_counter() - self._pause_started_s)
