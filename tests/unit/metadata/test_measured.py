# SPDX-License-Identifier: Apache-2.0
"""A measured store answers as the one behind it, and counts how long that took."""

from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from magnetar.config.metadata import MetadataSettings
from magnetar.errors import BadVersion
from magnetar.metadata.embedded import EmbeddedStore
from magnetar.metadata.measured import MeasuredStore, measured_store
from magnetar.runtime.clock import SystemClock
from magnetar.runtime.metrics import Metrics
from magnetar.runtime.simulated_disk import SimulatedDisk

LoopRun = Callable[[Coroutine[Any, Any, None]], None]


def test_operations_are_counted_by_kind_and_outcome(loop_run: LoopRun) -> None:
    async def scenario() -> None:
        metrics = Metrics()
        settings = MetadataSettings()
        inner = await EmbeddedStore.open(SimulatedDisk(), "metadata", clock=SystemClock(), settings=settings)
        times = iter(range(100))
        store = MeasuredStore(inner, metrics, lambda: next(times) / 1000)
        await store.put("/a", b"12345")
        assert (await store.get("/a")) == (await inner.get("/a"))
        assert await store.children("/") == await inner.children("/")
        with pytest.raises(BadVersion):
            await store.put("/a", b"x", expected_version=7)
        await store.delete("/a")
        text = metrics.text()
        name = "pulsar_metadata_store_ops_latency_ms_count"
        for kind, count in (("put", 2), ("get", 1), ("children", 1), ("del", 1)):
            assert f'{name}{{name="metadata-store",type="{kind}",status="success"}} {count}' in text
        assert 'pulsar_metadata_store_put_bytes{name="metadata-store"} 5' in text
        assert measured_store(inner, None) is inner
        await store.close()

    loop_run(scenario())
