# SPDX-License-Identifier: Apache-2.0
"""Limits that topics share or that change by themselves: resource groups, rates relative to publishing, pauses while
acknowledgements cannot be saved; and what deletion and readers leave behind: nothing.
"""

import asyncio
import json
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any, cast

import pytest

from magnetar.broker.consumer import Consumer
from magnetar.broker.delayed.bucket_format import property_of
from magnetar.broker.explain import Reason, explain
from magnetar.broker.rate_limit import Rate, RelativeLimit
from magnetar.broker.resource_groups import RESOURCE_GROUPS_ROOT
from magnetar.broker.subscription import SubscriptionType
from magnetar.broker.topic import READER_GRACE_MS
from magnetar.config.broker import BrokerSettings
from magnetar.config.load import load_settings
from magnetar.errors import BookieUnavailable, PersistenceFailed
from magnetar.ids import EARLIEST, Position
from magnetar.managed_ledger.orphans import Orphan, orphans
from magnetar.names import NamespaceName, TopicName
from magnetar.wire.proto.schema_storage_pb2 import SchemaLocator
from tests.unit.broker.publishers import NAME, Brokers, Client, body_of, producer_of
from tests.unit.broker.worlds import ClientTwin, World, client_of

DEFAULT = NamespaceName.parse("public/default")
OTHER = TopicName.parse("persistent://public/default/other")
SHARED, EXCLUSIVE = SubscriptionType.SHARED, SubscriptionType.EXCLUSIVE


def run(coroutine: Coroutine[Any, Any, None]) -> None:
    asyncio.run(coroutine)


class Clock:
    def __init__(self) -> None:
        self.s = 100.0

    def __call__(self) -> float:
        return self.s


@pytest.mark.feature("B-06", "F-DISP-15")
def test_a_relative_rate_lets_through_what_comes_in_and_so_much_more() -> None:
    clock, came_in = Clock(), [0, 0]
    limit = RelativeLimit("r", Rate(messages=10), lambda: (came_in[0], came_in[1]), clock)

    def drained() -> int:
        messages, _ = limit.available()
        limit.consume(messages, 0)
        return messages

    assert drained() == 10
    assert drained() == 0
    for _ in range(5):
        came_in[0] += 100
        clock.s += 1.0
        sent = drained()
    assert sent == 110, "100 a second come in, 10 a second are on top"
    clock.s += 1.0
    assert drained() <= 110
    clock.s += 1.0
    assert drained() <= 10, "nothing comes in any more"


@pytest.mark.feature("B-06", "F-TOP-06")
def test_topics_of_a_resource_group_share_its_budget_and_a_change_holds_at_once() -> None:
    async def main() -> None:
        brokers = Brokers()
        topics = await brokers.start()
        store = topics.policies._store
        path = f"{RESOURCE_GROUPS_ROOT}/g"
        await store.put(path, json.dumps({"publishRateInMsgs": 10, "dispatchRateInMsgs": 7}).encode())
        policies = topics.policies
        await policies.set_namespace(DEFAULT, "resource_group_name", "g")
        one, two = await brokers.topic(), await brokers.topic(OTHER)
        clients = [Client(), Client()]
        for topic, client in zip((one, two), clients, strict=True):
            producer = producer_of(client)
            await topic.add_producer(producer)
            for sequence_id in range(6):
                topic.publish(producer, sequence_id, sequence_id, 1, body_of(sequence_id=sequence_id))
        assert clients[0].held_back_s == 0.0, "six of ten"
        assert clients[1].held_back_s > 0.0, "the other topic took the rest of the group's ten"
        subscription = await one.open_subscription("s", initial=EARLIEST)
        assert [limit.name for limit in subscription.pump.limits] == ["dispatch rate of resource group g"]
        assert subscription.pump.limits[0].available()[0] == 7
        await store.put(path, json.dumps({"publishRateInMsgs": -1}).encode())
        await _until(lambda: not one.publish_rates.is_limited and not subscription.pump.limits)
        await brokers.stop()

    run(main())


