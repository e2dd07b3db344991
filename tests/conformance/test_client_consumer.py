# SPDX-License-Identifier: Apache-2.0
"""The client's consumers against a real broker."""

import asyncio
import re
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from magnetar import (
    BatchReceivePolicy,
    Client,
    Consumer,
    ConsumerType,
    DeadLetterPolicy,
    InitialPosition,
    KeySharedMode,
    KeySharedPolicy,
    Message,
    MessageId,
    RedeliveryBackoff,
)
from magnetar.errors import AlreadyClosed, ConsumerBusy, NotSupported, TimedOut
from tests.conformance.client_service import Service, run, service, until

__all__ = ["service"]

EARLIEST = InitialPosition.Earliest
SHARED = ConsumerType.Shared


async def publish(client: Client, topic: str, contents: Sequence[str], *, batch: bool = False) -> list[MessageId]:
    """As one batch, or one by one."""
    async with await client.create_producer(
        topic, batching_enabled=batch, batching_max_publish_delay_ms=10_000, block_if_queue_full=True
    ) as producer:
        receipts = [await producer.submit(content.encode()) for content in contents]
        await producer.flush()
        return [receipt.result() for receipt in receipts]


async def take(consumer: Consumer[Any], count: int, limit_ms: int = 20_000) -> list[Message[Any]]:
    return [await consumer.receive(limit_ms) for _ in range(count)]


def texts(messages: Sequence[Message[Any]]) -> list[str]:
    return [message.data().decode() for message in messages]


def numbers(count: int, start: int = 0) -> list[str]:
    return [str(number) for number in range(start, start + count)]


@pytest.mark.feature("F-CONS-04", "F-CONS-27")
def test_receive_waits_and_times_out(service: Service) -> None:
    async def test() -> None:
        topic = service.topic("receive")
        async with Client(service.url) as client:
            await publish(client, topic, ["old"])
            earliest = await client.subscribe(topic, "earliest", initial_position=EARLIEST)
            latest = await client.subscribe(topic, "latest")
            with pytest.raises(TimedOut):
                await latest.receive(50)
            await publish(client, topic, ["new"])
            assert texts(await take(latest, 1)) == ["new"]
            assert texts(await take(earliest, 2)) == ["old", "new"]

    run(test())


@pytest.mark.feature("F-CONS-11", "F-CONS-33")
def test_what_was_acknowledged_does_not_come_again(service: Service) -> None:
    async def test() -> None:
        topic = service.topic("acks")
        async with Client(service.url) as client:
            consumer = await client.subscribe(topic, "s")
            await publish(client, topic, numbers(5))
            messages = await take(consumer, 5)
            await consumer.acknowledge(messages[1])
            await consumer.acknowledge([messages[3].message_id(), messages[4]])
            await consumer.close()
            consumer = await client.subscribe(topic, "s")
            assert texts(await take(consumer, 2)) == ["0", "2"]
            with pytest.raises(TimedOut):
                await consumer.receive(100)

    run(test())


@pytest.mark.feature("F-CONS-12")
@pytest.mark.parametrize("batch", [False, True])
def test_a_cumulative_acknowledgement_covers_what_came_before(service: Service, batch: bool) -> None:
    async def test() -> None:
        topic = service.topic("cumulative")
        async with Client(service.url) as client:
            consumer = await client.subscribe(topic, "s")
            await publish(client, topic, numbers(5), batch=batch)
            await publish(client, topic, numbers(5, 5), batch=batch)
            messages = await take(consumer, 10)
            await consumer.acknowledge_cumulative(messages[6])
            await consumer.close()
            consumer = await client.subscribe(topic, "s")
            expected = numbers(5, 5) if batch else numbers(3, 7)
            assert texts(await take(consumer, len(expected))) == expected

    run(test())


def backlog(service: Service, topic: str) -> int:
    stats = service.admin("GET", f"{topic.replace('://', '/')}/stats")
    return int(stats["subscriptions"]["s"]["msgBacklog"])


