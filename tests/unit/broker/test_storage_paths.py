# SPDX-License-Identifier: Apache-2.0
"""What a topic does over its storage: receipts after the quorum, nothing before it is persisted, reads from cache or
any copy, lives of messages under TTL and retention, and how often cursors are written.
"""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from magnetar.broker.backlog import expire_messages
from magnetar.broker.consumer import Consumer
from magnetar.broker.dispatch.wake_measure import USUAL
from magnetar.broker.policies.topic_settings import storage_settings
from magnetar.broker.subscription import SubscriptionType
from magnetar.broker.topic import Topic
from magnetar.ids import EARLIEST, Position
from tests.unit.broker.publishers import NAME, Brokers, Client, body_of, producer_of
from tests.unit.broker.worlds import ClientTwin, client_of
from tests.unit.broker.worlds import World as Small
from tests.unit.managed_ledger.owners import World

EXCLUSIVE, SHARED = SubscriptionType.EXCLUSIVE, SubscriptionType.SHARED
QUORUM = {"ensemble_size": 3, "write_quorum": 3, "ack_quorum": 2}


def run(coroutine: Coroutine[Any, Any, None]) -> None:
    asyncio.run(coroutine)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 - what changes it has no event
            await asyncio.sleep(0)


async def turns(count: int = 100) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def publishing(topic: Topic) -> tuple[Client, Callable[[int], None]]:
    client = Client()
    producer = producer_of(client)
    await topic.add_producer(producer)
    return client, lambda n: topic.publish(producer, n, n, 1, body_of(sequence_id=n))


async def reading(
    topic: Topic, name: str = "s", permits: int = 1000, kind: SubscriptionType = EXCLUSIVE
) -> tuple[ClientTwin, Consumer]:
    subscription = await topic.open_subscription(name, initial=EARLIEST)
    consumer = Consumer(ClientTwin(), 1, "c")
    subscription.add_consumer(consumer, kind)
    subscription.on_flow(consumer, permits)
    return client_of(consumer), consumer


@pytest.mark.feature("F-DISP-01", "F-DISP-08")
def test_a_receipt_and_a_delivery_come_with_the_second_of_three_copies_and_not_before() -> None:
    async def main() -> None:
        brokers = Brokers()
        brokers.world = World(3, **QUORUM)
        await brokers.start()
        topic = await brokers.topic()
        client, publish = await publishing(topic)
        taken, _ = await reading(topic)
        one, two, three = brokers.world.cluster.bookies.values()
        one.stall()
        publish(0)
        await client.until_answers(1)
        await until(lambda: len(taken.delivered) == 1)
        two.stall()
        publish(1)
        await until(lambda: three.adds >= 2)
        await turns()
        assert len(client.answers) == 1, "one copy of two that are needed"
        assert len(taken.delivered) == 1, "what is not persisted is not seen"
        two.resume()
        await client.until_answers(2)
        await until(lambda: len(taken.delivered) == 2)
        one.resume()
        await brokers.stop()

    run(main())


@pytest.mark.feature("F-DISP-19")
def test_a_thousand_messages_are_taken_while_none_of_them_is_stored() -> None:
    async def main() -> None:
        brokers = Brokers()
        await brokers.start()
        topic = await brokers.topic()
        client, publish = await publishing(topic)
        bookie = next(iter(brokers.world.cluster.bookies.values()))
        bookie.stall()
        for sequence_id in range(1000):
            publish(sequence_id)
        await turns()
        assert client.answers == []
        bookie.resume()
        await client.until_answers(1000)
        assert client.answers == [("stored", n) for n in range(1000)]
        await brokers.stop()

    run(main())


