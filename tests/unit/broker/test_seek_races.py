# SPDX-License-Identifier: Apache-2.0
"""A seek while acknowledgements are being saved: wherever it falls among the writes, its place is what counts."""

import asyncio
from collections.abc import Coroutine
from random import Random
from typing import Any

import pytest

from magnetar.broker.consumer import Consumer
from magnetar.broker.subscription import Subscription, SubscriptionType
from magnetar.broker.topic import Topic
from magnetar.ids import EARLIEST, Position
from tests.simulation.world.loop import SimLoop
from tests.simulation.world.model_bookie import Weather
from tests.simulation.world.schedule import Policy, Schedule
from tests.unit.broker.publishers import Brokers, Client, body_of, producer_of
from tests.unit.broker.worlds import ClientTwin, client_of

MESSAGES = 24


def run(coroutine: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=lambda: SimLoop(Schedule(Policy.FIFO, Random(1)))) as runner:
        runner.run(coroutine)


async def published(topic: Topic) -> list[Position]:
    client = Client()
    producer = producer_of(client)
    await topic.add_producer(producer)
    for number in range(MESSAGES):
        topic.publish(producer, number, number, 1, body_of(sequence_id=number))
    await client.until_answers(MESSAGES)
    return [Position(*client.positions[number]) for number in range(MESSAGES)]


def joined(subscription: Subscription) -> Consumer:
    consumer = Consumer(ClientTwin(), 1, "c")
    subscription.add_consumer(consumer, SubscriptionType.EXCLUSIVE)
    subscription.on_flow(consumer, 1000)
    return consumer


async def acknowledge_all(subscription: Subscription, consumer: Consumer, positions: list[Position]) -> None:
    """One after another, a little quicker than they can be saved, until the consumer is sent away."""
    for position in positions:
        if client_of(consumer).disconnected:
            return
        subscription.ack_cumulative(consumer, position, ())
        await asyncio.sleep(0.002)


async def first_delivered(subscription: Subscription) -> Position:
    client = client_of(joined(subscription))
    async with asyncio.timeout(20):
        while not client.delivered:  # noqa: ASYNC110 - virtual time, and it has no event
            await asyncio.sleep(0.001)
    return client.delivered[0].position


@pytest.mark.feature("F-CUR-08", "F-CONS-28")
@pytest.mark.parametrize("ending", ["stays", "dies"])
@pytest.mark.parametrize("target", [1, MESSAGES - 1], ids=["back", "ahead"])
def test_the_first_message_after_a_seek_is_its_target_whatever_was_being_saved(ending: str, target: int) -> None:
    """F86: from before the first acknowledgement on, at every millisecond of their being saved."""

    async def main(after_ms: int) -> None:
        brokers = Brokers(cursor_ledger_entries_max=2)
        await brokers.start()
        topic = await brokers.topic()
        positions = await published(topic)
        subscription = await topic.open_subscription("s", initial=EARLIEST)
        brokers.world.cluster.bookies["b1"].weather = Weather(Random(after_ms), delay_max_ms=3)
        acking = asyncio.ensure_future(acknowledge_all(subscription, joined(subscription), positions[:-1]))
        await asyncio.sleep(after_ms / 1000)
        await subscription.reset(positions[target])
        if ending == "dies":
            await brokers.die()
            await brokers.start()
            subscription = await (await brokers.topic()).open_subscription("s", initial=EARLIEST)
        assert await first_delivered(subscription) == positions[target]
        await acking
        await brokers.stop()

    for after_ms in range(2 * MESSAGES):
        run(main(after_ms))
