# SPDX-License-Identifier: Apache-2.0
"""What the topics of this broker have counted, for whoever balances load.

Decides.
"""

from collections.abc import Iterable, Mapping

from magnetar.broker.ownership.bundles import hash_of
from magnetar.broker.ownership.load_data import BundleLoad
from magnetar.broker.ownership.splitting import TopicPlace
from magnetar.broker.ownership.traffic import TopicCounts
from magnetar.broker.served import ServedTopic
from magnetar.broker.topics import Topics
from magnetar.names import TopicName


def topic_counts(topics: Topics) -> list[TopicCounts]:
    served: list[ServedTopic] = [*topics.loaded(), *topics.in_memory()]
    return [_counts(topic) for topic in served]


def places_of(names: Iterable[TopicName], traffic: Mapping[TopicName, BundleLoad]) -> list[TopicPlace]:
    """Where topics lie on their ring, and how much passes through each."""
    nothing = BundleLoad()
    loads = ((name, traffic.get(name, nothing)) for name in names)
    return [TopicPlace(hash_of(name), load.bytes, load.messages) for name, load in loads]


def _counts(topic: ServedTopic) -> TopicCounts:
    subscriptions = topic.subscriptions.values()
    return TopicCounts(
        topic.name,
        topic.messages_in,
        sum(each.messages_out for each in subscriptions),
        topic.bytes_in,
        sum(consumer.bytes_out for each in subscriptions for consumer in each.consumers),
        len(topic.producers),
        sum(len(each.consumers) for each in subscriptions),
    )
