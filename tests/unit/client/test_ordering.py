# SPDX-License-Identifier: Apache-2.0
"""What order a client promises, rule by rule, against a real broker without sockets."""

import asyncio
import threading
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from magnetar import Client, InitialPosition
from magnetar.client.message_id import MessageId
from magnetar.client.options import BatchingType, ConsumerType, PartitionsRoutingMode
from magnetar.client.schema import STRING
from magnetar.names import NamespaceName, TopicName
from magnetar.testing import LocalPulsar, ThreadedPulsar
from magnetar.wire.proto import pulsar_api_pb2 as pb

PARTITIONED = {"allowAutoTopicCreationType": "partitioned", "defaultNumPartitions": "3"}


async def everything(client: Client, topic: str, count: int) -> list[Any]:
    """All messages of a topic as they are stored: partition by partition, each in its order."""
    found = []
    for partition in await client.get_topic_partitions(topic):
        async with await client.create_reader(partition, MessageId.earliest) as reader:
            while await reader.has_message_available():
                found.append(await reader.read_next(5_000))
    assert len({message.data() for message in found}) == count
    return found


def first_occurrences(messages: list[Any]) -> list[bytes]:
    """Without the copies that a lost receipt may cause where nothing removes duplicates."""
    return list(dict.fromkeys(message.data() for message in messages))


@pytest.mark.feature("F-PROD-32")
@settings(max_examples=12, deadline=None)
@given(
    st.booleans(),
    st.booleans(),
    st.sampled_from(BatchingType),
    st.sampled_from(PartitionsRoutingMode),
    st.lists(
        st.tuples(st.sampled_from(["a", "b", "c", ""]), st.sampled_from(["send", "submit", "flush", "cut"])),
        max_size=25,
    ),
)
def test_order_of_sends(
    partitioned: bool, batched: bool, kind: BatchingType, routing: Any, steps: list[tuple[str, str]]
) -> None:
    """One partition keeps the order of calls, many keep it for each key, and a cut connection changes neither.

    Key-based batches are the exception, as in every client: there only messages of one key keep their order.
    """

    async def scenario() -> None:
        async with (
            LocalPulsar(settings=PARTITIONED if partitioned else None, transport="memory") as pulsar,
            pulsar.client(initial_backoff_ms=1) as client,
        ):
            if routing is PartitionsRoutingMode.CustomPartition:
                return
            producer = await client.create_producer(
                "t", batching_enabled=batched, batching_type=kind, message_routing_mode=routing
            )
            sent: list[tuple[str, bytes]] = []
            for key, step in steps:
                if step == "flush":
                    await producer.flush()
                    continue
                if step == "cut":
                    pulsar.drop_connections()
                    continue
                content = b"%d" % len(sent)
                sent.append((key, content))
                if step == "send":
                    await producer.send(content, partition_key=key or None)
                else:
                    await producer.submit(content, partition_key=key or None)
            await producer.flush()
            stored = await everything(client, "t", len(sent))
            one_key_at_a_time = kind is BatchingType.KeyBased and batched
            for key in ("a", "b", "c"):
                mine = first_occurrences([message for message in stored if message.partition_key() == key])
                assert mine == [content for sent_key, content in sent if sent_key == key]
            if not partitioned and not one_key_at_a_time:
                assert first_occurrences(stored) == [content for _, content in sent]

    asyncio.run(scenario())


