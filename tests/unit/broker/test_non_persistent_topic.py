# SPDX-License-Identifier: Apache-2.0
"""Topics that keep nothing: what is passed on to whom, what is dropped, and that nothing piles up."""

import asyncio
from collections.abc import Coroutine, Sequence
from itertools import chain
from typing import Any

import pytest

from magnetar.broker.consumer import Consumer, Delivery
from magnetar.broker.entry_facts import FactsTable
from magnetar.broker.non_persistent_topic import NonPersistentTopic
from magnetar.broker.producer import Producer
from magnetar.broker.subscription import KeySharing, SubscriptionType
from magnetar.config.broker import BrokerSettings
from magnetar.errors import BadPayload, ConsumerBusy, MessageTooLarge, NotSupported, ServiceNotReady
from magnetar.ids import LATEST
from magnetar.names import TopicName
from magnetar.runtime.tasks import Tasks
from tests.unit.broker.publishers import Client, body_of, producer_of

NAME = TopicName.parse("non-persistent://public/default/t")


class Listener:
    """A consumer's link that keeps what it gets."""

    def __init__(self) -> None:
        self.entries: list[int] = []
        self.roles: list[bool] = []
        self.disconnected = 0
        self.writable = True

    def is_writable(self) -> bool:
        return self.writable

    def deliver(self, consumer: Consumer, deliveries: Sequence[Delivery]) -> None:
        self.entries += [delivery.position.entry_id for delivery in deliveries]

    def tell_active(self, consumer: Consumer, active: bool) -> None:
        self.roles.append(active)

    def tell_end_of_topic(self, consumer: Consumer) -> None: ...

    def disconnect_consumer(self, consumer: Consumer) -> None:
        self.disconnected += 1


class World:
    def __init__(self) -> None:
        self.tasks = Tasks("test", lambda task, error: None)
        self.topic = NonPersistentTopic(NAME, BrokerSettings(message_bytes_max=1_000), self.tasks, FactsTable())
        self.client = Client()
        self.producer: Producer = producer_of(self.client)
        self._ids = 0

    async def start(self) -> "World":
        await self.topic.add_producer(self.producer)
        return self

    def publish(self, count: int = 1, key: str = "") -> None:
        for _ in range(count):
            fields: dict[str, Any] = {"partition_key": key} if key else {}
            self.topic.publish(self.producer, 0, 0, 1, body_of(**fields))

    def join(
        self, type_: SubscriptionType, permits: int, subscription: str = "s", key_sharing: KeySharing | None = None
    ) -> Consumer:
        self._ids += 1
        consumer = Consumer(Listener(), self._ids, f"c{self._ids}")
        opened = self.topic.open_reader_subscription(subscription, LATEST)
        opened.add_consumer(consumer, type_, key_sharing)
        opened.on_flow(consumer, permits)
        return consumer


def entries(consumer: Consumer) -> list[int]:
    assert isinstance(consumer.link, Listener)
    return consumer.link.entries


def run(coroutine: Coroutine[Any, Any, None]) -> None:
    asyncio.run(coroutine)


@pytest.mark.feature("F-TOP-07")
def test_what_nobody_can_take_is_dropped_and_still_acknowledged() -> None:
    async def main() -> None:
        world = await World().start()
        world.publish(3)
        consumer = world.join(SubscriptionType.EXCLUSIVE, permits=2)
        world.publish(5)
        assert entries(consumer) == [3, 4]
        assert world.topic.subscriptions["s"].messages_dropped == 3
        world.topic.subscriptions["s"].on_flow(consumer, 10)
        world.publish()
        assert entries(consumer) == [3, 4, 8], "nothing waited"
        assert [kind for kind, _ in world.client.answers] == ["stored"] * 9
        assert world.producer.pending == 0

    run(main())


def test_a_consumer_whose_connection_is_full_gets_nothing() -> None:
    async def main() -> None:
        world = await World().start()
        consumer = world.join(SubscriptionType.EXCLUSIVE, permits=10)
        assert isinstance(consumer.link, Listener)
        consumer.link.writable = False
        world.publish(3)
        consumer.link.writable = True
        world.publish()
        assert entries(consumer) == [3]

    run(main())


@pytest.mark.parametrize("type_", [SubscriptionType.SHARED, SubscriptionType.KEY_SHARED])
def test_shared_consumers_divide_what_comes_and_hold_nothing(type_: SubscriptionType) -> None:
    async def main() -> None:
        world = await World().start()
        consumers = [world.join(type_, permits=1_000) for _ in range(3)]
        for number in range(300):
            world.publish(key=f"k{number % 30}")
        got = [entries(consumer) for consumer in consumers]
        assert sorted(chain.from_iterable(got)) == list(range(300))
        assert all(got)
        assert all(consumer.unacked == 0 and not consumer.pending for consumer in consumers)
        if type_ is SubscriptionType.KEY_SHARED:
            keys = [{entry % 30 for entry in each} for each in got]
            assert len(keys[0] | keys[1] | keys[2]) == sum(map(len, keys)), "a key goes to one consumer"

    run(main())


def test_failover_goes_to_one_and_then_to_the_next() -> None:
    async def main() -> None:
        world = await World().start()
        first, second = (world.join(SubscriptionType.FAILOVER, permits=10) for _ in range(2))
        world.publish()
        if not entries(first):
            first, second = second, first
        world.topic.subscriptions["s"].remove_consumer(first)
        world.publish()
        await asyncio.sleep(0)
        assert (entries(first), entries(second)) == ([0], [1])
        assert isinstance(second.link, Listener)
        assert second.link.roles[-1] is True

    run(main())


def test_every_subscription_gets_its_copy() -> None:
    async def main() -> None:
        world = await World().start()
        consumers = [world.join(SubscriptionType.EXCLUSIVE, 10, f"s{number}") for number in range(3)]
        world.publish(2)
        assert [entries(consumer) for consumer in consumers] == [[0, 1]] * 3

    run(main())


def test_rules_of_joining_and_of_what_is_taken() -> None:
    async def main() -> None:
        world = await World().start()
        world.join(SubscriptionType.EXCLUSIVE, permits=1)
        with pytest.raises(ConsumerBusy):
            world.join(SubscriptionType.EXCLUSIVE, permits=1)
        with pytest.raises(ConsumerBusy, match="different type"):
            world.join(SubscriptionType.SHARED, permits=1)
        with pytest.raises(NotSupported):
            await world.topic.subscriptions["s"].reset(LATEST)
        with pytest.raises(MessageTooLarge):
            world.topic.publish(world.producer, 0, 0, 1, body_of() + b"x" * 1_000)
        with pytest.raises(BadPayload):
            world.topic.publish(world.producer, 0, 0, 0, body_of())
        with pytest.raises(NotSupported, match="chunks"):
            world.topic.publish(world.producer, 0, 0, 1, body_of(), is_chunk=True)

    run(main())


def test_closing_sends_everyone_away() -> None:
    async def main() -> None:
        world = await World().start()
        consumer = world.join(SubscriptionType.EXCLUSIVE, permits=1)
        assert not world.topic.is_unused
        await world.topic.close()
        assert isinstance(consumer.link, Listener)
        assert consumer.link.disconnected == 1
        assert world.client.disconnected == [world.producer]
        assert world.topic.is_unused
        with pytest.raises(ServiceNotReady):
            await world.topic.add_producer(producer_of(Client()))

    run(main())
