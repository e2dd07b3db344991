# SPDX-License-Identifier: Apache-2.0
"""Messages found by index and by time, in batches, over ledgers, and after the oldest are gone."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from magnetar.broker.message_search import message_by_index, message_by_time
from magnetar.broker.topic import Topic
from magnetar.errors import BadPosition
from magnetar.ids import EARLIEST, MessageId
from magnetar.wire import message
from magnetar.wire.proto.pulsar_api_pb2 import MessageMetadata
from tests.unit.broker.publishers import NAME, Brokers, Client, body_of, producer_of, stored


def run(coroutine: Coroutine[Any, Any, None]) -> None:
    asyncio.run(coroutine)


async def filled(brokers: Brokers, sizes: list[int]) -> tuple[Topic, list[MessageId]]:
    """A topic with batches of these sizes, and the id of every message by its index."""
    topic = await brokers.topic()
    client = Client()
    producer = producer_of(client, f"p{topic.last_index}")
    await topic.add_producer(producer)
    ids = []
    for sequence_id, size in enumerate(sizes):
        batch = {"num_messages_in_batch": size} if size > 1 else {}
        topic.publish(producer, sequence_id, 0, size, body_of("p", sequence_id, None, **batch))
        await client.until_answers(sequence_id + 1)
        position = client.positions[sequence_id]
        ids += [MessageId(*position, -1, index if size > 1 else -1, size) for index in range(size)]
    return topic, ids


@pytest.mark.feature("B-13")
def test_every_message_is_found_by_its_index_over_batches_and_ledgers() -> None:
    async def main() -> None:
        brokers = Brokers()
        expected: list[MessageId] = []
        for sizes in ([1, 3, 1], [5], [1, 1, 2]):
            await brokers.start()
            topic, ids = await filled(brokers, sizes)
            expected += ids
            if sizes != [1, 1, 2]:
                await brokers.stop()
        for index, message_id in enumerate(expected):
            assert await message_by_index(topic, index) == message_id
        for index in (-1, len(expected), 10**12):
            with pytest.raises(BadPosition, match="has no message with index"):
                await message_by_index(topic, index)
        await brokers.stop()

    run(main())


def test_an_empty_topic_has_no_index_and_a_place_for_any_time() -> None:
    async def main() -> None:
        brokers = Brokers()
        await brokers.start()
        topic = await brokers.topic()
        with pytest.raises(BadPosition):
            await message_by_index(topic, 0)
        assert (await message_by_time(topic, 5)).entry_id == 0
        await brokers.stop()

    run(main())


def test_messages_are_found_by_their_publish_time() -> None:
    async def main() -> None:
        brokers = Brokers()
        await brokers.start()
        topic = await brokers.topic()
        client = Client()
        producer = producer_of(client)
        await topic.add_producer(producer)
        for number, time_ms in enumerate((100, 200, 200, 300)):
            metadata = MessageMetadata(producer_name="p", sequence_id=number, publish_time=time_ms)
            topic.publish(producer, number, 0, 1, b"".join(message.join(metadata.SerializeToString(), b"x")))
        await client.until_answers(4)
        found = [(await message_by_time(topic, time_ms)).entry_id for time_ms in (0, 100, 101, 200, 201, 300, 301)]
        assert found == [0, 0, 1, 1, 3, 3, 4]
        await brokers.stop()

    run(main())


@pytest.mark.feature("F-TOP-17")
def test_truncating_leaves_the_present_ledger_and_moves_subscriptions_to_the_end() -> None:
    async def main() -> None:
        brokers = Brokers()
        for generation in range(3):
            await brokers.start()
            topic, _ = await filled(brokers, [1, 1])
            if generation == 0:
                await topic.open_subscription("s", initial=EARLIEST)
            if generation < 2:
                await brokers.stop()
        assert len(await stored(topic)) == 6
        await topic.truncate()
        assert len(await stored(topic)) == 2, "what is being written stays"
        assert topic.subscriptions["s"].cursor.backlog_entries() == 0
        assert topic.last_index == 5
        message_id = await message_by_index(topic, 0)
        assert message_id.position == topic.managed_ledger.first_position, "the first one that is left"
        await brokers.stop()
        await brokers.start()
        topic = await brokers.topic(NAME)
        assert topic.last_index == 5
        await brokers.stop()

    run(main())
