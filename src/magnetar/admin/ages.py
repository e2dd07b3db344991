# SPDX-License-Identifier: Apache-2.0
"""How long the oldest message of a subscription has waited, known without reading at the scrape.

Owns the time of the first unacknowledged entry of each subscription that has a backlog. An entry is read when it became
the first one, at most so many in one round; the others keep what was known of them until their turn.
Carries.
"""

from typing import Final

from magnetar.admin.backlog import earliest_publish_time
from magnetar.admin.slices import sliced
from magnetar.broker.subscription import Subscription
from magnetar.broker.topic import Topic
from magnetar.errors import MagnetarError
from magnetar.ids import Position

READS_PER_ROUND_MAX: Final = 2_000
_TOPICS_PER_SLICE: Final = 100


class Ages:
    __slots__ = ("_known", "_next")

    def __init__(self) -> None:
        # By subscription: which entry was the first, and when it was published.
        self._known: dict[Subscription, tuple[Position, int]] = {}
        self._next = 0

    def published_ms(self, subscription: Subscription) -> int:
        """When the oldest message that waits was published; 0 without a backlog, or before anybody looked."""
        if not subscription.cursor.backlog_entries():
            return 0
        known = self._known.get(subscription)
        return known[1] if known is not None else 0

    async def look(self, topics: list[Topic]) -> None:
        """Begins each time where the last round ended."""
        before, self._known = self._known, {}
        reads = 0
        start = self._next % len(topics) if topics else 0
        self._next = 0
        visited = start
        async for topic in sliced(topics[start:] + topics[:start], _TOPICS_PER_SLICE):
            visited += 1
            for subscription in list(topic.subscriptions.values()):
                if not subscription.cursor.backlog_entries():
                    continue
                first = subscription.cursor.state.first_unacked
                known = before.get(subscription)
                if known is None or known[0] != first:
                    if reads >= READS_PER_ROUND_MAX:
                        self._next = self._next or visited - 1
                    else:
                        reads += 1
                        known = await self._read(subscription, first) or known
                if known is not None:
                    self._known[subscription] = known

    @staticmethod
    async def _read(subscription: Subscription, first: Position) -> tuple[Position, int] | None:
        try:
            published_ms = await earliest_publish_time(subscription)
        except MagnetarError:
            return None
        return (first, published_ms) if published_ms else None
