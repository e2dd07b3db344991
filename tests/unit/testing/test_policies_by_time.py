# SPDX-License-Identifier: Apache-2.0
"""Policies that act by time, set over HTTP: what they promise happens when its time has come, and not before."""

from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import httpx
import pytest
import uvloop

from magnetar.client.client import Client
from magnetar.errors import MagnetarError
from magnetar.ids import EARLIEST_MESSAGE
from magnetar.testing import LocalPulsar
from tests.conftest import run_without_leaks

NAMESPACE = "namespaces/public/default"
TOPIC = "persistent/public/default/t"
SETTINGS = {"managedLedgerMinLedgerRolloverTimeMinutes": "0", "managedLedgerMaxEntriesPerLedger": "2"}


def run(scenario: Coroutine[Any, Any, None]) -> None:
    """On one loop: that both serve alike is shown elsewhere."""
    run_without_leaks(scenario, uvloop.new_event_loop)


class World(NamedTuple):
    pulsar: LocalPulsar
    client: Client
    http: httpx.AsyncClient

    async def ask(self, method: str, path: str, body: object = None) -> Any:
        answer = await self.http.request(method, f"{self.pulsar.web_url}/admin/v2/{path}", json=body)
        assert answer.status_code < 300, answer.text
        return answer.json() if answer.content else None

    async def backlog(self) -> int:
        return int((await self.ask("GET", f"{TOPIC}/stats"))["subscriptions"]["s"]["msgBacklog"])

    async def publish(self, count: int) -> None:
        producer = await self.client.create_producer("t")
        for number in range(count):
            await producer.send(b"%d" % number)
        await producer.close()


@asynccontextmanager
async def world() -> AsyncIterator[World]:
    async with (
        LocalPulsar(settings=SETTINGS, clock="manual", http=True) as pulsar,
        pulsar.client() as client,
        httpx.AsyncClient(timeout=60) as http,
    ):
        yield World(pulsar, client, http)


@pytest.mark.feature("F-RET-07")
def test_what_nobody_consumes_expires_by_the_time_to_live() -> None:
    async def scenario() -> None:
        async with world() as here:
            await (await here.client.subscribe("t", "s")).close()
            await here.publish(5)
            await here.ask("POST", f"{NAMESPACE}/messageTTL", 3600)
            await here.pulsar.advance(minutes=55)
            assert await here.backlog() == 5
            await here.pulsar.advance(minutes=15)
            assert await here.backlog() == 0
            await here.ask("POST", f"{TOPIC}/messageTTL?messageTTL=60")
            await here.publish(3)
            await here.pulsar.advance(minutes=10)
            assert await here.backlog() == 0, "the topic's own time goes before the namespace's"

    run(scenario())


@pytest.mark.feature("F-RET-12")
def test_a_backlog_older_than_its_quota_is_evicted() -> None:
    async def scenario() -> None:
        async with world() as here:
            await (await here.client.subscribe("t", "s")).close()
            quota = {"limitSize": -1, "limitTime": 1800, "policy": "consumer_backlog_eviction"}
            await here.ask("POST", f"{NAMESPACE}/backlogQuota?backlogQuotaType=message_age", quota)
            await here.publish(6)
            await here.pulsar.advance(minutes=25)
            assert await here.backlog() == 6
            await here.publish(1)
            await here.pulsar.advance(minutes=10)
            assert await here.backlog() <= 2, "what is older is gone, by whole ledgers"

    run(scenario())


@pytest.mark.feature("F-RET-12")
def test_a_backlog_larger_than_its_quota_keeps_producers_out_until_it_is_consumed() -> None:
    async def scenario() -> None:
        async with world() as here:
            consumer = await here.client.subscribe("t", "s")
            quota = {"limitSize": 100, "limitTime": -1, "policy": "producer_exception"}
            await here.ask("POST", f"{TOPIC}/backlogQuota?backlogQuotaType=destination_storage", quota)
            await here.publish(8)
            await here.pulsar.advance(minutes=2)
            async with here.pulsar.client(operation_timeout_seconds=1) as impatient:
                with pytest.raises(MagnetarError, match="quota"):
                    await impatient.create_producer("t")
            for _ in range(8):
                await consumer.acknowledge(await consumer.receive(1_000))
            await here.pulsar.advance(minutes=2)
            await here.publish(1)

    run(scenario())


def test_a_topic_that_nobody_uses_is_deleted_after_its_time() -> None:
    async def scenario() -> None:
        async with world() as here:
            policy = {
                "inactiveTopicDeleteMode": "delete_when_no_subscriptions",
                "maxInactiveDurationSeconds": 7200,
                "deleteWhileInactive": True,
            }
            await here.publish(1)
            await here.ask("POST", f"{TOPIC}/inactiveTopicPolicies", policy)
            await here.pulsar.advance(hours=1, minutes=50)
            assert await here.ask("GET", "persistent/public/default") == ["persistent://public/default/t"]
            await here.pulsar.advance(minutes=20)
            assert await here.ask("GET", "persistent/public/default") == []

    run(scenario())


@pytest.mark.feature("F-RET-02")
def test_retention_keeps_what_was_consumed_for_its_time() -> None:
    async def scenario() -> None:
        async with world() as here:
            await here.ask("POST", f"{NAMESPACE}/retention", {"retentionTimeInMinutes": 120, "retentionSizeInMB": -1})
            consumer = await here.client.subscribe("t", "s")
            await here.publish(6)
            for _ in range(6):
                await consumer.acknowledge(await consumer.receive(1_000))
            for minutes, first in ((100, b"0"), (200, b"new")):
                await here.pulsar.advance(minutes=minutes)
                producer = await here.client.create_producer("t")
                await producer.send(b"new")
                await producer.close()
                reader = await here.client.create_reader("t", EARLIEST_MESSAGE)
                assert (await reader.read_next(1_000)).data() == first
                await reader.close()

    run(scenario())
