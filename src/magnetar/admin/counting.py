# SPDX-License-Identifier: Apache-2.0
"""Everyone who counts messages, for the rates: topics, producers, subscriptions, consumers.

Carries.
"""

from magnetar.admin.parts import AdminParts
from magnetar.admin.rates import Counted
from magnetar.admin.slices import sliced
from magnetar.broker.served import ServedTopic


async def counted_in(parts: AdminParts) -> list[Counted]:
    counted: list[Counted] = []
    topics: list[ServedTopic] = [*parts.broker.topics.loaded(), *parts.broker.topics.in_memory()]
    async for topic in sliced(topics, parts.settings.slice_items_max):
        counted.append(Counted(topic, topic.messages_in, topic.bytes_in))
        counted += [Counted(each, each.messages_in, each.bytes_in) for each in topic.producers.values()]
        for subscription in topic.subscriptions.values():
            consumers = [Counted(each, each.messages_out, each.bytes_out) for each in subscription.consumers]
            counted.append(Counted(subscription, subscription.messages_out, sum(each.bytes for each in consumers)))
            counted += consumers
    return counted