@pytest.mark.feature("F-CONS-12", "F-CUR-08")
def test_what_an_administrator_moves_back_to_comes_again_though_it_was_acknowledged(service: Service) -> None:
    async def test() -> None:
        topic = service.topic("moved-back")
        async with Client(service.url) as client:
            consumer = await client.subscribe(topic, "s", ack_group_time_ms=0)
            await publish(client, topic, numbers(6))
            await consumer.acknowledge_cumulative((await take(consumer, 6))[-1])
            await until(lambda: backlog(service, topic) == 0)
            path = f"{topic.replace('://', '/')}/subscription/s/resetcursor/0"
            await asyncio.to_thread(service.admin, "POST", path)
            again = await take(consumer, 6)
            assert texts(again) == numbers(6)
            await consumer.acknowledge_cumulative(again[3])
            await until(lambda: backlog(service, topic) == 2)

    run(test())


@pytest.mark.feature("F-CONS-14")
def test_a_batch_is_acknowledged_when_all_of_it_is(service: Service) -> None:
    async def test() -> None:
        topic = service.topic("whole-batch")
        async with Client(service.url) as client:
            consumer = await client.subscribe(topic, "s", consumer_type=SHARED)
            await publish(client, topic, numbers(5), batch=True)
            messages = await take(consumer, 5)
            await consumer.acknowledge(messages[:4])
            await consumer.close()
            consumer = await client.subscribe(topic, "s", consumer_type=SHARED)
            messages = await take(consumer, 5)
            assert texts(messages) == numbers(5)
            await consumer.acknowledge(messages)
            await consumer.close()
            consumer = await client.subscribe(topic, "s", consumer_type=SHARED)
            with pytest.raises(TimedOut):
                await consumer.receive(200)

    run(test())


@pytest.mark.feature("F-CONS-15", "B-11")
def test_parts_of_a_batch_are_acknowledged_by_index(service: Service) -> None:
    async def test() -> None:
        topic = service.topic("batch-index")
        async with Client(service.url) as client:
            options: dict[str, Any] = {
                "consumer_type": SHARED,
                "batch_index_ack_enabled": True,
                "ack_receipt_enabled": True,
            }
            consumer = await client.subscribe(topic, "s", **options)
            await publish(client, topic, numbers(70), batch=True)
            messages = await take(consumer, 70)
            await consumer.acknowledge([message for message in messages if int(message.data()) % 10 != 3])
            await consumer.close()
            consumer = await client.subscribe(topic, "s", **options)
            assert texts(await take(consumer, 7)) == ["3", "13", "23", "33", "43", "53", "63"]

    run(test())


@pytest.mark.feature("B-11")
def test_an_acknowledgement_with_a_receipt_is_at_the_broker_when_it_returns(service: Service) -> None:
    async def test() -> None:
        topic = service.topic("ack-receipt")
        async with Client(service.url) as client:
            consumer = await client.subscribe(topic, "s", ack_receipt_enabled=True, ack_group_time_ms=0)
            await publish(client, topic, numbers(3))
            for message in await take(consumer, 2):
                await consumer.acknowledge(message)
            _, mark_delete = await consumer.partitions[0].last_message_id()
            assert mark_delete is not None
            assert mark_delete.entry_id == 1

    run(test())


@pytest.mark.feature("F-CONS-13", "F-CONS-36")
def test_acknowledgements_are_grouped(service: Service) -> None:
    async def test() -> None:
        topic = service.topic("grouped")
        async with Client(service.url) as client:
            consumer = await client.subscribe(topic, "s", consumer_type=SHARED)
            await publish(client, topic, numbers(2_000))
            for message in await take(consumer, 2_000):
                await consumer.acknowledge(message)
            await consumer.close()
            assert consumer.statistics().acknowledged == 2_000
            assert consumer.statistics().ack_requests < 100
            assert consumer.statistics().flow_requests < 10

    run(test())


@pytest.mark.feature("F-CONS-16", "F-CONS-19", "F-CONS-20")
def test_a_refused_message_comes_again_and_is_counted(service: Service) -> None:
    async def test() -> None:
        topic = service.topic("nack")
        async with Client(service.url) as client:
            consumer = await client.subscribe(
                topic, "s", consumer_type=SHARED, negative_ack_redelivery_backoff=RedeliveryBackoff(20, 200)
            )
            await publish(client, topic, ["a", "b"])
            counts = []
            for _ in range(4):
                message = await consumer.receive(20_000)
                while message.data() != b"b":
                    await consumer.acknowledge(message)
                    message = await consumer.receive(20_000)
                counts.append(message.redelivery_count())
                consumer.negative_acknowledge(message)
            assert counts == [0, 1, 2, 3]

    run(test())


