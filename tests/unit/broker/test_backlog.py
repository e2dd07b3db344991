# SPDX-License-Identifier: Apache-2.0
"""Messages expire, backlogs keep to their quotas, unused subscriptions go: on a real topic with a clock by hand."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

import pytest

from magnetar.admin.skipping import expire_before
from magnetar.broker.backlog import delete_unused_subscriptions, enforce_quotas, expire_messages, slowest
from magnetar.broker.compaction.horizon import COMPACTION_CURSOR
from magnetar.broker.consumer import Consumer
from magnetar.broker.policies.values import BacklogQuota, QuotaAction, QuotaType, Retention
from magnetar.broker.subscription import SubscriptionType
from magnetar.broker.topic import Topic
from magnetar.errors import ProducersHeld, QuotaExceeded
from magnetar.ids import EARLIEST
from tests.unit.broker.publishers import NAME, Brokers, Client, body_of, producer_of
from tests.unit.broker.worlds import ClientTwin

Body = Callable[[Brokers, Topic], Coroutine[Any, Any, None]]


def on_topic(body: Body, **ledger_settings: Any) -> None:
    async def run() -> None:
        brokers = Brokers(**ledger_settings)
        await brokers.start()
        await body(brokers, await brokers.topic())
        await brokers.stop()

    asyncio.run(run())


def apply(topic: Topic, **changes: Any) -> None:
    assert topic.policies is not None
    topic.apply(replace(topic.policies, **changes))


async def publish(topic: Topic, count: int) -> None:
    client = Client()
    producer = producer_of(client, "p")
    await topic.add_producer(producer)
    for sequence_id in range(count):
        topic.publish(producer, sequence_id, 0, 1, body_of("p", sequence_id))
    stored = asyncio.get_running_loop().create_future()
    producer.on_drained.append(lambda: stored.set_result(None))
    await stored
    topic.remove_producer(producer)


@pytest.mark.feature("F-RET-07")
def test_what_is_older_than_the_time_to_live_counts_as_consumed() -> None:
    async def body(brokers: Brokers, topic: Topic) -> None:
        subscription = await topic.open_subscription("s", initial=EARLIEST)
        await publish(topic, 3)
        brokers.world.clock.time_ms += 10_000
        await publish(topic, 2)
        brokers.world.clock.time_ms += 5_000
        now_ms = brokers.world.clock.now_ms()
        assert await expire_messages(topic, now_ms) == 0, "no time to live, nothing expires"
        apply(topic, message_ttl_s=12)
        assert await expire_messages(topic, now_ms) == 3
        assert subscription.cursor.backlog_entries() == 2
        assert subscription.entries_expired == 3
        assert await expire_messages(topic, now_ms) == 0
        assert await expire_messages(topic, now_ms + 60_000) == 2

    on_topic(body)


@pytest.mark.feature("F-RET-07")
def test_what_was_stored_lately_is_not_expired_by_an_admin_whatever_the_clock_of_its_producer_says() -> None:
    """The producer's clock is years behind: its messages are no older than the broker knows them to be."""

    async def body(brokers: Brokers, topic: Topic) -> None:
        subscription = await topic.open_subscription("s", initial=EARLIEST)
        await publish(topic, 3)
        stored_ms = brokers.world.clock.now_ms()
        assert not await expire_before(subscription, stored_ms)
        brokers.world.clock.time_ms += 10_000
        await publish(topic, 2)
        assert await expire_before(subscription, stored_ms + 1)
        assert subscription.cursor.backlog_entries() == 2

    on_topic(body)


@pytest.mark.feature("F-RET-07")
def test_the_brokers_own_cursors_never_expire() -> None:
    async def body(brokers: Brokers, topic: Topic) -> None:
        own = await topic.managed_ledger.open_cursor(COMPACTION_CURSOR, initial=EARLIEST)
        await publish(topic, 3)
        apply(topic, message_ttl_s=1, subscription_expiration_minutes=1)
        later_ms = brokers.world.clock.now_ms() + 3_600_000
        assert await expire_messages(topic, later_ms) == 0
        assert await delete_unused_subscriptions(topic, later_ms) == []
        assert own.backlog_entries() == 3

    on_topic(body)


@pytest.mark.feature("F-RET-12")
@pytest.mark.parametrize(("action", "error"), [(QuotaAction.HOLD, ProducersHeld), (QuotaAction.REFUSE, QuotaExceeded)])
def test_a_backlog_over_its_quota_sends_producers_away_until_it_shrinks(
    action: QuotaAction, error: type[QuotaExceeded]
) -> None:
    async def body(brokers: Brokers, topic: Topic) -> None:
        subscription = await topic.open_subscription("s", initial=EARLIEST)
        client = Client()
        connected = producer_of(client, "connected")
        await topic.add_producer(connected)
        await publish(topic, 5)
        size = topic.managed_ledger.bytes_after(subscription.cursor.mark_delete)
        apply(topic, size_quota=BacklogQuota(size - 1, -1, action))
        assert await enforce_quotas(topic, 0) is not None
        assert not topic.producers, "who was connected must come again"
        with pytest.raises(QuotaExceeded) as refusal:
            await topic.add_producer(producer_of(client, "q"))
        assert type(refusal.value) is error
        subscription.skip_through(topic.managed_ledger.last_confirmed)
        assert await enforce_quotas(topic, 0) is None
        await topic.add_producer(producer_of(client, "q"))

    on_topic(body)


