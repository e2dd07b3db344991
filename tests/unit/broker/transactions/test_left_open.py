# SPDX-License-Identifier: Apache-2.0
"""A transaction that nobody ends: others publish for an hour, and readers come to the end all the same."""

import asyncio

import pytest

from magnetar.client.options import InitialPosition
from magnetar.ids import EARLIEST_MESSAGE
from magnetar.names import TopicName
from magnetar.testing import LocalPulsar
from tests.unit.broker.virtual_time import LoopClock, run


@pytest.mark.feature("F-TXN-12", "F-TXN-13")
def test_what_was_left_open_holds_readers_back_until_its_time_is_up_and_no_longer() -> None:
    """F164: an hour goes on; and a tail of nothing but aborted messages keeps no reader waiting."""

    async def scenario() -> None:
        settings = {"transactionCoordinatorEnabled": "true"}
        async with LocalPulsar(settings=settings, clock=LoopClock(), transport="memory", seed=1) as pulsar:
            client, other = pulsar.client(), pulsar.client()
            consumer = await client.subscribe("t", "s", initial_position=InitialPosition.Earliest)
            producer, sender = await client.create_producer("t"), await other.create_producer("t")
            await sender.send(b"lost", txn=await other.new_transaction(timeout_ms=30 * 60_000))
            await other.close()
            for minute in range(60):
                await producer.send(b"%d" % minute)
                if minute == 25:
                    assert consumer.queue_is_empty(), "what follows an open transaction is not seen"
                await asyncio.sleep(60)
            came = [(await consumer.receive(timeout_millis=1_000)).data() for _ in range(60)]
            assert came == [b"%d" % minute for minute in range(60)]
            for _ in range(30):
                txn = await client.new_transaction()
                await producer.send(b"lost", txn=txn)
                await txn.abort()
            reader = await client.create_reader("t", EARLIEST_MESSAGE)
            seen = []
            async with asyncio.timeout(600):
                while await reader.has_message_available():
                    seen.append((await reader.read_next()).data())
            assert seen == came
            await producer.send(b"after")
            assert (await reader.read_next()).data() == b"after"
            assert (await consumer.receive(timeout_millis=1_000)).data() == b"after"
            await client.close()

    run(scenario())


@pytest.mark.feature("F-TXN-12", "F-CMP-01")
def test_a_reader_of_the_compacted_view_comes_to_the_end_behind_transactions() -> None:
    """F164: what ends a transaction behind the compacted part is no message that it would wait for."""

    async def scenario() -> None:
        settings = {"transactionCoordinatorEnabled": "true"}
        async with LocalPulsar(settings=settings, clock=LoopClock(), transport="memory", seed=1) as pulsar:
            client = pulsar.client()
            producer = await client.create_producer("t", batching_enabled=False)
            topic = await pulsar.standalone.broker.topics.load(TopicName.parse("t"), create=False)
            for number in range(4):
                async with client.transaction() as txn:
                    await producer.send(b"%d" % number, partition_key=f"{number % 2}", txn=txn)
                if number == 2:
                    await topic.compaction.compact()
            taken_back = await client.new_transaction()
            await producer.send(b"lost", partition_key="0", txn=taken_back)
            await taken_back.abort()
            for expected in ([b"1", b"2", b"3"], [b"2", b"3"]):
                reader = await client.create_reader("t", EARLIEST_MESSAGE, is_read_compacted=True)
                seen = []
                async with asyncio.timeout(600):
                    while await reader.has_message_available():
                        seen.append((await reader.read_next()).data())
                assert seen == expected
                await reader.close()
                await topic.compaction.compact()
            await client.close()

    run(scenario())