@pytest.mark.feature("F-CONS-17")
def test_a_forgotten_message_comes_again_after_its_time_out(service: Service) -> None:
    async def test() -> None:
        topic = service.topic("ack-timeout")
        async with Client(service.url) as client:
            consumer = await client.subscribe(topic, "s", consumer_type=SHARED, unacked_messages_timeout_ms=1_000)
            await publish(client, topic, ["kept", "forgotten"])
            first, second = await take(consumer, 2)
            await consumer.acknowledge(first)
            again = await consumer.receive(20_000)
            assert again.data() == second.data() == b"forgotten"
            assert again.redelivery_count() == 1
            assert consumer.statistics().ack_timeouts == 1

    run(test())


@pytest.mark.feature("F-CONS-24", "F-CONS-25", "F-CONS-26")
def test_a_message_that_failed_too_often_becomes_a_dead_letter(service: Service) -> None:
    async def test() -> None:
        topic = service.topic("dead")
        async with Client(service.url) as client:
            consumer = await client.subscribe(
                topic,
                "sub",
                consumer_type=SHARED,
                negative_ack_redelivery_delay_ms=10,
                dead_letter_policy=DeadLetterPolicy(2, initial_subscription_name="undertaker"),
            )
            await publish(client, topic, ["bad"])
            for _ in range(3):
                consumer.negative_acknowledge(await consumer.receive(20_000))
            await until(lambda: consumer.statistics().dead_letters == 1)
            dead = await client.subscribe(f"{topic}-sub-DLQ", "undertaker")
            letter = await dead.receive(20_000)
            assert letter.data() == b"bad"
            assert letter.properties()["REAL_TOPIC"] == topic
            assert letter.properties()["REAL_SUBSCRIPTION"] == "sub"
            assert letter.properties()["ORIGIN_MESSAGE_ID"].count(":") == 2
            with pytest.raises(TimedOut):
                await consumer.receive(200)

    run(test())


@pytest.mark.feature("F-CONS-21", "F-CONS-22", "F-CONS-23")
def test_a_message_is_consumed_later_and_in_the_end_a_dead_letter(service: Service) -> None:
    async def test() -> None:
        topic = service.topic("retry")
        async with Client(service.url) as client:
            consumer = await client.subscribe(
                topic, "sub", consumer_type=SHARED, retry_enabled=True, dead_letter_policy=DeadLetterPolicy(2)
            )
            assert sorted(consumer.topics()) == [topic, f"{topic}-sub-RETRY"]
            dead = await client.subscribe(f"{topic}-sub-DLQ", "undertaker")
            await publish(client, topic, ["again"])
            first = await consumer.receive(20_000)
            origin = first.message_id()
            await consumer.reconsume_later(first, timedelta(milliseconds=100), {"why": "busy"})
            second = await consumer.receive(20_000)
            properties = second.properties()
            assert (properties["RECONSUMETIMES"], properties["DELAY_TIME"], properties["why"]) == ("1", "100", "busy")
            assert properties["REAL_TOPIC"] == topic
            assert properties["ORIGIN_MESSAGE_ID"].startswith(f"{origin.ledger_id}:{origin.entry_id}")
            await consumer.reconsume_later(second)
            third = await consumer.receive(20_000)
            assert third.properties()["RECONSUMETIMES"] == "2"
            await consumer.reconsume_later(third)
            letter = await dead.receive(20_000)
            assert (letter.data(), letter.properties()["RECONSUMETIMES"]) == (b"again", "3")

    run(test())


@pytest.mark.feature("F-CONS-02", "F-CONS-03", "F-CONS-37")
@pytest.mark.parametrize("queue", [1, 10])
def test_a_small_queue_takes_large_batches(service: Service, queue: int) -> None:
    async def test() -> None:
        topic = service.topic("small-queue")
        async with Client(service.url) as client:
            consumer = await client.subscribe(topic, "s", receiver_queue_size=queue)
            for start in range(0, 300, 100):
                await publish(client, topic, numbers(100, start), batch=True)
            assert texts(await take(consumer, 300)) == numbers(300)

    run(test())