@pytest.mark.feature("F-DISP-15")
def test_topics_of_a_broker_share_what_it_may_send_and_a_change_holds_at_once() -> None:
    async def main() -> None:
        brokers = Brokers(BrokerSettings(broker_dispatch_messages_per_s=10))
        topics = await brokers.start()
        one, two = await brokers.topic(), await brokers.topic(OTHER)
        first = await one.open_subscription("s", initial=EARLIEST)
        second = await two.open_subscription("s", initial=EARLIEST)
        assert [limit.name for limit in first.pump.limits] == ["dispatch rate of the broker"]
        first.pump.limits[0].consume(10, 0)
        assert second.pump.limits[0].available()[0] <= 0, "what one topic sent, the other cannot"
        topics.limit_dispatch(Rate())
        assert not first.pump.limits
        assert not second.pump.limits
        await brokers.stop()

    run(main())


@pytest.mark.feature("B-25")
def test_dispatch_pauses_while_acknowledgements_cannot_be_saved() -> None:
    async def main() -> None:
        world = World(is_durable=True, pause_until_acks_persist=True)
        subscription = world.subscription
        pause = subscription.unsaved_acks
        assert pause is not None
        subscription.pump.limits = (pause,)
        consumer = world.join(SHARED, permits=100)
        world.publish()
        await world.settle()
        assert client_of(consumer).ids() == [0]
        store = cast("Any", world.properties)
        saves, store.save = store.save, _refuse
        subscription.ack(consumer, Position(3, 0), ())
        await _until(lambda: subscription.cursor.is_save_failing)
        world.publish()
        await world.settle()
        assert client_of(consumer).ids() == [0], "what goes out now could not be acknowledged for good"
        assert explain(subscription).reason is Reason.RATE_LIMIT
        assert "cannot be saved" in explain(subscription).sentence
        store.save = saves
        await subscription.cursor.flush()
        await world.pass_time(1000)
        assert client_of(consumer).ids() == [0, 1]

    run(main())


async def _until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - what changes it has no event
            await asyncio.sleep(0.001)


async def _refuse(snapshot: object) -> None:
    raise BookieUnavailable("the test says so")


@pytest.mark.feature("F-DLY-09")
def test_a_deleted_topic_takes_its_buckets_of_delayed_messages_with_it() -> None:
    async def main() -> None:
        brokers = Brokers()
        await brokers.start()
        topic = await brokers.topic()
        subscription = await topic.open_subscription("s", initial=EARLIEST)
        side = topic.managed_ledger.side_ledgers
        bucket = await side.reserve_id()
        await subscription.cursor.set_user_properties({property_of(1, 2): str(bucket)})
        await side.write(bucket, [b"anything"], {"component": b"delayed-index-bucket"})
        assert await brokers.world.existing_ledgers() >= {bucket}
        await brokers.topics.delete(NAME, force=True)
        assert bucket not in await brokers.world.existing_ledgers()
        await brokers.stop()

    run(main())


def test_a_readers_place_that_nobody_came_back_to_is_given_up() -> None:
    async def main() -> None:
        brokers = Brokers()
        await brokers.start()
        topic = await brokers.topic()
        subscription = topic.open_reader_subscription("reader", EARLIEST)
        await subscription.reset(EARLIEST)
        topic.upkeep()
        assert "reader" in topic.subscriptions, "its client is on its way back"
        brokers.world.clock.time_ms += READER_GRACE_MS
        topic.upkeep()
        assert topic.subscriptions == {}
        await brokers.stop()

    run(main())


