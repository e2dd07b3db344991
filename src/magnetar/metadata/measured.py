# SPDX-License-Identifier: Apache-2.0
"""A metadata store that is measured: how long each operation of the one behind it takes, and how much is written.

Owns two families of metrics under Pulsar's names. Never changes a question or an answer.
Carries.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from magnetar.errors import BadVersion, HasChildren, NoRecord
from magnetar.metadata.store import Change, MetadataStore, Record, SessionEvent, Stored
from magnetar.runtime.metrics import Histogram, Metrics

# Milliseconds, as Pulsar has them.
BOUNDS_MS: Final = (1, 3, 5, 10, 20, 50, 100, 200, 500, 1000)
STORE_NAME: Final = "metadata-store"
# Answers, although they say no.
_EXPECTED: Final = (BadVersion, HasChildren, NoRecord)

Result = TypeVar("Result")


def measured_store(store: MetadataStore, metrics: Metrics | None) -> MetadataStore:
    """The store itself where nobody wants to know."""
    return store if metrics is None else MeasuredStore(store, metrics, asyncio.get_running_loop().time)


class MeasuredStore(MetadataStore):
    def __init__(
        self, store: MetadataStore, metrics: Metrics, now_s: Callable[[], float], name: str = STORE_NAME
    ) -> None:
        self._store = store
        self._now_s = now_s
        family = metrics.histograms(
            "pulsar_metadata_store_ops_latency_ms",
            "How long operations of the metadata store take.",
            ("name", "type", "status"),
            BOUNDS_MS,
        )
        self._latency: dict[tuple[str, bool], Histogram] = {
            (kind, ok): family.series(name, kind, "success" if ok else "fail")
            for kind in ("get", "put", "del", "children")
            for ok in (True, False)
        }
        written = metrics.counters("pulsar_metadata_store_put_bytes", "Bytes of records that were written.", ("name",))
        self._written = written.series(name)

    async def get(self, path: str) -> Record | None:
        return await self._measured("get", self._store.get(path))

    async def put(
        self,
        path: str,
        value: bytes,
        *,
        expected_version: int | None = None,
        ephemeral: bool = False,
        sequential: bool = False,
    ) -> Stored:
        putting = self._store.put(
            path, value, expected_version=expected_version, ephemeral=ephemeral, sequential=sequential
        )
        stored = await self._measured("put", putting)
        self._written.value += len(value)
        return stored

    async def delete(self, path: str, *, expected_version: int | None = None) -> None:
        await self._measured("del", self._store.delete(path, expected_version=expected_version))

    async def children(self, path: str) -> list[str]:
        return await self._measured("children", self._store.children(path))

    def watch(self, prefix: str, listener: Callable[[Change], None]) -> Callable[[], None]:
        return self._store.watch(prefix, listener)

    def watch_session(self, listener: Callable[[SessionEvent], None]) -> Callable[[], None]:
        return self._store.watch_session(listener)

    async def close(self) -> None:
        await self._store.close()

    async def _measured(self, kind: str, operation: Awaitable[Result]) -> Result:
        started_s = self._now_s()
        is_answered = False
        try:
            result = await operation
            is_answered = True
        except _EXPECTED:
            is_answered = True
            raise
        finally:
            self._latency[kind, is_answered].observe((self._now_s() - started_s) * 1000)
        return result