@pytest.mark.feature("F-CONS-09")
def test_a_consumer_without_a_queue_takes_one_message_at_a_time(service: Service) -> None:
    async def test() -> None:
        topic = service.topic("zero")
        async with Client(service.url) as client:
            first = await client.subscribe(topic, "s", consumer_type=SHARED, receiver_queue_size=0)
            second = await client.subscribe(topic, "s", consumer_type=SHARED, receiver_queue_size=0)
            await publish(client, topic, numbers(4))
            assert texts(await take(first, 1)) == ["0"]
            assert texts(await take(second, 2)) == ["1", "2"]
            assert texts(await take(first, 1)) == ["3"]
            with pytest.raises(TimedOut):
                await first.receive(50)
            await publish(client, topic, ["4"])
            assert texts(await take(first, 1)) == ["4"]

    run(test())


@pytest.mark.feature("B-11")
def test_batch_receive_follows_its_policy(service: Service) -> None:
    async def test() -> None:
        topic = service.topic("batch-receive")
        async with Client(service.url) as client:
            consumer = await client.subscribe(topic, "s")
            await publish(client, topic, numbers(25))
            ten = BatchReceivePolicy(10, -1, 10_000)
            assert texts(await consumer.batch_receive(ten)) == numbers(10)
            assert texts(await consumer.batch_receive(ten)) == numbers(10, 10)
            assert texts(await consumer.batch_receive(BatchReceivePolicy(10, -1, 300))) == numbers(5, 20)
            assert await consumer.batch_receive(BatchReceivePolicy(10, -1, 20)) == []
            cancelled = asyncio.ensure_future(consumer.batch_receive(ten))
            await publish(client, topic, ["kept"])
            await asyncio.wait([cancelled], timeout=0.3)
            cancelled.cancel()
            await asyncio.gather(cancelled, return_exceptions=True)
            assert texts(await take(consumer, 1)) == ["kept"]

    run(test())


@pytest.mark.feature("F-CONS-05")
def test_messages_are_iterated_until_the_consumer_is_closed(service: Service) -> None:
    async def test() -> None:
        topic = service.topic("iterated")
        async with Client(service.url) as client:
            consumer = await client.subscribe(topic, "s", initial_position=EARLIEST)
            await publish(client, topic, numbers(5))
            seen = []
            async for message in consumer:
                seen.append(message.data().decode())
                await consumer.acknowledge(message)
                if len(seen) == 5:
                    await consumer.close()
            assert seen == numbers(5)
            with pytest.raises(AlreadyClosed):
                await consumer.receive()

    run(test())


@pytest.mark.feature("F-CONS-05")
def test_a_listener_gets_every_message_in_order(service: Service) -> None:
    async def test() -> None:
        topic = service.topic("listener")
        seen: list[str] = []

        async def listen(consumer: Consumer[bytes], message: Message[bytes]) -> None:
            seen.append(message.data().decode())
            await consumer.acknowledge(message)
            if message.data() == b"3":
                raise ValueError("a listener may fail")

        async with Client(service.url) as client:
            consumer = await client.subscribe(topic, "s", initial_position=EARLIEST, message_listener=listen)
            with pytest.raises(NotSupported):
                await consumer.receive()
            await publish(client, topic, numbers(20))
            await until(lambda: len(seen) == 20)
            assert seen == numbers(20)
            consumer.pause_message_listener()
            await publish(client, topic, ["one more"])
            consumer.resume_message_listener()
            await until(lambda: seen[-1] == "one more")

    run(test())


@pytest.mark.feature("F-CONS-28")
@pytest.mark.parametrize("batch", [False, True])
@pytest.mark.parametrize("inclusive", [False, True])
def test_seek_goes_to_an_id(service: Service, batch: bool, inclusive: bool) -> None:
    async def test() -> None:
        topic = service.topic("seek")
        async with Client(service.url) as client:
            consumer = await client.subscribe(topic, "s", start_message_id_inclusive=inclusive)
            await publish(client, topic, numbers(10), batch=batch)
            messages = await take(consumer, 10)
            await consumer.acknowledge(messages)
            await consumer.seek(messages[4].message_id())
            start = 4 if inclusive else 5
            assert texts(await take(consumer, 10 - start)) == numbers(10 - start, start)
            await consumer.seek(MessageId.earliest)
            assert texts(await take(consumer, 10)) == numbers(10)

    run(test())