@pytest.mark.feature("F-DISP-08", "F-DISP-09")
def test_the_tail_is_read_from_memory_and_what_is_not_there_from_any_copy() -> None:
    async def main() -> None:
        brokers = Brokers()
        brokers.world = World(3, **QUORUM)
        await brokers.start()
        topic = await brokers.topic()
        client, publish = await publishing(topic)
        taken, _ = await reading(topic)
        for sequence_id in range(20):
            publish(sequence_id)
        await client.until_answers(20)
        await until(lambda: len(taken.delivered) == 20)
        bookies = list(brokers.world.cluster.bookies.values())
        assert sum(bookie.reads for bookie in bookies) == 0, "the tail comes from memory"
        await brokers.stop()
        await brokers.start()
        bookies[0].is_up = False
        taken, _ = await reading(await brokers.topic(), "other")
        await until(lambda: len(taken.delivered) == 20)
        assert taken.ids() == list(range(20))
        assert sum(bookie.reads for bookie in bookies[1:]) > 0
        bookies[0].is_up = True
        await brokers.stop()

    run(main())


def test_a_reader_who_finds_everything_in_memory_lets_others_have_their_turn() -> None:
    async def main() -> None:
        brokers = Brokers()
        await brokers.start()
        topic = await brokers.topic()
        client, publish = await publishing(topic)
        taken, consumer = await reading(topic, permits=1, kind=SHARED)
        for sequence_id in range(500):
            publish(sequence_id)
        await client.until_answers(500)
        await until(lambda: len(taken.delivered) == 1)
        topic.subscriptions["s"].on_flow(consumer, 1000)
        assert len(taken.delivered) == 1 + USUAL.entries
        await until(lambda: len(taken.delivered) == 500)
        assert taken.ids() == list(range(500))
        topic.subscriptions["s"].on_flow(consumer, 1000)
        topic.subscriptions["s"].redeliver(consumer, None)
        assert len(taken.delivered) == 500 + USUAL.entries, "what is given out again likewise"
        await until(lambda: len(taken.delivered) == 1000)
        assert brokers.world.cluster.bookies["b1"].reads == 0
        await brokers.stop()

    run(main())


@pytest.mark.feature("F-PRB-03")
@pytest.mark.parametrize("keeps", [True, False])
def test_a_client_that_comes_back_before_it_acknowledged_finds_everything_in_memory(keeps: bool) -> None:
    async def main() -> None:
        brokers = Brokers(cache_keeps_unacked=keeps, cache_bytes_max=8_000)
        await brokers.start()
        topic = await brokers.topic()
        client, publish = await publishing(topic)
        taken, consumer = await reading(topic)
        # Another topic that is written and read: it presses on the cache that they share.
        pressing, press = await publishing(await brokers.topic(NAME.partition(0)))
        await reading(await brokers.topic(NAME.partition(0)))
        for sequence_id in range(20):
            publish(sequence_id)
        await client.until_answers(20)
        await until(lambda: len(taken.delivered) == 20)
        for sequence_id in range(150):
            press(sequence_id)
        await pressing.until_answers(150)
        bookie = next(iter(brokers.world.cluster.bookies.values()))
        before = bookie.reads
        subscription = topic.subscriptions["s"]
        subscription.remove_consumer(consumer)
        again, _ = await reading(topic)
        await until(lambda: len(again.delivered) == 20)
        assert (bookie.reads == before) is keeps
        await brokers.stop()

    run(main())


