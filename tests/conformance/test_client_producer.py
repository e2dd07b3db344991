# SPDX-License-Identifier: Apache-2.0
"""The client's producers against a real broker."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from magnetar import (
    BatchingType,
    Client,
    CompressionType,
    Consumer,
    ConsumerType,
    HashingScheme,
    InitialPosition,
    Message,
    PartitionsRoutingMode,
    ProducerAccessMode,
)
from magnetar.errors import (
    AlreadyClosed,
    BadSetting,
    MessageTooLarge,
    ProducerBusy,
    ProducerFenced,
    ProducerQueueFull,
)
from magnetar.ids import EARLIEST_MESSAGE
from tests.conformance.client_service import Service, run, service

__all__ = ["service"]

EARLIEST = InitialPosition.Earliest


async def read(client: Client, topic: str, count: int) -> list[Message[bytes]]:
    async with await client.create_reader(topic, EARLIEST_MESSAGE) as reader:
        return [await reader.read_next(20_000) for _ in range(count)]


@pytest.mark.feature("F-PROD-01", "F-PROD-02", "F-PROD-40")
def test_a_message_arrives_with_all_its_fields(service: Service) -> None:
    async def test() -> None:
        topic = service.topic("fields")
        async with Client(service.url) as client:
            producer = await client.create_producer(topic, producer_name="writer", properties={"who": "test"})
            sent = await producer.send(
                b"content",
                properties={"a": "1", "b": "ü"},
                partition_key="key",
                ordering_key="order",
                sequence_id=41,
                event_timestamp=1_234,
            )
            (message,) = await read(client, topic, 1)
            assert message.data() == message.value() == b"content"
            assert message.message_id() == sent
            assert message.properties() == {"a": "1", "b": "ü"}
            assert (message.partition_key(), message.ordering_key()) == ("key", b"order")
            assert (message.event_timestamp(), message.sequence_id()) == (1_234, 41)
            assert message.producer_name() == producer.producer_name() == "writer"
            assert message.topic_name() == topic
            assert message.publish_timestamp() > 1_600_000_000_000
            assert producer.last_sequence_id() == 41

    run(test())


@pytest.mark.feature("F-PROD-03")
def test_receipts_of_submitted_messages_come_in_order(service: Service) -> None:
    async def test() -> None:
        async with Client(service.url) as client:
            producer = await client.create_producer(service.topic("submit"), block_if_queue_full=True)
            settled: list[int] = []
            receipts = []
            for number in range(300):
                receipt = await producer.submit(b"x")
                receipt.add_done_callback(lambda done, number=number: settled.append(number))  # type: ignore[misc]
                receipts.append(receipt)
            await producer.flush()
            assert settled == list(range(300))
            ids = [receipt.result() for receipt in receipts]
            assert ids == sorted(ids)
            assert [receipt.sequence_id for receipt in receipts] == list(range(300))

    run(test())


@pytest.mark.feature("F-PROD-17", "F-PROD-18", "F-PROD-19")
def test_messages_of_a_batch_share_their_entry(service: Service) -> None:
    async def test() -> None:
        topic = service.topic("batch")
        async with Client(service.url) as client:
            producer = await client.create_producer(
                topic, batching_enabled=True, batching_max_messages=10, batching_max_publish_delay_ms=10_000
            )
            receipts = [
                await producer.submit(f"m{number}".encode(), partition_key=f"k{number}", properties={"n": str(number)})
                for number in range(25)
            ]
            assert not receipts[-1].done()
            await producer.flush()
            ids = [receipt.result() for receipt in receipts]
            assert len({message_id.position for message_id in ids}) == 3
            assert [message_id.batch_index for message_id in ids] == [*range(10), *range(10), *range(5)]
            messages = await read(client, topic, 25)
            assert [message.data() for message in messages] == [f"m{number}".encode() for number in range(25)]
            assert [message.message_id() for message in messages] == ids
            assert [message.partition_key() for message in messages] == [f"k{number}" for number in range(25)]
            assert [message.properties()["n"] for message in messages] == [str(number) for number in range(25)]

    run(test())


@pytest.mark.feature("F-PROD-19")
def test_who_waits_for_each_message_fills_no_batch(service: Service) -> None:
    async def test() -> None:
        topic = service.topic("one-by-one")
        async with Client(service.url) as client:
            producer = await client.create_producer(
                topic, batching_enabled=True, batching_max_messages=10, batching_max_publish_delay_ms=1
            )
            ids = [await producer.send(b"m%d" % number) for number in range(12)]
            assert len({message_id.position for message_id in ids}) == len(ids)
            messages = await read(client, topic, len(ids))
            assert [message.data() for message in messages] == [b"m%d" % number for number in range(12)]

    run(test())


@pytest.mark.feature("F-PROD-17")
def test_a_batch_leaves_after_its_delay(service: Service) -> None:
    async def test() -> None:
        async with Client(service.url) as client:
            producer = await client.create_producer(
                service.topic("delay"), batching_enabled=True, batching_max_publish_delay_ms=1
            )
            assert (await producer.send(b"alone")).entry_id == 0

    run(test())


@pytest.mark.feature("F-PROD-20")
def test_key_based_batches_hold_one_key_each(service: Service) -> None:
    async def test() -> None:
        topic = service.topic("keyed")
        async with Client(service.url) as client:
            producer = await client.create_producer(
                topic,
                batching_enabled=True,
                batching_type=BatchingType.KeyBased,
                batching_max_publish_delay_ms=10_000,
            )
            for number in range(12):
                await producer.submit(str(number).encode(), partition_key=f"k{number % 3}")
            await producer.flush()
            messages = await read(client, topic, 12)
            by_entry: dict[object, set[str]] = {}
            for message in messages:
                by_entry.setdefault(message.position, set()).add(message.partition_key())
            assert sorted(keys.pop() for keys in by_entry.values() if len(keys) == 1) == ["k0", "k1", "k2"]
            for key in range(3):
                numbers = [int(message.data()) for message in messages if message.partition_key() == f"k{key}"]
                assert numbers == sorted(numbers)

    run(test())


@pytest.mark.feature("F-PROD-39")
@pytest.mark.parametrize("kind", list(CompressionType))
def test_every_compression_is_undone(service: Service, kind: CompressionType) -> None:
    async def test() -> None:
        topic = service.topic("compressed")
        async with Client(service.url) as client:
            single = await client.create_producer(topic, compression_type=kind)
            batched = await client.create_producer(topic, compression_type=kind, batching_enabled=True)
            contents = [b"a" * 100_000, b"", b"b" * 5_000]
            for content in contents:
                await single.send(content)
            for content in contents:
                await batched.submit(content)
            await batched.flush()
            assert [message.data() for message in await read(client, topic, 6)] == contents * 2

    run(test())


@pytest.mark.feature("F-PROD-21", "F-CONS-29")
def test_a_message_larger_than_an_entry_travels_in_chunks(service: Service) -> None:
    async def test() -> None:
        topic = service.topic("chunks")
        content = bytes(range(256)) * 4 * 1024 * 12
        async with Client(service.url) as client:
            producer = await client.create_producer(topic, chunking_enabled=True, compression_type=CompressionType.NONE)
            consumer = await client.subscribe(topic, "s")
            sent = await producer.send(content, properties={"p": "q"}, partition_key="k")
            assert sent.first_chunk is not None
            assert sent.entry_id - sent.first_chunk.entry_id >= 2
            message = await consumer.receive(30_000)
            assert message.data() == content
            assert (message.properties(), message.partition_key()) == ({"p": "q"}, "k")
            assert message.message_id() == sent
            await consumer.acknowledge(message)
            await producer.send(b"small")
            await consumer.close()
            consumer = await client.subscribe(topic, "s")
            assert (await consumer.receive(20_000)).data() == b"small"

    run(test())


def test_a_message_larger_than_an_entry_is_refused_without_chunking(service: Service) -> None:
    async def test() -> None:
        async with Client(service.url) as client:
            producer = await client.create_producer(service.topic("large"))
            with pytest.raises(MessageTooLarge):
                await producer.send(bytes(6 * 1024 * 1024))
            assert (await producer.send(b"small")).entry_id == 0

    run(test())


@pytest.mark.feature("F-PROD-22")
def test_options_that_exclude_each_other_are_refused(service: Service) -> None:
    async def test() -> None:
        async with Client(service.url) as client:
            with pytest.raises(BadSetting, match="exclude"):
                await client.create_producer("t", chunking_enabled=True, batching_enabled=True)
            with pytest.raises(BadSetting, match="persistent"):
                await client.create_producer("non-persistent://public/default/t", chunking_enabled=True)

    run(test())


@pytest.mark.feature("F-PROD-04", "F-PROD-43")
def test_names_are_given_and_unique(service: Service) -> None:
    async def test() -> None:
        topic = service.topic("names")
        async with Client(service.url) as client:
            first = await client.create_producer(topic)
            second = await client.create_producer(topic)
            assert first.producer_name() != second.producer_name()
            await client.create_producer(topic, producer_name="me")
            with pytest.raises(ProducerBusy):
                await client.create_producer(topic, producer_name="me")

    run(test())


@pytest.mark.feature("F-PROD-05")
def test_a_second_exclusive_producer_is_refused(service: Service) -> None:
    async def test() -> None:
        topic = service.topic("exclusive")
        async with Client(service.url) as client:
            first = await client.create_producer(topic, access_mode=ProducerAccessMode.Exclusive)
            with pytest.raises(ProducerFenced):
                await client.create_producer(topic, access_mode=ProducerAccessMode.Exclusive)
            await first.send(b"still here")

    run(test())


@pytest.mark.feature("F-PROD-06")
def test_a_producer_waits_for_exclusive_access(service: Service) -> None:
    async def test() -> None:
        topic = service.topic("waiting")
        async with Client(service.url) as client:
            first = await client.create_producer(topic, access_mode=ProducerAccessMode.Exclusive)
            waiting = asyncio.ensure_future(
                client.create_producer(topic, access_mode=ProducerAccessMode.WaitForExclusive)
            )
            done, _ = await asyncio.wait([waiting], timeout=0.3)
            assert not done
            await first.close()
            second = await waiting
            await second.send(b"mine now")

    run(test())


@pytest.mark.feature("B-10")
def test_an_exclusive_producer_with_fencing_takes_over(service: Service) -> None:
    async def test() -> None:
        topic = service.topic("fencing")
        async with Client(service.url) as client:
            first = await client.create_producer(topic, access_mode=ProducerAccessMode.Exclusive)
            second = await client.create_producer(topic, access_mode=ProducerAccessMode.ExclusiveWithFencing)
            await second.send(b"mine now")
            with pytest.raises(ProducerFenced):
                await first.send(b"too late")

    run(test())


@pytest.mark.feature("F-PROD-08", "F-PROD-09", "F-PROD-10", "F-PROD-11", "F-PROD-16", "F-PROD-33")
def test_messages_are_routed_to_partitions(service: Service) -> None:
    async def test() -> None:
        topic = service.topic("routed")
        service.create_partitions(topic, 4)
        async with Client(service.url) as client:
            assert len(await client.get_topic_partitions(topic)) == 4

            async def partitions(count: int, key: str | None = None, **options: Any) -> list[int]:
                async with await client.create_producer(topic, **options) as producer:
                    assert producer.num_partitions() == 4
                    return [(await producer.send(b"x", partition_key=key)).partition for _ in range(count)]

            assert sorted(await partitions(8)) == [0, 0, 1, 1, 2, 2, 3, 3]
            single = await partitions(5, message_routing_mode=PartitionsRoutingMode.UseSinglePartition)
            assert len(set(single)) == 1
            chosen = await partitions(
                3, message_routing_mode=PartitionsRoutingMode.CustomPartition, message_router=lambda message, count: 2
            )
            assert chosen == [2, 2, 2]
            for scheme in HashingScheme:
                assert len(set(await partitions(3, "some key", hashing_scheme=scheme))) == 1
            assert set(await partitions(6, round_robin_partitions=2)) == {0, 1}

    run(test())


@pytest.mark.feature("F-PROD-34")
def test_partitions_of_a_lazy_producer_open_when_they_are_used(service: Service) -> None:
    async def test() -> None:
        topic = service.topic("lazy")
        service.create_partitions(topic, 5)
        async with Client(service.url) as client:
            producer = await client.create_producer(
                topic, lazy_start_partitioned_producers=True, message_router=lambda message, count: 3
            )
            await producer.send(b"x")
            stats = [service.admin("GET", f"{topic.replace('://', '/')}-partition-{n}/stats") for n in range(5)]
            assert len(stats[3]["publishers"]) == 1
            assert sum(len(one["publishers"]) for one in stats) <= 2

    run(test())


@pytest.mark.feature("F-PROD-36")
def test_a_full_queue_raises_or_waits(service: Service) -> None:
    async def test() -> None:
        topic = service.topic("full")
        async with Client(service.url) as client:
            producer = await client.create_producer(topic, max_pending_messages=10)
            for _ in range(10):
                await producer.submit(b"x")
            with pytest.raises(ProducerQueueFull):
                await producer.submit(b"x")
            await producer.flush()
            await producer.send(b"room again")
            waiting = await client.create_producer(topic, max_pending_messages=10, block_if_queue_full=True)
            for _ in range(200):
                await waiting.submit(b"x")
            await waiting.flush()
            assert waiting.statistics().sent == 200

    run(test())


@pytest.mark.feature("F-PROD-27", "F-PROD-30")
def test_a_named_producer_goes_on_from_its_last_number(service: Service) -> None:
    async def test() -> None:
        topic = service.topic("resume")
        async with Client(service.url) as client:
            first = await client.create_producer(topic, producer_name="counter", initial_sequence_id=99)
            receipt = await first.submit(b"x")
            await receipt
            assert receipt.sequence_id == first.last_sequence_id() == 100
            await first.close()
            with pytest.raises(AlreadyClosed):
                await first.send(b"x")

    run(test())


@pytest.mark.feature("F-DLY-01", "F-PROD-41")
def test_delayed_messages_come_later_and_others_do_not_wait_for_them(service: Service) -> None:
    async def test() -> None:
        topic = service.topic("delayed")
        async with Client(service.url) as client:
            consumer: Consumer[bytes] = await client.subscribe(topic, "s", consumer_type=ConsumerType.Shared)
            producer = await client.create_producer(topic, batching_enabled=True)
            await producer.send(b"later", deliver_after=timedelta(milliseconds=1_500))
            await producer.send(b"now")
            first, second = await consumer.receive(20_000), await consumer.receive(20_000)
            assert (first.data(), second.data()) == (b"now", b"later")

    run(test())


def test_a_null_value_is_told_apart_from_an_empty_one(service: Service) -> None:
    async def test() -> None:
        topic = service.topic("null")
        async with Client(service.url) as client:
            producer = await client.create_producer(topic)
            await producer.send(None, partition_key="gone")
            await producer.send(b"", partition_key="empty")
            null, empty = await read(client, topic, 2)
            assert (null.has_null_value(), empty.has_null_value()) == (True, False)

    run(test())


def test_a_cancelled_send_is_sent_all_the_same(service: Service) -> None:
    async def test() -> None:
        topic = service.topic("cancelled")
        async with Client(service.url) as client:
            producer = await client.create_producer(topic, max_pending_messages=4, block_if_queue_full=True)
            for number in range(50):
                task = asyncio.ensure_future(producer.send(str(number).encode()))
                await asyncio.sleep(0)
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
            await producer.send(b"last")
            reader = await client.create_reader(topic, EARLIEST_MESSAGE)
            contents = []
            while await reader.has_message_available():
                contents.append((await reader.read_next(20_000)).data())
            assert contents[-1] == b"last"
            assert producer.statistics().failed == 0

    run(test())
