# SPDX-License-Identifier: Apache-2.0
"""Everyone who counts messages, for the rates: topics, producers, subscriptions, consumers.

Carries.
"""

from typing import Final

from magnetar.admin.parts import AdminParts
from magnetar.admin.rates import Counted
from magnetar.admin.slices import Turns
from magnetar.broker.non_persistent_subscription import NonPersistentSubscription
from magnetar.broker.served import ServedTopic
from magnetar.broker.subscription import Subscription
from magnetar.broker.topic import Topic

_COUNTED_PER_SLICE: Final = 200


async def counted_in(parts: AdminParts) -> list[Counted]:
    cache = parts.broker.topics.managed_ledgers.cache
    # The entry cache counts too: hits as messages, misses as what was dropped.
    counted = [Counted(cache, cache.hits, cache.evicted_bytes, dropped=cache.misses)]
    loads = parts.broker.topics.loads
    counted.append(Counted(loads, loads.took_ms.count, 0))
    topics: list[ServedTopic] = [*parts.broker.topics.loaded(), *parts.broker.topics.in_memory()]
    turns = Turns(_COUNTED_PER_SLICE)
    for topic in topics:
        before = len(counted)
        counted.append(Counted(topic, topic.messages_in, topic.bytes_in))
        counted += [
            Counted(each, each.messages_in, each.bytes_in, chunks=each.chunks_in) for each in topic.producers.values()
        ]
        for subscription in topic.subscriptions.values():
            consumers = [
                Counted(
                    each,
                    each.messages_out,
                    each.bytes_out,
                    each.messages_redelivered,
                    each.messages_acked,
                    chunks=each.chunks_out,
                )
                for each in subscription.consumers
            ]
            counted.append(_subscription(subscription, consumers))
            counted += consumers
        if isinstance(topic, Topic) and topic.replication is not None:
            counted += [
                Counted(each, each.messages_out, each.bytes_out, expired=each.entries_expired)
                for each in topic.replication.replicators.values()
            ]
        await turns.after(len(counted) - before)
    return counted


def _subscription(subscription: Subscription | NonPersistentSubscription, consumers: list[Counted]) -> Counted:
    redelivered = sum(each.redelivered for each in consumers)
    if not isinstance(subscription, Subscription):
        acked = sum(each.acked for each in consumers)
        dropped = subscription.messages_dropped
        return Counted(
            subscription, subscription.messages_out, subscription.bytes_out, redelivered, acked, dropped=dropped
        )
    return Counted(
        subscription,
        subscription.messages_out,
        subscription.pump.bytes_out,
        redelivered,
        acked_messages(subscription),
        subscription.entries_expired,
        chunks=sum(each.chunks for each in consumers),
    )


def acked_messages(subscription: Subscription) -> int:
    """Messages that are acknowledged, since ever; entries where messages were not counted yet."""
    backlog = subscription.backlog_messages()
    if backlog is not None:
        return subscription.stored_index + 1 - backlog
    return subscription.managed_ledger.ledgers.last_ordinal - subscription.cursor.backlog_entries()
