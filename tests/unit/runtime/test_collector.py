# SPDX-License-Identifier: Apache-2.0
"""The collector's settings are ours while it lives and as before when it is closed; pauses and lag are measured."""

import asyncio
import gc
from weakref import ref

from magnetar.config.runtime import RuntimeSettings
from magnetar.runtime.collector import YOUNG_THRESHOLDS, Collector, resident_bytes
from magnetar.runtime.metrics import Metrics

SETTINGS = RuntimeSettings(lag_interval_ms=1, collect_idle_ms=0, collect_interval_ms=0, collect_growth_bytes=0)


class Loop:
    """Garbage that only a collection finds."""

    def __init__(self) -> None:
        self.me = self


def counts(metrics: Metrics, name: str) -> float:
    return sum(float(line.split()[-1]) for line in metrics.text().splitlines() if line.startswith(f"{name}_count"))


def test_it_takes_over_and_gives_back() -> None:
    before = (gc.get_threshold(), list(gc.callbacks), gc.get_freeze_count())

    async def main() -> None:
        metrics = Metrics()
        collector = Collector(SETTINGS, metrics)
        assert gc.get_threshold() == YOUNG_THRESHOLDS
        settled = counts(metrics, "magnetar_gc_pause_seconds")
        left_behind = Loop()
        watched = ref(left_behind)
        del left_behind
        collector.settle()
        assert gc.get_freeze_count() > before[2]
        assert watched() is not None
        # With these limits each tick is due.
        full: list[object] = []
        enough = asyncio.Event()

        def watch(phase: str, info: dict[str, int]) -> None:
            if phase == "stop" and info["generation"] == 2:
                full.append(None)
                if len(full) == 3:
                    enough.set()

        gc.callbacks.append(watch)
        await enough.wait()
        gc.callbacks.remove(watch)
        assert counts(metrics, "magnetar_gc_pause_seconds") >= settled + 2
        assert counts(metrics, "magnetar_loop_lag_seconds") >= 3
        assert watched() is None
        assert gc.get_freeze_count() > before[2]
        collector.close()
        ended = counts(metrics, "magnetar_gc_pause_seconds")
        gc.collect()
        assert counts(metrics, "magnetar_gc_pause_seconds") == ended

    asyncio.run(main())
    assert (gc.get_threshold(), list(gc.callbacks), gc.get_freeze_count()) == (before[0], before[1], 0)


def test_resident_memory_is_known_here() -> None:
    assert resident_bytes() > 1_000_000
