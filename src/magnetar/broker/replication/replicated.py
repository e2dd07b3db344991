# SPDX-License-Identifier: Apache-2.0
"""Which subscriptions are replicated: a mark that is kept with the cursor's position, where Pulsar's brokers look.

Carries.
"""

from typing import TYPE_CHECKING, Final

from magnetar.managed_ledger.cursor import Cursor

if TYPE_CHECKING:
    from magnetar.broker.subscription import Subscription
    from magnetar.broker.topic import Topic

REPLICATED: Final = "pulsar.replicated.subscription"


def is_replicated(cursor: Cursor) -> bool:
    return cursor.is_durable and cursor.properties.get(REPLICATED) == 1


async def mark_replicated(cursor: Cursor, replicated: bool) -> None:
    """Returns when the mark is stored, or is gone."""
    if is_replicated(cursor) is not replicated:
        others = {name: value for name, value in cursor.properties.items() if name != REPLICATED}
        await cursor.set_properties({**others, REPLICATED: 1} if replicated else others)


async def replicate_subscription(topic: "Topic", subscription: "Subscription") -> None:
    """Tell the topic's other clusters how far a subscription is, from now on; one that is not durable stays here."""
    if subscription.cursor.is_durable:
        await mark_replicated(subscription.cursor, True)
        if topic.replication is not None:
            topic.replication.places.watch()