@pytest.mark.feature("F-CONS-28", "F-RDR-03")
def test_seek_goes_to_a_time(service: Service) -> None:
    async def test() -> None:
        topic = service.topic("seek-time")
        async with Client(service.url) as client:
            consumer = await client.subscribe(topic, "s")
            await publish(client, topic, numbers(3))
            messages = await take(consumer, 3)
            # A later millisecond, so that no message before it has the same time.
            await until(lambda: time.time() * 1000 > messages[-1].publish_timestamp() + 1)
            await publish(client, topic, numbers(3, 3))
            messages += await take(consumer, 3)
            await consumer.seek(messages[3].publish_timestamp())
            assert texts(await take(consumer, 3)) == numbers(3, 3)

    run(test())


@pytest.mark.feature("F-CONS-07")
def test_several_topics_come_through_one_consumer(service: Service) -> None:
    async def test() -> None:
        topics = [service.topic("several") for _ in range(3)]
        async with Client(service.url) as client:
            consumer = await client.subscribe(topics, "s")
            for topic in topics:
                await publish(client, topic, [topic])
            messages = await take(consumer, 3)
            assert sorted(texts(messages)) == sorted(topics)
            for message in messages:
                assert message.topic_name() == message.data().decode()
                await consumer.acknowledge(message.message_id())
            await consumer.close()
            consumer = await client.subscribe(topics, "s")
            with pytest.raises(TimedOut):
                await consumer.receive(100)

    run(test())


@pytest.mark.feature("F-CONS-07")
def test_new_partitions_are_found(service: Service) -> None:
    async def test() -> None:
        topic = service.topic("growing")
        service.create_partitions(topic, 2)
        async with Client(service.url, partitions_update_interval_seconds=0.1) as client:
            consumer = await client.subscribe(topic, "s")
            producer = await client.create_producer(topic)
            for number in range(4):
                await producer.send(str(number).encode())
            assert sorted(texts(await take(consumer, 4))) == numbers(4)
            service.admin("POST", f"{topic.replace('://', '/')}/partitions", 4)
            await until(lambda: producer.num_partitions() == len(consumer.topics()) == 4)
            partitions = {(await producer.send(b"x")).partition for _ in range(8)}
            assert partitions == {0, 1, 2, 3}
            await take(consumer, 8)

    run(test())


@pytest.mark.feature("F-CONS-08", "B-12")
def test_a_pattern_takes_topics_as_they_come(service: Service) -> None:
    async def test() -> None:
        base = service.topic("pattern")
        async with Client(service.url) as client:
            await publish(client, f"{base}-one", ["one"])
            await publish(client, f"{base}x-other", ["other"])
            consumer = await client.subscribe(
                re.compile(f"{base}-.*"), "s", initial_position=EARLIEST, pattern_auto_discovery_period=0.2
            )
            assert texts(await take(consumer, 1)) == ["one"]
            await publish(client, f"{base}-two", ["two"])
            assert texts(await take(consumer, 1)) == ["two"]
            assert sorted(consumer.topics()) == [f"{base}-one", f"{base}-two"]

    run(test())


def test_an_exclusive_subscription_has_one_consumer(service: Service) -> None:
    async def test() -> None:
        topic = service.topic("exclusive")
        async with Client(service.url) as client:
            await client.subscribe(topic, "s")
            with pytest.raises(ConsumerBusy):
                await client.subscribe(topic, "s")

    run(test())


def test_the_next_failover_consumer_takes_over(service: Service) -> None:
    async def test() -> None:
        topic = service.topic("failover")
        async with Client(service.url) as client:
            first = await client.subscribe(topic, "s", consumer_type=ConsumerType.Failover, consumer_name="a")
            second = await client.subscribe(topic, "s", consumer_type=ConsumerType.Failover, consumer_name="b")
            await until(lambda: first.is_active() != second.is_active())
            active, waiting = (first, second) if first.is_active() else (second, first)
            await publish(client, topic, ["0"])
            await active.acknowledge(await active.receive(20_000))
            await publish(client, topic, ["1"])
            await take(active, 1)
            with pytest.raises(TimedOut):
                await waiting.receive(50)
            await active.close()
            assert texts(await take(waiting, 1)) == ["1"]
            await until(waiting.is_active)

    run(test())


