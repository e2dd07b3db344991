# SPDX-License-Identifier: Apache-2.0
"""Seeks in the corners: over a lost connection, beyond the end, into a batch, with a partition that is away."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from magnetar.broker.session import consume
from magnetar.broker.session.session import Serving, Session
from magnetar.client.client import Client
from magnetar.client.options import InitialPosition
from magnetar.errors import NotSupported, TimedOut
from magnetar.ids import EARLIEST_MESSAGE
from magnetar.names import TopicName
from magnetar.testing.local_pulsar import LocalPulsar
from magnetar.wire.proto.pulsar_api_pb2 import BaseCommand, CommandSeek

TOPIC = "persistent://public/default/places"
HOUR_MS = 3_600_000


def plant(pulsar: LocalPulsar, seek: Callable[[Session, Any], Awaitable[None]]) -> None:
    """The sessions of this moment serve SEEK otherwise; those that come later as always."""
    for session in pulsar.standalone.broker._sessions():
        session._table = {**session._table, BaseCommand.SEEK: Serving(cold=seek)}  # type: ignore[arg-type]


async def filled(client: Client, topic: str = TOPIC, count: int = 6, *, batched: bool = False) -> list[Any]:
    producer = await client.create_producer(topic, batching_enabled=batched, batching_max_publish_delay_ms=1_000)
    receipts = [await producer.submit(str(number).encode()) for number in range(count)]
    await producer.flush()
    ids = [await receipt for receipt in receipts]
    await producer.close()
    return ids


async def received(consumer: Any, count: int) -> list[int]:
    found = []
    for _ in range(count):
        message = await consumer.receive(timeout_millis=20_000)
        await consumer.acknowledge(message)
        found.append(int(message.data()))
    return found


@pytest.mark.feature("F-CONS-28")
@pytest.mark.parametrize("carried_out", [False, True], ids=["before", "after"])
def test_a_seek_whose_connection_is_lost_goes_there_all_the_same(carried_out: bool) -> None:
    async def cut(session: Session, asked: CommandSeek) -> None:
        session.connection.abort()
        if carried_out:
            await consume.seek(session, asked)

    async def scenario() -> None:
        async with LocalPulsar(transport="memory") as pulsar, pulsar.client() as client:
            consumer = await client.subscribe(TOPIC, "s", initial_position=InitialPosition.Earliest)
            await filled(client)
            assert await received(consumer, 6) == [*range(6)]
            plant(pulsar, cut)
            await consumer.seek(EARLIEST_MESSAGE)
            assert await received(consumer, 6) == [*range(6)]

    asyncio.run(scenario())


@pytest.mark.feature("F-CONS-28")
def test_a_seek_to_a_time_beyond_the_end_waits_for_what_comes() -> None:
    async def scenario() -> None:
        async with LocalPulsar(transport="memory") as pulsar, pulsar.client() as client:
            consumer = await client.subscribe(TOPIC, "s", initial_position=InitialPosition.Earliest)
            await filled(client)
            await consumer.seek(pulsar.clock.now_ms() + HOUR_MS)
            with pytest.raises(TimedOut):
                await consumer.receive(timeout_millis=20)
            producer = await client.create_producer(TOPIC)
            await producer.send(b"7")
            assert await received(consumer, 1) == [7]

    asyncio.run(scenario())


@pytest.mark.feature("F-CONS-28")
@pytest.mark.parametrize("is_cut", [False, True])
def test_a_seek_into_a_batch_starts_behind_that_message(is_cut: bool) -> None:
    async def scenario() -> None:
        async with LocalPulsar(transport="memory") as pulsar, pulsar.client() as client:
            consumer = await client.subscribe(TOPIC, "s", initial_position=InitialPosition.Earliest)
            ids = await filled(client, batched=True)
            assert ids[0].entry_id == ids[5].entry_id, "one batch"
            assert await received(consumer, 6) == [*range(6)]
            await consumer.seek(ids[3])
            if is_cut:
                pulsar.drop_connections()
            assert await received(consumer, 2) == [4, 5]

    asyncio.run(scenario())


@pytest.mark.feature("F-CONS-28")
def test_a_partition_that_cannot_seek_keeps_no_other_from_it() -> None:
    async def refuse_first(session: Session, asked: CommandSeek) -> None:
        if session.consumers[asked.consumer_id].topic.name.partition_index == 0:  # type: ignore[union-attr]
            raise NotSupported("the test says so")
        await consume.seek(session, asked)

    async def scenario() -> None:
        async with LocalPulsar(transport="memory") as pulsar, pulsar.client() as client:
            topics = pulsar.standalone.broker.topics
            await topics.namespaces.create_partitioned(TopicName.parse(TOPIC), 2)
            consumer = await client.subscribe(TOPIC, "s", initial_position=InitialPosition.Earliest)
            for partition in range(2):
                await filled(client, f"{TOPIC}-partition-{partition}", 3)
            assert sorted(await received(consumer, 6)) == [0, 0, 1, 1, 2, 2]
            plant(pulsar, refuse_first)
            with pytest.raises(NotSupported):
                await consumer.seek(0)
            assert await received(consumer, 3) == [0, 1, 2], "those of the other partition"

    asyncio.run(scenario())