@pytest.mark.feature("F-ML-12")
def test_copies_are_those_of_the_topic_the_namespace_or_the_broker() -> None:
    async def main() -> None:
        brokers = Brokers()
        brokers.world = World(5)
        await brokers.start()
        policies = brokers.topics.policies

        async def quorums(topic: Topic) -> tuple[int, int, int]:
            catalog = brokers.world.cluster.client("auditor").ledgers.catalog
            record = (await catalog.load(topic.managed_ledger.ledgers.last.ledger_id)).record
            return record.quorum.ensemble_size, record.quorum.write_quorum, record.quorum.ack_quorum

        def copies(ensemble: int, write: int, ack: int) -> dict[str, float]:
            names = ("bookkeeperEnsemble", "bookkeeperWriteQuorum", "bookkeeperAckQuorum")
            return {**dict(zip(names, (ensemble, write, ack), strict=True)), "managedLedgerMaxMarkDeleteRate": 0.0}

        assert await quorums(await brokers.topic()) == (1, 1, 1)
        await policies.set_namespace(NAME.namespace, "persistence", copies(3, 3, 2))
        await brokers.topics.unload(NAME)
        assert await quorums(await brokers.topic()) == (3, 3, 2)
        await policies.set_topic(NAME, "persistence", copies(5, 3, 3))
        await brokers.topics.unload(NAME)
        assert await quorums(await brokers.topic()) == (5, 3, 3)
        await brokers.stop()

    run(main())


@pytest.mark.feature("F-ML-02")
def test_the_fragments_of_a_ledger_hold_all_its_entries_and_an_entry_is_a_message_or_a_batch() -> None:
    async def main() -> None:
        brokers = Brokers()
        brokers.world = World(5, **QUORUM)
        await brokers.start()
        topic = await brokers.topic()
        client = Client()
        producer = producer_of(client)
        await topic.add_producer(producer)
        cluster = brokers.world.cluster
        ledger_id = topic.managed_ledger.ledgers.last.ledger_id
        catalog = cluster.client("auditor").ledgers.catalog
        for sequence_id in range(30):
            body = body_of(sequence_id=sequence_id, num_messages_in_batch=1 + sequence_id % 3)
            topic.publish(producer, sequence_id, sequence_id, 1 + sequence_id % 3, body)
            await client.until_answers(sequence_id + 1)
            if sequence_id in (9, 19):
                ensemble = (await catalog.load(ledger_id)).record.last_segment.ensemble
                cluster.bookies[ensemble[0]].is_up = False
        await brokers.topics.unload(NAME)
        record = (await catalog.load(ledger_id)).record
        starts = [*(segment.first_entry for segment in record.segments), record.last_entry + 1]
        assert len(record.segments) >= 2, "a fragment ends where a bookie fails"
        sizes = [end - start for start, end in pairwise(starts)]
        assert all(size > 0 for size in sizes)
        assert sum(sizes) == record.last_entry + 1 == 30, "entries, however many messages are in them"
        for bookie in cluster.bookies.values():
            bookie.is_up = True
        await brokers.stop()

    run(main())


@pytest.mark.feature("F-RET-08")
@pytest.mark.parametrize(("ttl_s", "retention_min"), [(60, 3), (180, 3), (300, 3), (60, 0), (600, 10)])
def test_a_message_lives_until_it_is_consumed_or_expired_and_retention_has_passed(
    ttl_s: int, retention_min: int
) -> None:
    """TTL and retention both count from the message: nothing goes before the longer of the two, nothing stays after."""

    async def main() -> None:
        brokers = Brokers(ledger_entries_max=5, retention_ms=0, retention_bytes=0)
        await brokers.start()
        topic = await brokers.topic()
        policies = brokers.topics.policies
        await policies.set_topic(NAME, "messageTTLInSeconds", ttl_s)
        retention = {"retentionTimeInMinutes": retention_min, "retentionSizeInMB": -1 if retention_min else 0}
        await policies.set_topic(NAME, "retentionPolicies", retention)
        effective = await policies.effective(NAME)
        topic.apply(effective)
        topic.managed_ledger.settings = storage_settings(brokers.world.settings, effective)
        await topic.open_subscription("s", initial=EARLIEST)
        client, publish = await publishing(topic)
        for sequence_id in range(11):
            publish(sequence_id)
            await client.until_answers(sequence_id + 1)
        clock, first = brokers.world.clock, topic.managed_ledger.ledgers.first.ledger_id
        born_ms = clock.time_ms
        life_s = 0
        while topic.managed_ledger.ledgers.first.ledger_id == first:
            life_s += 30
            assert life_s < 2000, "it never goes"
            clock.time_ms = born_ms + 1000 * life_s
            await expire_messages(topic, clock.time_ms)
            await topic.subscriptions["s"].cursor.flush()
            await topic.managed_ledger.trim()
        assert max(ttl_s, 60 * retention_min) <= life_s <= max(ttl_s, 60 * retention_min) + 60
        await brokers.stop()

    run(main())


