# SPDX-License-Identifier: Apache-2.0
"""The one named subscription of a query: it holds the data that the query has not committed yet, and moves with it.

A consumer is attached for as long as a move takes, receives nothing, and is gone again; the subscription stays.
Carries.
"""

import asyncio
from collections.abc import Iterable, Mapping

from magnetar.client.client import Client
from magnetar.client.message_id import MessageId
from magnetar.client.options import ConsumerType, InitialPosition
from magnetar.names import TopicName
from magnetar.spark.offsets import Offset
from magnetar.spark.positions import last_id

_MOVES_AT_ONCE = 16


async def move(client: Client, subscription: str, offsets: Mapping[str, Offset]) -> None:
    """Acknowledge everything before these offsets; a subscription that is not there is made first. Never goes back."""
    turns = asyncio.Semaphore(_MOVES_AT_ONCE)

    async def one(topic: str, offset: Offset) -> None:
        async with turns:
            await _move_one(client, topic, subscription, offset)

    await asyncio.gather(*(one(topic, offset) for topic, offset in sorted(offsets.items())))


async def make(client: Client, subscription: str, topics: Iterable[str]) -> None:
    """A subscription that is not there begins with what comes next; one that is there stays where it is."""
    for topic in topics:
        consumer = await client.subscribe(
            topic, subscription, initial_position=InitialPosition.Latest, receiver_queue_size=0
        )
        await consumer.close()


async def _move_one(client: Client, topic: str, subscription: str, offset: Offset) -> None:
    consumer = await client.subscribe(
        topic,
        subscription,
        consumer_type=ConsumerType.Exclusive,
        initial_position=InitialPosition.Earliest,
        receiver_queue_size=0,
        ack_receipt_enabled=True,
    )
    try:
        reached = last_id(offset)
        if reached is not None and reached.entry_id >= 0:
            partition = TopicName.parse(topic).partition_index
            await consumer.acknowledge_cumulative(MessageId(reached.ledger_id, reached.entry_id, partition))
    finally:
        await consumer.close()


async def drop(client: Client, topic: str, subscription: str) -> None:
    """Delete a subscription that served one write."""
    consumer = await client.subscribe(
        topic, subscription, initial_position=InitialPosition.Earliest, receiver_queue_size=0
    )
    await consumer.unsubscribe()
