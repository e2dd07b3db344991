# SPDX-License-Identifier: Apache-2.0
"""Statistics of a topic with everyone on it, gathered in small steps: some topics have thousands of clients.

Carries.
"""

from collections.abc import Iterable
from typing import Any, Final

from magnetar.admin.rates import Rates
from magnetar.admin.replication_stats import replication_stats
from magnetar.admin.slices import Turns
from magnetar.admin.topic_internals import cursor_internals, internal_stats, ledger_internals
from magnetar.admin.topic_stats import (
    KeyRanges,
    PartitionSums,
    ShownSubscriptions,
    StatsAsked,
    consumer_stats,
    publisher_stats,
    subscription_stats,
    topic_stats,
)
from magnetar.broker.non_persistent_subscription import NonPersistentSubscription
from magnetar.broker.served import ServedTopic
from magnetar.broker.subscription import Subscription
from magnetar.broker.topic import Topic

# Clients, subscriptions and topics that are looked at before others have their turn.
CLIENTS_PER_SLICE: Final = 30
LEDGERS_PER_SLICE: Final = 500
# The text of one cursor may tell of a thousand holes.
CURSORS_PER_SLICE: Final = 2


async def whole_stats(
    topic: ServedTopic, rates: Rates, asked: StatsAsked, owner: str, now_ms: int, turns: Turns | None = None
) -> dict[str, Any]:
    """With `turns` it is part of a longer walk."""
    turns = turns or Turns(CLIENTS_PER_SLICE)
    subscriptions = ShownSubscriptions()
    found: list[Subscription | NonPersistentSubscription] = [*topic.subscriptions.values()]
    for subscription in found:
        consumers = await _consumers(subscription, rates, turns) if asked.with_consumers else []
        subscriptions.add(subscription.name, subscription_stats(subscription, rates, consumers))
        await turns.after()
    publishers = []
    for producer in list(topic.producers.values()) if asked.with_publishers else ():
        if not producer.is_replicator:
            publishers.append(publisher_stats(producer, rates))
        await turns.after()
    replication = replication_stats(topic, rates, now_ms)
    shown = topic_stats(topic, rates, owner, publishers, subscriptions, replication)
    await turns.after()
    return shown


async def whole_internals(topic: Topic) -> dict[str, Any]:
    ledgers = []
    turns = Turns(LEDGERS_PER_SLICE)
    for span in topic.managed_ledger.ledgers:
        ledgers.append(ledger_internals(span))
        await turns.after()
    cursors = {}
    turns = Turns(CURSORS_PER_SLICE)
    for name, cursor in list(topic.managed_ledger.cursors.items()):
        cursors[name] = cursor_internals(topic, cursor)
        await turns.after()
    return internal_stats(topic, ledgers, cursors, await topic.compaction.ledger())


async def whole_sums(partitions: Iterable[dict[str, Any]]) -> dict[str, Any]:
    sums = PartitionSums()
    turns = Turns(CLIENTS_PER_SLICE)
    for partition in partitions:
        sums.add(partition)
        await turns.after(1 + len(partition["subscriptions"]))
    return sums.result()


async def _consumers(
    subscription: Subscription | NonPersistentSubscription, rates: Rates, turns: Turns
) -> list[dict[str, Any]]:
    keys = KeyRanges(subscription)
    shown = []
    for consumer in list(subscription.consumers):
        shown.append({**consumer_stats(consumer, rates), **keys.of(consumer)})
        await turns.after()
    return shown
