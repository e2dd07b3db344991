# SPDX-License-Identifier: Apache-2.0
"""Whether anybody uses a topic, and since when nothing keeps it alive.

Only looks; what is done with a topic that nobody uses is for those who ask.
Decides.
"""

from typing import TYPE_CHECKING

from magnetar.broker.policies.values import InactivityMode
from magnetar.errors import TopicBusy

if TYPE_CHECKING:
    from magnetar.broker.topic import Topic


def refuse_when_busy(topic: "Topic") -> None:
    """TopicBusy while clients are connected; what other clusters send does not count."""
    producers = sum(not producer.is_replicator for producer in topic.producers.values())
    consumers = sum(len(subscription.consumers) for subscription in topic.subscriptions.values())
    if producers or consumers:
        raise TopicBusy(f"Topic {topic.name} has {producers} producers and {consumers} consumers")


def inactive_since_ms(topic: "Topic", mode: InactivityMode, now_ms: int) -> int | None:
    """Since when nothing keeps the topic alive; None while something does, as the mode says."""
    is_active = any(not producer.is_replicator for producer in topic.producers.values())
    is_active |= topic.is_closing or bool(topic.answers.waiting)
    if mode is InactivityMode.CAUGHT_UP:
        is_active |= any(
            subscription.consumers or subscription.cursor.backlog_entries()
            for subscription in topic.subscriptions.values()
        )
    else:
        is_active |= bool(topic.subscriptions)
    is_active |= topic.replication is not None and topic.replication.has_backlog
    if is_active:
        topic.active_ms = now_ms
        return None
    return topic.active_ms