def test_key_shared_consumers_keep_keys_together(service: Service) -> None:
    async def test() -> None:
        topic = service.topic("key-shared")
        async with Client(service.url) as client:
            options: dict[str, Any] = {"consumer_type": ConsumerType.KeyShared}
            consumers = [await client.subscribe(topic, "s", **options) for _ in range(3)]
            async with await client.create_producer(topic) as producer:
                for number in range(60):
                    await producer.send(str(number).encode(), partition_key=f"k{number % 12}")
            owners: dict[str, set[int]] = {}
            received = 0
            while received < 60:
                for index, consumer in enumerate(consumers):
                    for message in await consumer.batch_receive(BatchReceivePolicy(-1, -1, 50)):
                        owners.setdefault(message.partition_key(), set()).add(index)
                        await consumer.acknowledge(message)
                        received += 1
            assert len(owners) == 12
            assert all(len(owner) == 1 for owner in owners.values())

    run(test())


def test_sticky_key_ranges_are_the_consumers_own(service: Service) -> None:
    async def test() -> None:
        topic = service.topic("sticky")
        async with Client(service.url) as client:
            low = KeySharedPolicy(KeySharedMode.Sticky, sticky_ranges=((0, 32_767),))
            high = KeySharedPolicy(KeySharedMode.Sticky, sticky_ranges=((32_768, 65_535),))
            first = await client.subscribe(topic, "s", consumer_type=ConsumerType.KeyShared, key_shared_policy=low)
            second = await client.subscribe(topic, "s", consumer_type=ConsumerType.KeyShared, key_shared_policy=high)
            async with await client.create_producer(topic) as producer:
                for number in range(40):
                    await producer.send(str(number).encode(), partition_key=f"k{number}")
            seen: list[str] = []
            for consumer in (first, second):
                found = texts(await consumer.batch_receive(BatchReceivePolicy(40, -1, 1_000)))
                assert found
                seen += found
            assert sorted(seen, key=int) == numbers(40)

    run(test())


def test_everything_unacknowledged_is_redelivered_on_demand(service: Service) -> None:
    async def test() -> None:
        topic = service.topic("redeliver")
        async with Client(service.url) as client:
            consumer = await client.subscribe(topic, "s")
            await publish(client, topic, numbers(10))
            messages = await take(consumer, 6)
            await consumer.acknowledge_cumulative(messages[2])
            consumer.redeliver_unacknowledged_messages()
            assert texts(await take(consumer, 7)) == numbers(7, 3)

    run(test())


def test_unsubscribe_deletes_the_subscription(service: Service) -> None:
    async def test() -> None:
        topic = service.topic("unsubscribe")
        async with Client(service.url) as client:
            consumer = await client.subscribe(topic, "s")
            await publish(client, topic, ["before"])
            await consumer.unsubscribe()
            consumer = await client.subscribe(topic, "s")
            with pytest.raises(TimedOut):
                await consumer.receive(100)

    run(test())


def test_a_cancelled_receive_loses_no_message(service: Service) -> None:
    async def test() -> None:
        topic = service.topic("cancel")
        async with Client(service.url) as client:
            consumer = await client.subscribe(topic, "s", receiver_queue_size=3)
            producer = await client.create_producer(topic)
            seen: list[str] = []
            for number in range(40):
                receiving = asyncio.ensure_future(consumer.receive())
                await asyncio.sleep(0)
                sending = asyncio.ensure_future(producer.send(str(number).encode()))
                await asyncio.wait([receiving], timeout=0.0005 * (number % 7))
                receiving.cancel()
                outcome = (await asyncio.gather(receiving, return_exceptions=True))[0]
                if isinstance(outcome, Message):
                    seen.append(outcome.data().decode())
                await sending
            while len(seen) < 40:
                seen.append((await consumer.receive(20_000)).data().decode())
            assert seen == numbers(40)

    run(test())