@pytest.mark.feature("F-RET-13")
def test_orphans_of_every_kind_are_found_and_living_ones_are_not() -> None:
    async def main() -> None:
        brokers = Brokers()
        topics = await brokers.start()
        topic = await brokers.topic()
        subscription = await topic.open_subscription("s", initial=EARLIEST)
        log = topic.managed_ledger
        owner = brokers.world.owner()
        store = topics.policies._store

        async def write(**about: bytes) -> int:
            ledger_id = await log.side_ledgers.reserve_id()
            custom = {name.replace("__", "/").replace("_", "-"): value for name, value in about.items()}
            await log.side_ledgers.write(ledger_id, [b"x"], custom)
            return ledger_id

        claims = {"pulsar__managed_ledger": log.name.encode(), "pulsar__cursor": b"s"}
        kept_bucket = await write(component=b"delayed-index-bucket", **claims)
        lost_bucket = await write(component=b"delayed-index-bucket", **claims)
        await subscription.cursor.set_user_properties({property_of(1, 2): str(kept_bucket)})
        locator = SchemaLocator()
        kept_schema = await write(component=b"schema", **{"pulsar__schemaId": b"public/default/t"})
        for target in (locator.info, locator.index.add()):
            target.version, target.hash = 0, b"h"
            target.position.ledgerId, target.position.entryId = kept_schema, 0
        await store.put("/schemas/public/default/t", locator.SerializeToString())
        lost_schema = await write(component=b"schema", **{"pulsar__schemaId": b"public/default/t"})
        await write(component=b"compacted-topic", pulsar__compactedTopic=str(NAME).encode())
        gone = b"persistent://public/default/gone"
        lost_view = await write(component=b"compacted-topic", pulsar__compactedTopic=gone)
        found = [orphan async for orphan in orphans(store, owner.client.ledgers)]
        assert found == [
            Orphan(lost_bucket, log.name, "s", "delayed-index-bucket"),
            Orphan(lost_schema, "public/default/t", "", "schema"),
            Orphan(lost_view, gone.decode(), "", "compacted-topic"),
        ]
        await owner.close()
        await brokers.stop()

    run(main())


def test_parts_of_batches_count_only_while_they_are_switched_on() -> None:
    async def main(enabled: bool) -> None:
        world = World(batch_index_acks=enabled)
        world.publish(batch=3)
        consumer = world.join(SHARED, permits=10)
        world.subscription.ack(consumer, Position(3, 0), [0b110])
        assert consumer.unacked == (2 if enabled else 3)
        world.subscription.ack(consumer, Position(3, 0), [0b000])
        assert world.subscription.cursor.backlog_entries() == 0, "all bits at once is the whole batch"
        world = World(batch_index_acks=enabled)
        for _ in range(2):
            world.publish(batch=3)
        consumer = world.join(EXCLUSIVE, permits=10)
        world.subscription.ack_cumulative(consumer, Position(3, 1), [0b110])
        state = world.subscription.cursor.state
        assert state.mark_delete == Position(3, 0)
        assert state.batch_bits(Position(3, 1)) == (0b110 if enabled else 0)

    for enabled in (True, False):
        run(main(enabled))


@pytest.mark.feature("D-12")
def test_the_switch_for_parts_of_batches_is_spelled_as_pulsar_spells_it() -> None:
    for spelling, expected in (
        ("acknowledgmentAtBatchIndexLevelEnabled", False),
        ("acknowledgementAtBatchIndexLevelEnabled", True),
    ):
        assert load_settings(environ={f"PULSAR_PREFIX_{spelling}": "false"}).broker.batch_index_acks is expected
    assert load_settings().broker.batch_index_acks


@pytest.mark.feature("F-DISP-12")
def test_new_entries_wait_for_others_as_long_as_they_are_told_to() -> None:
    async def main() -> None:
        waits: list[float] = []
        brokers = Brokers(BrokerSettings(new_entries_delay_ms=25))
        await brokers.start()
        topic = await brokers.topic()
        subscription = await topic.open_subscription("s", initial=EARLIEST)
        subscription.add_consumer(Consumer(ClientTwin(), 1, "c", unacked_max=0), SHARED)
        later = topic._dispatch.call_later

        def wait(delay_s: float, wake: Callable[[], None]) -> object:
            waits.append(delay_s)
            return later(0, wake)

        topic._dispatch = replace(topic._dispatch, call_later=wait)
        client = Client()
        producer = producer_of(client)
        await topic.add_producer(producer)
        for sequence_id in range(20):
            topic.publish(producer, sequence_id, sequence_id, 1, body_of(sequence_id=sequence_id))
        await client.until_answers(20)
        assert waits, "nobody is woken at once"
        assert set(waits) == {0.025}
        assert len(waits) < 20, "one wait for all that come meanwhile"
        await brokers.stop()

    run(main())


def test_a_save_that_fails_is_an_error_for_whoever_waits_for_it() -> None:
    async def main() -> None:
        world = World(is_durable=True)
        world.publish()
        cast("Any", world.properties).save = _refuse
        consumer = world.join(SHARED, permits=1)
        world.subscription.ack(consumer, Position(3, 0), ())
        with pytest.raises((BookieUnavailable, PersistenceFailed)):
            await world.subscription.cursor.flush()

    run(main())
