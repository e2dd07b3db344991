# SPDX-License-Identifier: Apache-2.0
"""A changed record reaches the loaded topics at once, and one topic that fails does not hold up the others."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from magnetar.broker.policy_upkeep import PolicyUpkeep
from magnetar.broker.topic import Topic
from magnetar.errors import PersistenceFailed
from magnetar.names import TopicName
from magnetar.runtime.tasks import Tasks
from tests.unit.broker.publishers import NAME, Brokers

OTHER = TopicName.parse("persistent://public/default/other")


def with_upkeep(body: Callable[[Brokers, PolicyUpkeep], Coroutine[Any, Any, None]]) -> None:
    async def run() -> None:
        brokers = Brokers()
        topics = await brokers.start()
        tasks = Tasks("upkeep", lambda task, error: brokers.world.cluster.crashes.append(f"{task}: {error!r}"))
        upkeep = PolicyUpkeep(topics, topics.policies, brokers.settings, brokers.world.clock, tasks)
        await body(brokers, upkeep)
        upkeep.close()
        await tasks.close()
        await brokers.stop()

    asyncio.run(run())


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 - applied by a task of its own, a few turns later
            await asyncio.sleep(0)


@pytest.mark.feature("F-TOP-05")
def test_a_loaded_topic_follows_a_changed_record_at_once() -> None:
    async def body(brokers: Brokers, upkeep: PolicyUpkeep) -> None:
        topic = await brokers.topic(NAME)
        other = await brokers.topic(OTHER)
        policies = brokers.topics.policies
        await policies.set_topic(NAME, "maxSubscriptionsPerTopic", 7)
        await policies.set_topic(NAME, "deduplicationEnabled", True)
        await until(lambda: topic.is_deduplicated)
        assert topic.settings.subscriptions_per_topic_max == 7
        retention = {"retentionTimeInMinutes": 3, "retentionSizeInMB": -1}
        await policies.set_namespace(NAME.namespace, "retention_policies", retention)
        await until(lambda: other.managed_ledger.settings.retention_ms == 180_000)
        await until(lambda: topic.managed_ledger.settings.retention_ms == 180_000)
        assert not other.is_deduplicated
        await policies.set_topic(NAME, "deduplicationEnabled", None)
        await until(lambda: not topic.is_deduplicated)

    with_upkeep(body)


def test_a_topic_that_fails_in_a_round_does_not_hold_up_the_others() -> None:
    async def body(brokers: Brokers, upkeep: PolicyUpkeep) -> None:
        await brokers.topic(NAME)
        await brokers.topic(OTHER)
        seen = []

        async def step(topic: Topic) -> None:
            seen.append(topic.name)
            if topic.name == NAME:
                raise PersistenceFailed("the test says so")

        await upkeep.run("test", step)
        assert seen == [NAME, OTHER]

    with_upkeep(body)


@pytest.mark.feature("F-TOP-05")
def test_a_deleted_topic_leaves_no_policies_behind() -> None:
    async def body(brokers: Brokers, upkeep: PolicyUpkeep) -> None:
        await brokers.topic(NAME)
        await brokers.topics.policies.set_topic(NAME, "maxProducerPerTopic", 2)
        await brokers.topics.delete(NAME)
        assert await brokers.topics.policies.topic(NAME) == {}

    with_upkeep(body)