@pytest.mark.feature("F-PROD-32", "F-CLNT-03")
def test_threads_that_share_a_producer_keep_their_own_order(pulsar: ThreadedPulsar) -> None:
    """Every callback of an object runs on the one thread that owns it, in order: there is nothing to lock."""
    with pulsar.client() as client:
        producer = client.create_producer("t", batching_enabled=True, block_if_queue_full=True)
        called: list[tuple[int, MessageId | None]] = []
        done = threading.Semaphore(0)

        def on_sent(error: Any, message_id: MessageId | None) -> None:
            assert error is None
            called.append((threading.get_ident(), message_id))
            done.release()

        def send(name: int) -> None:
            for number in range(100):
                producer.send_async(b"%d-%d" % (name, number), on_sent)

        threads = [threading.Thread(target=send, args=(name,)) for name in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        producer.flush()
        for _ in range(400):
            assert done.acquire(timeout=10)
        assert len({ident for ident, _ in called}) == 1
        assert called[0][0] not in [thread.ident for thread in threads]
        ids = [message_id for _, message_id in called if message_id is not None]
        assert ids == sorted(ids)
        reader = client.create_reader("t", MessageId.earliest)
        stored = [reader.read_next(5_000).data() for _ in range(400)]
        for name in range(4):
            mine = [content for content in stored if content.startswith(b"%d-" % name)]
            assert mine == [b"%d-%d" % (name, number) for number in range(100)]


@pytest.mark.feature("F-PROD-32")
def test_a_batch_is_stored_whole_and_in_one_place() -> None:
    async def scenario() -> None:
        async with LocalPulsar(transport="memory") as pulsar, pulsar.client() as client:
            producers = [
                await client.create_producer("t", batching_enabled=True, batching_max_publish_delay_ms=60_000)
                for _ in range(2)
            ]
            for number in range(10):
                for index, producer in enumerate(producers):
                    await producer.submit(b"%d-%d" % (index, number))
            await asyncio.gather(*(producer.flush() for producer in producers))
            stored = await everything(client, "t", 20)
            places = [message.position for message in stored]
            assert len(set(places)) == 2
            # No message of one batch lies between those of the other.
            assert places == sorted(places)

    asyncio.run(scenario())


@pytest.mark.feature("F-CONS-35")
@settings(max_examples=15, deadline=None)
@given(st.lists(st.booleans(), min_size=1, max_size=12), st.booleans())
def test_what_is_not_acknowledged_in_time_comes_back_and_nothing_else(done: list[bool], shared: bool) -> None:
    async def scenario() -> None:
        kind = ConsumerType.Shared if shared else ConsumerType.Exclusive
        async with LocalPulsar(clock="manual", transport="memory") as pulsar, pulsar.client() as client:
            consumer = await client.subscribe(
                "t", "s", consumer_type=kind, unacked_messages_timeout_ms=60_000, receiver_queue_size=100
            )
            producer = await client.create_producer("t")
            for number in range(len(done)):
                await producer.send(b"%d" % number)
            # Acknowledged one by one in order, except those that are forgotten.
            for number, is_done in enumerate(done):
                message = await consumer.receive(1_000)
                assert message.data() == b"%d" % number
                if is_done:
                    await consumer.acknowledge(message)
            await pulsar.advance(seconds=50)
            assert consumer.queue_is_empty()
            await pulsar.advance(seconds=20)
            forgotten = [b"%d" % number for number, is_done in enumerate(done) if not is_done]
            came = []
            while not consumer.queue_is_empty():
                message = await consumer.receive(1_000)
                came.append(message.data())
                await consumer.acknowledge(message)
            assert came == forgotten
            await pulsar.advance(hours=1)
            assert consumer.queue_is_empty()

    asyncio.run(scenario())


@pytest.mark.feature("F-CLNT-04")
@pytest.mark.parametrize("transport", ["tcp", "memory"])
def test_look_ups_answer_owner_partitions_schema_and_topics(transport: Any) -> None:
    async def scenario() -> None:
        async with LocalPulsar(settings=PARTITIONED, transport=transport) as pulsar, pulsar.client() as client:
            producer = await client.create_producer("t", schema=STRING)
            await producer.send("x")
            lookup = client.core.lookup
            name = TopicName.parse("t")
            way = await lookup.locate(name.partition(1))
            assert str(way.broker) == pulsar.service_url
            assert await lookup.partitions(name) == 3
            assert await client.get_topic_partitions("t") == [str(name.partition(index)) for index in range(3)]
            answer = await lookup.schema(name)
            assert answer is not None
            assert answer[0].type == STRING.info.type
            found = await lookup.topics(
                NamespaceName.parse("public/default"), pb.CommandGetTopicsOfNamespace.ALL, "", ""
            )
            assert {str(topic) for topic in found.topics} == {str(name.partition(index)) for index in range(3)}
            assert await lookup.schema(TopicName.parse("no-schema")) is None

    asyncio.run(scenario())


def test_a_subscription_from_the_beginning_sees_the_order_of_storage() -> None:
    async def scenario() -> None:
        async with LocalPulsar(transport="memory") as pulsar, pulsar.client() as client:
            producer = await client.create_producer("t", batching_enabled=True, block_if_queue_full=True)
            for number in range(3_000):
                await producer.submit(b"%d" % number)
            await producer.flush()
            consumer = await client.subscribe("t", "s", initial_position=InitialPosition.Earliest)
            came = [(await consumer.receive(5_000)).data() for _ in range(3_000)]
            assert came == [b"%d" % number for number in range(3_000)]

    asyncio.run(scenario())


def test_a_paused_consumer_asks_for_nothing() -> None:
    async def scenario() -> None:
        async with LocalPulsar(transport="memory") as pulsar, pulsar.client() as client:
            consumer = await client.subscribe("t", "s", receiver_queue_size=2)
            consumer.pause()
            producer = await client.create_producer("t")
            for number in range(6):
                await producer.send(b"%d" % number)
            # The queue was asked for before the pause; then nothing comes, however much is taken.
            assert [(await consumer.receive(1_000)).data() for _ in range(2)] == [b"0", b"1"]
            await pulsar.settle()
            assert consumer.queue_is_empty()
            consumer.resume()
            assert [(await consumer.receive(1_000)).data() for _ in range(4)] == [b"2", b"3", b"4", b"5"]

    asyncio.run(scenario())
