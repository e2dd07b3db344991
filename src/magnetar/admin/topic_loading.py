# SPDX-License-Identifier: Apache-2.0
"""The topic that a request is about, loaded; for a partitioned topic, all its partitions in turn.

Carries.
"""

from collections.abc import AsyncIterator

from magnetar.admin.answers import AdminRefused
from magnetar.admin.parts import AdminParts
from magnetar.admin.slices import sliced
from magnetar.broker.served import ServedTopic
from magnetar.broker.subscription import Subscription
from magnetar.broker.topic import Topic
from magnetar.errors import NotSupported, TopicNotFound
from magnetar.names import TopicName


async def served_topic(parts: AdminParts, name: TopicName) -> ServedTopic:
    """404 when there is none, or when it is a partitioned one: only its partitions are served."""
    topics = parts.broker.topics
    present = topics.find(name) or next((each for each in topics.in_memory() if each.name == name), None)
    if present is not None:
        return present
    if await parts.records.read(name.namespace.policies_path) is None:
        raise AdminRefused(404, "Namespace not found")
    try:
        return await topics.open(name, create=False)
    except (TopicNotFound, NotSupported) as error:
        raise AdminRefused(404, f"Topic {name} not found") from error


async def stored_topic(parts: AdminParts, name: TopicName) -> Topic:
    """405 for a topic that keeps nothing."""
    topic = await served_topic(parts, name)
    if not isinstance(topic, Topic):
        raise AdminRefused(405, f"{name} is not persistent: it has no storage to look at")
    return topic


async def parts_of(parts: AdminParts, name: TopicName) -> AsyncIterator[Topic]:
    """The topic itself, or each partition of a partitioned one."""
    count = 0 if name.is_partition else await parts.broker.namespaces.partitions(name)
    names = [name.partition(index) for index in range(count)] or [name]
    async for each in sliced(names, parts.settings.slice_items_max):
        yield await stored_topic(parts, each)


def subscription_of(topic: Topic, name: str) -> Subscription:
    found = topic.subscriptions.get(name)
    if found is None:
        raise AdminRefused(404, f"Subscription {name} not found for topic {topic.name}")
    return found
