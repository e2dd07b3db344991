# SPDX-License-Identifier: Apache-2.0
"""How long requests for much hold the loop, counted in calls of functions between two of its turns, never in time."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from magnetar.admin.app import build
from magnetar.admin.records import Records
from magnetar.broker.broker import Broker
from magnetar.config.admin import AdminSettings
from magnetar.ids import LATEST
from magnetar.metadata.store import MetadataStore
from magnetar.names import NamespaceName, TopicName
from magnetar.runtime.metrics import Metrics
from magnetar.testing.local_pulsar import LocalPulsar

TOPICS = 2_000
SUBSCRIPTIONS = 300
LOADED = 40
# A hundred or two of nanoseconds each: one to two milliseconds in all.
CALLS_PER_TURN_MAX = 10_000
# What the broker does by itself is not asked about here.
QUIET = {"broker.liveness_check_interval_ms": "86400000"}
POLICIES = {"bundles": {"boundaries": ["0x00000000", "0xffffffff"], "numBundles": 1}}
NAMESPACE = NamespaceName("public", "default")
BUSY = TopicName.parse("persistent://public/busy/t")


class Turns:
    """Counts calls of functions, Python's and C's, by turns of the loop."""

    def __init__(self) -> None:
        self.largest = 0
        self.turns = 0
        self._calls = 0
        self._handle: asyncio.Handle | None = None

    def __enter__(self) -> "Turns":
        self._turn()
        sys.setprofile(self._on_event)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        assert self._handle is not None
        self._handle.cancel()

    def _turn(self) -> None:
        self.largest = max(self.largest, self._calls)
        self.turns += 1
        self._calls = 0
        self._handle = asyncio.get_running_loop().call_soon(self._turn)

    def _on_event(self, frame: Any, event: str, argument: Any) -> None:
        if event in ("call", "c_call"):
            self._calls += 1


@asynccontextmanager
async def administration() -> AsyncIterator[tuple[httpx.AsyncClient, Broker, MetadataStore]]:
    """All that an HTTP server has, without its connections."""
    async with LocalPulsar(transport="memory", clock="manual", settings=QUIET) as pulsar:
        standalone = pulsar._standalone
        assert standalone is not None
        broker, store = standalone.broker, standalone.store
        app, parts = build(broker, Records(store), broker.policies, broker.clock, Metrics(), AdminSettings())
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://inside", timeout=None) as client:
            yield client, broker, store
        await parts.peers.close()


async def fill(broker: Broker, store: MetadataStore) -> None:
    for number in range(TOPICS):
        await store.put(NAMESPACE.managed_ledgers_path() + f"/topic-{number:05}", b"")
        if number % 4 == 0:
            await broker.namespaces.create_partitioned(NAMESPACE.topic(f"parts-{number:05}"), 1)
    await store.put(BUSY.namespace.policies_path, json.dumps(POLICIES).encode())
    topic = await broker.topics.load(BUSY, create=True)
    for number in range(SUBSCRIPTIONS):
        await topic.open_subscription(f"subscription-{number:03}", initial=LATEST)
    for number in range(LOADED):
        await broker.topics.load(BUSY.namespace.topic(f"loaded-{number:03}"), create=True)


@pytest.mark.feature("B-37", "F-MET-01")
def test_no_request_holds_the_loop_for_long() -> None:
    async def scenario() -> None:
        async with administration() as (client, broker, store):
            await fill(broker, store)
            held = {}
            await client.get("/admin/v2/brokers/version")
            for path, least in (
                ("/admin/v2/namespaces/public/default/topics", 20),
                ("/admin/v2/persistent/public/default", 20),
                ("/admin/v2/persistent/public/default/partitioned", 5),
                (f"/admin/v2/persistent/{BUSY.namespace}/t/stats", 20),
                (f"/admin/v2/persistent/{BUSY.namespace}/t/internalStats", 20),
                (f"/admin/v2/persistent/{BUSY.namespace}/t/subscriptions", 1),
                ("/admin/v2/broker-stats/topics", 50),
                ("/admin/v2/broker-stats/load-report", 1),
                ("/admin/v2/broker-stats/metrics", 20),
                ("/metrics", 50),
            ):
                with Turns() as turns:
                    answer = await client.get(path)
                assert answer.status_code == 200, (path, answer.text[:200])
                assert turns.turns >= least, path
                held[path] = turns.largest
            assert {path: calls for path, calls in held.items() if calls > CALLS_PER_TURN_MAX} == {}

    asyncio.run(scenario())
