# SPDX-License-Identifier: Apache-2.0
"""What an idle topic and an idle subscription hold: a bounded number of bytes, and no timer."""

import asyncio
import gc
import tracemalloc
from typing import Any

import pytest

from magnetar.broker.topic import Topic
from magnetar.ids import LATEST
from magnetar.names import TopicName
from magnetar.testing.local_pulsar import LocalPulsar

COUNT = 40
# Bytes of Python's objects in broker, bookie and metadata store together; what a process takes is about a third more.
TOPIC_BYTES_MAX = 15_000
SUBSCRIPTION_BYTES_MAX = 6_000


async def load(pulsar: LocalPulsar, kind: str) -> list[Topic]:
    names = [TopicName.parse(f"persistent://public/default/{kind}-{number}") for number in range(COUNT)]
    return [await pulsar.standalone.broker.topics.load(name, create=True) for name in names]


async def settled_bytes(pulsar: LocalPulsar) -> int:
    """What is held now, without what the disk in memory has been given."""
    await pulsar.settle()
    gc.collect()
    taken = tracemalloc.take_snapshot().filter_traces([tracemalloc.Filter(False, "*/simulated_*.py")])
    return sum(trace.size for trace in taken.traces)


def timers() -> int:
    loop: Any = asyncio.get_running_loop()
    return sum(not timer.cancelled() for timer in loop._scheduled)


@pytest.mark.feature("F-PLAT-07")
def test_an_idle_topic_holds_few_bytes_and_no_timer() -> None:
    async def scenario() -> None:
        async with LocalPulsar(transport="memory", clock="manual") as pulsar:
            # What the first ones bring for all that follow is not theirs.
            for topic in await load(pulsar, "first"):
                await topic.open_subscription("s", initial=LATEST)
            tracemalloc.start()
            try:
                before, timers_before = await settled_bytes(pulsar), timers()
                topics = await load(pulsar, "idle")
                per_topic = (await settled_bytes(pulsar) - before) / COUNT
                assert timers() <= timers_before
                for topic in topics:
                    await topic.open_subscription("s", initial=LATEST)
                per_subscription = (await settled_bytes(pulsar) - before) / COUNT - per_topic
                assert timers() <= timers_before
            finally:
                tracemalloc.stop()
        assert per_topic < TOPIC_BYTES_MAX
        assert per_subscription < SUBSCRIPTION_BYTES_MAX

    asyncio.run(scenario())