@pytest.mark.feature("F-PRB-08")
def test_ten_thousand_acks_cost_a_handful_of_cursor_writes() -> None:
    async def main() -> None:
        brokers = Brokers(cursor_flush_interval_ms=50)
        await brokers.start()
        topic = await brokers.topic()
        subscription = await topic.open_subscription("s", initial=EARLIEST)
        client, publish = await publishing(topic)
        for sequence_id in range(10_000):
            publish(sequence_id)
        await client.until_answers(10_000)
        bookie = next(iter(brokers.world.cluster.bookies.values()))
        before = bookie.adds
        ledger_id = topic.managed_ledger.ledgers.last.ledger_id
        for entry_id in range(0, 10_000, 2):
            subscription.cursor.ack(Position(ledger_id, entry_id))
            if entry_id % 500 == 0:
                await turns(5)
        for entry_id in range(1, 10_000, 2):
            subscription.cursor.ack(Position(ledger_id, entry_id))
        await subscription.cursor.flush()
        assert bookie.adds - before < 100, "acks are gathered, not written one by one"
        assert subscription.cursor.is_saved
        await brokers.stop()

    run(main())


@pytest.mark.feature("F-CONS-35")
@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 11), max_size=12), st.integers(1, 12))
def test_what_was_not_acknowledged_comes_back_in_order_and_in_order_acks_leave_no_holes(
    acked: list[int], in_order: int
) -> None:
    async def main() -> None:
        small = Small()
        for _ in range(12):
            small.publish()
        consumer = small.join(EXCLUSIVE, permits=100)
        assert client_of(consumer).ids() == list(range(12))
        for entry_id in acked:
            small.subscription.ack(consumer, Position(3, entry_id), ())
        client_of(consumer).delivered.clear()
        small.subscription.redeliver(consumer, None)
        await small.settle()
        assert client_of(consumer).ids() == [n for n in range(12) if n not in acked]
        for entry_id in range(in_order):
            small.subscription.ack(consumer, Position(3, entry_id), ())
        assert small.subscription.cursor.mark_delete >= Position(3, in_order - 1), "in order: a mark, no holes"

    run(main())


@pytest.mark.feature("F-RET-14", "F-RET-15")
def test_a_deletion_is_recorded_before_it_is_done_and_any_later_owner_carries_it_out() -> None:
    async def main() -> None:
        brokers = Brokers(ledger_entries_max=5)
        reached = False

        def fault(operation: str, path: str) -> str | None:
            return "refused" if reached and operation == "delete" and path.startswith("/ledgers/") else None

        world = brokers.world
        owner = world.owner(fault)
        ledger = await owner.open()
        owner.publisher.append_many(11)
        await owner.publisher.rest()
        doomed = {span.ledger_id for span in ledger.ledgers} - {ledger.ledgers.last.ledger_id}
        reached = True
        ledger.settings = replace(world.settings, retention_ms=0, retention_bytes=0)
        await ledger.trim()
        listed = {span.ledger_id for span in ledger.ledgers}
        assert not listed & doomed, "phase one: the log's record names them no more"
        assert doomed <= await world.existing_ledgers(), "and the order to delete them is in the record"
        await owner.die()
        successor = world.owner(retention_ms=0, retention_bytes=0)
        taken_over = await successor.open()
        await taken_over.trim()
        assert not doomed & await world.existing_ledgers(), "phase two: whoever owns the log next does it"
        await successor.close()

    run(main())