@pytest.mark.feature("F-RET-12")
def test_eviction_takes_the_oldest_of_those_that_are_behind_and_no_more_than_needed() -> None:
    async def body(brokers: Brokers, topic: Topic) -> None:
        slow = await topic.open_subscription("slow", initial=EARLIEST)
        fast = await topic.open_subscription("fast", initial=EARLIEST)
        await publish(topic, 100)
        fast.skip_through(topic.managed_ledger.position_after(fast.cursor.mark_delete, 99))
        size = topic.managed_ledger.bytes_after(slow.cursor.mark_delete)
        apply(topic, size_quota=BacklogQuota(size // 2, -1, QuotaAction.EVICT))
        assert slowest(topic) is slow
        evicted: list[QuotaType] = []
        assert await enforce_quotas(topic, 0, lambda _, kind: evicted.append(kind)) is None
        assert evicted == [QuotaType.SIZE]
        assert await enforce_quotas(topic, 0, lambda _, kind: evicted.append(kind)) is None
        assert evicted == [QuotaType.SIZE]
        assert slow.cursor.backlog_entries() == 45, "nine tenths of the limit stay"
        assert fast.cursor.backlog_entries() == 1
        assert topic.hold is None

    on_topic(body)


@pytest.mark.feature("F-RET-12")
@pytest.mark.parametrize("action", [QuotaAction.EVICT, QuotaAction.HOLD])
def test_a_backlog_may_be_too_old_as_well(action: QuotaAction) -> None:
    async def body(brokers: Brokers, topic: Topic) -> None:
        subscription = await topic.open_subscription("s", initial=EARLIEST)
        await publish(topic, 4)
        brokers.world.clock.time_ms += 30_000
        await publish(topic, 2)
        apply(topic, age_quota=BacklogQuota(-1, 20, action))
        excess = await enforce_quotas(topic, brokers.world.clock.now_ms())
        if action is QuotaAction.EVICT:
            assert excess is None
            assert subscription.cursor.backlog_entries() == 2
        else:
            assert excess is not None
            assert isinstance(topic.hold, ProducersHeld)

    on_topic(body)


@pytest.mark.feature("F-RET-09", "B-09")
def test_a_subscription_that_nobody_uses_goes_with_its_cursor() -> None:
    async def body(brokers: Brokers, topic: Topic) -> None:
        await topic.open_subscription("s", initial=EARLIEST)
        now_ms = brokers.world.clock.now_ms()
        apply(topic, subscription_expiration_minutes=2)
        assert await delete_unused_subscriptions(topic, now_ms + 119_999) == []
        assert await delete_unused_subscriptions(topic, now_ms + 120_000) == ["s"]
        assert "s" not in topic.managed_ledger.cursors

    on_topic(body)


@pytest.mark.feature("B-09")
def test_a_subscription_that_is_used_again_while_others_are_deleted_stays() -> None:
    async def body(brokers: Brokers, topic: Topic) -> None:
        first, second, third = [await topic.open_subscription(name, initial=EARLIEST) for name in ("a", "b", "c")]
        apply(topic, subscription_expiration_minutes=2)
        delete = first.delete_stored

        async def slow_delete() -> None:
            second.add_consumer(Consumer(ClientTwin(), 1, "c"), SubscriptionType.SHARED)
            await topic.delete_subscription("c")
            await delete()

        first.delete_stored = slow_delete  # type: ignore[method-assign]
        later_ms = brokers.world.clock.now_ms() + 120_000
        assert await delete_unused_subscriptions(topic, later_ms) == ["a"]
        assert topic.subscriptions == {"b": second}
        assert third.is_closed
        second.disconnect_consumers()

    on_topic(body)


@pytest.mark.feature("F-RET-02", "F-RET-03", "F-RET-06")
def test_retention_is_the_managed_ledgers_and_never_takes_what_is_not_consumed() -> None:
    async def body(brokers: Brokers, topic: Topic) -> None:
        topics = brokers.topics
        await topics.policies.set_namespace(
            NAME.namespace, "retention_policies", {"retentionTimeInMinutes": 1, "retentionSizeInMB": -1}
        )
        assert (await topics.policies.effective(NAME)).retention == Retention(1, -1)
        await topics.unload(NAME)
        topic = await brokers.topic()
        assert topic.managed_ledger.settings.retention_ms == 60_000
        subscription = await topic.open_subscription("s", initial=EARLIEST)
        for _ in range(3):
            await publish(topic, 2)
        brokers.world.clock.time_ms += 120_000
        assert await topic.managed_ledger.trim() == 0
        first = topic.managed_ledger.ledgers.first.ledger_id
        subscription.skip_through(topic.managed_ledger.last_confirmed)
        await subscription.cursor.flush()
        brokers.world.clock.time_ms += 120_000
        await topic.managed_ledger.trim()
        assert first not in topic.managed_ledger.ledgers

    on_topic(body, ledger_entries_max=2, rollover_age_min_ms=0)
